//! S2: our finalizer leaves a Machine only when nothing of its VM is left and none can still come.

use crate::event::{Act, By, Event};
use crate::object::{FINALIZER, has_finalizer, name, uid};
use crate::panel::Oracle;
use crate::truth::Truth;

#[derive(Default)]
pub(crate) struct Proof {
    hits: u64,
}

impl Oracle for Proof {
    fn id(&self) -> &'static str {
        "S2"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        let (By::Manager(_), "machines", Some(before)) = (write.by, write.resource.as_str(), &write.before) else {
            return Ok(());
        };
        let kept = write
            .after
            .as_ref()
            .is_some_and(|after| has_finalizer(after, FINALIZER));
        if !write.accepted || !has_finalizer(before, FINALIZER) || kept {
            return Ok(());
        }
        self.hits += 1;
        let of = uid(before);
        if let Some(vm) = truth.vms().into_iter().find(|vm| vm.uid == of) {
            return Err(format!(
                "machine {} was released while its VM {} lives",
                name(before),
                vm.id
            ));
        }
        if truth.may_appear(of) {
            return Err(format!(
                "machine {} was released while a creation is under way",
                name(before)
            ));
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
