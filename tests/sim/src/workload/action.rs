//! What workloads are made of: the actions of the operator, and how each is written down. Carries none out.

use std::time::Duration;

use serde_json::{Value, json};

use super::body::CANARY;
use super::body::deployment;

/// One thing that the human does.
#[derive(Clone, Debug)]
pub enum Action {
    /// A request.
    Ask {
        /// In words.
        text: String,
        /// The method.
        method: &'static str,
        /// Below the namespace.
        path: String,
        /// The body.
        body: Value,
    },
    /// Changes an object of a kind, or a subresource of it, by choice.
    ChangeOne {
        /// In words.
        text: &'static str,
        /// The kind.
        plural: &'static str,
        /// `status`, or empty.
        subresource: &'static str,
        /// The merge patch.
        body: Value,
    },
    /// Makes a machine the first to go, by choice, as the autoscaler does before it takes one off the count.
    Prefer,
    /// Wants one machine less and says which, by choice and in one write, as the autoscaler does.
    Name,
    /// Says of a machine, or of its Node, whether it is to be preserved, or takes that back, by choice.
    AskToPreserve,
    /// Switches a VM off, by choice: its node falls silent.
    SwitchOff,
    /// Leaves a machine as another controller does that ends between a VM's creation and its first word about it.
    Leave(&'static str),
    /// Deletes an object of a kind, by choice.
    DeleteOne(&'static str),
    /// The driver's process ends, and comes back after so long.
    DriverAway(Duration),
    /// Takes the finalizer of somebody else from a machine that is on its way out.
    Unhold(&'static str),
    /// Makes VMs at the cloud that no Machine owns, and such that are no business of the manager's.
    Orphans,
    /// Waits until all is as wanted, but not for ever.
    Settle,
    /// Waits until all pods serve, but not for ever.
    Serve,
    /// Forces the deletion of every machine that is being deleted.
    Force,
    /// Waits for a moment that is chosen, so that the next deed comes in the middle of something; sometimes until all settled.
    Moment,
}

pub fn begin(replicas: u32) -> Action {
    make("creates the deployment", "machinedeployments", deployment(replicas))
}

pub fn moment() -> Action {
    Action::Moment
}

pub fn make(text: &str, kind: &str, body: Value) -> Action {
    Action::Ask {
        text: text.to_owned(),
        method: "POST",
        path: kind.to_owned(),
        body,
    }
}

pub fn patch(text: &str, path: &str, body: Value) -> Action {
    Action::Ask {
        text: text.to_owned(),
        method: "PATCH",
        path: path.to_owned(),
        body,
    }
}

pub fn delete(path: &str) -> Action {
    Action::Ask {
        text: format!("deletes {path}"),
        method: "DELETE",
        path: path.to_owned(),
        body: Value::Null,
    }
}

/// Deletes an object and leaves what it owns.
pub fn abandon(path: &str) -> Action {
    Action::Ask {
        text: format!("deletes {path} and leaves what it owns"),
        method: "DELETE",
        path: path.to_owned(),
        body: json!({ "propagationPolicy": "Orphan" }),
    }
}

/// Gives a machine another label in place of the one that selects it, by choice.
pub fn relabel(value: Value) -> Action {
    Action::ChangeOne {
        text: "changes the label of machine",
        plural: "machines",
        subresource: "",
        body: json!({ "metadata": { "labels": { "name": value } } }),
    }
}

/// Writes a phase into the status of a machine, by choice.
pub fn phase(phase: &str) -> Action {
    Action::ChangeOne {
        text: "writes a phase of its own on machine",
        plural: "machines",
        subresource: "status",
        body: json!({ "status": { "currentStatus": { "phase": phase } } }),
    }
}

pub fn scale(replicas: u32) -> Action {
    let body = json!({ "spec": { "replicas": replicas } });
    patch(&format!("scales to {replicas}"), "machinedeployments/workers", body)
}

pub fn paused(paused: bool) -> Action {
    let text = if paused {
        "pauses the rollout"
    } else {
        "lets the rollout go on"
    };
    patch(
        text,
        "machinedeployments/workers",
        json!({ "spec": { "paused": paused } }),
    )
}

pub fn undo(revision: u32) -> Action {
    let text = format!("orders the template of revision {revision} back");
    let body = json!({ "spec": { "rollbackTo": { "revision": revision } } });
    patch(&text, "machinedeployments/workers", body)
}

pub fn history(limit: u32) -> Action {
    let text = format!("wants {limit} old sets kept");
    let body = json!({ "spec": { "revisionHistoryLimit": limit } });
    patch(&text, "machinedeployments/workers", body)
}

pub fn of_class(class: &str) -> Action {
    let class = json!({ "kind": "MachineClass", "name": class });
    let text = format!("changes the template to {class}");
    let body = json!({ "spec": { "template": { "spec": { "class": class } } } });
    patch(&text, "machinedeployments/workers", body)
}

pub fn size(size: &str) -> Action {
    let body = json!({ "providerSpec": { "instanceType": size } });
    patch(&format!("changes the class to {size}"), "machineclasses/small", body)
}

pub fn secret() -> Action {
    let data = json!({ "userData": format!("#cloud-config\n# {CANARY}\n# <<BOOTSTRAP_TOKEN>> new\n") });
    patch("changes the secret", "secrets/user-data", json!({ "stringData": data }))
}
