//! Mistakes in what is decided about one MachineDeployment.

use jiff::Timestamp;
use millwright::env::Planners;
use millwright_core::api::meta;
use millwright_core::deployment::change::SetChange;
use millwright_core::deployment::group::Members;
use millwright_core::deployment::{self, Observed, Plan, Step, Why};
use millwright_core::set;
use millwright_sandbox::request::{Request, Verb};

use super::Mutant;
use super::wires::put;
use crate::event::Truth;
use crate::hooks::Hooks;

pub(super) const ALL: [Mutant; 4] = [
    Mutant {
        name: "second-set",
        rows: "89, 97",
        what: "each try to create a set has a new name, and only the first that came is looked at",
        property: "L1",
        workload: "create-deployment",
        faults: &["F10x8"],
        rests: false,
        hooks: || Hooks {
            planners: deciding(second_set),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "surplus-stays",
        rows: "89, 97",
        what: "a set of another template keeps its number",
        property: "L1",
        workload: "roll-once",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(surplus_stays),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "missing-is-zero",
        rows: "38",
        what: "where no set has the template yet, all sets are to have 0 machines",
        property: "S5",
        workload: "roll-once",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(missing_is_zero),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "writes-replicas-back",
        rows: "85",
        what: "a write to the deployment carries the replicas of the manager's own count",
        property: "S8",
        workload: "scale",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(writes_often),
            request: writes_replicas,
            ..Hooks::default()
        },
    },
];

fn deciding(deployment: fn(&Observed<'_>, Timestamp) -> Plan) -> Planners {
    Planners {
        deployment,
        are_checked: false,
        ..Planners::default()
    }
}

fn second_set(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut sets = seen.sets.to_vec();
    // The one that it knows is all it looks at.
    sets.sort_by_key(|member| meta::created(&member.set.metadata));
    sets.truncate(1);
    let known = Observed { sets: &sets, ..*seen };
    let mut plan = deployment::plan(&known, now);
    for step in &mut plan.steps {
        if let Step::Create(made) = step {
            made.name = super::sets::new_name(now, 0);
        }
    }
    plan
}

/// Whether a step makes a set of another template smaller.
fn lowers_an_old_set(seen: &Observed<'_>, step: &Step) -> bool {
    let Step::Change(change) = step else { return false };
    let members = Members::of(seen);
    let is_new = members
        .new_set()
        .is_some_and(|new| new.metadata.uid == change.set.metadata.uid);
    !is_new && change.replicas.is_some_and(|to| to < change.set.spec.replicas)
}

fn surplus_stays(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = deployment::plan(seen, now);
    plan.steps.retain(|step| !lowers_an_old_set(seen, step));
    plan
}

/// The change of a set's number and nothing else.
fn sized(member: &set::Observed<'_>, replicas: i32) -> Step {
    Step::Change(Box::new(SetChange {
        replicas: Some(replicas),
        ..SetChange::none(member.set)
    }))
}

fn missing_is_zero(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = deployment::plan(seen, now);
    if plan.why != Why::NoSet {
        return plan;
    }
    let used = seen.owned().into_iter().filter(|member| member.set.spec.replicas > 0);
    let emptied: Vec<Step> = used.map(|member| sized(member, 0)).collect();
    if !emptied.is_empty() {
        plan.steps = emptied;
    }
    plan
}

/// Before it scales a set, it writes to the deployment.
fn writes_often(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = deployment::plan(seen, now);
    if matches!(plan.why, Why::Scaling { .. }) {
        plan.steps.insert(0, Step::Number(1));
    }
    plan
}

fn writes_replicas(request: &mut Request, truth: &Truth<'_>) {
    let target = &request.target;
    if request.verb != Verb::Patch || target.resource != "machinedeployments" || !target.subresource.is_empty() {
        return;
    }
    let set = truth.all("machinesets").next();
    if let Some(counted) = set.and_then(|set| set.pointer("/spec/replicas").cloned()) {
        put(request, &["spec", "replicas"], counted);
    }
}
