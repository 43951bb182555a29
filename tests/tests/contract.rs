//! The sandbox keeps the contract: what it says is what a real kube-apiserver says, request by request and event by event.
//!
//! `MILLWRIGHT_CONTRACT_SEQUENCES` and `MILLWRIGHT_CONTRACT_SEED` make it longer or other; a failure prints both.
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
use serde_json::{Value, json};

/// Sequences asked in one go, between two marks in the streams.
const WAVE: u64 = 200;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
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
    let Some(plane) = apiserver::start_with_crds("generated sequences are answered as by the server").await else {
        return;
    };
    let bench = bench(&plane, "c").await;
    let (first, wanted) = (
        number("MILLWRIGHT_CONTRACT_SEED", 0),
        number("MILLWRIGHT_CONTRACT_SEQUENCES", 2000),
    );
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_by_hand_are_answered_as_by_the_server() {
    let Some(plane) = apiserver::start_with_crds("sequences by hand are answered as by the server").await else {
        return;
    };
    let bench = bench(&plane, "h").await;
    let sequences = Sequence::read_all(include_str!("../contract/hand.cases")).unwrap();
    let outcomes = bench.wave(sequences).await.unwrap();
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
