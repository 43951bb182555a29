//! What many objects cost: 10,000 machines and as many nodes in use must fit into 300 MB.
//!
//! Measured on a part of them, with the share of the memory that this part may take; `tests/bench/api.py` measures the whole.
//! It is measured in a process of its own, because other tests of this program run beside it.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

use std::process::Command;

use jiff::Timestamp;
use millwright_sandbox::api::{Answer, Api, Moment};
use millwright_sandbox::request::{Http, Request};
use serde_json::{Value, json};

/// Says to the program that it is the one that measures.
const MEASURES: &str = "MILLWRIGHT_TEST_MEASURES_MEMORY";

const COUNT: usize = 1_500;
const BYTES_OF_A_PAIR: usize = 300_000_000 / 10_000;

/// What a server does a few times a second, with its history and its few warm objects scaled down as the count is.
const BETWEEN_RESTS: usize = 100;
const HISTORY: usize = 5_000 * COUNT / 10_000;
const WARM: usize = 1_000 * COUNT / 10_000;

const MACHINES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines";
const NODES: &str = "/api/v1/nodes";

struct Writer {
    api: Api,
    written: usize,
}

impl Writer {
    fn new() -> Self {
        let mut writer = Self {
            api: Api::new(now()),
            written: 0,
        };
        for definition in millwright_core::api::crds::all() {
            let definition = serde_json::to_value(definition).unwrap();
            let moment = writer.moment();
            writer.api.install(&definition, &moment).unwrap();
        }
        writer
    }

    fn moment(&mut self) -> Moment {
        self.written += 1;
        Moment {
            now: now(),
            uid: format!("00000000-0000-0000-0000-{:012}", self.written),
            suffix: String::new(),
        }
    }

    fn write(&mut self, agent: &str, method: &str, path: &str, body: &Value) {
        let moment = self.moment();
        let body = body.to_string();
        let media = if method == "POST" {
            "application/json"
        } else {
            "application/merge-patch+json"
        };
        let http = Http {
            method,
            path,
            content_type: media,
            agent,
            user: agent,
            body: body.as_bytes(),
            ..Http::default()
        };
        let answer = self.api.handle(&Request::parse(&http).unwrap(), &moment);
        assert!(
            matches!(answer, Answer::Object { code: 200 | 201, .. }),
            "{path}: {answer:?}"
        );
        if self.written.is_multiple_of(BETWEEN_RESTS) {
            self.api.cool(WARM);
            self.api.trim(HISTORY);
        }
    }

    fn machine(&mut self, number: usize) {
        let name = format!("workers-zd4f2-{number:05}");
        let path = format!("{MACHINES}/{name}");
        let born = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "labels": { "name": "workers", "machine-template-hash": "zd4f2" },
                "finalizers": ["machine.sapcloud.io/machine-controller"],
            },
            "spec": {
                "class": { "kind": "MachineClass", "name": "small" },
                "nodeTemplate": { "metadata": { "labels": { "worker.gardener.cloud/pool": "workers" } }, "spec": {} },
            },
        });
        let placed = json!({
            "spec": { "providerID": format!("virtual:///local/local-a/i-{number:017}") }, "metadata": { "labels": { "node": name } },
        });
        let running = json!({ "status": {
            "currentStatus": { "phase": "Running", "lastUpdateTime": "2026-11-21T12:00:00Z" },
            "lastOperation": {
                "description": "The machine joined the cluster in 2s", "state": "Successful", "type": "Create",
                "lastUpdateTime": "2026-11-21T12:00:00Z",
            },
            "conditions": [condition("Ready", "")],
        }});
        self.write("millwright", "POST", MACHINES, &born);
        self.write("millwright", "PATCH", &path, &placed);
        self.write("millwright", "PATCH", &format!("{path}/status"), &running);
    }

    fn node(&mut self, number: usize) {
        let name = format!("workers-zd4f2-{number:05}");
        let conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(|kind| condition(kind, ""));
        let born = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "small",
                "topology.kubernetes.io/zone": "local-a",
            }},
            "spec": { "providerID": format!("virtual:///local/local-a/i-{number:017}") },
            "status": {
                "capacity": { "cpu": "2", "memory": "4Gi", "pods": "110" },
                "conditions": conditions,
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Hostname", "address": name }],
            },
        });
        self.write("kubelet", "POST", NODES, &born);
    }

    fn report(&mut self, number: usize, round: usize) {
        let path = format!("{NODES}/workers-zd4f2-{number:05}/status");
        let said = json!({ "status": { "conditions": [condition("Ready", &round.to_string())] } });
        self.write("kubelet", "PATCH", &path, &said);
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_795_000_000).unwrap()
}

fn condition(kind: &str, more: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "KubeletReady", "message": format!("the simulated kubelet is ready {more}"),
        "lastHeartbeatTime": "2026-11-21T12:00:00Z", "lastTransitionTime": "2026-11-21T12:00:00Z",
    })
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

/// No test by itself: what the test below starts as a process of its own.
#[test]
fn measures_if_it_is_told_to() {
    if std::env::var_os(MEASURES).is_some() {
        measure();
    }
}

#[test]
fn ten_thousand_machines_and_nodes_fit_into_three_hundred_megabytes() {
    let measured = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::measures_if_it_is_told_to", "--nocapture"])
        .env(MEASURES, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&measured.stdout);
    let complaint = String::from_utf8_lossy(&measured.stderr);
    assert!(measured.status.success(), "{said}{complaint}");
    assert!(said.contains("bytes a pair"), "nothing was measured: {said}{complaint}");
    println!("{said}");
}

fn measure() {
    let mut writer = Writer::new();
    let before = resident();
    for number in 0..COUNT {
        writer.machine(number);
        writer.node(number);
    }
    for round in 0..2 {
        for number in 0..COUNT {
            writer.report(number, round);
        }
    }
    let taken = resident().saturating_sub(before);
    assert!(
        taken <= COUNT * BYTES_OF_A_PAIR,
        "{COUNT} machines and nodes and their history take {taken} bytes, {} a pair",
        taken / COUNT
    );
    println!("{} bytes a pair", taken / COUNT);
}
