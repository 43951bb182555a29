//! S15: a manager that starts on a converged world changes nothing.

use crate::event::{Act, By, Event};
use crate::object::name;
use crate::oracle::Oracle;
use crate::truth::Truth;

#[derive(Default)]
pub(crate) struct Restart {
    resting: bool,
    hits: u64,
}

impl Oracle for Restart {
    fn id(&self) -> &'static str {
        "S15"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Rest => self.resting = true,
            Act::Unrest => self.resting = false,
            Act::Started(By::Manager(_)) if self.resting => self.hits += 1,
            Act::Write(write) if self.resting && is_change(&write.resource) && matches!(write.by, By::Manager(_)) => {
                return Err(format!(
                    "a restart on a converged world wrote {}/{} ({:?})",
                    write.resource,
                    write.object().map_or("?", |object| name(object)),
                    write.verb
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

/// The lease changes hands at a restart, and an event may say so.
fn is_change(resource: &str) -> bool {
    !matches!(resource, "leases" | "events")
}
