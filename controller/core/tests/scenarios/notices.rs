//! What the provider does to VMs by itself, and what it tells of them unasked.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use millwright_core::api::CreationRequest;
use millwright_core::driver::{Disturbance, VmState};
use millwright_core::ids::{Name, ProviderId};
use millwright_core::notice::Notice;
use millwright_core::orphans::Way;

use crate::stage::Stage;

impl Stage {
    /// Something befalls a VM.
    pub fn change_vm(&mut self, machine: &str, how: &str) -> Option<()> {
        let (state, disturbance) = match how {
            "running" => (VmState::Running, None),
            "stopped" => (VmState::Stopped, None),
            "reclaimed" => (VmState::Running, Some(Disturbance::Reclaim)),
            "doubtful" => (VmState::Running, Some(Disturbance::Advice)),
            _ => return None,
        };
        let mut vms = self.cloud.vms.values_mut();
        let vm = vms.find(|vm| vm.machine.as_str() == machine)?;
        (vm.state, vm.disturbance) = (state, disturbance);
        Some(())
    }

    /// The provider takes the VM back, and has said when.
    pub fn end_vm_in(&mut self, machine: &str, seconds: &str) -> Option<()> {
        self.change_vm(machine, "reclaimed")?;
        let at = self.now() + SignedDuration::from_secs(seconds.parse().ok()?);
        let mut vms = self.cloud.vms.values_mut();
        vms.find(|vm| vm.machine.as_str() == machine)?.ends_at = Some(at);
        Some(())
    }

    /// The provider tells what became of a Machine's VM.
    pub fn tell_of(&mut self, machine: &str) -> Option<()> {
        let known = self.world.machines.get(&Name::new(machine))?;
        let (name, uid) = millwright_core::api::meta::identity(&known.metadata);
        let vm = self.cloud.vms.get(&uid);
        let notice = Notice {
            namespace: millwright_core::api::meta::namespace(&known.metadata).to_owned(),
            name: Some(name),
            provider_id: Some(ProviderId::new(format!("virtual:///{uid}"))),
            uid: Some(uid),
            state: vm.map_or(VmState::Deleted, |vm| vm.state),
            disturbance: vm.and_then(|vm| vm.disturbance),
        };
        let at = (self.now(), self.uptime);
        self.world.noticed(&notice, at);
        Some(())
    }

    /// A watch begins, and all VMs that a class reaches were shown.
    pub fn show_all(&mut self, class: &str) {
        let ids = self
            .cloud
            .vms
            .keys()
            .map(|uid| ProviderId::new(format!("virtual:///{uid}")));
        let ids: BTreeSet<ProviderId> = ids.collect();
        let at = (self.now(), self.uptime);
        let ways = self.ways(class);
        self.world.all_noticed(&ways, &ids, at);
    }

    /// A listing shows all VMs that a class reaches.
    pub fn list_all(&mut self, class: &str) {
        let ids = self
            .cloud
            .vms
            .keys()
            .map(|uid| ProviderId::new(format!("virtual:///{uid}")));
        let (ids, at) = (ids.collect(), (self.now(), self.uptime));
        let ways = self.ways(class);
        self.world.all_listed(&ways, &ids, at);
    }

    fn ways(&self, class: &str) -> Vec<Way> {
        let class = Name::new(class);
        let request = self
            .world
            .classes
            .get(&class)
            .map(|known| CreationRequest::of(known, None));
        let request = request.unwrap_or_default();
        vec![Way { class, request }]
    }
}
