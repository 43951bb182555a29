//! Workloads in which the template changes, and what may come between.

use serde_json::json;

use super::action::{Action, begin, history, make, moment, of_class, patch, paused, scale, undo};
use super::body::NEVER;
use super::body::{adoptable, of_secret, recreated};

/// Workloads in which the template changes, and what may come between.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    Some(match name {
        "renew" => vec![
            begin(4),
            Action::Settle,
            of_class("large"),
            moment(),
            scale(5),
            moment(),
        ],
        "flip" => flip(),
        "pause" => vec![
            begin(3),
            Action::Settle,
            of_class("large"),
            moment(),
            paused(true),
            moment(),
            scale(5),
            moment(),
            scale(2),
            moment(),
            paused(false),
        ],
        "recreate" => vec![
            make("creates the deployment", "machinedeployments", recreated(3)),
            Action::Settle,
            of_class("large"),
            moment(),
            scale(2),
            moment(),
            of_class("small"),
        ],
        "named" => vec![
            begin(5),
            Action::Settle,
            of_class("large"),
            moment(),
            Action::Name,
            moment(),
            Action::Name,
        ],
        // Back, back again, and to a revision that there never was; the history is short.
        "undo" => vec![
            begin(3),
            Action::Settle,
            history(1),
            of_class("large"),
            moment(),
            undo(0),
            moment(),
            undo(1),
            moment(),
            undo(77),
            moment(),
            of_class("large"),
        ],
        // A set that somebody made, without the label by which a deployment tells its sets apart.
        "adopt" => vec![
            make("creates a set", "machinesets", adoptable("mine", 2)),
            moment(),
            begin(3),
            moment(),
            of_class("large"),
            moment(),
            scale(2),
        ],
        "bring" => bring(),
        _ => return None,
    })
}

/// A template comes that never works, others before it is out, and the last one works.
fn flip() -> Vec<Action> {
    let never = of_secret(NEVER, NEVER);
    let class = make("creates a class whose secret never comes", "machineclasses", never);
    let mut all = vec![class, begin(3), Action::Settle, of_class(NEVER)];
    for class in ["large", "small", "large"] {
        all.extend([moment(), of_class(class)]);
    }
    all
}

/// What needs no rollout is brought to the machines that there are, and then more are wanted.
fn bring() -> Vec<Action> {
    let timeout = json!({ "spec": { "template": { "spec": { "healthTimeout": "3m" } } } });
    let text = "changes the health timeout";
    let change = patch(text, "machinedeployments/workers", timeout);
    vec![begin(2), Action::Settle, moment(), change, moment(), scale(3), moment()]
}
