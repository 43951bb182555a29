//! The walls between our crates: which crate may use which, what the deciding crate may not contain, and which
//! top-level folders there are. Read from Cargo and the checkout, so that nobody has to remember them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use millwright_dev::apiserver::binaries::workspace_root;

/// What each of our crates may use of ours, in ordinary and build dependencies. `tests` may use everything.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("millwright-proto", &[]),
    ("millwright-trace", &[]),
    ("millwright-core", &[]),
    // Only tests and the simulator use it: no program that is shipped contains the laws.
    ("millwright-laws", &["millwright-core"]),
    ("millwright-sandbox", &["millwright-core"]),
    (
        "millwright",
        &["millwright-core", "millwright-proto", "millwright-trace"],
    ),
    ("millwright-provider-sdk", &["millwright-proto", "millwright-trace"]),
    // A provider sees the SDK and nothing else, as one written elsewhere would.
    ("millwright-provider-virtual", &["millwright-provider-sdk"]),
    (
        "millwright-dev",
        &[
            "millwright",
            "millwright-core",
            "millwright-sandbox",
            "millwright-provider-virtual",
        ],
    ),
    // An oracle that shared a rule with what it judges would share its mistakes.
    ("millwright-oracles", &[]),
    // Clusters for tests and people; small, so that its command is built in seconds.
    ("millwright-node", &[]),
];
const TESTS: [&str; 2] = ["millwright-tests", "millwright-sim"];

/// Whatever acts, waits or speaks to a network has no business where decisions are made.
const NOT_IN_CORE: [&str; 11] = [
    "tokio",
    "hyper",
    "tower",
    "tonic",
    "rustls",
    "h2",
    "reqwest",
    "kube-client",
    "kube-runtime",
    "rand",
    "getrandom",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(workspace_root().join("Cargo.toml"))
        .no_deps() // our own manifests say it all, and no registry is asked for other platforms' packages
        .other_options(["--locked".to_owned(), "--offline".to_owned()])
        .exec()
        .expect("cargo metadata reads this workspace")
}

/// Names of all packages in an ordinary build of `package` alone. By `cargo tree`, because the graph of `cargo metadata`
/// gives each package the features that the whole workspace asks for: there core's kube has the client that only the
/// controller wanted.
fn everything_in(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(workspace_root())
        .args([
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .args(["--locked", "--offline"])
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    lines
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_deciding_crate_contains_nothing_that_acts_or_waits() {
    let names = everything_in("millwright-core");
    assert!(
        names.contains("kube"),
        "core uses kube's types, so an answer without it is no answer: {names:?}"
    );
    let forbidden: Vec<&String> = names
        .iter()
        .filter(|name| NOT_IN_CORE.contains(&name.as_str()))
        .collect();
    assert!(forbidden.is_empty(), "millwright-core contains {forbidden:?}");
}

#[test]
fn our_crates_use_each_other_only_as_the_architecture_says() {
    let metadata = metadata();
    let ours: BTreeSet<String> = metadata
        .workspace_packages()
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into();
    let mut faults = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        if TESTS.contains(&name) {
            continue;
        }
        let Some(may_use) = allowed.get(name) else {
            faults.push(format!("{name} is not in the architecture's list of crates"));
            continue;
        };
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| ours.contains(&dependency.name))
        {
            let for_its_tests = dependency.kind == DependencyKind::Development;
            if TESTS.contains(&dependency.name.as_str())
                || !(for_its_tests || may_use.contains(&dependency.name.as_str()))
            {
                faults.push(format!("{name} uses {} ({:?})", dependency.name, dependency.kind));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_crate_takes_the_lints_and_pins_of_the_workspace() {
    for package in metadata().workspace_packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{} has lints of its own",
            package.name
        );
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_none())
        {
            // Whoever uses a published crate has pins of his own. `publish = false` reads as an empty list of registries.
            let is_published = package.publish.is_none();
            let version = dependency.req.to_string();
            assert!(
                version.starts_with('=') != is_published,
                "{} wants {} {version}: an exact version is for what is not published, and for nothing else",
                package.name,
                dependency.name
            );
        }
    }
}

#[test]
fn the_top_level_folders_are_those_of_the_architecture() {
    let wanted = ["proto", "controller", "provider-sdk", "providers", "deploy", "tests"];
    let entries = std::fs::read_dir(workspace_root()).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let names: BTreeSet<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    let strangers: Vec<&String> = names
        .iter()
        .filter(|name| !wanted.contains(&name.as_str()) && !name.starts_with('.') && *name != "target")
        .collect();
    assert!(
        strangers.is_empty(),
        "top-level folders of no architecture: {strangers:?}"
    );
    let missing: Vec<&&str> = wanted.iter().filter(|name| !names.contains(**name)).collect();
    assert!(missing.is_empty(), "top-level folders that are missing: {missing:?}");
}
