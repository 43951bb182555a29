//! The sandbox keeps the contract: what it says is what a real kube-apiserver says, request by request and event by event.
//!
//! An ordinary run asks some hundred sequences, drawn from the commit; the long suite thousands, and then all that the
//! manager asks must have been reached (`NEEDED`). `MILLWRIGHT_CONTRACT_SEQUENCES` and `MILLWRIGHT_SEED` choose others.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use kube::config::Kubeconfig;
use millwright_dev::apiserver::ControlPlane;
use millwright_tests::apiserver;
use millwright_tests::contract::coverage::Coverage;
use millwright_tests::contract::generate;
use millwright_tests::contract::normal::Names;
use millwright_tests::contract::run::{Bench, Mismatch};
use millwright_tests::contract::script::Sequence;
use millwright_tests::contract::shrink;
use millwright_tests::contract::value::Base;
use millwright_tests::contract::wire::Wire;
use millwright_tests::sampling;
use millwright_tests::scene::shared_plane;
use serde_json::{Value, json};

/// Sequences asked in one go, between two marks in the streams.
const WAVE: u64 = 200;
/// Sequences of an ordinary run, and of the long suite.
const SEQUENCES: [u64; 2] = [300, 20_000];
/// So many sequences reach everything in `NEEDED`, whatever the seed.
const ENOUGH: u64 = 2_000;

/// What the manager asks, and how it can be answered: verb, kind, outcomes. Each must be reached; generated sequences and those
/// by hand count. Answers about what is older than history have a test of their own.
const NEEDED: &[(&str, &str, &[&str])] = &[
    // `Writer::create`, for sets' machines and deployments' sets.
    (
        "create",
        "Machine",
        &[
            "201",
            "400 BadRequest",
            "404 NotFound",
            "409 AlreadyExists",
            "422 Invalid",
        ],
    ),
    (
        "create",
        "MachineSet",
        &[
            "201",
            "400 BadRequest",
            "404 NotFound",
            "409 AlreadyExists",
            "422 Invalid",
        ],
    ),
    // `Writer::read`.
    ("get", "Machine", &["200", "404 NotFound"]),
    ("get", "MachineSet", &["200", "404 NotFound"]),
    ("get", "MachineDeployment", &["200", "404 NotFound"]),
    // `Writer::merge`, `add_finalizer`, `remove_finalizer`.
    (
        "patch.merge",
        "Machine",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    (
        "patch.merge",
        "MachineSet",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    (
        "patch.merge",
        "MachineDeployment",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    (
        "patch.merge",
        "MachineClass",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    // `Writer::merge_status`.
    (
        "patch.merge/status",
        "Machine",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    (
        "patch.merge/status",
        "MachineClass",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    (
        "patch.merge/status",
        "MachineSet",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    (
        "patch.merge/status",
        "MachineDeployment",
        &["200", "200 unchanged", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    // The precondition on the uid.
    (
        "patch.json",
        "Machine",
        &["200", "200 unchanged", "404 NotFound", "422 Invalid"],
    ),
    ("patch.json/status", "Machine", &["200", "404 NotFound", "422 Invalid"]),
    // `Writer::delete`.
    (
        "delete",
        "Machine",
        &["200 gone", "200 stays", "404 NotFound", "409 Conflict"],
    ),
    (
        "delete",
        "MachineSet",
        &["200 gone", "200 stays", "404 NotFound", "409 Conflict"],
    ),
    // `Writer::guard_secret` and `release_secret`.
    (
        "patch.merge (metadata)",
        "Secret",
        &["200", "404 NotFound", "409 Conflict"],
    ),
    // `Writer::read_node`, `node`, `release_node`, `delete_node`.
    ("get", "Node", &["200", "404 NotFound"]),
    (
        "patch.strategic",
        "Node",
        &["200", "200 unchanged", "404 NotFound", "422 Invalid"],
    ),
    (
        "delete",
        "Node",
        &["200 gone", "200 stays", "404 NotFound", "409 Conflict"],
    ),
    ("patch.apply", "Node", &["200", "200 unchanged", "201", "409 Conflict"]),
    // Bootstrap tokens.
    ("create", "Secret", &["201", "409 AlreadyExists"]),
    ("get", "Secret", &["200", "404 NotFound"]),
    ("delete", "Secret", &["200 gone", "404 NotFound", "409 Conflict"]),
    // The lease.
    ("get", "Lease", &["200", "404 NotFound"]),
    ("create", "Lease", &["201", "409 AlreadyExists"]),
    ("patch.merge", "Lease", &["200", "404 NotFound", "409 Conflict"]),
    // `EventWriter`.
    ("create", "Event", &["201", "404 NotFound", "409 AlreadyExists"]),
    // Watches: kube lists in pages and then watches.
    ("list", "Machine", &["200", "200 more", "400 BadRequest"]),
    ("list (metadata)", "Secret", &["200"]),
    ("list", "Node", &["200", "400 BadRequest"]),
    ("list", "Pod", &["200", "200 more", "400 BadRequest"]),
    ("watch", "Machine", &["events"]),
    ("watch", "Node", &["events"]),
    ("event", "Machine", &["ADDED", "MODIFIED", "DELETED"]),
    ("event", "MachineSet", &["ADDED", "MODIFIED", "DELETED"]),
    ("event", "MachineDeployment", &["ADDED", "MODIFIED", "DELETED"]),
    ("event", "MachineClass", &["ADDED", "MODIFIED", "DELETED"]),
    ("event", "Secret", &["ADDED", "MODIFIED", "DELETED"]),
    ("event", "Node", &["ADDED", "MODIFIED", "DELETED"]),
    ("event", "Pod", &["ADDED", "MODIFIED", "DELETED"]),
    // Users and the autoscaler scale; draining evicts.
    ("get/scale", "MachineDeployment", &["200", "404 NotFound"]),
    (
        "patch.merge/scale",
        "MachineDeployment",
        &["200", "404 NotFound", "409 Conflict", "422 Invalid"],
    ),
    ("update/scale", "MachineDeployment", &["200", "409 Conflict"]),
    (
        "create/eviction",
        "Pod",
        &["201", "404 NotFound", "409 Conflict", "429 TooManyRequests", "500 -"],
    ),
];

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// `hand.cases`, and what generated sequences once differed in.
fn by_hand() -> Vec<Sequence> {
    let texts = [
        include_str!("../contract/hand.cases"),
        include_str!("../contract/regressions.cases"),
    ];
    texts
        .into_iter()
        .flat_map(|text| Sequence::read_all(text).unwrap())
        .collect()
}

async fn bench(plane: &ControlPlane, prefix: &'static str) -> Bench {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let wire = Wire::new(kubeconfig).await.unwrap();
    wire.ready().await;
    Bench::new(wire, prefix)
}

/// One of each kind of difference, as small as it gets.
async fn story(bench: &Bench, found: BTreeMap<String, (usize, Mismatch)>) -> String {
    for (signature, (count, mismatch)) in &found {
        // Before anything is shrunk, which takes a while.
        eprintln!("\n{count} × {signature}\n{mismatch}");
    }
    let mut out = format!("{} kinds of differences", found.len());
    let shown = number("MILLWRIGHT_CONTRACT_SHOWN", 12);
    for (_, (_, mismatch)) in found.into_iter().take(usize::try_from(shown).unwrap()) {
        let least = shrink::least(bench, mismatch).await.unwrap();
        out += &format!("\n{least}");
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_sequences_are_answered_as_by_the_server() {
    let what = "generated sequences are answered as by the server";
    let Some(plane) = shared_plane(what).await else {
        return;
    };
    let bench = bench(&plane, "c").await;
    let wanted = number(
        "MILLWRIGHT_CONTRACT_SEQUENCES",
        SEQUENCES[usize::from(sampling::is_long())],
    );
    let first = sampling::seed(what);
    let began = Instant::now();
    let (mut coverage, mut requests) = (Coverage::default(), 0);
    let mut found: BTreeMap<String, (usize, Mismatch)> = BTreeMap::new();
    for start in (first..first + wanted).step_by(usize::try_from(WAVE).unwrap()) {
        let seeds = start..(start + WAVE).min(first + wanted);
        for outcome in bench.wave(seeds.map(generate::sequence).collect()).await.unwrap() {
            coverage.add(&outcome.coverage);
            requests += outcome.requests;
            if let Some(mismatch) = outcome.mismatch {
                let entry = found.entry(mismatch.signature.clone()).or_insert((0, mismatch));
                entry.0 += 1;
            }
        }
    }
    eprintln!(
        "{coverage}{wanted} sequences, {requests} requests, {:.1} s",
        began.elapsed().as_secs_f64()
    );
    assert!(found.is_empty(), "{}", story(&bench, found).await);
    for outcome in bench.wave(by_hand()).await.unwrap() {
        coverage.add(&outcome.coverage);
    }
    let needed = NEEDED
        .iter()
        .flat_map(|(verb, kind, outcomes)| outcomes.iter().map(move |outcome| format!("{verb} {kind} {outcome}")));
    let missed: Vec<String> = needed.filter(|name| coverage.of(name) == 0).collect();
    assert!(missed.is_empty() || wanted < ENOUGH, "never reached: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_by_hand_are_answered_as_by_the_server() {
    let Some(plane) = shared_plane("sequences by hand are answered as by the server").await else {
        return;
    };
    let bench = bench(&plane, "h").await;
    let outcomes = bench.wave(by_hand()).await.unwrap();
    let found: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| outcome.mismatch.as_ref().map(ToString::to_string))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What a client may learn of an answer: whose wording and metadata do not matter here.
fn gist(answer: &Value) -> Value {
    let said = &answer["said"];
    if said["kind"] == "Status" {
        return json!([answer["code"], said["reason"], said["message"]]);
    }
    if said.is_array() {
        let events = said.as_array().into_iter().flatten();
        return events
            .map(|event| json!([event["type"], event["object"]["code"], event["object"]["reason"]]))
            .collect();
    }
    answer.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_older_than_history_is_expired_as_on_the_server() {
    let Some(mut plane) = apiserver::start_with_crds("what is older than history is expired as on the server").await
    else {
        return;
    };
    let mut wire = Wire::new(Kubeconfig::read_from(plane.kubeconfig()).unwrap())
        .await
        .unwrap();
    wire.ready().await;
    for sequence in Sequence::read_all(include_str!("../contract/compaction.cases")).unwrap() {
        let mut memory = wire.namespace("forgotten").await.unwrap();
        let mut sandbox = Base::new().sandbox("forgotten");
        let mut names = [Names::default(), Names::default()];
        for step in &sequence.steps {
            if step.method == "COMPACT" {
                wire.compact(plane.dir()).await.unwrap();
                sandbox.compact();
                // What the API server remembers by itself goes with it.
                plane.stop_apiserver();
                plane.restart_apiserver().await.unwrap();
                wire = Wire::new(Kubeconfig::read_from(plane.kubeconfig()).unwrap())
                    .await
                    .unwrap();
                wire.ready().await;
                continue;
            }
            let server = names[0].reply(&wire.ask(&mut memory, step).await.unwrap());
            let value = names[1].reply(&sandbox.ask(step));
            assert_eq!(gist(&server), gist(&value), "{step}");
        }
    }
}
