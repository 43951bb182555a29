//! What this process ordered and lookups need not show yet.
//!
//! A memory of moments: an entry is dropped once the cloud must show its VM, and a restart loses all of them (the
//! driver then waits instead, see `driver.rs`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use jiff::Timestamp;

use crate::cloud::{Vm, VmId};

#[derive(Default)]
pub(super) struct Recent {
    by_id: Mutex<HashMap<VmId, Arc<Vm>>>,
}

impl Recent {
    /// Remembers an accepted VM until lookups must show it.
    pub(super) fn note(&self, vm: &Arc<Vm>, now: Timestamp) {
        let mut known = self.lock();
        known.retain(|_, vm| !vm.is_visible(now));
        if !vm.is_visible(now) {
            known.insert(vm.id.clone(), Arc::clone(vm));
        }
    }

    pub(super) fn forget(&self, vm: &Vm) {
        self.lock().remove(&vm.id);
    }

    pub(super) fn by_uid(&self, region: &str, cluster: &str, uid: &str, now: Timestamp) -> Option<Arc<Vm>> {
        let is_it = |vm: &&Arc<Vm>| vm.region == region && vm.owner.cluster == cluster && vm.owner.uid == uid;
        self.lock()
            .values()
            .filter(is_it)
            .find(|vm| !vm.is_visible(now))
            .cloned()
    }

    pub(super) fn by_id(&self, region: &str, id: &VmId, now: Timestamp) -> Option<Arc<Vm>> {
        self.lock()
            .values()
            .find(|vm| vm.region == region && vm.id == *id && !vm.is_visible(now))
            .cloned()
    }

    pub(super) fn by_name(&self, region: &str, cluster: &str, name: &str, now: Timestamp) -> Vec<Arc<Vm>> {
        let known = self.lock();
        let named = known
            .values()
            .filter(|vm| vm.region == region && vm.owner.cluster == cluster && vm.owner.name == name);
        named.filter(|vm| !vm.is_visible(now)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VmId, Arc<Vm>>> {
        self.by_id.lock().expect("no holder of this lock panics")
    }
}
