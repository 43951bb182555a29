//! Mistakes in what is decided about one MachineDeployment.

use jiff::Timestamp;
use millwright::env::Planners;
use millwright_core::api::{MachineDeployment, keys, meta};
use millwright_core::deployment::members::Members;
use millwright_core::deployment::{self, Observed, Plan, Step, Why};
use millwright_core::set::{self, Allowance, MachineView};
use millwright_sandbox::request::{Request, Verb};
use serde_json::json;

use super::Mutant;
use super::wires::put;
use crate::event::Truth;
use crate::world::hooks::Hooks;

pub(super) const ALL: [Mutant; 9] = [
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
    Mutant {
        name: "surge-forgets-leaving",
        rows: "82",
        what: "surge is counted without machines that are on their way out",
        property: "S5",
        workload: "renew",
        faults: &["F40"],
        rests: false,
        hooks: || Hooks {
            planners: deciding(surge_forgets_leaving),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "spares-none",
        rows: "38, 39",
        what: "old sets fall by one more than can be spared, and nobody looks again before an available machine goes",
        property: "S5",
        workload: "renew",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(spares_none),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "rolls-paused",
        rows: "-",
        what: "a deployment that is paused rolls on",
        property: "S5",
        workload: "pause-for-good",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(rolls_paused),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "exchanges-victims",
        rows: "44, 45",
        what: "the autoscaler's list is forgotten, and whoever ranks first goes",
        property: "S16",
        workload: "named",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(exchanges_victims),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "recreate-overlaps",
        rows: "-",
        what: "Recreate is read as a rolling update",
        property: "S5",
        workload: "recreate",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(recreate_overlaps),
            ..Hooks::default()
        },
    },
    Mutant {
        name: "above-wanted",
        rows: "82",
        what: "the new set gets the surge on top of its number",
        property: "S5",
        workload: "renew",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            planners: deciding(above_wanted),
            ..Hooks::default()
        },
    },
];

fn deciding(deployment: fn(&Observed<'_>, Timestamp) -> Plan) -> Planners {
    Planners {
        deployment,
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

/// The plan that is made for another spec.
fn specified(seen: &Observed<'_>, now: Timestamp, change: fn(&mut MachineDeployment)) -> Plan {
    let mut deployment = seen.deployment.clone();
    change(&mut deployment);
    let deployment = &deployment;
    deployment::plan(&Observed { deployment, ..*seen }, now)
}

fn surge_forgets_leaving<'a>(seen: &Observed<'a>, now: Timestamp) -> Plan {
    let staying = |member: &set::Observed<'a>| -> Vec<MachineView<'a>> {
        let is_going = meta::is_deleting(&member.set.metadata);
        let machines = member.machines.iter();
        let staying = machines.filter(|machine| is_going || !set::facts::is_leaving(machine));
        staying.cloned().collect()
    };
    let machines: Vec<Vec<MachineView<'_>>> = seen.sets.iter().map(staying).collect();
    let sets = seen.sets.iter().zip(&machines);
    let sets: Vec<set::Observed<'_>> = sets
        .map(|(member, machines)| set::Observed { machines, ..*member })
        .collect();
    deployment::plan(&Observed { sets: &sets, ..*seen }, now)
}

fn spares_none(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let plan_set = |seen: &set::Observed<'_>, now: Timestamp| {
        set::plan(
            &set::Observed {
                allowance: Allowance {
                    lose: None,
                    ..seen.allowance
                },
                ..*seen
            },
            now,
        )
    };
    let mut plan = deployment::plan(&Observed { plan_set, ..*seen }, now);
    for step in &mut plan.steps {
        if !lowers_an_old_set(seen, step) {
            continue;
        }
        if let Step::Change(change) = step {
            change.replicas = change.replicas.map(|to| (to - 1).max(0));
        }
    }
    plan
}

fn rolls_paused(seen: &Observed<'_>, now: Timestamp) -> Plan {
    specified(seen, now, |deployment| deployment.spec.paused = false)
}

fn recreate_overlaps(seen: &Observed<'_>, now: Timestamp) -> Plan {
    specified(seen, now, |deployment| {
        let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
        deployment.spec.strategy = serde_json::from_value(rolling).ok();
    })
}

fn exchanges_victims<'a>(seen: &Observed<'a>, now: Timestamp) -> Plan {
    let unnamed = |view: &MachineView<'a>| MachineView {
        is_named: false,
        ..view.clone()
    };
    let machines = seen
        .sets
        .iter()
        .map(|member| member.machines.iter().map(unnamed).collect());
    let machines: Vec<Vec<MachineView<'_>>> = machines.collect();
    let sets = seen.sets.iter().zip(&machines);
    let sets: Vec<set::Observed<'_>> = sets
        .map(|(member, machines)| set::Observed { machines, ..*member })
        .collect();
    let mut plan = deployment::plan(&Observed { sets: &sets, ..*seen }, now);
    plan.steps
        .retain(|step| !matches!(step, Step::Mark(_) | Step::Prune(_)));
    if meta::annotation(&seen.deployment.metadata, keys::TRIGGER_DELETION).is_some() {
        plan.steps.push(Step::Prune(None));
    }
    plan
}

fn above_wanted(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut plan = deployment::plan(seen, now);
    for step in &mut plan.steps {
        if let Step::Change(change) = step
            && change.replicas == Some(seen.deployment.spec.replicas)
            && change.set.spec.replicas > 0
        {
            change.replicas = Some(seen.deployment.spec.replicas + 1);
        }
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
