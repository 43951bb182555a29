//! What a driver answers, one type a call.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::BoxStream;
use serde_json::{Map, Value};

use super::{CapacityType, ListMachines, Machine};
use crate::error::DriverError;

/// Who the driver is and what it can do. The same for the life of the process.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DriverInfo {
    /// What `MachineClass.provider` says: a DNS label or domain, 1 to 63 bytes.
    pub name: String,
    /// The driver's own version, opaque. A change tells the manager of an upgrade.
    pub vendor_version: String,
    /// Which optional calls and fields the driver has. A call that is not listed is answered UNIMPLEMENTED by the SDK.
    pub capabilities: BTreeSet<Capability>,
    /// Advice about single calls.
    pub call_advice: Vec<CallAdvice>,
    /// How long after an accepted creation the provider may still not show the VM.
    pub propagation_delay: Duration,
    /// Free facts for people. The SDK adds its own version.
    pub manifest: BTreeMap<String, String>,
}

impl DriverInfo {
    /// A driver with no optional capability.
    pub fn new(name: impl Into<String>, vendor_version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            vendor_version: vendor_version.into(),
            ..Self::default()
        }
    }

    /// The same driver with these capabilities, too.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: impl IntoIterator<Item = Capability>) -> Self {
        self.capabilities.extend(capabilities);
        self
    }
}

/// Features of a driver that the manager may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// `initialize_machine` is implemented.
    InitializeMachine,
    /// `watch_machines` is implemented.
    WatchMachines,
    /// `machine_class_schema` is implemented.
    MachineClassSchema,
    /// `validate_machine_class` is implemented.
    ValidateMachineClass,
    /// `node_template` is implemented.
    NodeTemplate,
    /// `Machine::interruption` is filled in.
    Interruptions,
}

/// Advice about one call. The manager's flags win over it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CallAdvice {
    /// Name of the call, for example `CreateMachine`.
    pub method: String,
    /// Deadline that lets nearly all calls finish.
    pub timeout: Option<Duration>,
    /// Most calls in flight at once.
    pub max_in_flight: Option<u16>,
    /// Most calls a second, over all machines.
    pub max_calls_per_second: Option<f64>,
}

impl CallAdvice {
    /// No advice yet about this call, for example `CreateMachine`.
    pub fn new(method: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            ..Self::default()
        }
    }
}

/// Answer of `create_machine` and `get_machine_status`. A [`Machine`] alone is one, too, by `.into()`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineStatus {
    /// The VM.
    pub machine: Machine,
    /// When to ask again, if the state will change by itself. `None`: the manager's default, 5 s.
    pub poll_after: Option<Duration>,
}

impl MachineStatus {
    /// A VM whose state will change by itself: ask again after this time.
    pub fn changing(machine: Machine, poll_after: Duration) -> Self {
        Self {
            machine,
            poll_after: Some(poll_after),
        }
    }
}

impl From<Machine> for MachineStatus {
    fn from(machine: Machine) -> Self {
        Self {
            machine,
            poll_after: None,
        }
    }
}

/// Answer of `delete_machine`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deletion {
    /// Nothing is left of the VM and of what was made for it.
    Deleted,
    /// Accepted, not finished: the manager calls again.
    Deleting {
        /// When to call again. `None`: the manager's default, 5 s.
        poll_after: Option<Duration>,
        /// Opaque, sent back with the next call. Up to 4 KiB.
        last_known_state: String,
    },
}

impl Deletion {
    /// Accepted, call again after this time.
    pub fn deleting(poll_after: Duration) -> Self {
        Self::Deleting {
            poll_after: Some(poll_after),
            last_known_state: String::new(),
        }
    }
}

/// Answer of `list_machines`: one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachinePage {
    /// At most `page_size` VMs; may be fewer, even none, on any page.
    pub machines: Vec<Machine>,
    /// Where the next page starts; empty on the last page and only there. Up to 3 KiB. It must stay good for at least
    /// 10 minutes, across a restart of the driver or else be answered with `PAGE_TOKEN_EXPIRED`.
    pub next_cursor: String,
    /// Zones, regions or accounts that could not be asked, at most 32: the manager then draws no conclusion from
    /// absence.
    pub unreachable: Vec<String>,
}

impl MachinePage {
    /// The last page, or the only one.
    pub fn last(machines: Vec<Machine>) -> Self {
        Self {
            machines,
            ..Self::default()
        }
    }

    /// The page that is asked for, of all VMs, for a driver that has them at hand. VMs of other clusters are left out. The order is that of the
    /// ids, so the pages stay whole whatever comes or goes between them.
    pub fn of(request: &ListMachines, all: impl IntoIterator<Item = Machine>) -> Self {
        // A VM without an id yet comes by its uid, which no other VM has.
        let place = |vm: &Machine| match vm.provider_id.is_empty() {
            true => format!("uid:{}", vm.key.uid),
            false => vm.provider_id.clone(),
        };
        let own = all.into_iter().filter(|vm| vm.key.cluster_id == request.cluster_id);
        let mut rest: Vec<(String, Machine)> = own
            .map(|vm| (place(&vm), vm))
            .filter(|(place, _)| request.cursor.is_empty() || *place > request.cursor)
            .collect();
        rest.sort_by(|(one, _), (other, _)| one.cmp(other));
        let is_last = rest.len() <= request.page_size;
        rest.truncate(request.page_size);
        let next_cursor = rest.last().filter(|_| !is_last).map(|(place, _)| place.clone());
        Self {
            machines: rest.into_iter().map(|(_, vm)| vm).collect(),
            next_cursor: next_cursor.unwrap_or_default(),
            unreachable: Vec::new(),
        }
    }
}

/// Answer of `watch_machines`. An `Err` ends the watch.
pub type WatchStream = BoxStream<'static, Result<WatchEvent, DriverError>>;

/// One event of a watch. Heartbeats are the SDK's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchEvent {
    /// What happened.
    pub change: Change,
    /// Where to resume, up to 4 KiB. Empty: the driver cannot resume.
    pub resume_token: String,
}

impl WatchEvent {
    /// An event of a driver that cannot resume.
    pub fn new(change: Change) -> Self {
        Self {
            change,
            resume_token: String::new(),
        }
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A VM is new or has changed.
    Upsert(Box<Machine>),
    /// A VM is gone; `key` and `provider_id` are set.
    Deleted(Box<Machine>),
    /// All VMs have been sent; changes follow.
    Synced,
}

/// Answer of `machine_class_schema`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClassSchema {
    /// JSON Schema, draft 2020-12, up to 512 KiB: see [`schema_of`](crate::schema_of).
    pub provider_spec_schema: Value,
    /// Keys that the class's Secret needs.
    pub secret_keys: Vec<SecretKey>,
    /// Specs that are valid without change, by a short name.
    pub examples: BTreeMap<String, Value>,
}

impl ClassSchema {
    /// The schema of an author's spec type, without Secret and examples.
    pub fn of<T: schemars::JsonSchema>() -> Self {
        Self {
            provider_spec_schema: super::schema_of::<T>(),
            ..Self::default()
        }
    }
}

/// One key of the class's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretKey {
    /// Its name.
    pub name: String,
    /// Whether a class without it is useless.
    pub required: bool,
    /// For people.
    pub description: String,
}

impl SecretKey {
    /// A key without which a class is useless.
    pub fn required(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            required: true,
            description: description.into(),
        }
    }

    /// A key that a class may do without.
    pub fn optional(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            required: false,
            ..Self::required(name, description)
        }
    }
}

/// Answer of `validate_machine_class`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassReport {
    /// All faults at once; empty: the class is good. The SDK keeps the first 64.
    pub violations: Vec<Violation>,
    /// Classes with the same key reach the same VMs (account and region, say): the manager lists and watches once per
    /// key. Empty: no sharing.
    pub inventory_key: String,
    /// Where the class's VMs are (region, account …), and whatever else of the class finds and deletes them: up to 4 KiB as JSON, never a
    /// secret. The manager keeps it with each VM and sends it back as [`MachineClass::locator`](crate::MachineClass::locator). `None`: the
    /// manager keeps short fields of the spec instead.
    pub locator: Option<Map<String, Value>>,
}

/// How bad a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// No machine can be made of the class.
    Error,
    /// Machines can be made, but someone should look.
    Warning,
}

/// One fault of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// RFC 6901 pointer into `providerSpec`, or `secret:KEY`.
    pub field: String,
    /// How bad it is.
    pub severity: Severity,
    /// `UPPER_SNAKE_CASE`, stable, for programs.
    pub reason: String,
    /// For people; never holds a secret's value. The SDK cuts it to 1 KiB.
    pub description: String,
}

impl Violation {
    /// No machine can be made of the class. `field` is an RFC 6901 pointer into the spec, or `secret:KEY`.
    pub fn error(field: impl Into<String>, reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            severity: Severity::Error,
            reason: reason.into(),
            description: description.into(),
        }
    }

    /// Machines can be made, but someone should look.
    pub fn warning(field: impl Into<String>, reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(field, reason, description)
        }
    }
}

/// A node that does not exist yet: the answer of `node_template`, and what a class says of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTemplate {
    /// Resource name to Kubernetes quantity, for example `memory`: `16Gi`. Holds at least `cpu` and `memory`.
    pub capacity: BTreeMap<String, String>,
    /// Of `capacity`, what pods get. Empty: not known.
    pub allocatable: BTreeMap<String, String>,
    /// Labels that the node will bear.
    pub labels: BTreeMap<String, String>,
    /// Size or type.
    pub instance_type: String,
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: String,
    /// As in `kubernetes.io/arch`.
    pub architecture: String,
    /// As in `kubernetes.io/os`.
    pub operating_system: String,
    /// How it would be paid for, if known.
    pub capacity_type: Option<CapacityType>,
    /// `None`: not known. Zero: free of charge.
    pub hourly_price: Option<Price>,
    /// How long the answer holds. `None`: 1 h. A class says nothing of it.
    pub ttl: Option<Duration>,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// ISO 4217.
    pub currency_code: String,
    /// Millionths of the currency's unit.
    pub micros: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{MachineClass, MachineKey, MachineState};

    fn vm(cluster_id: &str, provider_id: &str, uid: &str) -> Machine {
        let key = MachineKey {
            cluster_id: cluster_id.into(),
            uid: uid.into(),
            ..MachineKey::default()
        };
        Machine::new(key, provider_id, MachineState::Creating)
    }

    #[test]
    fn pages_show_every_vm_of_the_cluster_once_whatever_goes_between_them() {
        let mut all: Vec<_> = (0..7).rev().map(|n| vm("c", &format!("p:///{n}"), "u")).collect();
        all.extend([vm("other", "p:///x", "u"), vm("c", "", "1"), vm("c", "", "2")]);
        let mut request = ListMachines::new("c", MachineClass::default());
        request.page_size = 3;
        let mut seen = Vec::new();
        loop {
            let page = MachinePage::of(&request, all.clone());
            assert!(page.machines.len() <= 3);
            seen.extend(
                page.machines
                    .iter()
                    .map(|vm| format!("{}{}", vm.provider_id, vm.key.uid)),
            );
            // What has been shown may go: the next page does not shift.
            all.retain(|vm| vm.provider_id != "p:///0");
            if page.next_cursor.is_empty() {
                break;
            }
            request.cursor = page.next_cursor;
        }
        assert_eq!(seen.len(), 9);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 9, "{seen:?}");
    }

    #[test]
    fn an_empty_list_is_one_empty_page() {
        let request = ListMachines::new("c", MachineClass::default());
        assert_eq!(MachinePage::of(&request, []), MachinePage::default());
    }
}
