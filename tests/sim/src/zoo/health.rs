//! Mistakes about machines whose nodes are unhealthy, out of sight or late.

use jiff::{SignedDuration, Timestamp};
use millwright_core::api::{OperationState, OperationType, Phase};
use millwright_core::machine::judgement::Fault;
use millwright_core::machine::{self, Observed, Plan, StatusChange, Step, Why};
use millwright_core::set::{self, Allowance};
use millwright_core::sight::{Sight, later};

use super::Mutant;
use super::machines::{deciding, is_deleting};
use super::sets;

pub(super) const ALL: [Mutant; 6] = [
    Mutant {
        name: "ill-is-dead",
        rows: "41, 50",
        what: "a machine is deleted as soon as its node is unhealthy",
        property: "S3",
        workload: "create",
        faults: &["F41"],
        rests: false,
        hooks: || deciding(ill_is_dead),
    },
    Mutant {
        name: "given-up-unseen",
        rows: "35, 36, 41",
        what: "a machine of which nothing is heard is given up, though nobody can see its cluster",
        property: "S6",
        workload: "create",
        faults: &["F57"],
        rests: false,
        hooks: || deciding(given_up_unseen),
    },
    Mutant {
        name: "all-at-once",
        rows: "35, 36",
        what: "all machines that are unhealthy for too long are given up at once",
        property: "S6",
        workload: "create",
        faults: &["F41"],
        rests: false,
        hooks: || sets::deciding(all_at_once),
    },
    Mutant {
        name: "counts-the-dark",
        rows: "35, 40",
        what: "time in which no node could be seen counts against machines that are to join",
        property: "S6",
        workload: "create",
        faults: &["F57", "F45x2"],
        rests: false,
        hooks: || deciding(counts_the_dark),
    },
    Mutant {
        name: "recovery-unseen",
        rows: "35, 62",
        what: "a machine that was unhealthy is given up when its time is over, though its node is well again",
        property: "S6",
        workload: "create",
        faults: &["F45x2"],
        rests: false,
        hooks: || deciding(recovery_unseen),
    },
    Mutant {
        name: "ill-for-ever",
        rows: "62",
        what: "a machine whose node is unhealthy is waited for without end",
        property: "L1",
        workload: "create",
        faults: &["F41"],
        rests: false,
        hooks: || sets::deciding(ill_for_ever),
    },
];

/// How long machines of a run may be unhealthy.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

fn ill_is_dead(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    match plan.why {
        Why::NodeUnhealthy => Plan::act(vec![Step::DeleteMachine], Why::NodeUnhealthy),
        _ => plan,
    }
}

/// What is not seen is unhealthy, and its time runs.
fn given_up_unseen(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan = machine::plan(seen, now);
    let since = seen.machine.phase_since();
    let Some(since) = since.filter(|_| plan.why == Why::TargetAway && !is_deleting(seen.machine)) else {
        return plan;
    };
    let due = later(since, PATIENCE);
    let change = match seen.machine.phase() {
        Phase::Running => {
            let text = "The node is unhealthy: nothing is heard of it".to_owned();
            let (operation, state) = (OperationType::HealthCheck, OperationState::Processing);
            StatusChange::told(seen.machine, operation, state, text, now).entering(Phase::Unknown)
        }
        Phase::Unknown if due <= now => seen.witnesses().failed(Fault::NodeUnhealthy, now).change,
        _ => return plan.or_at(Some(due), now),
    };
    Plan::act(vec![Step::Record(Box::new(change))], Why::NodeUnhealthy)
}

fn counts_the_dark(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let always = |since: Option<Timestamp>| since.map(|_| Timestamp::MIN);
    let sight = Sight {
        lead_since: Timestamp::MIN,
        control_since: always(seen.sight.control_since),
        target_since: always(seen.sight.target_since),
        driver_since: always(seen.sight.driver_since),
    };
    machine::plan(&Observed { sight, ..*seen }, now)
}

/// Nobody looks at the Node again.
fn recovery_unseen(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let machine = seen.machine;
    let since = machine.phase_since();
    let is_ill = *machine.phase() == Phase::Unknown && !is_deleting(machine);
    let Some(since) = since.filter(|_| is_ill && seen.sight.target_since.is_some()) else {
        return machine::plan(seen, now);
    };
    let due = later(since, PATIENCE);
    if now < due {
        return Plan::wait(due, Why::NodeUnhealthy);
    }
    let change = seen.witnesses().failed(Fault::NodeUnhealthy, now).change;
    Plan::act(vec![Step::Record(Box::new(change))], Why::HealthTimedOut)
}

fn all_at_once(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let allowance = Allowance {
        replace: usize::MAX,
        ..seen.allowance
    };
    set::plan(&set::Observed { allowance, ..*seen }, now)
}

fn ill_for_ever(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let sight = Sight {
        target_since: None,
        ..seen.sight
    };
    set::plan(&set::Observed { sight, ..*seen }, now)
}
