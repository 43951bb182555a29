//! Mistakes in what is written, read, led and called.

use std::time::Duration;

use millwright::env::Planners;
use millwright_core::class::{self, Observed, Plan, Step};
use millwright_core::lease::Terms;
use millwright_sandbox::request::{Request, Verb};
use millwright_sandbox::watch::Event;
use serde_json::{Map, Value, json};

use super::Mutant;
use crate::event::Truth;
use crate::workload::body::CANARY;
use crate::world::hooks::{self, Hooks};

pub(super) const ALL: [Mutant; 9] = [
    Mutant {
        name: "deletes-by-name",
        rows: "99",
        what: "a deletion names no uid",
        property: "S10",
        workload: "scale",
        faults: &[],
        rests: false,
        hooks: || sending(deletes_by_name),
    },
    Mutant {
        name: "drops-labels",
        rows: "95",
        what: "a Node is written whole, without the labels of others",
        property: "S8",
        workload: "create",
        faults: &[],
        rests: false,
        hooks: || sending(drops_labels),
    },
    Mutant {
        name: "tells-secrets",
        rows: "146, 147",
        what: "a status quotes the user data",
        property: "S11",
        workload: "create",
        faults: &[],
        rests: false,
        hooks: || sending(tells_secrets),
    },
    Mutant {
        name: "keeps-class",
        rows: "61",
        what: "the finalizer of a class stays when its last machine has gone",
        property: "L6",
        workload: "delete",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: Planners {
                class: keeps_class,
                ..hooks::planners()
            },
            ..Hooks::default()
        },
    },
    Mutant {
        name: "misses-deletions",
        rows: "99, 100",
        what: "the view keeps a machine that was deleted, as it was before",
        property: "L2",
        workload: "machine",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            watched: misses_deletions,
            ..Hooks::default()
        },
    },
    Mutant {
        name: "skips-gaps",
        rows: "93, 101, 103",
        what: "a watch that has lost its place goes on without what it missed",
        property: "L1",
        workload: "scale",
        faults: &["F20x4"],
        rests: false,
        hooks: || Hooks {
            skips_gaps: true,
            ..Hooks::default()
        },
    },
    Mutant {
        name: "leads-too-long",
        rows: "2, 34",
        what: "a leader that cannot renew its lease goes on when it has run out",
        property: "S14",
        workload: "again",
        faults: &["F16", "F40"],
        rests: false,
        hooks: || giving_up_after(Duration::from_mins(10)),
    },
    Mutant {
        name: "margin-spent",
        rows: "2, 34",
        what: "a leader that cannot renew its lease works until it runs out, and what it sent last goes on beyond that",
        property: "S14",
        workload: "again",
        faults: &["F16", "F40"],
        rests: false,
        hooks: || giving_up_after(Duration::from_millis(14_900)),
    },
    Mutant {
        name: "first-epoch",
        rows: "34",
        what: "driver calls carry the epoch of the first leader",
        property: "S14",
        workload: "scale",
        faults: &["F1r"],
        rests: false,
        hooks: || Hooks {
            epoch: |epoch| epoch.map(|_| 0),
            elects: Some(true),
            ..Hooks::default()
        },
    },
];

fn sending(request: fn(&mut Request, &Truth<'_>)) -> Hooks {
    Hooks {
        request,
        ..Hooks::default()
    }
}

/// Managers that elect a leader who tries for so long to renew its lease.
fn giving_up_after(renew_deadline: Duration) -> Hooks {
    Hooks {
        terms: Terms {
            renew_deadline,
            ..Terms::default()
        },
        elects: Some(true),
        ..Hooks::default()
    }
}

fn keeps_class(seen: &Observed<'_>) -> Plan {
    let mut plan = class::plan(seen);
    plan.steps.retain(|step| *step != Step::RemoveFinalizer);
    plan
}

/// Puts a value into a body of JSON; what is none is left for the server to refuse.
pub(super) fn put(request: &mut Request, path: &[&str], value: Value) {
    let Ok(mut body) = serde_json::from_slice::<Map<String, Value>>(&request.body) else {
        return;
    };
    let Some((last, before)) = path.split_last() else {
        return;
    };
    let mut at = &mut body;
    for step in before {
        let next = at.entry(*step).or_insert_with(|| Value::Object(Map::new()));
        let Some(next) = next.as_object_mut() else { return };
        at = next;
    }
    at.insert((*last).to_owned(), value);
    request.body = Value::Object(body).to_string().into_bytes();
}

fn deletes_by_name(request: &mut Request, _: &Truth<'_>) {
    if request.verb == Verb::Delete {
        put(request, &["preconditions"], Value::Null);
    }
}

fn drops_labels(request: &mut Request, _: &Truth<'_>) {
    if request.verb == Verb::Patch && request.target.resource == "nodes" {
        put(request, &["metadata", "labels", "$patch"], json!("replace"));
    }
}

fn tells_secrets(request: &mut Request, _: &Truth<'_>) {
    let target = &request.target;
    if request.verb == Verb::Patch && target.resource == "machines" && target.subresource == "status" {
        let text = json!(format!("cannot read {CANARY}"));
        put(request, &["status", "lastOperation", "description"], text);
    }
}

fn misses_deletions(kind: &str, events: &mut Vec<Event>) {
    if kind == "machines" {
        events.retain(|event| event.to_value().pointer("/object/metadata/deletionTimestamp").is_none());
    }
}
