//! Mistakes about machines that failed and are kept for somebody to look at.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use millwright_core::api::{Machine, Phase, keys, meta};
use millwright_core::machine::{self, Observed, Plan};
use millwright_core::set::keep::Choice;
use millwright_core::set::{self, Allowance, MachineView};
use serde_json::json;

use super::Mutant;
use super::machines::{deciding, is_deleting};
use super::sets;

pub(super) const ALL: [Mutant; 3] = [
    Mutant {
        name: "kept-is-replaced",
        rows: "139",
        what: "a machine that failed is replaced, whoever wants it kept",
        property: "S21",
        workload: "keep-to-the-end",
        faults: &[],
        rests: false,
        hooks: || sets::deciding(kept_is_replaced),
    },
    Mutant {
        name: "keeps-all",
        rows: "139",
        what: "failed machines are preserved unasked by the count of the last status, two where one may be",
        property: "S21",
        workload: "keep-to-the-end",
        faults: &[],
        rests: false,
        hooks: || sets::deciding(keeps_all),
    },
    Mutant {
        name: "kept-anew",
        rows: "139",
        what: "the time of a preservation begins anew whenever its machine is looked at",
        property: "L1",
        workload: "keep-to-the-end",
        faults: &[],
        rests: false,
        hooks: || deciding(kept_anew),
    },
];

/// Nobody requests anything, and no time is told.
fn kept_is_replaced(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let bare: Vec<Arc<Machine>> = seen.machines.iter().map(|view| bare(view)).collect();
    let mut machines = sets::instead(seen, &bare);
    machines.iter_mut().for_each(|view| view.request = None);
    let choice = Choice::default();
    set::plan(
        &set::Observed {
            machines: &machines,
            allowance: Allowance {
                keep: Some(&choice),
                ..seen.allowance
            },
            ..*seen
        },
        now,
    )
}

/// A Machine without the time of its preservation.
fn bare(machine: &Machine) -> Arc<Machine> {
    let mut body = json!(machine);
    let current = body.pointer_mut("/status/currentStatus");
    if let Some(current) = current.and_then(|current| current.as_object_mut()) {
        current.remove("preserveExpiryTime");
    }
    Arc::new(serde_json::from_value(body).expect("it is a Machine"))
}

/// Whoever failed is taken, while the last status tells of fewer than may be.
fn keeps_all(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let told = seen
        .set
        .status
        .as_ref()
        .map_or(0, |status| status.auto_preserve_failed_machine_count);
    let is_free = |machine: &&MachineView<'_>| {
        *machine.phase() == Phase::Failed && machine.request.is_none() && machine.preserved_until().is_none()
    };
    let mut choice = Choice::default();
    if told <= seen.set.spec.auto_preserve_failed_machine_max && seen.set.spec.auto_preserve_failed_machine_max > 0 {
        choice
            .take
            .extend(seen.machines.iter().filter(is_free).filter_map(|machine| machine.uid()));
    }
    set::plan(
        &set::Observed {
            allowance: Allowance {
                keep: Some(&choice),
                ..seen.allowance
            },
            ..*seen
        },
        now,
    )
}

/// How long before a preservation ends it begins anew.
const EARLY: SignedDuration = SignedDuration::from_mins(5);

/// The time that is stored is not looked at when it is about to end, while anybody requests the Machine kept.
fn kept_anew(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_wished = meta::annotation(&seen.machine.metadata, keys::PRESERVE).is_some();
    let until = seen
        .machine
        .preserved_until()
        .filter(|_| is_wished && !is_deleting(seen.machine));
    let Some(early) = until.map(|until| until - EARLY) else {
        return machine::plan(seen, now);
    };
    if now < early {
        return machine::plan(seen, now).or_at(Some(early), now);
    }
    let machine = bare(&Arc::new(seen.machine.clone()));
    machine::plan(
        &Observed {
            machine: &machine,
            ..*seen
        },
        now,
    )
}
