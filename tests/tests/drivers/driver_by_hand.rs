//! `millwright driver`: the Driver API with the manifests that users have, against the real virtual provider in a process of its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use millwright_proto::v1;
use millwright_tests::fleet::VirtualProvider;
use millwright_tests::programs::programs;
use serde_json::Value;

use crate::liar::{Liar, vm_of};

const CLASS: &str = "\
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: small, namespace: shop}
provider: virtual
providerSpec: {instanceType: small, region: local, zone: local-a}
secretRef: {name: boot, namespace: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: boot, namespace: shop}
stringData: {userData: '#cloud-config <<MACHINE_NAME>>'}
";

/// A provider, and the manifests of a class.
struct Desk {
    dir: tempfile::TempDir,
    _provider: VirtualProvider,
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("class.yaml"), CLASS).unwrap();
        let provider = VirtualProvider::alone(dir.path(), "virtual").await.start();
        provider.wait_until_it_listens().await;
        Self {
            dir,
            _provider: provider,
        }
    }

    async fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&programs().await.manager);
        let socket = self.dir.path().join("virtual.sock");
        command.arg("driver").args(words.split_whitespace());
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg("-f").arg(self.dir.path().join("class.yaml"));
        command
    }

    async fn ends(&self, words: &str) -> Ended {
        let output = self.command(words).await.output().unwrap();
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    async fn well(&self, words: &str) -> String {
        let ended = self.ends(words).await;
        assert_eq!(ended.code, Some(0), "{words}: {ended:?}");
        ended.out
    }

    async fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.well(&format!("{words} -o json")).await).unwrap()
    }
}

#[tokio::test]
async fn a_vm_is_made_shown_listed_and_removed_with_the_manifest_of_its_class() {
    let desk = Desk::open().await;
    assert!(desk.well("info").await.contains("Name:                virtual\n"));
    assert_eq!(desk.well("validate").await, "MachineClass small is good\n");
    assert!(desk.well("template").await.contains("Region:"));
    assert!(desk.well("schema").await.contains("instanceType"));

    let made = desk.json("create one").await;
    assert_eq!(made, desk.json("create one").await, "asked for twice it is one VM");
    assert_eq!(made["key"]["namespace"], "shop");
    let shown = desk.well("status one").await;
    let id = made["providerId"].as_str().unwrap();
    assert!(
        shown.starts_with("NAMESPACE   NAME ") && shown.contains("\nshop        one "),
        "{shown}"
    );
    assert!(shown.contains(id), "{shown}");
    assert!(desk.well("list").await.contains(id));
    assert!(desk.well("list -o yaml").await.contains(&format!("providerId: {id}")));
    let others = desk.json("list --cluster-id shop").await;
    assert_eq!(others["machines"], Value::Null, "another cluster's list has none");

    assert!(desk.well("delete one").await.ends_with("machine/one deleted\n"));
    let gone = desk.ends("status one").await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(
        gone.err
            .starts_with("error: GetMachineStatus: NotFound (MACHINE_NOT_FOUND): "),
        "{gone:?}"
    );
    let again = desk.ends("create one").await;
    assert!(again.err.contains("(MACHINE_DELETED)"), "{again:?}");
}

#[tokio::test]
async fn a_deletion_that_is_told_to_come_again_does_so_unless_it_need_not_wait() {
    let desk = Desk::open().await;
    let faults = "zone: local-a, faults: [{call: DeleteMachine, nth: 1, error: RATE_LIMITED}, {call: DeleteMachine, nth: 2, error: RATE_LIMITED}]";
    let class = desk.dir.path().join("class.yaml");
    std::fs::write(&class, CLASS.replace("zone: local-a", faults)).unwrap();
    desk.well("create one").await;
    let once = desk.ends("delete one --wait=false").await;
    assert!(
        once.code == Some(1)
            && once
                .err
                .starts_with("error: DeleteMachine: Unavailable (RATE_LIMITED): "),
        "{once:?}"
    );
    let ended = desk.ends("delete one").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.starts_with("note: Unavailable (RATE_LIMITED): "), "{ended:?}");
    assert!(ended.out.ends_with("machine/one deleted\n"), "{ended:?}");
}

#[tokio::test]
async fn a_watch_prints_what_there_is_and_each_change_until_it_is_interrupted() {
    let desk = Desk::open().await;
    desk.well("create one").await;
    let mut watch = desk.command("watch").await.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("UPSERT   shop   one   ")));
    assert!(lines.any(|line| line == "SYNCED"));
    desk.well("delete one").await;
    assert!(lines.any(|line| line.starts_with("DELETED   shop   one   ")));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_manager_would_refuse_is_shown_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let liar = Liar::at(&dir.path().join("liar.sock"));
    let class = dir.path().join("class.yaml");
    std::fs::write(&class, CLASS.replace("provider: virtual", "provider: liar")).unwrap();
    let manager = programs().await.manager.clone();
    let create = || {
        let mut command = Command::new(&manager);
        command.args(["driver", "create", "one"]);
        command
            .arg(format!("--endpoint={}", liar.endpoint()))
            .arg("-f")
            .arg(&class);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = create();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");

    liar.creates(|key| {
        let uid = "00000000-0000-0000-0000-000000000000".to_owned();
        Ok(Some(vm_of(v1::MachineKey { uid, ..key })))
    });
    let (code, out, err) = create();
    assert_eq!(code, Some(1), "{err}");
    assert!(out.contains("liar:///00000000"), "{out}");
    assert!(
        err.starts_with(
            "error: CreateMachine: a manager refuses this answer: the driver answered with the VM of another machine"
        ),
        "{err}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_said_with_what_to_do() {
    let desk = Desk::open().await;
    let class = desk.dir.path().join("class.yaml");
    std::fs::write(&class, CLASS.replace("instanceType: small", "instanceType: 7")).unwrap();
    let bad = desk.ends("validate").await;
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(
        bad.out.contains("/instanceType") && bad.err.contains("fault(s), so no machine can be made"),
        "{bad:?}"
    );
    std::fs::write(&class, "kind: MachineClass\nmetadata: {name: a}\nprovider: other").unwrap();
    let other = desk.ends("create one").await;
    assert!(other.err.contains("InvalidArgument (INVALID_FIELD)"), "{other:?}");

    let unnamed = Command::new(&programs().await.manager)
        .args(["driver", "info"])
        .output()
        .unwrap();
    assert_eq!(unnamed.status.code(), Some(2));
    let nobody = "driver info --endpoint unix:///nowhere.sock --timeout 2s".split(' ');
    let nobody = Command::new(&programs().await.manager).args(nobody).output().unwrap();
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert!(said.starts_with("error: GetDriverInfo: Unavailable: "), "{said}");
}
