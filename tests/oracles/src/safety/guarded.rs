//! S10: a write binds itself to the object that was looked at, so that it changes nothing else when it comes late.

use crate::event::{Act, By, Event, Verb};
use crate::object::name;
use crate::oracle::Oracle;
use crate::truth::Truth;

#[derive(Default)]
pub(crate) struct Guarded {
    hits: u64,
}

impl Oracle for Guarded {
    fn id(&self) -> &'static str {
        "S10"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        // Events bear names of their own.
        if !matches!(write.by, By::Manager(_)) || write.resource == "events" {
            return Ok(());
        }
        let bound = match write.verb {
            // A name is taken once; the uid of what comes to be is the server's.
            Verb::Create => return Ok(()),
            Verb::Delete => write.names_uid,
            Verb::Update | Verb::Patch => write.names_uid || write.names_version,
        };
        self.hits += 1;
        match bound {
            true => Ok(()),
            false => Err(format!(
                "{:?} of {}/{} names neither uid nor version",
                write.verb,
                write.resource,
                write.object().map_or("?", |object| name(object))
            )),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
