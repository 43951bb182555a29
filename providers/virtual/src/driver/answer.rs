//! The cloud's records in the words of the Driver API. Decides nothing but when a question is worth repeating.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use millwright_provider_sdk::{
    AddressType, CapacityType, Machine, MachineKey, MachineState, MachineStatus, NodeAddress, NodeTemplate, Price,
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
pub(super) fn status(vm: &Vm, key: MachineKey, now: Timestamp) -> MachineStatus {
    let changes_at = match vm.phase(now) {
        // A lookup that lags shows the boot no sooner than the VM itself.
        Phase::Creating => Some(vm.running_at.max(vm.visible_at)),
        Phase::Deleting => vm.deletion.map(|deletion| deletion.gone_at),
        Phase::Running | Phase::Stopped => None,
    };
    let mut status = MachineStatus::from(machine(vm, key, now));
    status.poll_after = changes_at.map(|at| clock::until(at, now).max(MIN_POLL));
    status
}

pub(super) fn machine(vm: &Vm, key: MachineKey, now: Timestamp) -> Machine {
    let phase = vm.phase(now);
    let address = |kind, address: String| NodeAddress { kind, address };
    let mut machine = Machine::new(key, vm.provider_id(), state(phase));
    machine.node_name = vm.node_name();
    machine.state_reason = phase.word().to_owned();
    machine.addresses = vec![
        address(AddressType::Hostname, vm.node_name()),
        address(AddressType::InternalIp, vm.address.to_string()),
    ];
    machine.machine_class.clone_from(&vm.machine_class);
    machine.spec_digest.clone_from(&vm.spec_digest);
    machine.create_time = Some(vm.accepted_at);
    machine.region.clone_from(&vm.region);
    machine.zone.clone_from(&vm.zone);
    machine.instance_type.clone_from(&vm.instance_type);
    machine.capacity_type = Some(CapacityType::OnDemand);
    machine
}

/// A VM of which nothing is left, as a watch tells of it.
pub(super) fn gone(vm: &Vm, key: MachineKey) -> Machine {
    Machine::new(key, vm.provider_id(), MachineState::Deleted)
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
    let mut template = NodeTemplate::default();
    template.capacity = named(size.capacity());
    template.allocatable = named(size.allocatable());
    template.labels = labels::of_place(&spec.region, &spec.zone, &spec.instance_type);
    template.instance_type.clone_from(&spec.instance_type);
    template.region.clone_from(&spec.region);
    template.zone.clone_from(&spec.zone);
    labels::ARCHITECTURE.clone_into(&mut template.architecture);
    labels::OPERATING_SYSTEM.clone_into(&mut template.operating_system);
    template.capacity_type = Some(CapacityType::OnDemand);
    template.hourly_price = Some(Price {
        currency_code: "USD".to_owned(),
        micros: size.price_micros,
    });
    template
}
