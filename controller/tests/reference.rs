//! `deploy/reference.md`: every flag, metric and event reason, made of what the program itself says. `UPDATE_EXPECT=1` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::CommandFactory as _;
use expect_test::expect_file;
use jiff::SignedDuration;
use millwright::config::Cli;
use millwright::telemetry::Metrics;
use millwright::telemetry::original::{Moment, Snapshot};
use millwright_core::api::{Machine, MachineDeployment, MachineSet};
use millwright_core::change::Change;
use millwright_core::world::World;
use serde_json::json;

const HEAD: &str = "# Reference\n\nMade by `UPDATE_EXPECT=1 cargo test -p millwright --test reference` from what the program itself says; not to \
be edited.\n";

/// Events of deployments, sets, classes and drivers, and those of Machines that no story tells.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "ScalingMachineSet",
        "MachineDeployment",
        "a set was made, or its number changed",
    ),
    ("MachineSetCreateError", "MachineDeployment", "a set could not be made"),
    (
        "SelectingAll",
        "MachineDeployment",
        "the selector selects everything, so nothing is done",
    ),
    (
        "DeploymentRollback",
        "MachineDeployment",
        "an earlier template came back",
    ),
    (
        "DeploymentRollbackRevisionNotFound",
        "MachineDeployment",
        "there is no such revision to go back to",
    ),
    (
        "DeploymentRollbackTemplateUnchanged",
        "MachineDeployment",
        "the template to go back to is the present one",
    ),
    ("SuccessfulCreate", "MachineSet", "machines were made"),
    ("FailedCreate", "MachineSet", "machines could not be made"),
    ("SuccessfulDelete", "MachineSet", "machines were deleted"),
    ("FailedDelete", "MachineSet", "machines could not be deleted"),
    ("UnfrozeMachineSet", "MachineSet", "it makes machines again"),
    (
        "DeletionBlocked",
        "MachineClass, Secret",
        "it is being deleted and still needed",
    ),
    ("NoProvider", "MachineClass", "it names no driver"),
    ("InvalidProviderSpec", "MachineClass", "its providerSpec cannot be used"),
    ("SecretMissing", "MachineClass", "a Secret that it names does not exist"),
    (
        "SecretUnreadable",
        "MachineClass",
        "a Secret that it names could not be read",
    ),
    ("NoUserData", "MachineClass", "none of its Secrets has the key userData"),
    ("InvalidUserData", "MachineClass", "its user data cannot be used"),
    ("ClassRejected", "MachineClass", "its driver rejects it"),
    ("OrphanDeleted", "MachineClass", "a VM that no Machine owns is deleted"),
    (
        "OrphanNotDeleted",
        "MachineClass",
        "a VM that no Machine owns could not be deleted",
    ),
    (
        "OrphanFound",
        "MachineClass",
        "a VM that no Machine owns would be deleted, but for --orphan-dry-run",
    ),
    (
        "OrphansHeld",
        "MachineClass",
        "VMs that no Machine owns are not deleted, because they are too many or too much is unhealthy",
    ),
    (
        "VmsNotListed",
        "MachineClass",
        "the VMs of its driver cannot be listed, so those that no Machine owns are not found",
    ),
    (
        "DuplicateVm",
        "MachineClass",
        "a VM is left alone, because its Machine names another one as its own",
    ),
    (
        "UnmarkedVm",
        "MachineClass",
        "a VM is left alone, because its tags are lost",
    ),
    (
        "AgelessVm",
        "MachineClass",
        "a VM is left alone, because its driver does not say when it was made",
    ),
    (
        "FalseStaleLeader",
        "Machine, MachineClass",
        "a driver speaks of a newer leader that there is not",
    ),
    ("InvalidDuration", "Machine", "a duration in its spec cannot be read"),
    (
        "NodeWriteRefused",
        "Machine",
        "the target cluster refuses what is written to the Node",
    ),
];

/// Words in the sources of `work` that look like reasons and are none.
const NO_REASONS: [&str; 5] = [
    "CreateMachine",
    "InitializeMachine",
    "GetMachineStatus",
    "DeleteMachine",
    "TargetAway",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn flags(page: &mut String) {
    page.push_str("\n## Flags of `millwright manager`\n\n| flag | variable | default | |\n|---|---|---|---|\n");
    let command = Cli::command();
    let manager = command.find_subcommand("manager").unwrap();
    for argument in manager.get_arguments().filter(|argument| argument.get_env().is_some()) {
        let values = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy());
        let default: Vec<String> = values.map(|value| value.into_owned()).collect();
        let default = match default.is_empty() || argument.is_hide_default_value_set() {
            true => String::new(),
            false => format!("`{}`", default.join(",")),
        };
        let help = argument.get_help().unwrap().to_string();
        assert!(!help.is_empty(), "{argument}: no help");
        writeln!(
            page,
            "| `--{}` | `{}` | {default} | {} |",
            argument.get_long().unwrap(),
            argument.get_env().unwrap().to_string_lossy(),
            cell(&help)
        )
        .unwrap();
    }
}

/// Objects and happenings of which each metric has a series.
fn measured() -> Metrics {
    let metrics = Metrics::default();
    let took = Duration::from_secs(1);
    metrics.api_request("control", "get", "machines", "200".to_owned(), took);
    metrics.driver_call("virtual", "CreateMachine", "Unavailable", "", took);
    metrics.held_up("virtual", "CreateMachine", took);
    metrics.reconciled("machine", "Running", "ok", took);
    metrics.queue_depth("all", 0);
    metrics.watch_failed("machines");
    metrics.machines([("Running".to_owned(), 1)]);
    metrics.event("life", "sent");
    metrics.parked([("stock", 1)]);
    metrics.vms([(("virtual".to_owned(), "owned"), 1)]);
    metrics.listed("virtual", "complete");
    metrics.orphan("virtual", "deleted");
    metrics.doubted("virtual", "told", 1);
    let machine = json!({
        "metadata": {"name": "m", "namespace": "default", "uid": "m", "labels": {"name": "d"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let machine: Machine = serde_json::from_value(machine).unwrap();
    let happened = &metrics.original.happened;
    let second = SignedDuration::from_secs(1);
    for moment in [
        Moment::Created(second),
        Moment::Initialized(second),
        Moment::Joined(second),
        Moment::NotJoined,
        Moment::Drained(second),
        Moment::Deleted(second),
        Moment::Stale,
    ] {
        happened.note(&machine, moment);
    }
    let snapshot = move || {
        let mut world = World::default();
        world.observe(Change::Applied(machine.clone()), Duration::ZERO);
        world.observe(Change::Applied(MachineSet::default()), Duration::ZERO);
        world.observe(Change::Applied(MachineDeployment::default()), Duration::ZERO);
        Some(Snapshot::of(&world))
    };
    metrics.original.look_at(Box::new(snapshot));
    metrics
}

fn metrics(page: &mut String) {
    page.push_str(
        "\n## Metrics\n\nAt `/metrics` of `--metrics-addr`. Those that begin with `mcm_` have the names and labels of \
        machine-controller-manager; counters end in `_total`.\n\n| metric | type | |\n|---|---|---|\n",
    );
    let text = measured().render().unwrap();
    let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        helps.insert(name, help.trim_end_matches('.'));
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, type_) = line.split_once(' ').unwrap();
        let end = if type_ == "counter" { "_total" } else { "" };
        writeln!(page, "| `{name}{end}` | {type_} | {} |", cell(helps.get(name).unwrap())).unwrap();
    }
}

/// Reasons of events about Machines, each with one that the stories tell.
fn told() -> BTreeMap<String, String> {
    let stories = root().join("controller/core/tests/scenarios");
    let mut told = BTreeMap::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(stories)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "golden"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("Event on ")) {
            let (object, rest) = line.split_once(": ").unwrap();
            let (reason, note) = rest.split_once(' ').unwrap();
            let is_machines = object.split(' ').count() == 1;
            if is_machines {
                told.entry(reason.to_owned()).or_insert_with(|| note.to_owned());
            }
        }
    }
    told
}

fn events(page: &mut String) {
    page.push_str(
        "\n## Event reasons\n\nOf Machines, with an example of each:\n\n| reason | for example |\n|---|---|\n",
    );
    for (reason, note) in told() {
        writeln!(page, "| `{reason}` | {} |", cell(&note)).unwrap();
    }
    page.push_str(
        "\nOther events; beside them a MachineDeployment tells each condition that turned for the worse under its reason, and a \
        MachineClass what its driver warns of under the driver's:\n\n| reason | of | |\n|---|---|---|\n",
    );
    for (reason, of, meaning) in OTHERS {
        writeln!(page, "| `{reason}` | {of} | {meaning} |").unwrap();
    }
}

#[test]
fn the_reference_says_what_the_program_says() {
    let mut page = HEAD.to_owned();
    flags(&mut page);
    metrics(&mut page);
    events(&mut page);
    expect_file![root().join("deploy/reference.md")].assert_eq(&page);
}

fn sources(dir: &Path, all: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(path).unwrap();
            all.push_str(text.split("#[cfg(test)]").next().unwrap());
        }
    }
}

/// The code of all files, without their tests.
fn code(dir: &str) -> String {
    let mut all = String::new();
    sources(&root().join(dir), &mut all);
    all
}

#[test]
fn every_reason_of_the_reference_is_one_that_the_manager_sends() {
    let all = code("controller/src") + &code("controller/core/src");
    for (reason, ..) in OTHERS {
        assert!(all.contains(&format!("\"{reason}\"")), "{reason}");
    }
}

#[test]
fn every_reason_that_the_manager_sends_is_in_the_reference() {
    let is_word = |text: &str| {
        let capitals = text.chars().filter(char::is_ascii_uppercase).count();
        text.starts_with(|first: char| first.is_ascii_uppercase())
            && capitals > 1
            && text.chars().all(char::is_alphanumeric)
    };
    let told = told();
    let is_known = |word: &str| {
        told.contains_key(word) || NO_REASONS.contains(&word) || OTHERS.iter().any(|(reason, ..)| *reason == word)
    };
    let all = code("controller/src/work");
    let unknown: Vec<&str> = all.split('"').filter(|word| is_word(word) && !is_known(word)).collect();
    assert_eq!(unknown, [""; 0], "OTHERS lacks them");
}
