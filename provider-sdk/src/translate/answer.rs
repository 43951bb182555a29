//! The author's answers for the wire, checked against what the contract promises to the manager.

use std::time::Duration;

use jiff::Timestamp;
use millwright_proto::v1;
use prost::Message as _;
use serde_json::Value;

use super::json::{wire_fields, wire_object};
use crate::error::DriverError;
use crate::page::Seal;
use crate::reason::Outcome;
use crate::status::cut;
use crate::types::{
    AddressType, Capability, CapacityType, Change, ClassReport, ClassSchema, Deletion, DriverInfo, Initialization,
    InterruptionKind, Machine, MachineKey, MachinePage, MachineState, MachineStatus, NODE_NAME_MAX, NodeTemplate,
    Severity, WatchEvent,
};
use crate::validate::{LAST_KNOWN_STATE_MAX, LOCATOR_MAX, TOKEN_MAX, is_dns_subdomain};

const MESSAGE_MAX: usize = 1024;
const STRING_MAX: usize = 256;
const PROVIDER_ID_MAX: usize = 512;
/// The contract's limit for a message.
const PAGE_MAX: usize = 4 * 1024 * 1024;
const UNREACHABLE_MAX: usize = 32;
const VIOLATIONS_MAX: usize = 64;

pub(crate) fn driver_info(info: DriverInfo) -> v1::GetDriverInfoResponse {
    let mut manifest = info.manifest;
    manifest.insert(
        "sdk".to_owned(),
        concat!("millwright-provider-sdk ", env!("CARGO_PKG_VERSION")).to_owned(),
    );
    v1::GetDriverInfoResponse {
        name: info.name,
        vendor_version: info.vendor_version,
        capabilities: info
            .capabilities
            .into_iter()
            .map(|it| i32::from(capability(it)))
            .collect(),
        call_advice: info
            .call_advice
            .into_iter()
            .map(|advice| v1::CallAdvice {
                method: advice.method,
                timeout: advice.timeout.and_then(duration),
                max_in_flight: advice.max_in_flight.map(i32::from),
                max_calls_per_second: advice.max_calls_per_second,
            })
            .collect(),
        propagation_delay: duration(info.propagation_delay),
        manifest,
    }
}

fn capability(capability: Capability) -> v1::Capability {
    match capability {
        Capability::InitializeMachine => v1::Capability::InitializeMachine,
        Capability::WatchMachines => v1::Capability::WatchMachines,
        Capability::MachineClassSchema => v1::Capability::MachineClassSchema,
        Capability::ValidateMachineClass => v1::Capability::ValidateMachineClass,
        Capability::NodeTemplate => v1::Capability::NodeTemplate,
        Capability::Interruptions => v1::Capability::Interruptions,
    }
}

/// The answer to CreateMachine.
pub(crate) fn created(answer: MachineStatus, key: &MachineKey) -> Result<v1::CreateMachineResponse, DriverError> {
    own(&answer.machine, key)?;
    Ok(v1::CreateMachineResponse {
        machine: Some(machine(answer.machine)),
        poll_after: answer.poll_after.and_then(duration),
    })
}

/// The answer to InitializeMachine.
pub(crate) fn initialized(answer: Machine, key: &MachineKey) -> Result<v1::InitializeMachineResponse, DriverError> {
    own(&answer, key)?;
    Ok(v1::InitializeMachineResponse {
        machine: Some(machine(answer)),
    })
}

/// The answer to GetMachineStatus. The VM of the id that was asked for may bear another uid, of a Machine of the same name: the Machine was
/// restored from a backup.
pub(crate) fn status(
    answer: MachineStatus,
    key: &MachineKey,
    provider_id: &str,
) -> Result<v1::GetMachineStatusResponse, DriverError> {
    let found = &answer.machine;
    let is_restored =
        key.may_be_restored_from(&found.key) && !provider_id.is_empty() && found.provider_id == provider_id;
    own(found, if is_restored { &found.key } else { key })?;
    Ok(v1::GetMachineStatusResponse {
        machine: Some(machine(answer.machine)),
        poll_after: answer.poll_after.and_then(duration),
    })
}

/// A VM that is answered for a Machine must be that Machine's: the manager would take the id for its own.
fn own(machine: &Machine, key: &MachineKey) -> Result<(), DriverError> {
    if machine.state == MachineState::Deleted {
        return Err(fault(
            "answered a VM that is Deleted where only MachineNotFound or a VM is allowed",
        ));
    }
    let of_another = !machine.key.uid.is_empty() && machine.key.uid != key.uid;
    if of_another || machine.key.cluster_id != key.cluster_id {
        return Err(fault("answered a VM of another uid or cluster"));
    }
    // Without a uid only the name says whose the VM is.
    if machine.key.uid.is_empty() && machine.key.name != key.name {
        return Err(fault("answered a VM of another name that bears no uid"));
    }
    // Only here: in a list one VM with lost tags must not hide all others.
    if machine.node_name.is_empty() && machine.state == MachineState::Running {
        return Err(fault("answered a Running VM without node_name"));
    }
    if machine.provider_id.is_empty() && machine.state != MachineState::Creating {
        return Err(fault("answered a VM without provider_id that is past Creating"));
    }
    match faults_of(machine).first() {
        Some(breach) => Err(fault(&format!("answered {breach}"))),
        None => Ok(()),
    }
}

/// Which fields of the VM the manager could not use (GEN-37, GEN-45, GEN-46).
fn faults_of(machine: &Machine) -> Vec<&'static str> {
    let checks = [
        (
            machine.provider_id.len() > PROVIDER_ID_MAX,
            "a provider_id of more than 512 bytes",
        ),
        (
            machine.provider_id.chars().any(char::is_control),
            "a provider_id with control characters",
        ),
        (
            !machine.node_name.is_empty() && !is_node_name(&machine.node_name),
            "a node_name that is no DNS-1123 subdomain of up to 63 bytes",
        ),
        (
            machine.last_known_state.len() > LAST_KNOWN_STATE_MAX,
            "a last_known_state of more than 4 KiB",
        ),
    ];
    checks
        .into_iter()
        .filter(|(is_broken, _)| *is_broken)
        .map(|(_, breach)| breach)
        .collect()
}

/// The VM among others: one that is odd must not hide the rest, so it is shown without what is wrong with it.
fn shown(mut vm: Machine) -> v1::Machine {
    let faults = faults_of(&vm);
    if !faults.is_empty() {
        tracing::error!(
            uid = vm.key.uid,
            name = vm.key.name,
            ?faults,
            "the driver showed a VM with faulty fields; they are left out"
        );
        let is_id = !vm.provider_id.chars().any(char::is_control) && vm.provider_id.len() <= PROVIDER_ID_MAX;
        if !is_id {
            vm.provider_id.clear();
        }
        if !is_node_name(&vm.node_name) {
            vm.node_name.clear();
        }
        if vm.last_known_state.len() > LAST_KNOWN_STATE_MAX {
            vm.last_known_state.clear();
        }
    }
    machine(vm)
}

fn is_node_name(name: &str) -> bool {
    name.len() <= NODE_NAME_MAX && is_dns_subdomain(name)
}

fn machine(machine: Machine) -> v1::Machine {
    v1::Machine {
        key: Some(v1::MachineKey {
            cluster_id: machine.key.cluster_id,
            namespace: machine.key.namespace,
            name: machine.key.name,
            uid: machine.key.uid,
        }),
        provider_id: machine.provider_id,
        node_name: machine.node_name,
        state: state(machine.state).into(),
        state_reason: cut(&machine.state_reason, STRING_MAX).to_owned(),
        state_message: cut(&machine.state_message, MESSAGE_MAX).to_owned(),
        initialization: match machine.initialization {
            Initialization::NotNeeded => v1::machine::Initialization::Unspecified,
            Initialization::Pending => v1::machine::Initialization::Pending,
            Initialization::Done => v1::machine::Initialization::Done,
        }
        .into(),
        addresses: machine
            .addresses
            .into_iter()
            .map(|it| v1::NodeAddress {
                r#type: address_type(it.kind).into(),
                address: it.address,
            })
            .collect(),
        machine_class: machine.machine_class,
        spec_digest: machine.spec_digest,
        create_time: machine.create_time.map(timestamp),
        region: machine.region,
        zone: machine.zone,
        instance_type: machine.instance_type,
        capacity_type: capacity_type(machine.capacity_type).into(),
        interruption: machine.interruption.map(|it| v1::Interruption {
            kind: match it.kind {
                InterruptionKind::Reclaim => v1::interruption::Kind::Reclaim,
                InterruptionKind::Maintenance => v1::interruption::Kind::Maintenance,
                InterruptionKind::Advisory => v1::interruption::Kind::Advisory,
            }
            .into(),
            effective_time: it.effective_time.map(timestamp),
            message: cut(&it.message, STRING_MAX).to_owned(),
        }),
        last_known_state: machine.last_known_state,
    }
}

fn state(state: MachineState) -> v1::machine::State {
    match state {
        MachineState::Creating => v1::machine::State::Creating,
        MachineState::Running => v1::machine::State::Running,
        MachineState::Stopped => v1::machine::State::Stopped,
        MachineState::Deleting => v1::machine::State::Deleting,
        MachineState::Deleted => v1::machine::State::Deleted,
        MachineState::Failed => v1::machine::State::Failed,
    }
}

fn address_type(kind: AddressType) -> v1::node_address::Type {
    match kind {
        AddressType::Hostname => v1::node_address::Type::Hostname,
        AddressType::InternalIp => v1::node_address::Type::InternalIp,
        AddressType::ExternalIp => v1::node_address::Type::ExternalIp,
        AddressType::InternalDns => v1::node_address::Type::InternalDns,
        AddressType::ExternalDns => v1::node_address::Type::ExternalDns,
    }
}

fn capacity_type(kind: Option<CapacityType>) -> v1::CapacityType {
    match kind {
        None => v1::CapacityType::Unspecified,
        Some(CapacityType::OnDemand) => v1::CapacityType::OnDemand,
        Some(CapacityType::Spot) => v1::CapacityType::Spot,
        Some(CapacityType::Reserved) => v1::CapacityType::Reserved,
    }
}

/// The answer to DeleteMachine.
pub(crate) fn deletion(answer: Deletion) -> Result<v1::DeleteMachineResponse, DriverError> {
    match answer {
        Deletion::Deleted => Ok(v1::DeleteMachineResponse {
            state: v1::machine::State::Deleted.into(),
            ..Default::default()
        }),
        Deletion::Deleting { last_known_state, .. } if last_known_state.len() > LAST_KNOWN_STATE_MAX => {
            Err(fault("answered a last_known_state of more than 4 KiB"))
        }
        Deletion::Deleting {
            poll_after,
            last_known_state,
        } => Ok(v1::DeleteMachineResponse {
            state: v1::machine::State::Deleting.into(),
            last_known_state,
            poll_after: poll_after.and_then(duration),
        }),
    }
}

/// The answer to DeleteMachine where nothing is left, and where for this time something may still appear.
pub(crate) fn not_deleted_yet(answer: v1::DeleteMachineResponse, left: Duration) -> v1::DeleteMachineResponse {
    if answer.state() != v1::machine::State::Deleted {
        return answer;
    }
    v1::DeleteMachineResponse {
        state: v1::machine::State::Deleting.into(),
        poll_after: duration(left),
        ..answer
    }
}

/// The answer to ListMachines. A VM of another cluster is left out, for the manager deletes what it takes for orphans.
pub(crate) fn page(
    answer: MachinePage,
    seal: &Seal,
    cluster_id: &str,
    page_size: usize,
) -> Result<v1::ListMachinesResponse, DriverError> {
    if answer.machines.len() > page_size {
        return Err(fault("answered a page longer than page_size"));
    }
    let next_page_token = seal.close(&answer.next_cursor);
    if next_page_token.len() > TOKEN_MAX {
        return Err(fault(
            "answered a next_cursor that makes a page token of more than 4 KiB",
        ));
    }
    let (own, foreign): (Vec<Machine>, Vec<Machine>) = answer
        .machines
        .into_iter()
        .partition(|machine| machine.key.cluster_id == cluster_id);
    if !foreign.is_empty() {
        tracing::error!(
            count = foreign.len(),
            cluster_id,
            "the driver listed VMs of another cluster; left out"
        );
    }
    let undated = own.iter().filter(|machine| machine.create_time.is_none()).count();
    if undated > 0 {
        tracing::warn!(
            count = undated,
            "the driver listed VMs without create_time: none of them is ever taken for an orphan"
        );
    }
    let alive = own.into_iter().filter(|machine| machine.state != MachineState::Deleted);
    let mut page = v1::ListMachinesResponse {
        machines: alive.map(shown).collect(),
        next_page_token,
        unreachable: answer.unreachable.into_iter().take(UNREACHABLE_MAX).collect(),
    };
    // A list is for what exists; what is long is told by GetMachineStatus.
    if page.encoded_len() > PAGE_MAX {
        for vm in &mut page.machines {
            vm.last_known_state.clear();
            vm.state_message.clear();
        }
    }
    if page.encoded_len() > PAGE_MAX {
        return Err(fault("answered a page of more than 4 MiB"));
    }
    Ok(page)
}

/// One message of WatchMachines.
pub(crate) fn watch_event(event: WatchEvent) -> Result<v1::WatchMachinesResponse, DriverError> {
    use v1::watch_machines_response::Type;
    if event.resume_token.len() > TOKEN_MAX {
        return Err(fault("answered a resume_token of more than 4 KiB"));
    }
    let (kind, vm) = match event.change {
        Change::Upsert(vm) => (Type::Upsert, Some(shown(*vm))),
        Change::Deleted(vm) => {
            let state = MachineState::Deleted;
            (Type::Deleted, Some(shown(Machine { state, ..*vm })))
        }
        Change::Synced => (Type::Synced, None),
    };
    Ok(v1::WatchMachinesResponse {
        r#type: kind.into(),
        machine: vm,
        resume_token: event.resume_token,
    })
}

/// The answer to GetMachineClassSchema.
pub(crate) fn class_schema(answer: ClassSchema) -> Result<v1::GetMachineClassSchemaResponse, DriverError> {
    let Some(schema) = wire_object(&answer.provider_spec_schema) else {
        return Err(fault("answered a schema that is no JSON object"));
    };
    let mut examples = std::collections::BTreeMap::new();
    for (name, example) in answer.examples {
        let Some(example) = wire_object(&example) else {
            return Err(fault("answered an example that is no JSON object"));
        };
        examples.insert(name, example);
    }
    let secret_keys = answer
        .secret_keys
        .into_iter()
        .map(|it| v1::SecretKey {
            name: it.name,
            required: it.required,
            description: it.description,
        })
        .collect();
    Ok(v1::GetMachineClassSchemaResponse {
        provider_spec_schema: Some(schema),
        secret_keys,
        examples,
    })
}

/// The answer to ValidateMachineClass. Errors come before warnings, so that a cut never hides one behind the other.
pub(crate) fn class_report(answer: ClassReport) -> Result<v1::ValidateMachineClassResponse, DriverError> {
    let locator = answer.locator.as_ref().map(wire_fields);
    let size = answer
        .locator
        .map_or(0, |locator| Value::Object(locator).to_string().len());
    if size > LOCATOR_MAX {
        return Err(fault("answered a locator of more than 4 KiB"));
    }
    let mut violations = answer.violations;
    violations.sort_by_key(|violation| violation.severity != Severity::Error);
    let violations = violations
        .into_iter()
        .take(VIOLATIONS_MAX)
        .map(|it| v1::Violation {
            field: it.field,
            severity: match it.severity {
                Severity::Error => v1::violation::Severity::Error,
                Severity::Warning => v1::violation::Severity::Warning,
            }
            .into(),
            reason: it.reason,
            description: cut(&it.description, MESSAGE_MAX).to_owned(),
        })
        .collect();
    Ok(v1::ValidateMachineClassResponse {
        violations,
        inventory_key: answer.inventory_key,
        locator,
    })
}

/// The answer to GetNodeTemplate.
pub(crate) fn node_template(answer: NodeTemplate) -> v1::GetNodeTemplateResponse {
    v1::GetNodeTemplateResponse {
        node_template: Some(v1::NodeTemplate {
            capacity: answer.capacity,
            allocatable: answer.allocatable,
            labels: answer.labels,
            instance_type: answer.instance_type,
            region: answer.region,
            zone: answer.zone,
            architecture: answer.architecture,
            operating_system: answer.operating_system,
            capacity_type: capacity_type(answer.capacity_type).into(),
            hourly_price: answer.hourly_price.map(|price| v1::Price {
                currency_code: price.currency_code,
                micros: price.micros,
            }),
        }),
        ttl: answer.ttl.and_then(duration),
    }
}

/// A breach of the contract by the author. The VM may well exist, so the outcome stays unknown.
fn fault(message: &str) -> DriverError {
    DriverError::fault(format!("the driver {message}")).outcome(Outcome::Unknown)
}

/// A time beyond what the wire holds (10 000 years) is as good as none.
fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    // The wire counts the fraction upwards from the second, jiff towards zero.
    let nanos = time.subsec_nanosecond();
    let borrow = i64::from(nanos < 0);
    prost_types::Timestamp {
        seconds: time.as_second() - borrow,
        nanos: nanos + i32::try_from(borrow * 1_000_000_000).unwrap_or_default(),
    }
}

#[cfg(test)]
#[path = "answer_test.rs"]
mod tests;
