//! The cloud's records in the words of the Driver API. Decides nothing but when a question is worth repeating.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use millwright_provider_sdk::{
    AddressType, CapacityType, FieldViolation, Machine, MachineKey, MachineState, MachineStatus, NodeAddress,
    NodeTemplate, Price, Violation,
};

use crate::{
    clock,
    cloud::{Phase, Vm},
    labels,
    size::Size,
    spec::Spec,
};

/// Asking sooner than this finds nothing new.
pub(super) const MIN_POLL: Duration = Duration::from_millis(100);

/// The VM, and when its state will have changed.
pub(super) fn status(vm: &Vm, now: Timestamp) -> MachineStatus {
    let changes_at = match vm.phase(now) {
        // A lookup that lags shows the boot no sooner than the VM itself.
        Phase::Creating => Some(vm.running_at.max(vm.visible_at)),
        Phase::Deleting => vm.deletion.map(|deletion| deletion.gone_at),
        Phase::Running | Phase::Stopped => None,
    };
    let poll_after = changes_at.map(|at| clock::until(at, now).max(MIN_POLL));
    MachineStatus {
        machine: machine(vm, now),
        poll_after,
    }
}

pub(super) fn machine(vm: &Vm, now: Timestamp) -> Machine {
    let phase = vm.phase(now);
    let address = |kind, address: String| NodeAddress { kind, address };
    Machine {
        node_name: vm.node_name().to_owned(),
        state_reason: phase.word().to_owned(),
        addresses: vec![
            address(AddressType::Hostname, vm.node_name().to_owned()),
            address(AddressType::InternalIp, vm.address.to_string()),
        ],
        machine_class: vm.machine_class.clone(),
        spec_digest: vm.spec_digest.clone(),
        create_time: Some(vm.accepted_at),
        region: vm.region.clone(),
        zone: vm.zone.clone(),
        instance_type: vm.instance_type.clone(),
        capacity_type: Some(CapacityType::OnDemand),
        ..Machine::new(key(vm), vm.provider_id(), state(phase))
    }
}

/// A VM of which nothing is left, as a watch tells of it.
pub(super) fn gone(vm: &Vm) -> Machine {
    Machine::new(key(vm), vm.provider_id(), MachineState::Deleted)
}

fn key(vm: &Vm) -> MachineKey {
    let owner = vm.owner.clone();
    MachineKey {
        cluster_id: owner.cluster,
        namespace: owner.namespace,
        name: owner.name,
        uid: owner.uid,
    }
}

fn state(phase: Phase) -> MachineState {
    match phase {
        Phase::Creating => MachineState::Creating,
        Phase::Running => MachineState::Running,
        Phase::Stopped => MachineState::Stopped,
        Phase::Deleting => MachineState::Deleting,
    }
}

pub(super) fn template(spec: &Spec, size: &Size) -> NodeTemplate {
    let named = |resources: crate::size::Resources| -> BTreeMap<_, _> {
        resources
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), amount))
            .collect()
    };
    NodeTemplate {
        capacity: named(size.capacity()),
        allocatable: named(size.allocatable()),
        labels: labels::of_place(&spec.region, &spec.zone, &spec.instance_type),
        instance_type: spec.instance_type.clone(),
        region: spec.region.clone(),
        zone: spec.zone.clone(),
        architecture: labels::ARCHITECTURE.to_owned(),
        operating_system: labels::OPERATING_SYSTEM.to_owned(),
        capacity_type: Some(CapacityType::OnDemand),
        hourly_price: Some(Price {
            currency_code: "USD".to_owned(),
            micros: size.price_micros,
        }),
        ttl: None,
    }
}

/// A fault of the class as a field of the request.
pub(super) fn field_violation(fault: Violation) -> FieldViolation {
    let path = fault.field.replace('/', ".").replace("~1", "/").replace("~0", "~");
    FieldViolation::new(format!("machine_class.provider_spec{path}"), fault.description)
}
