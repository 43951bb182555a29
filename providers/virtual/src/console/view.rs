//! A VM as the console shows it, the same from a living process and from a state file.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use jiff::Timestamp;
use serde::Serialize;

use super::v1;
use crate::{
    clock,
    cloud::{Entry, LedgerError, Vm, read_state},
};

/// A VM, for people and for programs that read JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    missing_docs,
    reason = "the fields are those of millwright.cloud.v1.Vm and explained there"
)]
pub struct VmView {
    pub id: String,
    pub provider_id: String,
    pub state: String,
    pub cluster: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub machine_class: String,
    pub spec_digest: String,
    pub tags: BTreeMap<String, String>,
    pub region: String,
    pub zone: String,
    pub instance_type: String,
    pub address: String,
    pub accepted_at: Timestamp,
    pub running_at: Timestamp,
    pub node_registered: bool,
}

impl From<&Vm> for VmView {
    fn from(vm: &Vm) -> Self {
        let owner = vm.owner.clone();
        Self {
            id: vm.id.to_string(),
            provider_id: vm.provider_id(),
            state: vm.phase(clock::now()).word().to_owned(),
            cluster: owner.cluster,
            namespace: owner.namespace,
            name: owner.name,
            uid: owner.uid,
            machine_class: vm.machine_class.clone(),
            spec_digest: vm.spec_digest.clone(),
            tags: vm.tags.clone(),
            region: vm.region.clone(),
            zone: vm.zone.clone(),
            instance_type: vm.instance_type.clone(),
            address: vm.address.to_string(),
            accepted_at: vm.accepted_at,
            running_at: vm.running_at,
            node_registered: vm.node_registered,
        }
    }
}

impl From<VmView> for v1::Vm {
    fn from(vm: VmView) -> Self {
        Self {
            id: vm.id,
            provider_id: vm.provider_id,
            state: vm.state,
            cluster: vm.cluster,
            namespace: vm.namespace,
            name: vm.name,
            uid: vm.uid,
            machine_class: vm.machine_class,
            spec_digest: vm.spec_digest,
            tags: vm.tags,
            region: vm.region,
            zone: vm.zone,
            instance_type: vm.instance_type,
            address: vm.address,
            accepted_at: Some(wire_time(vm.accepted_at)),
            running_at: Some(wire_time(vm.running_at)),
            node_registered: vm.node_registered,
        }
    }
}

impl From<v1::Vm> for VmView {
    fn from(vm: v1::Vm) -> Self {
        Self {
            id: vm.id,
            provider_id: vm.provider_id,
            state: vm.state,
            cluster: vm.cluster,
            namespace: vm.namespace,
            name: vm.name,
            uid: vm.uid,
            machine_class: vm.machine_class,
            spec_digest: vm.spec_digest,
            tags: vm.tags,
            region: vm.region,
            zone: vm.zone,
            instance_type: vm.instance_type,
            address: vm.address,
            accepted_at: time(vm.accepted_at),
            running_at: time(vm.running_at),
            node_registered: vm.node_registered,
        }
    }
}

/// Time as protobuf has it.
pub(super) fn wire_time(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}

/// Time from protobuf; the epoch if it is absent or out of range, which no cloud of ours sends.
pub(super) fn time(at: Option<prost_types::Timestamp>) -> Timestamp {
    at.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok())
        .unwrap_or_default()
}

/// A whole cloud: its VMs and its journal.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// VMs that exist.
    pub vms: Vec<VmView>,
    /// All that happened.
    pub journal: Vec<Entry>,
}

/// Reads a state file that no process has open.
pub fn listing(state: &Path) -> Result<Listing, LedgerError> {
    let (vms, journal) = read_state(state)?;
    let vms: Vec<Arc<Vm>> = vms;
    Ok(Listing {
        vms: vms.iter().map(|vm| VmView::from(vm.as_ref())).collect(),
        journal,
    })
}
