//! Mistakes in what is decided about one MachineSet.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use millwright::env::Planners;
use millwright_core::api::{Machine, MachineSet, meta};
use millwright_core::ids::Name;
use millwright_core::selector::Matcher;
use millwright_core::set::{self, MachineView, Observed, Plan, Step};

use super::Mutant;
use crate::choices::mix;
use crate::world::hooks::Hooks;

pub(super) const ALL: [Mutant; 8] = [
    Mutant {
        name: "counts-blind",
        rows: "73, 74",
        what: "machines are counted in a view that lacks the last second's, and bear random names",
        property: "S4",
        workload: "create",
        faults: &[],
        rests: false,
        hooks: || deciding(counts_blind),
    },
    Mutant {
        name: "names-at-random",
        rows: "90",
        what: "each try to create a machine has a new name",
        property: "S4",
        workload: "scale",
        faults: &["F10x5"],
        rests: false,
        hooks: || deciding(names_at_random),
    },
    Mutant {
        name: "makes-up-twice",
        rows: "80, 82",
        what: "a machine that goes is made up for beside the count that lacks it",
        property: "S4",
        workload: "lose",
        faults: &[],
        rests: false,
        hooks: || deciding(makes_up_twice),
    },
    Mutant {
        name: "counts-by-label",
        rows: "86",
        what: "machines are counted by their labels, not by their owner",
        property: "S4",
        workload: "drift",
        faults: &[],
        rests: false,
        hooks: || deciding(counts_by_label),
    },
    Mutant {
        name: "second-victim",
        rows: "46, 76",
        what: "a machine that goes already does not count as one less",
        property: "S3",
        workload: "shrink",
        faults: &[],
        rests: false,
        hooks: || deciding(second_victim),
    },
    Mutant {
        name: "victim-anew",
        rows: "45, 46",
        what: "a deletion that was not answered is forgotten, and a victim chosen anew",
        property: "S3",
        workload: "shrink-by-ones",
        faults: &["F10x10"],
        rests: false,
        hooks: || deciding(victim_anew),
    },
    Mutant {
        name: "names-from-counter",
        rows: "90",
        what: "names are taken from the counter, not from the lowest number that may still be under way",
        property: "S4",
        workload: "scale",
        faults: &["F10x5"],
        rests: false,
        hooks: || deciding(names_from_counter),
    },
    Mutant {
        name: "adopts-the-leaving",
        rows: "-",
        what: "a machine that is being deleted is adopted",
        property: "S19",
        workload: "held",
        faults: &[],
        rests: false,
        hooks: || deciding(adopts_the_leaving),
    },
];

pub(super) fn deciding(set: fn(&Observed<'_>, Timestamp) -> Plan) -> Hooks {
    let planners = Planners {
        set,
        ..Planners::default()
    };
    Hooks {
        planners,
        ..Hooks::default()
    }
}

/// Five letters that nobody has drawn before.
pub(super) fn random(now: Timestamp, nth: usize) -> String {
    let drawn = mix(u64::try_from(now.as_nanosecond()).unwrap_or(0) + u64::try_from(nth).unwrap_or(0));
    format!("{:05x}", drawn & 0xf_ffff)
}

/// A name that no object had.
pub(super) fn new_name(now: Timestamp, nth: usize) -> Name {
    Name::new(format!("workers-{}", random(now, nth)))
}

fn named_at_random(mut plan: Plan, now: Timestamp) -> Plan {
    for step in &mut plan.steps {
        if let Step::Create(batch) = step {
            let each = batch.iter_mut().enumerate();
            each.for_each(|(nth, made)| made.name = new_name(now, nth));
        }
    }
    plan
}

fn counts_blind(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_seen = |machine: &&MachineView<'_>| {
        let made = meta::created(&machine.metadata).unwrap_or(Timestamp::MIN);
        made + SignedDuration::from_secs(1) < now
    };
    let machines: Vec<MachineView<'_>> = seen.machines.iter().filter(is_seen).cloned().collect();
    let blind = Observed {
        machines: &machines,
        ..*seen
    };
    named_at_random(set::plan(&blind, now), now)
}

fn names_at_random(seen: &Observed<'_>, now: Timestamp) -> Plan {
    named_at_random(set::plan(seen, now), now)
}

/// A machine whose labels drifted away is neither counted nor released.
fn counts_by_label(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let selector = seen.set.spec.selector.as_ref();
    let Some(selector) = selector.and_then(|selector| Matcher::new(selector).ok()) else {
        return set::plan(seen, now);
    };
    let labelled = seen
        .machines
        .iter()
        .filter(|machine| selector.selects(&machine.metadata));
    let machines: Vec<MachineView<'_>> = labelled.cloned().collect();
    let labelled = Observed {
        machines: &machines,
        ..*seen
    };
    set::plan(&labelled, now)
}

fn going(seen: &Observed<'_>) -> i32 {
    let going = seen.machines.iter();
    let going = going.filter(|machine| meta::is_deleting(&machine.metadata)).count();
    i32::try_from(going).unwrap_or(i32::MAX)
}

/// The plan for a set that wants another number of machines.
fn wanting(seen: &Observed<'_>, replicas: i32, now: Timestamp) -> Plan {
    let mut set = MachineSet::clone(seen.set);
    set.spec.replicas = replicas;
    let set = &Arc::new(set);
    set::plan(&Observed { set, ..*seen }, now)
}

fn makes_up_twice(seen: &Observed<'_>, now: Timestamp) -> Plan {
    wanting(seen, seen.set.spec.replicas.saturating_add(going(seen)), now)
}

fn second_victim(seen: &Observed<'_>, now: Timestamp) -> Plan {
    wanting(seen, seen.set.spec.replicas.saturating_sub(going(seen)).max(0), now)
}

fn victim_anew(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let unsent = seen.machines.iter().map(|view| MachineView {
        deletion_sent: None,
        ..view.clone()
    });
    let machines = &unsent.collect::<Vec<_>>();
    set::plan(&Observed { machines, ..*seen }, now)
}

fn names_from_counter(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut set = MachineSet::clone(seen.set);
    if let Some(status) = &mut set.status {
        status.settled_machine_number = status.next_machine_number;
    }
    let set = &Arc::new(set);
    set::plan(&Observed { set, ..*seen }, now)
}

/// The Machines of a set, each with another object in its place.
pub(super) fn instead<'a>(seen: &Observed<'a>, machines: &'a [Arc<Machine>]) -> Vec<MachineView<'a>> {
    let each = seen.machines.iter().zip(machines);
    let each = each.map(|(view, machine)| MachineView {
        machine,
        ..view.clone()
    });
    each.collect()
}

fn adopts_the_leaving(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let staying = |view: &MachineView<'_>| {
        let mut machine = Machine::clone(view);
        if meta::controller_uid(&machine.metadata).is_none() {
            machine.metadata.deletion_timestamp = None;
        }
        Arc::new(machine)
    };
    let staying: Vec<Arc<Machine>> = seen.machines.iter().map(staying).collect();
    let machines = instead(seen, &staying);
    let blind = Observed {
        machines: &machines,
        ..*seen
    };
    set::plan(&blind, now)
}
