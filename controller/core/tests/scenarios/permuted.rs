//! Every story once more, in other orders: of the keys that wait for a worker and of the driver's answers. It ends as it does in its
//! golden file, but for names and times.
//!
//! A story whose lines name what the order decides says so in a line that begins with [`OPTS_OUT`], with the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millwright_core::api::{Machine, meta};
use serde_json::{Value, json};

use crate::script;
use crate::stage::Stage;
use crate::turns::Drawn;
use crate::{Story, stories};

/// How many orders each story is played in.
const ORDERS: u64 = 3;
/// How the line begins that keeps a story out of this test.
const OPTS_OUT: &str = "# Only in this order:";
/// Numbers of a status that count something.
const COUNTS: [&str; 8] = [
    "replicas",
    "fullyLabeledReplicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "preservedFailedReplicas",
    "collisionCount",
];

/// `MILLWRIGHT_SEED`, else one that never changes: what is tried by default is the same for everybody.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever runs the test names the orders that it tries"
)]
fn seed() -> u64 {
    let Ok(text) = std::env::var("MILLWRIGHT_SEED") else {
        return 0;
    };
    text.parse()
        .unwrap_or_else(|error| panic!("MILLWRIGHT_SEED={text}: {error}"))
}

/// What a person sees at the end of a story, a line each, without names and times that the order decides.
pub fn ending(stage: &Stage) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, deployment) in &stage.etcd.deployments {
        let status = json!(deployment.status);
        lines.push(format!("deployment {name}: {}", counted(&status, "conditions")));
    }
    for (name, set) in &stage.etcd.sets {
        let status = json!(set.status);
        let told = counted(&status, "machineSetCondition");
        lines.push(format!("set {name} of {}: {told}", set.spec.replicas));
    }
    lines.extend(stage.etcd.machines.values().map(|machine| seen(stage, machine)));
    lines.push(format!("{} VMs", stage.cloud.vms.len()));
    lines.push(format!("{} nodes", stage.etcd.nodes.len()));
    lines.push(format!("{} tokens", stage.tokens.len()));
    lines.sort();
    lines
}

/// The counters and the conditions of a status.
fn counted(status: &Value, conditions: &str) -> String {
    let count = |field: &&str| {
        status[*field]
            .as_i64()
            .filter(|count| *count != 0)
            .map(|count| format!("{field}={count}"))
    };
    let counts = COUNTS.iter().filter_map(count);
    let word = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let conditions = status[conditions].as_array().into_iter().flatten();
    let conditions = conditions.map(|told| {
        format!(
            "{}={} {}",
            word(told, "type"),
            word(told, "status"),
            word(told, "reason")
        )
    });
    counts.chain(conditions).collect::<Vec<_>>().join(", ")
}

/// A Machine: by its name where nobody made it, else by its owner.
fn seen(stage: &Stage, machine: &Machine) -> String {
    let owners = machine.metadata.owner_references.iter().flatten();
    let owner = owners.map(|owner| format!("of {}", owner.name)).next();
    let whose = owner.unwrap_or_else(|| meta::name(&machine.metadata).to_owned());
    let has_vm = machine.uid().is_some_and(|uid| stage.cloud.vms.contains_key(&uid));
    let operation = json!(machine.status)["lastOperation"].clone();
    format!(
        "machine {whose}: {} {} {} vm={has_vm} deleting={}",
        machine.phase().as_str(),
        operation["type"].as_str().unwrap_or_default(),
        operation["state"].as_str().unwrap_or_default(),
        meta::is_deleting(&machine.metadata),
    )
}

/// How a story ends in the order of a seed, or why it cannot be played in it.
fn ends(story: &Story, drawn: Option<Drawn>) -> Result<Vec<String>, String> {
    let mut stage = Stage::default();
    stage.drawn = drawn;
    let played = catch_unwind(AssertUnwindSafe(|| {
        script::tell(&mut stage, &story.text, &story.name);
    }));
    match played {
        Ok(()) => Ok(ending(&stage)),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(words.unwrap_or_default())
        }
    }
}

/// What is in one of the two and not in the other.
fn difference(fixed: &[String], drawn: &[String]) -> String {
    let only = |these: &[String], those: &[String], sign: char| {
        let mut left = those.to_vec();
        let mut lines = Vec::new();
        for line in these {
            match left.iter().position(|other| other == line) {
                Some(place) => drop(left.swap_remove(place)),
                None => lines.push(format!("    {sign} {line}")),
            }
        }
        lines
    };
    let lines = only(fixed, drawn, '-').into_iter().chain(only(drawn, fixed, '+'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_story_ends_the_same_in_whatever_order_it_goes() {
    let first = seed();
    println!("stories in other orders: again with MILLWRIGHT_SEED={first}");
    let mut others = Vec::new();
    let keeps_order = |story: &Story| story.text.lines().any(|line| line.starts_with(OPTS_OUT));
    for story in stories().into_iter().filter(|story| !keeps_order(story)) {
        let fixed = ends(&story, None).expect("its golden file tells how it goes");
        for seed in (0..ORDERS).map(|order| first.wrapping_add(order)) {
            let Story { name, .. } = &story;
            match ends(&story, Some(Drawn::of(seed))) {
                Ok(drawn) if drawn == fixed => {}
                Ok(drawn) => others.push(format!(
                    "{name} with MILLWRIGHT_SEED={seed}:\n{}",
                    difference(&fixed, &drawn)
                )),
                Err(why) => others.push(format!("{name} with MILLWRIGHT_SEED={seed} breaks off: {why}")),
            }
        }
    }
    assert!(
        others.is_empty(),
        "{} ends are others:\n{}",
        others.len(),
        others.join("\n")
    );
}

#[test]
fn a_story_that_keeps_its_order_says_why() {
    for story in stories() {
        let reason = story.text.lines().find_map(|line| line.strip_prefix(OPTS_OUT));
        let says = reason.is_none_or(|reason| reason.trim().len() > 10);
        assert!(says, "{} gives no reason for its order", story.name);
    }
}
