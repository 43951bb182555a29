//! Whose a VM is: by its own tags, or by the marks that an older controller has left on it (GEN-5).

use std::collections::BTreeMap;

use millwright_provider_sdk::{MachineClass, MachineKey};

use crate::cloud::Vm;

/// The VMs of one cluster, as one call is told of them.
#[derive(Clone)]
pub(super) struct Ownership {
    cluster: String,
    /// The namespace that VMs with older marks have in answers: they have none of their own (GEN-6).
    namespace: String,
    marks: BTreeMap<String, String>,
}

impl Ownership {
    /// In a call about one Machine.
    pub(super) fn of_machine(key: &MachineKey, class: &MachineClass) -> Self {
        Self {
            cluster: key.cluster_id.clone(),
            namespace: key.namespace.clone(),
            marks: class.legacy_marks.clone(),
        }
    }

    /// In a call about all VMs of a cluster. VMs with older marks have no namespace there, so that no manager takes them for its orphans.
    pub(super) fn of_cluster(cluster_id: &str, class: &MachineClass) -> Self {
        Self {
            cluster: cluster_id.to_owned(),
            namespace: String::new(),
            marks: class.legacy_marks.clone(),
        }
    }

    /// Whether the VM is the cluster's.
    pub(super) fn holds(&self, vm: &Vm) -> bool {
        vm.owner.cluster == self.cluster || self.is_marked(vm)
    }

    /// Whether an older controller made the VM for this Machine.
    pub(super) fn is_older_vm_of(&self, vm: &Vm, key: &MachineKey) -> bool {
        let is_own = vm.owner.cluster == self.cluster && vm.owner.namespace == key.namespace;
        vm.owner.uid.is_empty() && vm.owner.name == key.name && (is_own || self.is_marked(vm))
    }

    /// The VM's key in answers of the call.
    pub(super) fn key(&self, vm: &Vm) -> MachineKey {
        if self.is_marked(vm) {
            return MachineKey {
                cluster_id: self.cluster.clone(),
                namespace: self.namespace.clone(),
                ..key_of(vm)
            };
        }
        key_of(vm)
    }

    /// Whether the VM bears all older marks and none of ours.
    fn is_marked(&self, vm: &Vm) -> bool {
        let bears_ours = !vm.owner.cluster.is_empty() || !vm.owner.uid.is_empty();
        let mut marks = self.marks.iter();
        !bears_ours && !self.marks.is_empty() && marks.all(|(key, value)| vm.tags.get(key) == Some(value))
    }
}

/// The VM's key as its own tags say it.
pub(super) fn key_of(vm: &Vm) -> MachineKey {
    let owner = vm.owner.clone();
    MachineKey {
        cluster_id: owner.cluster,
        namespace: owner.namespace,
        name: owner.name,
        uid: owner.uid,
    }
}
