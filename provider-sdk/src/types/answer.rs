//! What a driver answers, one type a call.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::BoxStream;
use serde_json::Value;

use super::{CapacityType, Machine};
use crate::error::DriverError;

/// Who the driver is and what it can do. The same for the life of the process.
#[derive(Clone, Debug, Default, PartialEq)]
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
pub enum Capability {
    /// `initialize_machine` is implemented.
    InitializeMachine,
    /// `watch_machines` is implemented.
    WatchMachines,
    /// `get_volume_ids` is implemented.
    GetVolumeIds,
    /// `machine_class_schema` is implemented.
    MachineClassSchema,
    /// `validate_machine_class` is implemented.
    ValidateMachineClass,
    /// `node_template` is implemented.
    NodeTemplate,
    /// `Machine::attached_volume_ids` is complete.
    AttachedVolumes,
    /// `Machine::interruption` is filled in.
    Interruptions,
}

/// Advice about one call. The manager's flags win over it.
#[derive(Clone, Debug, PartialEq)]
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

/// Answer of `create_machine` and `get_machine_status`. A [`Machine`] alone is one, too, by `.into()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineStatus {
    /// The VM.
    pub machine: Machine,
    /// When to ask again, if the state will change by itself. `None`: the manager's default, 5 s.
    pub poll_after: Option<Duration>,
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

/// Answer of `watch_machines`. An `Err` ends the watch.
pub type WatchStream = BoxStream<'static, Result<WatchEvent, DriverError>>;

/// One event of a watch. Heartbeats are the SDK's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub change: Change,
    /// Where to resume, up to 4 KiB. Empty: the driver cannot resume.
    pub resume_token: String,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A VM is new or has changed.
    Upsert(Box<Machine>),
    /// A VM is gone; `key` and `provider_id` are set.
    Deleted(Box<Machine>),
    /// All VMs have been sent; changes follow.
    Synced,
}

/// Answer of `get_volume_ids`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeIds {
    /// The volumes that this driver knows.
    pub volume_ids: Vec<VolumeId>,
    /// Names of those that it does not know, which is no error.
    pub unrecognized: Vec<String>,
}

/// The provider's id of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeId {
    /// The PersistentVolume's name.
    pub name: String,
    /// The provider's id.
    pub volume_id: String,
}

/// Answer of `machine_class_schema`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSchema {
    /// JSON Schema, draft 2020-12, up to 512 KiB: see [`schema_of`](crate::schema_of).
    pub provider_spec_schema: Value,
    /// Keys that the class's Secret needs.
    pub secret_keys: Vec<SecretKey>,
    /// Specs that are valid without change, by a short name.
    pub examples: BTreeMap<String, Value>,
}

/// One key of the class's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    /// Its name.
    pub name: String,
    /// Whether a class without it is useless.
    pub required: bool,
    /// For people.
    pub description: String,
}

/// Answer of `validate_machine_class`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassReport {
    /// All faults at once; empty: the class is good. The SDK keeps the first 64.
    pub violations: Vec<Violation>,
    /// Classes with the same key reach the same VMs (account and region, say): the manager lists and watches once per
    /// key. Empty: no sharing.
    pub inventory_key: String,
}

/// How bad a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// No machine can be made of the class.
    Error,
    /// Machines can be made, but someone should look.
    Warning,
}

/// One fault of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Answer of `node_template`: a node that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// How long the answer holds. `None`: 1 h.
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
