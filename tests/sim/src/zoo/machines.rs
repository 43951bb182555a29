//! Mistakes in what is decided about one Machine.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use millwright::env::Planners;
use millwright_core::api::{Machine, OperationState, OperationType, Phase, keys, meta};
use millwright_core::driver::Call;
use millwright_core::ids::ProviderId;
use millwright_core::machine::{self, DriverView, Observed, Plan, StatusChange, Step, Why};

use super::Mutant;
use crate::world::hooks::Hooks;

pub(super) const ALL: [Mutant; 19] = [
    Mutant {
        name: "retries-at-once",
        rows: "104",
        what: "a call that failed is sent again at once, however often it failed",
        property: "S13",
        workload: "machine",
        faults: &["F30x3"],
        rests: false,
        hooks: || deciding(retries_at_once),
    },
    Mutant {
        name: "finalizer-late",
        rows: "12, 13",
        what: "the finalizer is added when CreateMachine has returned",
        property: "S2",
        workload: "machine",
        faults: &[],
        rests: false,
        hooks: || deciding(finalizer_late),
    },
    Mutant {
        name: "finalizer-early",
        rows: "15, 27",
        what: "the finalizer goes before the VM does",
        property: "S2",
        workload: "machine",
        faults: &[],
        rests: false,
        hooks: || deciding(finalizer_early),
    },
    Mutant {
        name: "absent-is-gone",
        rows: "15, 161, 162",
        what: "a deletion ends when one lookup finds no VM",
        property: "S2",
        workload: "machine",
        faults: &["F37x5", "F1r"],
        rests: false,
        hooks: || deciding(absent_is_gone),
    },
    Mutant {
        name: "absent-is-dead",
        rows: "49",
        what: "one lookup that finds no VM makes a live machine be deleted",
        property: "S3",
        workload: "create",
        faults: &["F37x5"],
        rests: false,
        hooks: || deciding(absent_is_dead),
    },
    Mutant {
        name: "node-stays",
        rows: "22, 23",
        what: "the Node is not deleted with its machine",
        property: "L1",
        workload: "machine",
        faults: &[],
        rests: false,
        hooks: || deciding(node_stays),
    },
    Mutant {
        name: "node-never-named",
        rows: "22, 23",
        what: "where every answer about a VM was lost, nobody looks for its Node",
        property: "L1",
        workload: "machine",
        faults: &["F31x6", "F30x5", "F50"],
        rests: false,
        hooks: || deciding(node_never_named),
    },
    Mutant {
        name: "asks-the-absent",
        rows: "-",
        what: "what a driver that is away should be asked is planned again and again",
        property: "L1",
        workload: "drift",
        faults: &["F28x2", "F38x6", "F30x4"],
        rests: false,
        hooks: || deciding(asks_the_absent),
    },
    Mutant {
        name: "timer-lost",
        rows: "62",
        what: "a machine whose node does not join is waited for without end",
        property: "L1",
        workload: "create",
        faults: &["F45x2"],
        rests: false,
        hooks: || deciding(timer_lost),
    },
    Mutant {
        name: "token-stays",
        rows: "-",
        what: "the bootstrap token of a machine that is deleted is not revoked",
        property: "S17",
        workload: "machine",
        faults: &[],
        rests: false,
        hooks: || deciding(token_stays),
    },
    Mutant {
        name: "unconfirmed",
        rows: "-",
        what: "a VM is asked for without a look at the machine itself, which may be on its way out",
        property: "S18",
        workload: "machine",
        faults: &["F18x8", "F30x5"],
        rests: false,
        hooks: || deciding(unconfirmed),
    },
    Mutant {
        name: "joins-unseen",
        rows: "-",
        what: "no node is seen to join: machines are made, given up and replaced for ever",
        property: "L1",
        workload: "create",
        faults: &[],
        rests: false,
        hooks: || deciding(joins_unseen),
    },
    Mutant {
        name: "failure-is-final",
        rows: "110, 163",
        what: "a machine whose creation failed once is not tried again",
        property: "L7",
        workload: "repair",
        faults: &[],
        rests: false,
        hooks: || deciding(failure_is_final),
    },
    Mutant {
        name: "waits-in-line",
        rows: "58, 153, 157",
        what: "whoever waits for a driver that is away keeps the others waiting",
        property: "L4",
        workload: "beside",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            beside: |_, _| {
                IS_HELD_UP.set(false);
                Box::pin(std::future::ready(()))
            },
            ..deciding(waits_in_line)
        },
    },
    Mutant {
        name: "unbegun-is-unmade",
        rows: "10, 27",
        what: "a machine in no phase goes without a word to a driver that has not told its name, for it cannot have a VM",
        property: "S2",
        workload: "takeover",
        faults: &[],
        rests: false,
        hooks: || deciding(unbegun_is_unmade),
    },
    Mutant {
        name: "id-by-guess",
        rows: "3, 9",
        what: "the providerID is written as it is expected, and again as it is",
        property: "S9",
        workload: "create",
        faults: &[],
        rests: false,
        hooks: || deciding(id_by_guess),
    },
    Mutant {
        name: "stale-health",
        rows: "40",
        what: "a machine has failed when its status is old, though only nobody wrote it",
        property: "S9",
        workload: "create",
        faults: &[],
        rests: false,
        hooks: || deciding(stale_health),
    },
    Mutant {
        name: "heartbeat",
        rows: "92",
        what: "the status of a healthy machine is written every minute",
        property: "S12",
        workload: "create",
        faults: &[],
        rests: true,
        hooks: || deciding(heartbeat),
    },
    Mutant {
        name: "told-again",
        rows: "4",
        what: "a manager that was restarted writes down every machine that it finds",
        property: "S15",
        workload: "create",
        faults: &[],
        rests: true,
        hooks: || deciding(told_again),
    },
];

/// How long a machine may say nothing new, to a manager that takes its own silence for the machine's.
const SILENCE: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn deciding(machine: fn(&Observed<'_>, Timestamp) -> Plan) -> Hooks {
    let planners = Planners {
        machine,
        ..Planners::default()
    };
    Hooks {
        planners,
        ..Hooks::default()
    }
}

fn retries_at_once(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut calls = seen.calls.clone();
    if let Some(trouble) = &mut calls.trouble {
        trouble.retry_at = trouble.retry_at.min(now);
    }
    let calls = &calls;
    machine::plan(&Observed { calls, ..*seen }, now)
}

fn is_held(machine: &Machine) -> bool {
    meta::has_finalizer(&machine.metadata, keys::FINALIZER)
}

pub(super) fn is_deleting(machine: &Machine) -> bool {
    meta::is_deleting(&machine.metadata)
}

fn finalizer_late(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if is_deleting(seen.machine) || is_held(seen.machine) {
        return machine::plan(seen, now);
    }
    if seen.machine.provider_id().is_some() {
        return Plan::act(vec![Step::AddFinalizer], Why::Unguarded);
    }
    let mut held = seen.machine.clone();
    let finalizers = held.metadata.finalizers.get_or_insert_default();
    finalizers.push(keys::FINALIZER.to_owned());
    machine::plan(
        &Observed {
            machine: &held,
            ..*seen
        },
        now,
    )
}

fn finalizer_early(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if is_deleting(seen.machine) && is_held(seen.machine) {
        return Plan::act(vec![Step::RemoveFinalizer], Why::VmGone);
    }
    machine::plan(seen, now)
}

fn unbegun_is_unmade(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_early = matches!(seen.machine.phase(), Phase::New | Phase::Pending);
    let is_unasked = is_early && seen.machine.creation_request().is_none();
    let is_missing = matches!(seen.driver, DriverView::Missing { .. });
    if is_deleting(seen.machine) && is_held(seen.machine) && is_unasked && is_missing {
        return Plan::act(vec![Step::RemoveFinalizer], Why::NeverMade);
    }
    machine::plan(seen, now)
}

fn absent_is_gone(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let is_going = is_deleting(seen.machine) && is_held(seen.machine) && seen.calls.running.is_none();
    if is_going && seen.calls.not_found_at.is_some() {
        return Plan::act(vec![Step::RemoveFinalizer], Why::VmGone);
    }
    let mut plan = machine::plan(seen, now);
    // It looks before it deletes.
    if is_going && seen.calls.vm.is_none() && seen.calls.gone_since.is_none() {
        let delete = plan.steps.iter_mut().filter(|step| **step == Step::Call(Call::Delete));
        delete.for_each(|step| *step = Step::Call(Call::Status));
    }
    plan
}

fn absent_is_dead(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let runs = *seen.machine.phase() == Phase::Running && !is_deleting(seen.machine);
    if runs && seen.calls.not_found_at.is_some() {
        return Plan::act(vec![Step::DeleteMachine], Why::NodeDeleted);
    }
    machine::plan(seen, now)
}

fn node_stays(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    plan.steps.retain(|step| !matches!(step, Step::RemoveNode(_)));
    plan
}

fn node_never_named(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    let knows_nothing = seen.machine.provider_id().is_none() && seen.machine.node_label().is_none();
    plan.steps
        .retain(|step| !(knows_nothing && matches!(step, Step::RemoveNode(_))));
    plan
}

/// Once it is time to try a failed lookup again, it is time for ever.
fn asks_the_absent(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    let failed = seen
        .calls
        .trouble
        .as_ref()
        .filter(|trouble| trouble.call == Call::Status);
    let is_due = failed.is_some_and(|trouble| trouble.retry_at <= now);
    if plan.why == Why::VmBooting && is_due && matches!(seen.driver, DriverView::Away { .. }) {
        plan.steps.push(Step::Call(Call::Status));
    }
    plan
}

fn timer_lost(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    match plan.why {
        Why::JoinTimedOut => Plan::rest(Why::Joining),
        _ => plan,
    }
}

fn token_stays(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    let is_going = is_deleting(seen.machine);
    plan.steps.retain(|step| !(is_going && *step == Step::DropToken));
    plan
}

fn unconfirmed(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    plan.steps.retain(|step| *step != Step::Confirm);
    plan
}

fn joins_unseen(seen: &Observed<'_>, now: Timestamp) -> Plan {
    machine::plan(&Observed { node: None, ..*seen }, now)
}

fn failure_is_final(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let has_failed = seen.machine.operation_state() == Some(OperationState::Failed);
    if has_failed && !is_deleting(seen.machine) && seen.machine.provider_id().is_none() {
        return Plan::rest(Why::CreationFailed);
    }
    machine::plan(seen, now)
}

thread_local! {
    /// Whether the one worker of this life waits; a run stays on its thread.
    static IS_HELD_UP: Cell<bool> = const { Cell::new(false) };
}

fn waits_in_line(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    if IS_HELD_UP.get() {
        return Plan::rest(plan.why);
    }
    IS_HELD_UP.set(matches!(plan.why, Why::DriverMissing(_) | Why::DriverAway(_)));
    plan
}

fn id_by_guess(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = machine::plan(seen, now);
    let known = seen.calls.vm.as_ref().and_then(|vm| vm.provider_id.clone());
    let has = seen.machine.provider_id();
    let write = |provider_id: ProviderId| Step::Identify {
        provider_id: Some(provider_id),
        node: None,
    };
    if let (Some(known), Some(has)) = (&known, &has)
        && known != has
    {
        return Plan::act(vec![write(known.clone())], Why::VmMade);
    }
    let asks = |step: &Step| *step == Step::Call(Call::Create);
    if let Some(at) = plan.steps.iter().position(asks).filter(|_| has.is_none()) {
        let guess = format!("virtual:///{}", meta::name(&seen.machine.metadata));
        plan.steps.insert(at, write(ProviderId::new(guess)));
    }
    plan
}

pub(super) fn told_at(machine: &Machine) -> Option<Timestamp> {
    let status = machine.status.as_ref()?;
    Some(status.last_operation.as_ref()?.last_update_time.as_ref()?.0)
}

fn stale_health(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    let is_running = *seen.machine.phase() == Phase::Running && !is_deleting(seen.machine);
    let Some(due) = told_at(seen.machine).filter(|_| is_running).map(|at| at + SILENCE) else {
        return plan;
    };
    if now < due {
        return plan.or_at(Some(due), now);
    }
    let text = "The machine was not heard of within its health timeout".to_owned();
    let change = StatusChange::told(
        seen.machine,
        OperationType::HealthCheck,
        OperationState::Failed,
        text,
        now,
    );
    let change = change.entering(Phase::Failed);
    Plan::act(vec![Step::Record(Box::new(change))], Why::NodeUnhealthy)
}

fn heartbeat(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    if plan.why != Why::Running || !plan.steps.is_empty() {
        return plan;
    }
    let due = told_at(seen.machine).map(|at| at + SignedDuration::from_mins(1));
    if let Some(due) = due.filter(|due| *due > now) {
        return plan.or_at(Some(due), now);
    }
    Plan::act(vec![Step::Record(Box::new(well(seen, now)))], Why::Running)
}

fn well(seen: &Observed<'_>, now: Timestamp) -> StatusChange {
    let text = "The machine is well".to_owned();
    StatusChange::told(
        seen.machine,
        OperationType::HealthCheck,
        OperationState::Successful,
        text,
        now,
    )
}

fn told_again(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    let is_new = seen.calls.vm.is_none() && seen.calls.running.is_none() && seen.calls.trouble.is_none();
    if plan.why != Why::Running || !plan.steps.is_empty() || !is_new {
        return plan;
    }
    let steps = vec![Step::Record(Box::new(well(seen, now))), Step::Call(Call::Status)];
    Plan::act(steps, Why::Running)
}
