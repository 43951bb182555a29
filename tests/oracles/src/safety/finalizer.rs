//! S2: our finalizer leaves a Machine only when nothing of its VM is left and none can still come; and no VM is asked for
//! before the finalizer is there, because nothing would hold a Machine whose VM nobody would find.

use std::collections::BTreeSet;

use crate::event::{Act, By, Call, Event, Method, Write};
use crate::object::{FINALIZER, has_finalizer, name, uid};
use crate::oracle::Oracle;
use crate::truth::{Truth, by_uid};

#[derive(Default)]
pub(crate) struct Proof {
    /// The uids of Machines that ever bore our finalizer: somebody may have taken it away by force since.
    held: BTreeSet<String>,
    hits: u64,
}

impl Oracle for Proof {
    fn id(&self) -> &'static str {
        "S2"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Write(write) if write.resource == "machines" && write.accepted => self.written(write, truth),
            Act::Call(call) if call.method == Method::CreateMachine => self.called(call, truth),
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

impl Proof {
    fn written(&mut self, write: &Write, truth: &dyn Truth) -> Result<(), String> {
        let is_held = write
            .after
            .as_ref()
            .is_some_and(|after| has_finalizer(after, FINALIZER));
        if let Some(after) = write.after.as_ref().filter(|_| is_held) {
            self.held.insert(uid(after).to_owned());
        }
        let (By::Manager(_), Some(before)) = (write.by, &write.before) else {
            return Ok(());
        };
        if !has_finalizer(before, FINALIZER) || is_held {
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

    fn called(&mut self, call: &Call, truth: &dyn Truth) -> Result<(), String> {
        self.hits += 1;
        // What was there before the record began is judged as it stands.
        let stands = by_uid(truth, "machines", &call.uid);
        match self.held.contains(&call.uid) || stands.is_some_and(|machine| has_finalizer(&machine, FINALIZER)) {
            true => Ok(()),
            false => Err(format!(
                "a VM was asked for the machine of uid {}, which our finalizer never held",
                call.uid
            )),
        }
    }
}
