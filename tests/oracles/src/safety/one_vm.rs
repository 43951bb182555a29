//! S1: a Machine has one VM at most, at every instant.

use std::collections::BTreeSet;

use crate::event::{Act, Event, VmChange};
use crate::oracle::Oracle;
use crate::truth::Truth;

#[derive(Default)]
pub(crate) struct OneVm {
    hits: u64,
}

impl Oracle for OneVm {
    fn id(&self) -> &'static str {
        "S1"
    }

    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String> {
        let Act::Vm {
            change: VmChange::Accepted { uid, .. },
            ..
        } = &event.act
        else {
            return Ok(());
        };
        self.hits += 1;
        let vms = truth.vms();
        let ids: BTreeSet<&str> = vms
            .iter()
            .filter(|vm| vm.uid == *uid)
            .map(|vm| vm.id.as_str())
            .collect();
        match ids.len() {
            0 | 1 => Ok(()),
            count => Err(format!("the machine of uid {uid} has {count} VMs: {ids:?}")),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
