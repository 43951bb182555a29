//! MachineSet: so many Machines of one template. Decides nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::lenient::{self, Lenient, absent_is_default, words};
use super::machine::ClassRef;
use super::operation::{LastOperation, MachineSummary};
use super::template::Template;

words!(
    /// Which Machine goes first where the original's ranking leaves a choice. Not in the original.
    DeletePolicy {
        /// Any.
        Random,
        /// The youngest.
        Newest,
        /// The oldest.
        Oldest,
    }
);

/// What a MachineSet should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineSet",
    doc = "A MachineSet keeps a number of Machines of one template.",
    namespaced,
    status = "MachineSetStatus",
    shortname = "mcs",
    shortname = "ms",
    derive = "Default",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    )
)]
pub struct MachineSetSpec {
    /// Number of desired Machines.
    #[serde(deserialize_with = "lenient::int32")]
    pub replicas: i32,
    /// Which Machines belong to the set; must select the labels of the template.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
    /// Kept for objects of the original; has no effect.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub machine_class: Option<ClassRef>,
    /// What new Machines are made from.
    #[serde(deserialize_with = "lenient::raw", skip_serializing_if = "Template::is_empty")]
    pub template: Template,
    /// Seconds that a Machine must have been ready to count as available.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many Failed Machines are preserved without being asked, the newest ones; of a deployment's sets together, as the
    /// deployment says.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_max: i32,
    /// Random, Newest or Oldest: which Machine goes first where nothing else decides. Without it the oldest. A MachineDeployment
    /// sets it in the set of its template, as its annotation machine.sapcloud.io/delete-policy says.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub delete_policy: Option<Lenient<DeletePolicy>>,
}

absent_is_default!(MachineSetSpec);

/// What is known about a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetStatus {
    /// Number of Machines, those that failed or are leaving included.
    #[serde(deserialize_with = "lenient::int32")]
    pub replicas: i32,
    /// Number of Machines that carry all labels of the template.
    #[serde(deserialize_with = "lenient::int32")]
    pub fully_labeled_replicas: i32,
    /// Number of Machines that are Running.
    #[serde(deserialize_with = "lenient::int32")]
    pub ready_replicas: i32,
    /// Number of Machines that are ready for at least minReadySeconds, or Available.
    #[serde(deserialize_with = "lenient::int32")]
    pub available_replicas: i32,
    /// Number of Failed Machines that are preserved.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub preserved_failed_replicas: i32,
    /// Number of Machines that are preserved without being asked.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_count: i32,
    /// The generation of the spec that this status was computed from.
    #[serde(deserialize_with = "lenient::int64")]
    pub observed_generation: i64,
    /// Conditions of the set: ReplicaFailure, Frozen.
    #[serde(
        rename = "machineSetCondition",
        deserialize_with = "lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<MachineSetCondition>,
    /// When this status was last written.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Machines whose last operation failed.
    #[serde(deserialize_with = "lenient::optional_list", skip_serializing_if = "Option::is_none")]
    pub failed_machines: Option<Vec<MachineSummary>>,
    /// The selector as text, for the scale subresource.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Why the set can never work as it is, in one word.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub error_reason: Option<String>,
    /// Why the set can never work as it is.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Number of Machine names that were ever given out. Advanced before the Machines are created, so that two writers cannot use a
    /// name twice (MS-3).
    #[serde(deserialize_with = "lenient::int64", skip_serializing_if = "is_zero_wide")]
    #[schemars(
        description = "Number of Machine names that were ever given out; advanced before the Machines are created."
    )]
    pub next_machine_number: i64,
    /// Number of Machine names known to have been used or given up: those below need no second look (MS-3).
    #[serde(deserialize_with = "lenient::int64", skip_serializing_if = "is_zero_wide")]
    #[schemars(description = "Number of Machine names that are known to have been used or given up.")]
    pub settled_machine_number: i64,
}

impl MachineSetStatus {
    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&MachineSetCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// One thing that holds, or does not, for a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetCondition {
    /// ReplicaFailure or Frozen.
    #[serde(rename = "type", deserialize_with = "lenient::field")]
    pub type_: String,
    /// True, False or Unknown.
    #[serde(deserialize_with = "lenient::field")]
    pub status: String,
    /// When the status last changed.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in one word.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in words.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

pub(super) fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_wide(number: &i64) -> bool {
    *number == 0
}
