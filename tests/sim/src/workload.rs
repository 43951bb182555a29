//! The table of workloads: what the operator does in a run, as actions in their order, with pauses in between.

use serde_json::Value;

use self::action::{Action, begin, delete, make, moment, of_class, scale, secret, size};
use self::body::{class, machine, set_of, user_data};
use crate::choices::Choices;
use crate::event::Regime;
use crate::pods::Wanted;

pub mod action;
mod autoscaler;
pub mod body;
mod drains;
mod in_place;
mod keep;
mod meddling;
pub mod operator;
mod orphans;
mod rollouts;
mod short;
mod troubles;

/// The names of all workloads.
pub const ALL: [&str; 39] = [
    "scale",
    "create",
    "machine",
    "delete",
    "roll",
    "rotate",
    "again",
    "away",
    "node",
    "victim",
    "repair",
    "beside",
    "prefer",
    "takeover",
    "held",
    "bring",
    "renew",
    "flip",
    "pause",
    "recreate",
    "named",
    "undo",
    "adopt",
    "drain-roll",
    "drain",
    "drain-stuck",
    "orphans",
    "keep",
    "keep-roll",
    "drain-keep",
    "in-place",
    "in-place-surge",
    "drain-in-place",
    "drain-volumes",
    "drain-volumes-dead",
    "abandon",
    "edit-class",
    "phases",
    "relabel",
];

/// The workload that begins in any state; it has campaigns of its own.
pub const ANY: &str = "any";

/// As what the end of a workload's runs is judged.
pub fn regime(name: &str) -> Regime {
    match name {
        "beside" => Regime::Beside,
        "repair" => Regime::Repaired,
        ANY => Regime::AnyState,
        _ => Regime::Ordinary,
    }
}

/// Which pods a workload has, where it has any.
pub fn pods(name: &str) -> Option<Wanted> {
    if !name.starts_with("drain") {
        return None;
    }
    let has_volumes = name.starts_with("drain-volumes");
    let stateful = if has_volumes { drains::STATEFUL } else { 0 };
    Some(Wanted {
        plain: (drains::PODS - stateful) as usize,
        stateful,
        has_daemons: has_volumes,
    })
}

/// Whether a workload is about VMs of no Machine.
pub fn has_orphans(name: &str) -> bool {
    name.starts_with("orphans")
}

/// The workload of this name; by choice where none is named.
pub fn chosen(name: Option<&str>, choices: &mut Choices) -> String {
    if let Some(name) = name {
        return name.to_owned();
    }
    let nth = choices.choose("workload", u32::try_from(ALL.len()).unwrap_or(1)) as usize;
    ALL.get(nth).copied().unwrap_or("scale").to_owned()
}

/// The actions of a workload.
pub fn actions(name: &str) -> Option<Vec<Action>> {
    let single = |name: &str| make(&format!("creates machine {name}"), "machines", machine(name));
    Some(match name {
        "scale" => vec![
            begin(0),
            Action::Settle,
            scale(3),
            moment(),
            scale(1),
            moment(),
            scale(0),
        ],
        "create" => vec![make("creates the set", "machinesets", set_of("workers", 2, "small"))],
        "machine" => vec![
            single("alone"),
            moment(),
            delete("machines/alone"),
            moment(),
            single("other"),
        ],
        "again" => vec![
            single("same"),
            moment(),
            delete("machines/same"),
            moment(),
            single("same"),
        ],
        "delete" => vec![begin(2), moment(), delete("machinedeployments/workers")],
        "roll" => vec![begin(2), moment(), of_class("large"), moment(), of_class("small")],
        "rotate" => vec![begin(1), moment(), size("large"), moment(), secret(), scale(2)],
        // What is there is not known; where there is no deployment, this changes nothing.
        ANY => vec![moment(), scale(2), moment()],
        _ => {
            return troubles::workload(name)
                .or_else(|| rollouts::workload(name))
                .or_else(|| drains::workload(name))
                .or_else(|| keep::workload(name))
                .or_else(|| in_place::workload(name))
                .or_else(|| meddling::workload(name))
                .or_else(|| short::workload(name));
        }
    })
}

/// The classes and the Secret that every workload has.
pub fn fixtures() -> Vec<Value> {
    vec![user_data("user-data"), class("small"), class("large")]
}
