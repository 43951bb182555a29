//! What last happened to a Machine, as its status and the summaries in set and deployment statuses tell it. Decides nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::lenient::{self, Lenient, words};

words!(
    /// How the last operation stands.
    OperationState {
        /// Under way.
        Processing,
        /// Ended without success.
        Failed,
        /// Ended well.
        Successful,
    }
);

words!(
    /// What the last operation was.
    OperationType {
        /// A VM is made or adopted and its node joins.
        Create,
        /// Defined by the original, written by nobody.
        Update,
        /// The node is updated without being replaced.
        InPlaceUpdate,
        /// Pods leave the node.
        DrainNode,
        /// The node's conditions are watched.
        HealthCheck,
        /// The Machine goes away.
        Delete,
    }
);

words!(
    /// Why the last operation stands as it does, where a decision depends on it. The description tells the same to people; nothing is
    /// decided from the description.
    OperationReason {
        /// Something is missing before a driver may be asked for a VM: a class, a driver, a target cluster.
        Waiting,
        /// Calls of this kind are suspended for all Machines of the class or of the account; another Machine probes for all.
        Suspended,
        /// A Node has come that does not count as the Machine's own, or not yet.
        NodeRejected,
        /// The driver said that the VM does not run: a healthy Node is not believed before the driver says otherwise.
        VmReported,
        /// The driver announced that the provider takes the VM away, or stops it.
        VmEnding,
        /// The Machine's Node was seen, and its pods are to be drained before the VM goes.
        Draining,
        /// The same, and a pod does not go, or the Node takes no cordon.
        DrainBlocked,
    }
);

/// The last thing that was done to a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastOperation {
    /// What was done or is next, in words, for people. The end of the text marks the stage of a deletion.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The driver's code of a failed creation, for example ResourceExhausted.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Not in the original. Why the operation stands as it does, in one word: Waiting, Suspended, NodeRejected, VmReported, VmEnding,
    /// Draining, DrainBlocked. Empty: no special reason. Absent: another version or another program wrote the operation.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Lenient<OperationReason>>,
    /// When this operation was last written.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Processing, Failed or Successful.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub state: Option<Lenient<OperationState>>,
    /// Create, Update, InPlaceUpdate, DrainNode, HealthCheck or Delete.
    #[serde(
        rename = "type",
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub type_: Option<Lenient<OperationType>>,
}

/// A machine whose last operation failed, as told in the status of its set and deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSummary {
    /// Name of the Machine.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The VM's id at its provider.
    #[serde(
        rename = "providerID",
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<String>,
    /// What failed.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Name of the MachineSet that owns the Machine.
    #[serde(deserialize_with = "lenient::field", skip_serializing_if = "Option::is_none")]
    pub owner_ref: Option<String>,
}
