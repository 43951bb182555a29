//! Machine: one VM and the Node that it becomes. Decides nothing.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::creation_request::CreationRequest;
use super::lenient::{self, GoDuration, absent_is_default};
use super::node_template::NodeTemplateSpec;
use super::operation::{LastOperation, OperationReason, OperationState, OperationType};
use super::{Time, keys, meta};
use crate::ids::{NodeName, ProviderId, Uid};

/// What a Machine should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "Machine",
    doc = "A Machine is one VM at a provider and the Node that the VM becomes.",
    namespaced,
    status = "MachineStatus",
    shortname = "mc",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct MachineSpec {
    /// The MachineClass that says how to make the VM.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassRef>,
    /// The VM's id at its provider. Written once, by the controller; its presence means that a VM exists.
    #[serde(
        rename = "providerID",
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<String>,
    /// Labels, annotations and taints that the Node should carry.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub node_template: Option<NodeTemplateSpec>,
    /// How long the pods of a deleted Machine's Node may take to go as their budgets allow; those that are left then are deleted
    /// without grace. Without it the manager's --machine-drain-timeout. A Go duration such as 2h.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<GoDuration>,
    /// How long the Node may be unhealthy, or gone, before the Machine counts as Failed and is replaced. Without it the manager's
    /// --machine-health-timeout. A Go duration such as 10m.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<GoDuration>,
    /// How long the Node may take to join, counted from when the Machine became Pending (status.currentStatus.lastUpdateTime), not
    /// from its creation; then the Machine counts as Failed. While nobody could see the Node join, it does not run. Without it the
    /// manager's --machine-creation-timeout. A Go duration such as 20m.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<GoDuration>,
    /// How long an update of the Machine's node in place may take before the Machine is replaced. A Go duration such as 20m.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub in_place_update_timeout: Option<GoDuration>,
    /// How long the Machine is kept from when it is preserved on. Without it the manager's --machine-preserve-timeout. A Go duration
    /// such as 96h.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub machine_preserve_timeout: Option<GoDuration>,
    /// With true the health timeout never fires: the Machine stays Unknown while its Node is unhealthy.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub disable_health_timeout: Option<bool>,
    /// Attempts to evict the pods of a deleted Machine's Node, 20 seconds apart, before those that are left are deleted without
    /// grace, if that is sooner than drainTimeout. Without it the manager's --machine-max-evict-retries.
    #[serde(
        deserialize_with = "lenient::optional_int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_evict_retries: Option<i32>,
    /// Node condition types, separated by commas, that make a Node unhealthy when they are not False. Without it the manager's
    /// --node-conditions.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub node_conditions: Option<String>,
}

absent_is_default!(MachineSpec);

/// Names a MachineClass in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassRef {
    /// API group of the class. Informational.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the class: MachineClass is the only one that works.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the class.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What is known about a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// Addresses of the VM; only filled where no Node joins.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Copy of the Node's conditions.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// What was last done to the Machine.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Where the Machine stands in its life.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub current_status: Option<CurrentStatus>,
    /// Text that the driver wants to see again at its next call.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
    /// What a VM was asked for with. Written before the first request: from then on it says where the VM is looked for, watched and
    /// removed, although its class has changed or is gone. A VM that another controller made gets it when its class is first seen to
    /// reach it.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub creation_request: Option<CreationRequest>,
}

/// Where a Machine stands in its life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CurrentStatus {
    /// Pending, Available, Running, Unknown, Failed, CrashLoopBackOff or Terminating; and, while its node is updated in place,
    /// InPlaceUpdating, InPlaceUpdateSuccessful or InPlaceUpdateFailed. Empty for a Machine that nobody has looked at.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Phase::is_new")]
    pub phase: Phase,
    /// True while the creation timeout runs. Kept for readers of the original's objects.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "std::ops::Not::not")]
    pub timeout_active: bool,
    /// When the present phase began.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Until when the Machine is preserved; in the past: it was.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub preserve_expiry_time: Option<Time>,
    /// When the pods of the preserved Machine's Node were gone. Counts for the failure before it: one that fails again is drained again.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub preserve_drained_time: Option<Time>,
}

/// Phase of a Machine's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub enum Phase {
    /// Nobody has looked at the Machine yet.
    #[default]
    New,
    /// A VM is being made, or exists and its Node has not joined.
    Pending,
    /// The VM exists and no Node is expected.
    Available,
    /// The Node joined and is healthy.
    Running,
    /// The Node was healthy and is not, or is gone; the health clock runs.
    Unknown,
    /// A timeout ran out, or the VM collides with a stale Node.
    Failed,
    /// Creation keeps failing; there is no VM.
    CrashLoopBackOff,
    /// Being deleted.
    Terminating,
    /// Drained; an agent updates the Node.
    InPlaceUpdating,
    /// The in-place update went well.
    InPlaceUpdateSuccessful,
    /// The in-place update did not go well.
    InPlaceUpdateFailed,
    /// A phase that we do not know.
    Other(String),
}

impl Phase {
    /// The text on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::New => "",
            Self::Pending => "Pending",
            Self::Available => "Available",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Failed => "Failed",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::Terminating => "Terminating",
            Self::InPlaceUpdating => "InPlaceUpdating",
            Self::InPlaceUpdateSuccessful => "InPlaceUpdateSuccessful",
            Self::InPlaceUpdateFailed => "InPlaceUpdateFailed",
            Self::Other(text) => text,
        }
    }

    /// Whether nobody has looked at the Machine yet.
    pub fn is_new(&self) -> bool {
        *self == Self::New
    }

    /// Where in its life a Machine is. The one list of all phases: what else is asked of a phase follows from it.
    fn stage(&self) -> Stage {
        match self {
            Self::New | Self::Pending | Self::CrashLoopBackOff => Stage::Coming,
            Self::Available => Stage::Alone,
            Self::Running => Stage::Serving,
            Self::Unknown => Stage::Ill,
            Self::InPlaceUpdating => Stage::Updating,
            Self::InPlaceUpdateSuccessful => Stage::Updated,
            Self::InPlaceUpdateFailed => Stage::NotUpdated,
            Self::Failed | Self::Terminating => Stage::Leaving,
            Self::Other(_) => Stage::Unheard,
        }
    }

    /// Whether the Machine is as it is wanted.
    pub fn is_fine(&self) -> bool {
        matches!(self.stage(), Stage::Alone | Stage::Serving | Stage::Updated)
    }

    /// Whether the Machine came up and is not given up.
    pub fn is_there(&self) -> bool {
        matches!(self.stage(), Stage::Alone) || self.has_node()
    }

    /// Whether the Machine's Node joined, and the Machine is not given up.
    pub fn has_node(&self) -> bool {
        let is_updated = matches!(self.stage(), Stage::Updating | Stage::Updated | Stage::NotUpdated);
        is_updated || matches!(self.stage(), Stage::Serving | Stage::Ill)
    }

    /// Whether an agent may be at work on the Machine's Node, or has left it half-way.
    pub fn is_agents(&self) -> bool {
        matches!(self.stage(), Stage::Updating | Stage::NotUpdated)
    }

    /// Whether an update in place may begin. An unhealthy Machine recovers, or is replaced: what a silent Node was told would be lost.
    pub fn may_be_updated(&self) -> bool {
        matches!(self.stage(), Stage::Serving | Stage::Updated | Stage::NotUpdated)
    }
}

/// Where in its life a Machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is being made.
    Coming,
    /// It is there, and no Node is expected.
    Alone,
    /// Its Node serves.
    Serving,
    /// Its Node served.
    Ill,
    /// An agent updates its Node.
    Updating,
    /// The agent has done it.
    Updated,
    /// The agent has not.
    NotUpdated,
    /// It is given up, or being deleted.
    Leaving,
    /// Nobody here knows.
    Unheard,
}

impl From<String> for Phase {
    fn from(text: String) -> Self {
        match text.as_str() {
            "" => Self::New,
            "Pending" => Self::Pending,
            "Available" => Self::Available,
            "Running" => Self::Running,
            "Unknown" => Self::Unknown,
            "Failed" => Self::Failed,
            "CrashLoopBackOff" => Self::CrashLoopBackOff,
            "Terminating" => Self::Terminating,
            "InPlaceUpdating" => Self::InPlaceUpdating,
            "InPlaceUpdateSuccessful" => Self::InPlaceUpdateSuccessful,
            "InPlaceUpdateFailed" => Self::InPlaceUpdateFailed,
            _ => Self::Other(text),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Phase {
    fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input).map(Self::from)
    }
}

/// What a Machine without a priority annotation, or with one that is no number, counts as.
pub const DEFAULT_PRIORITY: i64 = 3;

impl Machine {
    /// Where the Machine stands; a Machine without status is new.
    pub fn phase(&self) -> &Phase {
        self.current().map_or(&Phase::New, |current| &current.phase)
    }

    /// Since when the Machine is in its phase.
    pub fn phase_since(&self) -> Option<Timestamp> {
        self.current()?.last_update_time.as_ref().map(|time| time.0)
    }

    /// Until when the Machine is preserved; in the past where the preservation ran out.
    pub fn preserved_until(&self) -> Option<Timestamp> {
        self.current()?.preserve_expiry_time.as_ref().map(|time| time.0)
    }

    /// When the pods of its Node had gone, because it was preserved.
    pub fn preserve_drained(&self) -> Option<Timestamp> {
        self.current()?.preserve_drained_time.as_ref().map(|time| time.0)
    }

    /// Whether it failed for its Node or its VM.
    pub fn is_given_up(&self) -> bool {
        *self.phase() == Phase::Failed && self.operation_type() == Some(OperationType::HealthCheck)
    }

    /// What was last done to the Machine.
    pub fn last_operation(&self) -> Option<&LastOperation> {
        self.status.as_ref()?.last_operation.as_ref()
    }

    /// How the last operation stands, where it is a word that we know.
    pub fn operation_state(&self) -> Option<OperationState> {
        self.last_operation()?.state.as_ref()?.known()
    }

    /// What the last operation was, where it is a word that we know.
    pub fn operation_type(&self) -> Option<OperationType> {
        self.last_operation()?.type_.as_ref()?.known()
    }

    /// Why the last operation stands as it does, where it has a special reason.
    pub fn operation_reason(&self) -> Option<OperationReason> {
        match &self.last_operation()?.reason {
            Some(reason) => reason.known(),
            None => super::previous::reason(self),
        }
    }

    /// The Machine's uid.
    pub fn uid(&self) -> Option<Uid> {
        meta::uid(&self.metadata)
    }

    /// Name of the Machine's Node, where it is known.
    pub fn node_label(&self) -> Option<NodeName> {
        NodeName::non_empty(meta::label(&self.metadata, keys::NODE))
    }

    /// The VM's id, where there is a VM.
    pub fn provider_id(&self) -> Option<ProviderId> {
        ProviderId::non_empty(self.spec.provider_id.as_deref())
    }

    /// What a VM was asked for with, if one ever was.
    pub fn creation_request(&self) -> Option<&CreationRequest> {
        self.status.as_ref()?.creation_request.as_ref()
    }

    /// What the last operation says, for people.
    pub fn last_words(&self) -> Option<&str> {
        self.last_operation()?.description.as_deref()
    }

    /// Whether the Node joined once: its conditions were copied.
    pub fn has_joined(&self) -> bool {
        self.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
    }

    /// Name of the Machine's class, where it names one.
    pub fn class_name(&self) -> Option<&str> {
        self.spec
            .class
            .as_ref()?
            .name
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// How early the Machine goes when one has to: lower goes first.
    pub fn priority(&self) -> i64 {
        let text = meta::annotation(&self.metadata, keys::PRIORITY);
        text.and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_PRIORITY)
    }

    /// Whether the autoscaler or the deployment controller chose this Machine to go: exactly the text `1`.
    pub fn is_triggered_for_deletion(&self) -> bool {
        meta::annotation(&self.metadata, keys::PRIORITY) == Some(keys::PRIORITY_TRIGGERED)
    }

    /// When the Machine was marked for deletion, where that can be read.
    pub fn marked_for_deletion(&self) -> Option<Timestamp> {
        meta::annotation(&self.metadata, keys::MARKED_FOR_DELETION_TIME)?
            .parse()
            .ok()
    }

    /// The Machine's own creation timeout: the annotation wins over the spec, and what cannot be read does not count
    /// (MC-8).
    pub fn creation_timeout(&self) -> Option<SignedDuration> {
        let annotated = meta::annotation(&self.metadata, keys::EFFECTIVE_CREATION_TIMEOUT).map(GoDuration::from_text);
        let read = |duration: &GoDuration| duration.get().ok();
        annotated
            .as_ref()
            .and_then(read)
            .or_else(|| self.spec.creation_timeout.as_ref().and_then(read))
    }

    /// The Machine's own health timeout, if it can be read.
    pub fn health_timeout(&self) -> Option<SignedDuration> {
        self.spec.health_timeout.as_ref()?.get().ok()
    }

    /// How long the Machine's own update in place may take, if that can be read.
    pub fn in_place_update_timeout(&self) -> Option<SignedDuration> {
        self.spec.in_place_update_timeout.as_ref()?.get().ok()
    }

    /// The Machine's own drain timeout, if it can be read.
    pub fn drain_timeout(&self) -> Option<SignedDuration> {
        self.spec.drain_timeout.as_ref()?.get().ok()
    }

    /// How long the Machine itself is to be preserved, if that can be read.
    pub fn preserve_timeout(&self) -> Option<SignedDuration> {
        self.spec.machine_preserve_timeout.as_ref()?.get().ok()
    }

    /// Whether a user asks that a node which stays is drained by force: exactly the text `True`.
    pub fn is_drain_forced(&self) -> bool {
        meta::label(&self.metadata, keys::FORCE_DRAIN) == Some(keys::TRUE)
    }

    /// Whether a user asks for a deletion that waits for no pod: a label whose value Go reads as true.
    pub fn is_deletion_forced(&self) -> bool {
        let asked = meta::label(&self.metadata, keys::FORCE_DELETION);
        asked.is_some_and(|asked| matches!(asked, "1" | "t" | "T" | "TRUE" | "true" | "True"))
    }

    /// Durations that nobody can read or that are negative, each with its field. Where one stands, the next more general value holds.
    pub fn malformed_durations(&self) -> Vec<String> {
        let spec = &self.spec;
        let annotated = meta::annotation(&self.metadata, keys::EFFECTIVE_CREATION_TIMEOUT).map(GoDuration::from_text);
        let all = [
            ("spec.creationTimeout", &spec.creation_timeout),
            ("spec.drainTimeout", &spec.drain_timeout),
            ("spec.healthTimeout", &spec.health_timeout),
            ("spec.inPlaceUpdateTimeout", &spec.in_place_update_timeout),
            ("spec.machinePreserveTimeout", &spec.machine_preserve_timeout),
            (keys::EFFECTIVE_CREATION_TIMEOUT, &annotated),
        ];
        let faults = all
            .into_iter()
            .filter_map(|(field, duration)| Some((field, duration.as_ref()?.get().err()?)));
        faults.map(|(field, fault)| format!("{field}: {fault}")).collect()
    }

    fn current(&self) -> Option<&CurrentStatus> {
        self.status.as_ref()?.current_status.as_ref()
    }
}
