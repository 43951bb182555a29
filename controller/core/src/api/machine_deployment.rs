//! MachineDeployment: a MachineSet per template, and the way from one to the next. Decides nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient::{self, IntOrPercent, Lenient, absent_is_default, words};
use super::machine_set::{DeletePolicy, is_zero};
use super::operation::MachineSummary;
use super::template::Template;
use super::{Time, keys, meta};

words!(
    /// How old Machines are replaced by new ones.
    StrategyType {
        /// All old ones go before new ones come.
        Recreate,
        /// Step by step, within maxSurge and maxUnavailable.
        RollingUpdate,
        /// An agent changes the Node; the VM stays.
        InPlaceUpdate,
    }
);

words!(
    /// Who picks the Nodes of an in-place update.
    OrchestrationType {
        /// The controller.
        Auto,
        /// A user.
        Manual,
    }
);

/// What a MachineDeployment should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    doc = "A MachineDeployment keeps a MachineSet for its template and moves Machines from older sets to it. Its annotation \
           machine.sapcloud.io/delete-policy (Random, Newest or Oldest) is the deletePolicy of the set of its template.",
    namespaced,
    status = "MachineDeploymentStatus",
    shortname = "mcd",
    derive = "Default",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    )
)]
pub struct MachineDeploymentSpec {
    /// Number of desired Machines.
    #[serde(deserialize_with = "lenient::int32")]
    pub replicas: i32,
    /// Which MachineSets belong to the deployment; must select the labels of the template.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
    /// What new Machines are made from.
    #[serde(deserialize_with = "lenient::raw")]
    pub template: Template,
    /// How old Machines are replaced by new ones. Without a type it is RollingUpdate, without bounds 25 % each.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Seconds that a Machine must have been ready to count as available.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old MachineSets are kept, so that rollbackTo can bring their templates back. Without it 10.
    #[serde(
        deserialize_with = "lenient::optional_int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub revision_history_limit: Option<i32>,
    /// With true no rollout and no rollback moves; scaling still works.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// One-time order to go back to an earlier template; removed once it is carried out, or once it is found that it cannot be. While
    /// the deployment is paused it waits.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<RollbackTo>,
    /// Seconds without progress after which the condition Progressing turns False with reason ProgressDeadlineExceeded; the rollout
    /// goes on nevertheless. Without it never.
    #[serde(
        deserialize_with = "lenient::optional_int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub progress_deadline_seconds: Option<i32>,
    /// How many Failed Machines are preserved without being asked, the newest ones. While machines of several templates are there,
    /// none is added.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_max: i32,
}

absent_is_default!(MachineDeploymentSpec);

impl MachineDeployment {
    /// How old Machines are replaced, where the deployment says it in a known word.
    pub fn strategy(&self) -> Option<StrategyType> {
        self.spec.strategy.as_ref()?.type_.as_ref()?.known()
    }

    /// Which Machine of the set of its template goes first, as its annotation says.
    pub fn delete_policy(&self) -> Option<Lenient<DeletePolicy>> {
        meta::annotation(&self.metadata, keys::DELETE_POLICY).map(Lenient::from_text)
    }
}

/// How old Machines are replaced by new ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    /// RollingUpdate: new Machines come and old ones go within the bounds in rollingUpdate. Recreate: all old Machines go before
    /// new ones come. InPlaceUpdate: Machines keep their VMs; each Node is drained, updated by an agent on it, and goes over to the
    /// new MachineSet. Needs a target cluster.
    #[serde(
        rename = "type",
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub type_: Option<Lenient<StrategyType>>,
    /// Bounds of a rolling update; needed where type is RollingUpdate.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// Bounds of an in-place update; needed where type is InPlaceUpdate.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<InPlaceUpdate>,
}

impl Strategy {
    /// Whether the deployment picks the Nodes that are updated in place.
    pub fn updates_by_itself(&self) -> bool {
        let block = self.in_place_update.as_ref();
        let word = block.and_then(|block| block.orchestration_type.as_ref()?.known());
        word == Some(OrchestrationType::Auto)
    }
}

/// Bounds of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many of the desired Machines may be missing: a number, or a percentage such as 25% that is rounded down. Where maxSurge
    /// comes out as 0 too, it counts as 1.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrPercent>,
    /// How many Machines more than desired there may be: a number, or a percentage such as 25% that is rounded up.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrPercent>,
}

/// Bounds of an in-place update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InPlaceUpdate {
    /// How many of the desired Machines may be missing: a number, or a percentage such as 25% that is rounded down. Where maxSurge
    /// comes out as 0 too, it counts as 1.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrPercent>,
    /// How many Machines more than desired there may be: a number, or a percentage such as 25% that is rounded up.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrPercent>,
    /// Who picks the Nodes to update. Auto: the controller, within the bounds. Manual: a user, who labels them
    /// node.machine.sapcloud.io/selected-for-update; maxSurge counts as 0 then.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub orchestration_type: Option<Lenient<OrchestrationType>>,
}

/// Order to go back to an earlier template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RollbackTo {
    /// Number of the rollout to go back to, as the annotation deployment.kubernetes.io/revision of the MachineSets tells it; 0 is
    /// the one before the present.
    #[serde(deserialize_with = "lenient::int64")]
    pub revision: i64,
}

/// What is known about a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentStatus {
    /// The generation of the spec that this status was computed from.
    #[serde(deserialize_with = "lenient::int64")]
    pub observed_generation: i64,
    /// Number of Machines of all sets, those that are leaving included.
    #[serde(deserialize_with = "lenient::int32")]
    pub replicas: i32,
    /// Number of Machines of the newest template.
    #[serde(deserialize_with = "lenient::int32")]
    pub updated_replicas: i32,
    /// Number of Machines that are Running.
    #[serde(deserialize_with = "lenient::int32")]
    pub ready_replicas: i32,
    /// Number of available Machines.
    #[serde(deserialize_with = "lenient::int32")]
    pub available_replicas: i32,
    /// Number of Machines that the sets want and that are not available.
    #[serde(deserialize_with = "lenient::int32")]
    pub unavailable_replicas: i32,
    /// Number of Failed Machines that are preserved.
    #[serde(deserialize_with = "lenient::int32", skip_serializing_if = "is_zero")]
    pub preserved_failed_replicas: i32,
    /// Conditions of the deployment: Available, Progressing, ReplicaFailure, Frozen.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineDeploymentCondition>,
    /// How often the name of a new set was taken already.
    #[serde(
        deserialize_with = "lenient::optional_int32",
        skip_serializing_if = "Option::is_none"
    )]
    pub collision_count: Option<i32>,
    /// Machines whose last operation failed.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
    /// The selector as text, for the scale subresource.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}

impl MachineDeploymentStatus {
    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&MachineDeploymentCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// One thing that holds, or does not, for a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentCondition {
    /// Available, Progressing, ReplicaFailure or Frozen.
    #[serde(rename = "type", deserialize_with = "lenient::field")]
    pub type_: String,
    /// True, False or Unknown.
    #[serde(deserialize_with = "lenient::field")]
    pub status: String,
    /// When the condition was last written.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
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
