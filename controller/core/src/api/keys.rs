//! Every label, annotation, finalizer, taint, condition, reason and marker that carries meaning, with who writes it.
//! The only place where such texts stand. Decides nothing.
//!
//! Who: *deployment*, *set*, *machine* and *safety* are our planners; the others are outside of this program.

// ---- Labels ---------------------------------------------------------------------------------------------------------------------

/// Label of sets, their selector and template, and Machines: hash that separates the sets of one deployment. Written by: deployment.
pub const TEMPLATE_HASH: &str = "machine-template-hash";
/// Label of sets and deployments: with [`TRUE`], no Machine is created. Written by: safety, users.
pub const FREEZE: &str = "freeze";
/// Label of a Machine: name of its Node. Written by: machine.
pub const NODE: &str = "node";
/// Label of a Machine: name of its deployment, by convention of whoever writes the template. The autoscaler lists Machines by it.
pub const NAME: &str = "name";
/// Label of a set: present means that no Machine is created. Written by: deployment, during an in-place rollout.
pub const SCALE_UP_DISABLED: &str = "node.machine.sapcloud.io/scale-up-disabled";
/// Label of a Node: it belongs to an old set. Written by: deployment.
pub const CANDIDATE_FOR_UPDATE: &str = "node.machine.sapcloud.io/candidate-for-update";
/// Label of a Node: it is to be updated in place. Written by: deployment (Auto), users (Manual).
pub const SELECTED_FOR_UPDATE: &str = "node.machine.sapcloud.io/selected-for-update";
/// Label of a Node: outcome of the in-place update; written by the node's agent. Of a Machine: it changes sets; written by: deployment.
pub const UPDATE_RESULT: &str = "node.machine.sapcloud.io/update-result";
/// Label of a Machine: a Go bool; true deletes without a graceful drain. Written by: users.
pub const FORCE_DELETION: &str = "force-deletion";
/// Label of a Machine: with [`TRUE`], drains for updates and preservation are forced. Written by: users.
pub const FORCE_DRAIN: &str = "force-drain";
/// Label of a Node: name of its Machine. Written by: machine.
pub const MACHINE_NAME: &str = "node.gardener.cloud/machine-name";
/// Label of a Node or a class: its zone. Written by the cloud or whoever makes the template.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Label of a Node: the provider's name of the VM's size. Written by the kubelet.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Labels that this program writes on Machines and takes off again: a selector that asks for one of them loses its Machines.
pub const WRITTEN_LABELS: [&str; 2] = [NODE, UPDATE_RESULT];
/// The same of a deployment's sets and their Machines.
pub const WRITTEN_LABELS_OF_SETS: [&str; 3] = [NODE, UPDATE_RESULT, TEMPLATE_HASH];

/// The value of [`FREEZE`], [`FORCE_DRAIN`], [`PREFER_NO_SCHEDULE`] and [`UNFREEZE`] that counts.
pub const TRUE: &str = "True";
/// The value of labels and annotations of Nodes whose presence counts.
pub const PRESENT: &str = "true";
/// A value of [`UPDATE_RESULT`]: it went well.
pub const UPDATE_SUCCESSFUL: &str = "successful";
/// A value of [`UPDATE_RESULT`]: it did not.
pub const UPDATE_FAILED: &str = "failed";

// ---- Annotations ----------------------------------------------------------------------------------------------------------------

/// Annotation of sets and deployments: number of the rollout. Written by: deployment.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation of a set: earlier numbers of the same template. Written by: deployment; read by nobody.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation of deployments and sets: why the template is what it is, in words. Written by: users, and deployment to its sets.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
/// Annotation of a template: when somebody asked for all of its Machines anew. Written by: `rollout restart`.
pub const RESTARTED_AT: &str = "machine.sapcloud.io/restartedAt";
/// Annotation of the manager's Lease, not in the original: the settings of whoever leads, as JSON.
pub const MANAGER_SETTINGS: &str = "machine.sapcloud.io/manager-settings";
/// Annotation of a deployment, not in the original: `deletePolicy` of the set of its template. An annotation, because writers of whole
/// objects that do not know a field would drop it. Written by: users.
pub const DELETE_POLICY: &str = "machine.sapcloud.io/delete-policy";
/// Annotation of a set: the deployment's replicas that the set was last told of. Written by: deployment.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation of a set: desired replicas and surge at that time. Written by: deployment.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotation of a set: its Nodes carry the taint of the same name. Written by: deployment.
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// Annotation of sets and deployments: end the freeze. Written by: users, and safety from a deployment to its sets.
pub const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";
/// Annotation of a Machine: how early it goes, lower first. Written by: machine ([`PRIORITY_DEFAULT`]), deployment, users.
pub const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
/// Annotation of a deployment: Machines that the autoscaler wants gone. Written by: the autoscaler; deployment removes entries.
pub const TRIGGER_DELETION: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
/// Annotation of a Machine: when the autoscaler chose it. Written by: deployment, from [`TRIGGER_DELETION`].
pub const MARKED_FOR_DELETION_TIME: &str = "machine.sapcloud.io/marked-for-deletion-time";
/// Annotation of a deployment and its new set: when the autoscaler last changed the replicas. Written by: the autoscaler.
pub const SCALER_CHANGE_TIME: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
/// Annotation of deployments, sets and Machines: a Go duration that beats `creationTimeout`. Written by: dependency-watchdog.
pub const EFFECTIVE_CREATION_TIMEOUT: &str = "node.machine.sapcloud.io/effective-creation-timeout";
/// Annotation of a Node: how long it took to join since its Machine was made. Written by: machine.
pub const MACHINE_JOIN_DURATION: &str = "node.machine.sapcloud.io/machine-join-duration";
/// Annotation of a Machine or its Node: keep it. Written by: users, set ([`PRESERVE_AUTO`]).
pub const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
/// Annotation of a Machine: value of the Node's [`PRESERVE`] that was last acted on. Written by: machine.
pub const LAST_APPLIED_PRESERVE: &str = "node.machine.sapcloud.io/last-applied-node-preserve-value";
/// Annotation of a Node: the node template that was last applied, as JSON. Written by: machine.
pub const LAST_APPLIED_NODE_TEMPLATE: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
/// Annotation of a Node: the virtual capacity that was last applied, as JSON. Written by: machine.
pub const LAST_APPLIED_VIRTUAL_CAPACITY: &str = "node.machine.sapcloud.io/last-applied-virtual-capacity";
/// Annotation of a Node: it has no Machine and is left alone. Written by: safety, users; value `1`.
pub const NOT_MANAGED: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// Annotation of a Node: why its in-place update failed. Written by the node's agent; deployment removes it.
pub const UPDATE_FAILED_REASON: &str = "node.machine.sapcloud.io/update-failed-reason";
/// Annotation of a Node, not in the original: it was cordoned before its update in place, so it stays so after it. Written by: machine.
pub const CORDONED_BEFORE_UPDATE: &str = "node.machine.sapcloud.io/cordoned-before-update";
/// Annotation of a Node: the autoscaler must not take it. Written by: deployment, machine, users.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Annotation of a Node: it was we who wrote [`SCALE_DOWN_DISABLED`], so we may remove it. Written by: deployment, machine.
pub const SCALE_DOWN_DISABLED_BY_US: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";
/// Annotation that kubectl writes on what it applies; never copied from a deployment to its sets.
pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation of a Machine, taken from Cluster API: any non-empty value ranks it first for deletion. Written by: users.
pub const DELETE_MACHINE: &str = "cluster.k8s.io/delete-machine";
/// Annotation of a Machine, not in the original: what its template last said of values that the Machine may have its own of, as JSON.
/// Written by: set.
pub const TEMPLATE_VALUES: &str = "machine.sapcloud.io/template-values";
/// Annotation of a Machine, not in the original: name of the set that released it because its labels no longer match. Written by: set.
pub const RELEASED_BY: &str = "machine.sapcloud.io/released-by";
/// Annotation of a Machine, not in the original: whoever acts on it records each request for a VM in `status.creationRequest`, so without a
/// record there is no VM. Written by: set, when it makes the Machine; machine, with the finalizer, where there is no status yet.
pub const REQUESTS_RECORDED: &str = "machine.sapcloud.io/requests-recorded";

/// Annotation of a set, not in the original: keys of the annotations that it got from its deployment, parted by commas. Written by:
/// deployment.
pub const PASSED_ANNOTATIONS: &str = "machine.sapcloud.io/passed-annotations";

/// Annotations of a deployment that its sets do not get: they speak of one object only.
pub const NOT_COPIED_TO_SETS: [&str; 10] = [
    PASSED_ANNOTATIONS,
    KUBECTL_LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    PREFER_NO_SCHEDULE,
    UNFREEZE,
    TRIGGER_DELETION,
    DELETE_POLICY,
];

/// The value of [`PRIORITY`] that a Machine gets when it has none.
pub const PRIORITY_DEFAULT: &str = "3";
/// The value of [`PRIORITY`] that says "this one goes".
pub const PRIORITY_TRIGGERED: &str = "1";
/// A value of [`PRESERVE`]: from now on.
pub const PRESERVE_NOW: &str = "now";
/// A value of [`PRESERVE`]: once it has failed.
pub const PRESERVE_WHEN_FAILED: &str = "when-failed";
/// A value of [`PRESERVE`]: no longer.
pub const PRESERVE_FALSE: &str = "false";
/// A value of [`PRESERVE`]: the set controller chose to. Written by: set.
pub const PRESERVE_AUTO: &str = "auto-preserved";
/// Parts name and time of an entry of [`TRIGGER_DELETION`].
pub const TRIGGER_DELETION_SEPARATOR: char = '~';

// ---- Taints of Nodes ------------------------------------------------------------------------------------------------------------

/// Taint NoSchedule: components that a Node needs are not up yet; the Machine stays Pending. Written by whoever makes the template.
pub const TAINT_CRITICAL_COMPONENTS: &str = "node.gardener.cloud/critical-components-not-ready";
/// Taint NoExecute, by Kubernetes: the Node's VM does not run, so its pods end and its volumes are detached. Written by: machine.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Taint NoSchedule: the Machine is preserved. Written by: machine.
pub const TAINT_PRESERVED: &str = "node.machine.sapcloud.io/preserved";
/// Taint PreferNoSchedule with value [`TRUE`]: the Node belongs to an old set. Written by: deployment.
pub const TAINT_PREFER_NO_SCHEDULE: &str = PREFER_NO_SCHEDULE;

// ---- Finalizers and leases ------------------------------------------------------------------------------------------------------

/// Finalizer of all four kinds. Written by: deployment on deployments, set on sets, machine on Machines and classes.
pub const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";
/// Finalizer of Secrets that a class refers to. Written by: machine.
pub const SECRET_FINALIZER: &str = "machine.sapcloud.io/machine-controller";
/// Finalizer of what is deleted with `--cascade=orphan`: its dependents stay. Written by: the API server; removed by the garbage collector.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// Finalizer of Nodes. Written by: machine.
pub const NODE_FINALIZER: &str = "node.machine.sapcloud.io/machine-controller";

// ---- Conditions of sets and deployments -----------------------------------------------------------------------------------------

/// Condition of sets and deployments: Machines cannot be created or deleted. Written by: set, deployment.
pub const CONDITION_REPLICA_FAILURE: &str = "ReplicaFailure";
/// Condition of sets and deployments: too many Machines, none is created. Written by: safety.
pub const CONDITION_FROZEN: &str = "Frozen";
/// *set, deployment*: unhealthy machines are kept, because too many are unhealthy at once.
pub const CONDITION_REPLACEMENTS_HELD: &str = "ReplacementsHeld";
/// Reason of that.
pub const REASON_TOO_MANY_UNHEALTHY: &str = "TooManyUnhealthy";
/// Condition of sets and deployments, not in the original: Machines that a set released are still there. Written by: set, deployment.
pub const CONDITION_RELEASED: &str = "MachinesReleased";
/// Reason of that: somebody changed their labels.
pub const REASON_LABELS_CHANGED: &str = "LabelsChanged";
/// Reason of that: as many were released as the set wants, so no more are released, and none is made in place of others.
pub const REASON_TOO_MANY_RELEASED: &str = "TooManyReleased";
/// Condition of a deployment: enough Machines are available. Written by: deployment.
pub const CONDITION_AVAILABLE: &str = "Available";
/// Condition of a deployment: a rollout moves. Written by: deployment; read by the autoscaler.
pub const CONDITION_PROGRESSING: &str = "Progressing";

/// A condition's status: it holds.
pub const STATUS_TRUE: &str = "True";
/// A condition's status: it does not hold.
pub const STATUS_FALSE: &str = "False";

/// Reason of ReplicaFailure on a set, and an event's: a Machine could not be created. Written by: set.
pub const REASON_FAILED_CREATE: &str = "FailedCreate";
/// Reason of ReplicaFailure on a set, and an event's: a Machine could not be deleted. Written by: set.
pub const REASON_FAILED_DELETE: &str = "FailedDelete";
/// Reason of ReplicaFailure on a deployment, and an event's: a set of it cannot be written. Written by: deployment.
pub const REASON_FAILED_WRITE: &str = "FailedWrite";
/// Event of a *set*: it is not frozen any more.
pub const EVENT_UNFROZE: &str = "UnfrozeMachineSet";
/// Reason of Frozen on a deployment: it or one of its sets carries the label [`FREEZE`]. Written by: deployment.
pub const REASON_LABELLED: &str = "FreezeLabel";
/// Reason of Frozen on a deployment that the original froze. Written by: the original's safety controller; kept until it is thawed.
pub const REASON_STATE_SYNC: &str = "MachineDeploymentStateSync";
/// Reason of Available: True. Written by: deployment.
pub const REASON_MINIMUM_AVAILABLE: &str = "MinimumReplicasAvailable";
/// Reason of Available: False. Written by: deployment.
pub const REASON_MINIMUM_UNAVAILABLE: &str = "MinimumReplicasUnavailable";
/// Reason of Progressing: the rollout is complete. Written by: deployment; the autoscaler waits for it.
pub const REASON_NEW_SET_AVAILABLE: &str = "NewMachineSetAvailable";
/// Reason of Progressing: a Machine came or went. Written by: deployment.
pub const REASON_SET_UPDATED: &str = "MachineSetUpdated";
/// Reason of Progressing: nothing moved for too long. Written by: deployment.
pub const REASON_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// Reason of Progressing: the deployment is paused. Written by: deployment; the autoscaler reads it.
pub const REASON_PAUSED: &str = "DeploymentPaused";
/// Reason of Progressing: the deployment is no longer paused. Written by: deployment.
pub const REASON_RESUMED: &str = "DeploymentResumed";
/// *deployment*: it can never work as it is.
pub const REASON_INVALID: &str = "InvalidConfiguration";
/// Event of a *deployment*: its selector is empty.
pub const EVENT_SELECTING_ALL: &str = "SelectingAll";
/// *deployment*: its template changed, and there is no target cluster in which its strategy could update Nodes.
pub const REASON_NO_IN_PLACE: &str = "InPlaceUpdateNotSupported";
/// Reason of Progressing: a set for the template was made. Written by: deployment.
pub const REASON_NEW_SET_CREATED: &str = "NewMachineSetCreated";
/// Reason of Progressing: a set with the template was there already. Written by: deployment.
pub const REASON_FOUND_NEW_SET: &str = "FoundNewMachineSet";
/// Reason of Progressing: the set for the template could not be made. Written by: deployment.
pub const REASON_SET_CREATE_FAILED: &str = "MachineSetCreateError";

// ---- Conditions of Nodes --------------------------------------------------------------------------------------------------------

/// Condition of a Node, by Kubernetes: the kubelet is well. Written by: the kubelet.
pub const NODE_READY: &str = "Ready";
/// Condition of a node whose filesystem takes no writes: its kubelet ends no pod.
pub const NODE_READONLY_FILESYSTEM: &str = "ReadonlyFilesystem";
/// Condition of a Node: why its Machine goes. Written by: machine.
pub const NODE_TERMINATING: &str = "Terminating";
/// Reason of Terminating: it failed. Written by: machine.
pub const REASON_UNHEALTHY: &str = "Unhealthy";
/// Reason of Terminating: it is not wanted any more. Written by: machine.
pub const REASON_SCALE_DOWN: &str = "ScaleDown";
/// Condition of a Node: how its in-place update stands. Written by: machine.
pub const NODE_IN_PLACE_UPDATE: &str = "InPlaceUpdate";
/// Reason of InPlaceUpdate: it belongs to an old set. Written by: machine.
pub const REASON_CANDIDATE: &str = "CandidateForUpdate";
/// Reason of InPlaceUpdate: it is to be updated. Written by: machine.
pub const REASON_SELECTED: &str = "SelectedForUpdate";
/// Reason of InPlaceUpdate: its pods are gone. Written by: machine.
pub const REASON_DRAINED: &str = "DrainSuccessful";
/// Reason of InPlaceUpdate: the agent may begin. Written by: machine.
pub const REASON_READY_FOR_UPDATE: &str = "ReadyForUpdate";
/// Reason of InPlaceUpdate: it went well. Written by: machine.
pub const REASON_UPDATE_SUCCESSFUL: &str = "UpdateSuccessful";
/// Reason of InPlaceUpdate: it did not. Written by: machine.
pub const REASON_UPDATE_FAILED: &str = "UpdateFailed";
/// Condition of a Node: its Machine is preserved. Written by: machine.
pub const NODE_PRESERVED: &str = "Preserved";
/// Reason of Preserved: the set controller chose to. Written by: machine.
pub const REASON_PRESERVED_BY_US: &str = "Preserved by MCM.";
/// Reason of Preserved: a user asked for it. Written by: machine.
pub const REASON_PRESERVED_BY_USER: &str = "Preserved by user.";
/// Reason of Preserved: it is over. Written by: machine.
pub const REASON_PRESERVATION_STOPPED: &str = "Preservation stopped.";
/// Begin of the message of Preserved: its pods are gone. Written by: machine.
pub const PRESERVED_DRAINED: &str = "Preserved node drained successfully.";
/// Begin of the message of Preserved: its pods could not be moved. Written by: machine.
pub const PRESERVED_NOT_DRAINED: &str = "Preserved node could not be drained.";

// ---- Markers: ends of `lastOperation.description` that name the next stage -------------------------------------------------------

/// Stage 1 of a deletion: find the Node's name. Written by: machine.
pub const MARK_VM_STATUS: &str = "Set machine status to termination. Now, getting VM Status";
/// Stage 2 of a deletion: drain. Written by: machine.
pub const MARK_DRAIN: &str = "Initiate node drain";
/// Stage 3 of a deletion: detach volumes. Written by: machine.
pub const MARK_DETACH: &str = "Delete Volume Attachments";
/// Stage 4 of a deletion: the VM. Written by: machine.
pub const MARK_VM_DELETION: &str = "Initiate VM deletion";
/// Stage 5 of a deletion: the Node object. Written by: machine.
pub const MARK_NODE_DELETION: &str = "Initiate node object deletion";
/// Stage 6 of a deletion: the finalizer. Written by: machine.
pub const MARK_FINALIZER: &str = "Initiate machine object finalizer removal";
/// The markers of a deletion, in the order of its stages.
pub const DELETION_MARKS: [&str; 6] = [
    MARK_VM_STATUS,
    MARK_DRAIN,
    MARK_DETACH,
    MARK_VM_DELETION,
    MARK_NODE_DELETION,
    MARK_FINALIZER,
];
/// In a creation: the VM is being initialised. Written by: machine; informational.
pub const MARK_INITIALIZE: &str = "Initialize VM Instance";
/// In an in-place update: the agent may begin. Written by: machine; informational.
pub const MARK_DRAINED_FOR_UPDATE: &str = "Node drain successful. Node is ready for update";

// ---- Secrets --------------------------------------------------------------------------------------------------------------------

/// Key of a class's Secret: what the VM runs at its first boot. Written by: users.
pub const USER_DATA: &str = "userData";
/// In user data: becomes the bootstrap token. Written by: users.
pub const PLACEHOLDER_TOKEN: &str = "<<BOOTSTRAP_TOKEN>>";
/// In user data: becomes the Machine's name. Written by: users.
pub const PLACEHOLDER_NAME: &str = "<<MACHINE_NAME>>";
/// [`PLACEHOLDER_TOKEN`] where the user data is URL-encoded. Written by: users.
pub const PLACEHOLDER_TOKEN_ENCODED: &str = "%3C%3CBOOTSTRAP_TOKEN%3E%3E";
/// [`PLACEHOLDER_NAME`] where the user data is URL-encoded. Written by: users.
pub const PLACEHOLDER_NAME_ENCODED: &str = "%3C%3CMACHINE_NAME%3E%3E";
/// Namespace of bootstrap tokens in the target cluster, given by Kubernetes.
pub const TOKEN_NAMESPACE: &str = "kube-system";
/// Begin of a bootstrap token Secret's name, given by Kubernetes; the token's id follows.
pub const TOKEN_NAME_PREFIX: &str = "bootstrap-token-";
/// Type of a bootstrap token Secret, given by Kubernetes.
pub const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
