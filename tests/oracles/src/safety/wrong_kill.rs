//! S3: a VM is removed only if its Machine is to be deleted, or exists no more.

use crate::event::{Act, By, Event, VmChange};
use crate::object::{is_deleting, name};
use crate::panel::Oracle;
use crate::truth::{Truth, by_uid};

#[derive(Default)]
pub(crate) struct WrongKill {
    hits: u64,
}

impl Oracle for WrongKill {
    fn id(&self) -> &'static str {
        "S3"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Vm {
            by: By::Manager(_),
            change: VmChange::Leaving { uid, id },
        } = &event.act
        else {
            return Ok(());
        };
        self.hits += 1;
        match by_uid(truth, "machines", uid) {
            Some(machine) if !is_deleting(&machine) => Err(format!(
                "VM {id} was removed, but nobody deleted its machine {}",
                name(&machine)
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
