//! A driver's answers into values of core, after a check that they are answers to what was asked.
//!
//! Decides which OK is none: one without a VM, with another machine's or another cluster's VM, with one that is gone, or
//! with one that cannot be named later. Such an answer becomes a failure with unknown outcome, so the call is repeated and
//! nothing is concluded from it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use millwright_core::driver::{
    Address, Capability, Code, Deletion, Disturbance, DriverInfo, Effect, Failure, Initialization, Reason, Violation,
    Vm, VmState,
};
use millwright_core::ids::{DriverName, Name, NodeName, ProviderId, Uid};
use millwright_core::machine::Lost;
use millwright_core::notice::Notice;
use millwright_core::orphans::Sighting;
use millwright_core::provider_spec;
use millwright_proto::v1;
use prost::Message as _;

use super::bounded::{Machines, Violations};
use super::bounds;
use super::secrets::SecretData;
use super::status::{MAX_MESSAGE, broken_answer, cut, duration, last_known_state};
use super::structs;
use super::target::{MachineKey, Target};

/// Answer of ValidateMachineClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationReport {
    /// Empty: the class is good.
    pub violations: Vec<Violation>,
    /// Classes with the same key reach the same VMs. `None`: no sharing.
    pub inventory_key: Option<String>,
    /// Where the VMs of the class are, as it is stored and sent back. `None`: the driver did not say.
    pub locator: Option<serde_json::Value>,
}

/// One page of ListMachines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The VMs.
    pub vms: Vec<Listed>,
    /// Token of the next page; `None` is the end.
    pub next: Option<String>,
    /// Zones, regions or accounts that could not be asked: no conclusion may be drawn from absence.
    pub unreachable: Vec<String>,
    /// The first VM on the page that belongs to another cluster, for the log. `vms` has no VM of another cluster.
    pub stranger: Option<String>,
    /// The size of the page on the wire, in bytes.
    pub bytes: usize,
}

/// A VM of a list, with what its tags say of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The cluster that it is tagged with: this one, or empty if the tag is lost.
    pub cluster_id: String,
    /// Namespace of its Machine, empty if the tag is lost.
    pub namespace: String,
    /// Name of its Machine. `None`: the tags are lost, the VM is reported and left.
    pub name: Option<Name>,
    /// Uid of its Machine. `None`: an older controller made it.
    pub uid: Option<Uid>,
    /// The VM.
    pub vm: Vm,
    /// Class that it was made of.
    pub class: Option<String>,
    /// Digest of the request that made it.
    pub spec_digest: Option<String>,
    /// When the provider accepted it. `None` breaks the contract: such a VM is never old enough to be an orphan.
    pub created: Option<Timestamp>,
    /// Where it stands; empty if the driver does not say.
    pub zone: String,
}

impl Listed {
    /// What the search for orphans looks at.
    pub fn sighting(self) -> Sighting {
        Sighting {
            is_down: Lost::of(self.vm.state, self.vm.disturbance).is_some(),
            cluster_id: self.cluster_id,
            namespace: self.namespace,
            name: self.name,
            uid: self.uid,
            provider_id: self.vm.provider_id,
            node_name: self.vm.node_name,
            zone: self.zone,
            created: self.created,
        }
    }
}

/// A message of WatchMachines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A VM is new, changed, or gone.
    Of(Notice),
    /// All VMs were told of; from now on changes are.
    All,
    /// A VM of another cluster, which must never be shown: for people.
    Stranger(String),
    /// Nothing that matters here.
    Nothing,
}

/// A VM as people may be told of it. Masked before it is cut: half a secret is one.
fn masked(secrets: &SecretData, machine: &v1::Machine) -> v1::Machine {
    let mask = |text: &str| secrets.mask(text);
    let key = machine.key.as_ref().map(|key| v1::MachineKey {
        cluster_id: mask(&key.cluster_id),
        name: mask(&key.name),
        uid: mask(&key.uid),
        ..key.clone()
    });
    v1::Machine {
        key,
        provider_id: mask(&machine.provider_id),
        node_name: mask(&machine.node_name),
        ..v1::Machine::default()
    }
}

/// What is wrong with an id or a key, if anything is.
fn fault(secrets: &SecretData, text: &str, read: fn(&str) -> Result<&str, String>) -> Option<String> {
    read(text).err()?;
    let told = read(&secrets.mask(text)).err();
    Some(told.unwrap_or_else(|| "an id that holds a secret".to_owned()))
}

/// What a copied manifest's Machine is told of the VM that its `spec.providerID` names.
const COPIED: &str =
    "the VM of spec.providerID belongs to the Machine of this name in another namespace; this Machine has no VM";

/// The VM of a Machine that may have been restored from a backup. Its VM bears the uid of before, and is the Machine's all the same if it bears
/// the Machine's cluster, namespace (or the one from which it was restored) and name, and the id that the Machine names: no other Machine of
/// that name can be in this API server.
pub(super) fn vm_found(
    target: &Target,
    machine: Option<v1::Machine>,
    poll_after: Option<prost_types::Duration>,
) -> Result<Vm, Failure> {
    let of = &target.key;
    let is_own_namespace = |key: &v1::MachineKey| {
        let namespace = &key.namespace;
        *namespace == of.namespace || target.former_namespace.as_ref() == Some(namespace)
    };
    let key = match machine.as_ref().and_then(|machine| named_by_id(target, machine)) {
        Some(key) if is_own_namespace(key) => MachineKey {
            uid: Uid::new(&key.uid),
            ..of.clone()
        },
        // A manifest was copied into another namespace: the VM stays the one of the Machine there.
        Some(key) if !key.namespace.is_empty() && key.uid != target.vm_key().uid.as_str() => {
            return Err(Failure {
                reason: Some(Reason::MachineNotFound),
                effect: Effect::None,
                ..Failure::transport(Code::NotFound, COPIED)
            });
        }
        Some(_) | None => target.vm_key(),
    };
    let vm = vm_of(&key, &target.secrets, machine, poll_after)?;
    let tagged_uid = (key.uid != target.key.uid).then_some(key.uid);
    Ok(Vm { tagged_uid, ..vm })
}

/// The owner of a VM, where it bears a uid, the Machine's cluster and name, and the id that the Machine names.
fn named_by_id<'a>(target: &Target, machine: &'a v1::Machine) -> Option<&'a v1::MachineKey> {
    let (key, id) = (machine.key.as_ref()?, target.provider_id.as_ref()?);
    let is_namesake = key.cluster_id == target.key.cluster_id && key.name == target.key.name.as_str();
    let has_uid = !key.uid.is_empty() && bounds::id(&key.uid).is_ok();
    (is_namesake && has_uid && id.as_str() == machine.provider_id).then_some(key)
}

/// The VM of an answer about `key`'s machine.
pub(super) fn vm_of(
    key: &MachineKey,
    secrets: &SecretData,
    machine: Option<v1::Machine>,
    poll_after: Option<prost_types::Duration>,
) -> Result<Vm, Failure> {
    let Some(machine) = machine else {
        return Err(broken_answer("the driver answered OK without a machine"));
    };
    let told = || masked(secrets, &machine);
    let told_key = || told().key.unwrap_or_default();
    if let Some(owner) = &machine.key {
        let cluster = &owner.cluster_id;
        if !cluster.is_empty() && *cluster != key.cluster_id {
            return Err(broken_answer(format!(
                "the driver answered with a VM of another cluster, {}",
                cut(&told_key().cluster_id, 80)
            )));
        }
        let is_ours = match owner.uid.as_str() {
            // An older controller's VM, found by its name.
            "" => {
                let is_of = |told: &str, own: &str| told.is_empty() || told == own;
                is_of(&owner.name, key.name.as_str()) && is_of(&owner.namespace, &key.namespace)
            }
            uid => uid == key.uid.as_str(),
        };
        if !is_ours {
            let v1::MachineKey { name, uid, .. } = told_key();
            return Err(broken_answer(format!(
                "the driver answered with the VM of another machine, {name} ({uid})"
            )));
        }
    }
    // The contract has DELETED only in answers of DeleteMachine: here "not found" would be the word, and would be a
    // statement that the driver stands for. Neither a VM nor its end is concluded from it.
    if machine.state() == v1::machine::State::Deleted {
        let id = cut(&told().provider_id, 256);
        return Err(broken_answer(format!(
            "the driver answered with a VM in state DELETED ({id}), which only DeleteMachine may: a VM that is gone is MACHINE_NOT_FOUND"
        )));
    }
    if node_name(&machine.node_name).is_err() {
        let told = told();
        let why = node_name(&told.node_name).err();
        let why = why.unwrap_or_else(|| "a node_name that holds a secret".to_owned());
        let id = cut(&told.provider_id, 256);
        return Err(broken_answer(format!("the driver answered for VM {id:?} with {why}")));
    }
    if let Some(why) = fault(secrets, &machine.provider_id, bounds::id) {
        return Err(broken_answer(format!("the driver answered with {why}")));
    }
    let shown = v1::Machine {
        state_reason: secrets.mask(&machine.state_reason),
        state_message: secrets.mask(&machine.state_message),
        ..machine
    };
    let mut vm = vm(shown, poll_after.and_then(duration));
    vm.last_known_state = secrets.state(vm.last_known_state);
    if vm.provider_id.is_none() && vm.state != VmState::Creating {
        return Err(broken_answer(format!(
            "the driver answered with a VM without provider_id in state {:?}",
            vm.state
        )));
    }
    Ok(vm)
}

/// Longest name of a node: it becomes the value of a label.
const NODE_NAME_MAX: usize = 63;

/// A node's name that Kubernetes takes as the name of a Node and as the value of a label; none is fine too.
fn node_name(text: &str) -> Result<Option<NodeName>, String> {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
        let bytes = label.as_bytes();
        bytes.iter().copied().all(is_inner) && is_edge(bytes.first()) && is_edge(bytes.last())
    };
    if text.is_empty() || (text.len() <= NODE_NAME_MAX && text.split('.').all(is_label)) {
        return Ok(NodeName::non_empty(Some(text)));
    }
    Err(format!(
        "node_name {:?}, which no Node can have: at most {NODE_NAME_MAX} of a-z, 0-9, '-' and '.', each part beginning and ending with a letter or digit (it has {} bytes)",
        cut(text, 80),
        text.len()
    ))
}

/// A VM as core knows it.
fn vm(machine: v1::Machine, poll_after: Option<SignedDuration>) -> Vm {
    let state = match machine.state() {
        v1::machine::State::Unspecified => VmState::Unrecognized,
        v1::machine::State::Creating => VmState::Creating,
        v1::machine::State::Running => VmState::Running,
        v1::machine::State::Stopped => VmState::Stopped,
        v1::machine::State::Deleting => VmState::Deleting,
        v1::machine::State::Deleted => VmState::Deleted,
        v1::machine::State::Failed => VmState::Failed,
    };
    let initialization = match machine.initialization() {
        v1::machine::Initialization::Unspecified => Initialization::NotNeeded,
        v1::machine::Initialization::Pending => Initialization::Pending,
        v1::machine::Initialization::Done => Initialization::Done,
    };
    let words = [machine.state_reason.as_str(), machine.state_message.as_str()];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    Vm {
        provider_id: ProviderId::non_empty(Some(&machine.provider_id)),
        // An answer about one machine is refused for it; in a list the other VMs count all the same.
        node_name: node_name(&machine.node_name).unwrap_or(None),
        state,
        state_message: cut(&words.join(": "), MAX_MESSAGE),
        initialization,
        addresses: machine
            .addresses
            .iter()
            .filter_map(address)
            .take(bounds::ADDRESSES)
            .collect(),
        tagged_uid: None,
        last_known_state: last_known_state(machine.last_known_state),
        poll_after,
        disturbance: machine.interruption.as_ref().and_then(disturbance),
        ends_at: machine.interruption.as_ref().and_then(ends_at),
    }
}

/// When the VM ends, where the provider ends it.
fn ends_at(interruption: &v1::Interruption) -> Option<Timestamp> {
    match disturbance(interruption)? {
        Disturbance::Reclaim | Disturbance::Maintenance => interruption.effective_time.and_then(timestamp),
        Disturbance::Advice => None,
    }
}

/// What is announced; a kind that this manager does not know is nothing to act on.
fn disturbance(interruption: &v1::Interruption) -> Option<Disturbance> {
    match interruption.kind() {
        v1::interruption::Kind::Unspecified => None,
        v1::interruption::Kind::Reclaim => Some(Disturbance::Reclaim),
        v1::interruption::Kind::Maintenance => Some(Disturbance::Maintenance),
        v1::interruption::Kind::Advisory => Some(Disturbance::Advice),
    }
}

/// An address, unless it is of a type that this manager does not know.
fn address(address: &v1::NodeAddress) -> Option<Address> {
    let kind = match address.r#type() {
        v1::node_address::Type::Unspecified => return None,
        v1::node_address::Type::Hostname => "Hostname",
        v1::node_address::Type::InternalIp => "InternalIP",
        v1::node_address::Type::ExternalIp => "ExternalIP",
        v1::node_address::Type::InternalDns => "InternalDNS",
        v1::node_address::Type::ExternalDns => "ExternalDNS",
    };
    Some(Address {
        kind,
        address: bounds::word(&address.address),
    })
}

/// Answer of DeleteMachine. Only DELETED is gone; a state that is not known means "ask again".
pub(super) fn deletion(secrets: &SecretData, response: v1::DeleteMachineResponse) -> Deletion {
    Deletion {
        gone: response.state() == v1::machine::State::Deleted,
        poll_after: response.poll_after.and_then(duration),
        last_known_state: secrets.state(last_known_state(response.last_known_state)),
    }
}

/// Answer of ValidateMachineClass. A severity that is not known is taken for the graver one. Of too many violations the first are kept,
/// and how many more there are.
pub(super) fn validation(secrets: &SecretData, read: Violations) -> Result<ValidationReport, Failure> {
    let is_fatal = |violation: &v1::Violation| violation.severity() != v1::violation::Severity::Warning;
    let (left_out, response) = (read.left_out(), read.message);
    let mut all = response.violations;
    // Those that keep machines from being made come first: none of them is cut for a warning.
    all.sort_by_key(|violation| !is_fatal(violation));
    let locator = response.locator.map(|told| locator(secrets, told)).transpose();
    let room = bounds::VIOLATIONS - usize::from(locator.is_err());
    let more = all.len().saturating_sub(room) + left_out;
    let violation = |violation: &v1::Violation| Violation {
        fatal: is_fatal(violation),
        field: bounds::word(&secrets.mask(&violation.field)),
        reason: bounds::word(&secrets.mask(&violation.reason)),
        // Each Machine of the class says all of them.
        description: bounds::word(&secrets.mask(&violation.description)),
    };
    let mut violations: Vec<Violation> = all.iter().take(room).map(violation).collect();
    if let Some(last) = violations.last_mut().filter(|_| more > 0) {
        last.description.push_str(&format!(" (and {more} more)"));
    }
    let key = response.inventory_key;
    if let Some(why) = fault(secrets, &key, bounds::inventory_key) {
        return Err(broken_answer(format!("the driver answered with {why}")));
    }
    let locator = match locator {
        Ok(locator) => locator,
        // The rest of the answer holds: a part of the spec is recorded instead, as for a driver without a locator.
        Err(why) => {
            violations.push(Violation {
                fatal: false,
                field: "locator".to_owned(),
                reason: "LOCATOR_DROPPED".to_owned(),
                description: format!("the driver's locator is not kept: {why}"),
            });
            None
        }
    };
    Ok(ValidationReport {
        violations,
        inventory_key: Some(key).filter(|key| !key.is_empty()),
        locator,
    })
}

/// A locator as it is stored: in the status of each Machine of the class, which many may read.
fn locator(secrets: &SecretData, told: prost_types::Struct) -> Result<serde_json::Value, String> {
    let told = structs::json(told);
    let kept = provider_spec::locator(&told).map_err(|why| bounds::word(&secrets.mask(&why)))?;
    match holds_secret(secrets, &kept) {
        true => Err("it holds a secret. What secret_data holds goes with each call and need not be in it".to_owned()),
        false => Ok(kept),
    }
}

fn holds_secret(secrets: &SecretData, value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => secrets.is_quoted_in(text),
        Value::Array(items) => items.iter().any(|item| holds_secret(secrets, item)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| secrets.is_quoted_in(name) || holds_secret(secrets, field)),
    }
}

/// Answer of ListMachines. A VM tagged with another cluster must never be shown; where one is, it is not looked at. A list with an id that
/// no VM may have is refused as a whole: that VM might be the one whose absence is concluded from the list.
pub(super) fn page(cluster_id: &str, secrets: &SecretData, read: Machines) -> Result<Page, Failure> {
    if read.left_out() > 0 {
        let most = bounds::ITEMS;
        return Err(broken_answer(format!(
            "the driver listed more than {most} VMs in one page, where the contract has at most 1000"
        )));
    }
    let response = read.message;
    let bytes = response.encoded_len();
    let (mut vms, mut stranger) = (Vec::with_capacity(response.machines.len()), None);
    for machine in response.machines {
        let key = machine.key.clone().unwrap_or_default();
        if !key.cluster_id.is_empty() && key.cluster_id != cluster_id {
            stranger.get_or_insert_with(|| stranger_of(secrets, &machine, &key));
            continue;
        }
        if let Some(why) = fault(secrets, &machine.provider_id, bounds::id) {
            return Err(broken_answer(format!("the driver listed a VM with {why}")));
        }
        vms.push(Listed {
            // No Machine has a name or a uid that is too long, so a cut one names no Machine.
            name: Name::non_empty(Some(&bounds::word(&key.name))),
            uid: Uid::non_empty(Some(&bounds::word(&key.uid))),
            namespace: bounds::word(&key.namespace),
            class: Some(bounds::word(&machine.machine_class)).filter(|class| !class.is_empty()),
            spec_digest: Some(bounds::word(&machine.spec_digest)).filter(|digest| !digest.is_empty()),
            created: machine.create_time.and_then(timestamp),
            cluster_id: key.cluster_id,
            zone: bounds::word(&machine.zone),
            vm: shown(machine),
        });
    }
    let token = bounds::token(response.next_page_token);
    let token = token.map_err(|why| broken_answer(format!("the driver's list goes on by {why}")))?;
    let unreachable = response.unreachable.iter().take(bounds::UNREACHABLE);
    Ok(Page {
        vms,
        next: Some(token).filter(|token| !token.is_empty()),
        unreachable: unreachable.map(|place| bounds::word(&secrets.mask(place))).collect(),
        stranger,
        bytes,
    })
}

/// A VM as a list or a stream shows it. Its `last_known_state` is not kept: only answers about one VM give what a later call sends back.
fn shown(machine: v1::Machine) -> Vm {
    let last_known_state = String::new();
    vm(
        v1::Machine {
            last_known_state,
            ..machine
        },
        None,
    )
}

/// A VM that must never be shown to this cluster, for people.
fn stranger_of(secrets: &SecretData, machine: &v1::Machine, key: &v1::MachineKey) -> String {
    let word = |text| bounds::word(&secrets.mask(text));
    let (id, cluster) = (word(&machine.provider_id), word(&key.cluster_id));
    format!("VM {id} of cluster {cluster}")
}

/// A message of WatchMachines. One about a VM of another cluster, and one of a type that this manager does not know, say nothing.
pub(super) fn told(
    cluster_id: &str,
    secrets: &SecretData,
    message: v1::WatchMachinesResponse,
) -> Result<Told, Failure> {
    use v1::watch_machines_response::Type;
    let state = match message.r#type() {
        Type::Synced => return Ok(Told::All),
        Type::Unspecified | Type::Heartbeat => return Ok(Told::Nothing),
        Type::Upsert => None,
        Type::Deleted => Some(VmState::Deleted),
    };
    let Some(machine) = message.machine else {
        return Ok(Told::Nothing);
    };
    let key = machine.key.clone().unwrap_or_default();
    if key.cluster_id != cluster_id {
        return Ok(Told::Stranger(stranger_of(secrets, &machine, &key)));
    }
    if let Some(why) = fault(secrets, &machine.provider_id, bounds::id) {
        return Err(broken_answer(format!("the driver told of a VM with {why}")));
    }
    let vm = shown(machine);
    Ok(Told::Of(Notice {
        namespace: bounds::word(&key.namespace),
        name: Name::non_empty(Some(&bounds::word(&key.name))),
        uid: Uid::non_empty(Some(&bounds::word(&key.uid))),
        provider_id: vm.provider_id,
        state: state.unwrap_or(vm.state),
        disturbance: vm.disturbance,
    }))
}

fn timestamp(wire: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(wire.seconds, wire.nanos).ok()
}

/// Answer of GetDriverInfo, or why it is none.
pub(super) fn driver_info(response: &v1::GetDriverInfoResponse) -> Result<DriverInfo, String> {
    let name = &response.name;
    if !is_driver_name(name) {
        let shown = cut(name, 80);
        return Err(format!(
            "it calls itself {shown:?}: a driver's name is 1-63 letters, digits, '-' and '.', and starts and ends with a letter or digit"
        ));
    }
    let capabilities: BTreeSet<Capability> = response.capabilities().filter_map(capability).collect();
    Ok(DriverInfo {
        name: DriverName::new(name),
        vendor_version: cut(&response.vendor_version, 256),
        capabilities,
        propagation_delay: propagation_delay(response),
    })
}

/// Longest delay until a VM that was accepted shows itself. What is beyond is a driver's mistake: deletions wait for it.
const LONGEST_PROPAGATION: SignedDuration = SignedDuration::from_hours(1);

/// The propagation delay, within reason.
fn propagation_delay(response: &v1::GetDriverInfoResponse) -> SignedDuration {
    let told = response.propagation_delay.and_then(duration).unwrap_or_default();
    told.min(LONGEST_PROPAGATION)
}

/// What an answer to GetDriverInfo lacks, or what of it is not taken as said. The driver is used nevertheless.
pub(super) fn flaws(response: &v1::GetDriverInfoResponse) -> Vec<String> {
    let told = response.propagation_delay.and_then(duration).unwrap_or_default();
    let delay = (told > LONGEST_PROPAGATION).then(|| {
        let taken = LONGEST_PROPAGATION.as_secs();
        format!(
            "propagation_delay of {} s is too long, {taken} s is taken",
            told.as_secs()
        )
    });
    let is_nameless = response.vendor_version.trim().is_empty();
    let version = is_nameless.then(|| {
        "vendor_version is empty: another version of the driver is noticed only when its connection ends".to_owned()
    });
    delay.into_iter().chain(version).collect()
}

/// For people who try a driver: what a manager would log of the answer to GetDriverInfo, or why it would not use the driver.
pub fn info_flaws(response: &v1::GetDriverInfoResponse) -> Result<Vec<String>, String> {
    driver_info(response).map(|_| flaws(response))
}

/// For people who try a driver: why a manager would refuse the VM of an OK answer (SPEC.md, MAN-18).
pub fn refusal(target: &Target, machine: Option<v1::Machine>) -> Option<String> {
    vm_found(target, machine, None).err().map(|failure| failure.message)
}

/// A DNS label or domain. Upper case is taken too: `MachineClass.provider` of older manifests says "AWS".
fn is_driver_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 63 && bytes.iter().copied().all(is_inner) && is_edge(bytes.first()) && is_edge(bytes.last())
}

/// A capability, unless this manager does not know it.
fn capability(wire: v1::Capability) -> Option<Capability> {
    match wire {
        v1::Capability::Unspecified => None,
        v1::Capability::InitializeMachine => Some(Capability::InitializeMachine),
        v1::Capability::WatchMachines => Some(Capability::WatchMachines),
        v1::Capability::MachineClassSchema => Some(Capability::MachineClassSchema),
        v1::Capability::ValidateMachineClass => Some(Capability::ValidateMachineClass),
        v1::Capability::NodeTemplate => Some(Capability::NodeTemplate),
        v1::Capability::Interruptions => Some(Capability::Interruptions),
    }
}

#[cfg(test)]
mod tests;
