//! A driver's answers into values of core, after a check that they are answers to what was asked.
//!
//! Decides which OK is none: one without a VM, with another machine's or another cluster's VM, with one that is gone, or
//! with one that cannot be named later. Such an answer becomes a failure with unknown outcome, so the call is repeated and
//! nothing is concluded from it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use millwright_core::driver::{
    Address, Capability, Deletion, Disturbance, DriverInfo, Failure, Initialization, Violation, Vm, VmState,
};
use millwright_core::ids::{DriverName, Name, NodeName, ProviderId, Uid};
use millwright_core::notice::Notice;
use millwright_core::orphans::Sighting;
use millwright_proto::v1;
use prost::Message as _;

use super::bounded::{Machines, Violations};
use super::bounds;
use super::notices::Told;
use super::secrets::SecretData;
use super::status::{MAX_MESSAGE, broken_answer, cut, duration, last_known_state};
use super::target::{MachineKey, Target};

/// Answer of ValidateMachineClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationReport {
    /// Empty: the class is good.
    pub violations: Vec<Violation>,
    /// Classes with the same key reach the same VMs. `None`: no sharing.
    pub inventory_key: Option<String>,
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

/// The VM of a Machine that may have been restored from a backup. Its VM bears the uid of before, and is the Machine's all the same if it bears
/// the Machine's cluster, namespace and name, and the id that the Machine names: no other Machine of that name can be in this API server.
pub(super) fn vm_found(
    target: &Target,
    machine: Option<v1::Machine>,
    poll_after: Option<prost_types::Duration>,
) -> Result<Vm, Failure> {
    let restored = machine.as_ref().and_then(|machine| restored_from(target, machine));
    let key = match restored {
        Some(uid) => MachineKey {
            uid,
            ..target.key.clone()
        },
        None => target.vm_key(),
    };
    let vm = vm_of(&key, &target.secrets, machine, poll_after)?;
    let tagged_uid = (key.uid != target.key.uid).then_some(key.uid);
    Ok(Vm { tagged_uid, ..vm })
}

/// The uid that a Machine's VM bears, if it is that of the Machine before a restore.
fn restored_from(target: &Target, machine: &v1::Machine) -> Option<Uid> {
    let (key, id) = (machine.key.as_ref()?, target.provider_id.as_ref()?);
    let is_namesake = key.cluster_id == target.key.cluster_id
        && key.namespace == target.key.namespace
        && key.name == target.key.name.as_str();
    let is_uid = !key.uid.is_empty() && bounds::id(&key.uid).is_ok();
    (is_uid && is_namesake && id.as_str() == machine.provider_id).then(|| Uid::new(&key.uid))
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
            "" => owner.name.is_empty() || owner.name == key.name.as_str(),
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
    let more = all.len().saturating_sub(bounds::VIOLATIONS) + left_out;
    let violation = |violation: &v1::Violation| Violation {
        fatal: is_fatal(violation),
        field: bounds::word(&secrets.mask(&violation.field)),
        reason: bounds::word(&secrets.mask(&violation.reason)),
        // Each Machine of the class says all of them.
        description: bounds::word(&secrets.mask(&violation.description)),
    };
    let mut violations: Vec<Violation> = all.iter().take(bounds::VIOLATIONS).map(violation).collect();
    if let Some(last) = violations.last_mut().filter(|_| more > 0) {
        last.description.push_str(&format!(" (and {more} more)"));
    }
    let key = response.inventory_key;
    if let Some(why) = fault(secrets, &key, bounds::inventory_key) {
        return Err(broken_answer(format!("the driver answered with {why}")));
    }
    Ok(ValidationReport {
        violations,
        inventory_key: Some(key).filter(|key| !key.is_empty()),
    })
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

/// What the driver says of itself beyond reason and is not taken as said: for the log.
pub(super) fn overstated(response: &v1::GetDriverInfoResponse) -> Option<String> {
    let told = response.propagation_delay.and_then(duration)?;
    (told > LONGEST_PROPAGATION).then(|| {
        let taken = LONGEST_PROPAGATION.as_secs();
        format!(
            "propagation_delay of {} s is too long, {taken} s is taken",
            told.as_secs()
        )
    })
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
        v1::Capability::GetVolumeIds => Some(Capability::GetVolumeIds),
        v1::Capability::MachineClassSchema => Some(Capability::MachineClassSchema),
        v1::Capability::ValidateMachineClass => Some(Capability::ValidateMachineClass),
        v1::Capability::NodeTemplate => Some(Capability::NodeTemplate),
        v1::Capability::AttachedVolumes => Some(Capability::AttachedVolumes),
        v1::Capability::Interruptions => Some(Capability::Interruptions),
    }
}

#[cfg(test)]
mod tests {
    use millwright_core::driver::{Code, Effect};

    use super::*;

    fn key() -> MachineKey {
        MachineKey {
            cluster_id: "c".into(),
            namespace: "n".into(),
            name: Name::new("m-1"),
            uid: Uid::new("uid-1"),
        }
    }

    #[test]
    fn what_a_driver_tells_of_another_cluster_or_in_words_of_tomorrow_says_nothing() {
        use v1::watch_machines_response::Type;
        let message = |of_type: i32, cluster: &str| v1::WatchMachinesResponse {
            r#type: of_type,
            machine: Some(v1::Machine {
                key: Some(v1::MachineKey {
                    cluster_id: cluster.into(),
                    namespace: "n".into(),
                    name: "m-1".into(),
                    uid: "uid-1".into(),
                }),
                state: v1::machine::State::Running.into(),
                ..Default::default()
            }),
            resume_token: String::new(),
        };
        let state = |of_type: Type| match told("c", &SecretData::default(), message(of_type.into(), "c")).unwrap() {
            Told::Of(notice) => Some(notice.state),
            Told::All | Told::Stranger(_) | Told::Nothing => None,
        };
        let told = |message| told("c", &SecretData::default(), message);
        assert_eq!(state(Type::Upsert), Some(VmState::Running));
        assert_eq!(state(Type::Deleted), Some(VmState::Deleted), "whatever state it shows");
        assert_eq!(told(message(Type::Synced.into(), "c")).unwrap(), Told::All);
        assert_eq!(told(message(Type::Heartbeat.into(), "c")).unwrap(), Told::Nothing);
        assert_eq!(
            told(message(Type::Upsert.into(), "d")).unwrap(),
            Told::Stranger("VM  of cluster d".into()),
            "another cluster's"
        );
        assert_eq!(told(message(99, "c")).unwrap(), Told::Nothing);
        let bare = v1::WatchMachinesResponse {
            r#type: Type::Upsert.into(),
            ..Default::default()
        };
        assert_eq!(told(bare).unwrap(), Told::Nothing, "no VM in it");
    }

    fn machine(name: &str, uid: &str) -> v1::Machine {
        v1::Machine {
            key: Some(v1::MachineKey {
                cluster_id: "c".into(),
                namespace: "n".into(),
                name: name.into(),
                uid: uid.into(),
            }),
            provider_id: "virtual:///1".into(),
            state: v1::machine::State::Running.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_vm_that_bears_the_uid_of_before_a_restore_is_found_by_id_and_name_together() {
        use crate::driver::DriverClass;
        let target = |named: &str, tagged_uid: Option<&str>| Target {
            key: key(),
            class: DriverClass::new("n", "c", &DriverName::new("d"), &serde_json::json!({})).unwrap(),
            secrets: std::sync::Arc::default(),
            tagged_uid: tagged_uid.map(Uid::new),
            provider_id: ProviderId::non_empty(Some(named)),
            last_known_state: None,
        };
        let vm = |cluster: &str, name: &str, uid: &str| v1::Machine {
            key: Some(v1::MachineKey {
                cluster_id: cluster.into(),
                namespace: "n".into(),
                name: name.into(),
                uid: uid.into(),
            }),
            provider_id: "p:///1".into(),
            state: v1::machine::State::Running.into(),
            ..Default::default()
        };
        let found = |target: Target, vm| vm_found(&target, Some(vm), None).map(|vm| vm.tagged_uid);
        let before = || vm("c", "m-1", "before");
        let tagged_uid = Some(Uid::new("before"));
        assert_eq!(found(target("p:///1", None), before()).unwrap(), tagged_uid);
        assert_eq!(
            found(target("", Some("before")), before()).unwrap(),
            tagged_uid,
            "once it is known"
        );
        assert_eq!(found(target("p:///1", None), vm("c", "m-1", "uid-1")).unwrap(), None);
        for (named, vm) in [
            ("p:///2", before()),
            ("", before()),
            ("p:///1", vm("c", "m-2", "before")),
            ("p:///1", vm("d", "m-1", "before")),
        ] {
            found(target(named, None), vm).expect_err(named);
        }
    }

    #[test]
    fn the_vm_of_another_machine_is_never_taken_for_ours() {
        for (name, uid) in [("m-1", "uid-2"), ("m-2", "")] {
            let failure =
                vm_of(&key(), &SecretData::default(), Some(machine(name, uid)), None).expect_err("it is another's");
            assert_eq!(
                (failure.code, failure.reason, failure.effect),
                (Code::Internal, None, Effect::Unknown)
            );
        }
        for (name, uid) in [("m-1", "uid-1"), ("m-1", ""), ("", "")] {
            assert!(
                vm_of(&key(), &SecretData::default(), Some(machine(name, uid)), None).is_ok(),
                "{name} {uid}"
            );
        }
    }

    fn broken(machine: v1::Machine) -> String {
        let failure = vm_of(&key(), &SecretData::default(), Some(machine), None).expect_err("no VM is taken from it");
        assert_eq!(
            (failure.code, failure.reason, failure.effect),
            (Code::Internal, None, Effect::Unknown)
        );
        failure.message
    }

    /// Rows: O4.
    #[test]
    fn what_is_wrong_with_an_answer_is_told_without_what_is_secret() {
        let secrets: SecretData = [("key".to_owned(), b"hush-hush".to_vec())].into_iter().collect();
        // A text is cut in the middle of the secret, or holds what is escaped where it is shown.
        for before in ["No ", "\"No\" ", &"N".repeat(76)] {
            let text = format!("{before}hush-hush");
            let named = v1::Machine {
                node_name: text.clone(),
                ..machine("m-1", "uid-1")
            };
            let identified = v1::Machine {
                provider_id: format!("{text}\n{}", "x".repeat(600)),
                ..machine("m-1", "uid-1")
            };
            for bad in [named, identified] {
                let failure = vm_of(&key(), &secrets, Some(bad), None).expect_err("no VM is taken from it");
                assert!(!failure.message.contains("hu"), "{}", failure.message);
            }
        }
    }

    #[test]
    fn the_vm_of_another_cluster_is_never_taken_for_ours_and_one_that_names_none_may_be() {
        let of = |cluster: &str| {
            let mut machine = machine("m-1", "uid-1");
            machine.key.as_mut().expect("it has a key").cluster_id = cluster.into();
            machine
        };
        assert!(broken(of("other")).contains("another cluster, other"));
        assert!(vm_of(&key(), &SecretData::default(), Some(of("")), None).is_ok());
    }

    #[test]
    fn a_vm_that_is_gone_is_neither_a_vm_nor_proof_of_its_end() {
        let gone = v1::Machine {
            state: v1::machine::State::Deleted.into(),
            ..machine("m-1", "uid-1")
        };
        assert!(broken(gone).contains("DELETED (virtual:///1)"));
    }

    #[test]
    fn a_node_name_that_no_node_can_have_is_a_failure_that_says_what_is_wrong() {
        let named = |name: &str| v1::Machine {
            node_name: name.into(),
            ..machine("m-1", "uid-1")
        };
        for fine in ["", "m-1", "ip-10-0-0-1.eu.internal", "1", &"x".repeat(63)] {
            assert!(
                vm_of(&key(), &SecretData::default(), Some(named(fine)), None).is_ok(),
                "{fine}"
            );
        }
        for wrong in [
            "M-1",
            "a_b",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a b",
            "ä",
            "a/b",
            &"x".repeat(64),
        ] {
            let why = broken(named(wrong));
            assert!(
                why.contains("node_name") && why.contains("virtual:///1"),
                "{wrong}: {why}"
            );
        }
        assert!(broken(named(&"x".repeat(64))).contains("64 bytes"));
    }

    #[test]
    fn one_vm_with_a_bad_node_name_does_not_hide_the_others_of_a_list() {
        let bad = v1::Machine {
            node_name: "No Name".into(),
            ..machine("m-1", "uid-1")
        };
        let response = v1::ListMachinesResponse {
            machines: vec![bad, machine("m-2", "uid-2")],
            ..Default::default()
        };
        let page = page("c", &SecretData::default(), response.into()).unwrap();
        assert_eq!(page.vms.len(), 2);
        assert!(page.vms.iter().all(|listed| listed.vm.node_name.is_none()));
    }

    #[test]
    fn a_propagation_delay_beyond_an_hour_is_cut_and_said() {
        let info = |seconds| v1::GetDriverInfoResponse {
            name: "virtual".into(),
            propagation_delay: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..Default::default()
        };
        let delay = |seconds| {
            driver_info(&info(seconds))
                .expect("a good name")
                .propagation_delay
                .as_secs()
        };
        assert_eq!((delay(-1), delay(3), delay(3600)), (0, 3, 3600));
        assert_eq!((delay(3601), delay(i64::MAX)), (3600, 3600));
        assert_eq!(overstated(&info(3600)), None);
        assert!(overstated(&info(i64::MAX)).is_some_and(|why| why.contains("3600 s is taken")));
    }

    #[test]
    fn an_answer_without_a_vm_or_with_a_nameless_one_is_no_answer() {
        assert!(vm_of(&key(), &SecretData::default(), None, None).is_err());
        let nameless = |state: v1::machine::State| v1::Machine {
            provider_id: String::new(),
            state: state.into(),
            ..machine("m-1", "uid-1")
        };
        assert!(
            vm_of(
                &key(),
                &SecretData::default(),
                Some(nameless(v1::machine::State::Running)),
                None
            )
            .is_err()
        );
        let early = vm_of(
            &key(),
            &SecretData::default(),
            Some(nameless(v1::machine::State::Creating)),
            None,
        )
        .expect("ids may come late");
        assert_eq!(early.provider_id, None);
    }

    #[test]
    fn only_deleted_is_gone() {
        for state in [
            v1::machine::State::Unspecified,
            v1::machine::State::Deleting,
            v1::machine::State::Running,
        ] {
            assert!(
                !deletion(
                    &SecretData::default(),
                    v1::DeleteMachineResponse {
                        state: state.into(),
                        ..Default::default()
                    }
                )
                .gone
            );
        }
        assert!(
            !deletion(
                &SecretData::default(),
                v1::DeleteMachineResponse {
                    state: 99,
                    ..Default::default()
                }
            )
            .gone
        );
        assert!(
            deletion(
                &SecretData::default(),
                v1::DeleteMachineResponse {
                    state: v1::machine::State::Deleted.into(),
                    ..Default::default()
                }
            )
            .gone
        );
    }

    #[test]
    fn vms_of_another_cluster_are_not_looked_at() {
        let foreign = v1::Machine {
            key: Some(v1::MachineKey {
                cluster_id: "other".into(),
                ..Default::default()
            }),
            ..machine("m-2", "uid-2")
        };
        let response = v1::ListMachinesResponse {
            machines: vec![foreign, machine("m-1", "uid-1")],
            ..Default::default()
        };
        let page = page("c", &SecretData::default(), response.into()).unwrap();
        assert_eq!(
            page.vms.iter().map(|listed| listed.name.clone()).collect::<Vec<_>>(),
            [Some(Name::new("m-1"))]
        );
        assert_eq!(page.next, None);
    }

    #[test]
    fn names_that_a_class_could_not_say_are_refused() {
        let info = |name: &str| {
            driver_info(&v1::GetDriverInfoResponse {
                name: name.into(),
                ..Default::default()
            })
        };
        for fine in ["virtual", "AWS", "drivers.example.com", "a", &"x".repeat(63)] {
            assert!(info(fine).is_ok(), "{fine}");
        }
        for wrong in ["", "-a", "a.", "a b", "a/b", "ä", &"x".repeat(64)] {
            assert!(info(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn capabilities_of_tomorrow_are_passed_over() {
        let response = v1::GetDriverInfoResponse {
            name: "virtual".into(),
            capabilities: vec![5, 999, 0],
            ..Default::default()
        };
        assert_eq!(
            driver_info(&response).map(|info| info.capabilities),
            Ok([Capability::ValidateMachineClass].into())
        );
    }

    /// Rows: D4.
    #[test]
    fn what_is_too_much_is_cut_and_counted() {
        let one = |severity: v1::violation::Severity| v1::Violation {
            severity: severity.into(),
            field: "f".repeat(1000),
            description: "the key hunter22 is no key".into(),
            ..Default::default()
        };
        let mut violations = vec![one(v1::violation::Severity::Warning); 100];
        violations.push(one(v1::violation::Severity::Error));
        let response = v1::ValidateMachineClassResponse {
            violations,
            ..Default::default()
        };
        let secrets: SecretData = [("password".to_owned(), b"hunter22\n".to_vec())].into_iter().collect();
        let report = validation(&secrets, response.into()).unwrap();
        assert_eq!(report.violations.len(), bounds::VIOLATIONS);
        let first = report.violations.first().unwrap();
        assert!(first.fatal, "what stops machines is not cut for warnings");
        assert_eq!(first.description, "the key *** is no key");
        assert_eq!(first.field.len(), 256);
        assert!(report.violations.last().unwrap().description.ends_with("(and 37 more)"));
    }
}
