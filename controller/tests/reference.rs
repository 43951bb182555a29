//! `deploy/reference.md`: every flag, metric and event reason, made of what the program itself says. `UPDATE_EXPECT=1` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::CommandFactory as _;
use expect_test::expect_file;
use jiff::SignedDuration;
use millwright::config::Cli;
use millwright::config::compatibility::Difference;
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
    (
        "OnlyDriver",
        "MachineClass",
        "it names no driver and has the only one there is",
    ),
    (
        "NoProvider",
        "MachineClass",
        "it names no driver, and there are several",
    ),
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
    (
        "InvalidDuration",
        "Machine",
        "a duration in its spec cannot be read or is negative",
    ),
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

fn compatibility(page: &mut String) {
    page.push_str(
        "\n## `--compatibility original`\n\nWhat differs where this manager takes the place of machine-controller-manager. A flag that only \
        that one has implies it, and the log says so:\n\n| what | else | with it |\n|---|---|---|\n",
    );
    for difference in Difference::ALL {
        let [what, otherwise, with] = difference.told();
        writeln!(page, "| {what} | {} | {} |", cell(otherwise), cell(with)).unwrap();
    }
    page.push_str("\n| flag that only it has | what takes its place |\n|---|---|\n");
    let command = Cli::command();
    let manager = command.find_subcommand("manager").unwrap();
    for argument in manager.get_arguments().filter(|argument| argument.is_hide_set()) {
        let instead = argument.get_help().unwrap().to_string();
        writeln!(page, "| `--{}` | {} |", argument.get_long().unwrap(), cell(&instead)).unwrap();
    }
}

/// Objects and happenings of which each metric has a series.
fn measured() -> Metrics {
    let metrics = Metrics::default();
    let took = Duration::from_secs(1);
    metrics.api_request("control", "get", "machines", "200".to_owned(), took);
    metrics.driver_call("virtual", "CreateMachine", "Unavailable", "", took);
    metrics.driver_call("virtual", "CreateMachine", "OK", "", took);
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
    let machine = measured_machine();
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
        world.observe(Change::Applied(measured_set()), Duration::ZERO);
        world.observe(Change::Applied(measured_deployment()), Duration::ZERO);
        Some(Snapshot::of(&world, Duration::ZERO, false))
    };
    metrics.original.look_at(Box::new(snapshot));
    metrics
}

fn measured_machine() -> Machine {
    let machine = json!({
        "metadata": {"name": "m", "namespace": "default", "uid": "m", "labels": {"name": "d"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    serde_json::from_value(machine).unwrap()
}

fn measured_set() -> MachineSet {
    let set = json!({
        "metadata": {"name": "s", "namespace": "default", "uid": "s"},
        "spec": {},
        "status": {"machineSetCondition": [{"type": "Frozen", "status": "True"}], "failedMachines": [{"name": "m"}]},
    });
    serde_json::from_value(set).unwrap()
}

fn measured_deployment() -> MachineDeployment {
    let deployment = json!({
        "metadata": {"name": "d", "namespace": "default", "uid": "d"},
        "spec": {
            "revisionHistoryLimit": 1, "progressDeadlineSeconds": 1, "rollbackTo": {"revision": 1},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        },
        "status": {"conditions": [{"type": "Available", "status": "True"}], "failedMachines": [{"name": "m"}]},
    });
    serde_json::from_value(deployment).unwrap()
}

/// Each metric with a series as `name type labels`. A series of a name that is not described has no type.
fn exposed(text: &str) -> BTreeSet<String> {
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types: BTreeMap<&str, &str> = described.map(|line| line.split_once(' ').unwrap()).collect();
    let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let parts = ["_bucket", "_sum", "_count"].map(|part| name.strip_suffix(part));
        let histogram = parts
            .into_iter()
            .flatten()
            .find(|name| types.get(name) == Some(&"histogram"));
        let name = histogram.unwrap_or(name);
        let labels: BTreeSet<&str> = labels
            .split(',')
            .filter_map(|label| Some(label.split_once('=')?.0))
            .collect();
        let labels: Vec<&str> = labels.into_iter().filter(|label| *label != "le").collect();
        let type_ = types.get(name).unwrap_or(&"untyped");
        format!("{name} {type_} {}", labels.join(",")).trim_end().to_owned()
    });
    series.collect()
}

/// Rows: L21.
#[test]
fn every_metric_of_the_original_is_there_with_its_name_type_and_labels_and_no_other_under_its_prefix() {
    let exposed = exposed(&measured().render().unwrap());
    let exposed: Vec<&String> = exposed.iter().filter(|line| !line.starts_with("millwright_")).collect();
    let table = include_str!("original-metrics.txt").lines();
    let table: Vec<&str> = table.filter(|line| !line.starts_with('#')).collect();
    assert_eq!(exposed, table);
}

fn metrics(page: &mut String) {
    page.push_str(
        "\n## Metrics\n\nAt `/metrics` of `--metrics-addr`. Those that begin with `mcm_` have the names, types and labels of \
        machine-controller-manager.\n\n| metric | type | |\n|---|---|---|\n",
    );
    let text = measured().render().unwrap();
    let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        helps.insert(name, help.trim_end_matches('.'));
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, type_) = line.split_once(' ').unwrap();
        writeln!(page, "| `{name}` | {type_} | {} |", cell(helps.get(name).unwrap())).unwrap();
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
    compatibility(&mut page);
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
