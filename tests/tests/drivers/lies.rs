//! Answers that break the contract, over a real socket under the real manager: each is told where a person looks, and no VM and no
//! machine goes for it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_proto::v1;
use millwright_tests::laws::{self, condition};
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use prost::Message as _;
use serde_json::json;
use tonic::Status;
use tonic_types::pb;

use crate::liar::{FIVE_MIB, Liar, NAME, vm_of};

const LIMIT: Duration = Duration::from_secs(60);
/// Between two listings of the VMs.
const PERIOD: &str = "2s";
/// So old a VM of no machine may go.
const MIN_AGE: &str = "1s";
/// In which a few listings come and go.
const LISTINGS: Duration = Duration::from_secs(10);
/// User data that needs nothing made for it.
const PLAIN: &str = "plain";
/// A credential of the class.
const PASSWORD: &str = "correct-horse-battery";

/// A scene with a class of the liar, where no node has to join. It is slow to anger: a machine that gets no VM is given up late.
async fn scene(what: &str, prefix: &str) -> Option<(Scene, Liar)> {
    let plane = shared_plane(what).await?;
    let liar = Liar::at(&plane.dir().join(format!("{prefix}.sock")));
    let script = Script::new(prefix)
        .manager("--driver", liar.endpoint())
        .manager("--target-kubeconfig", "none")
        .manager("--machine-safety-orphan-vms-period", PERIOD)
        .manager("--orphan-min-age", MIN_AGE);
    let scene = script.begin(&plane).await;
    let mut secret = manifests::plain_secret(PLAIN);
    secret["stringData"]["password"] = json!(PASSWORD);
    scene.create_secret(&secret).await;
    let class = json!({
        "metadata": { "name": NAME }, "provider": NAME, "providerSpec": {}, "secretRef": { "name": PLAIN },
    });
    scene.create(Kind::Class, &class).await;
    Some((scene, liar))
}

async fn machine(scene: &Scene, number: usize) -> String {
    let name = format!("{}-{number}", scene.namespace);
    let mut machine = manifests::machine(&name);
    machine["spec"]["class"]["name"] = json!(NAME);
    scene.create(Kind::Machine, &machine).await;
    name
}

/// Waits until the Machine's last operation says all of it.
async fn says(scene: &mut Scene, name: &str, texts: &[&str]) {
    let what = format!("{name} says {texts:?}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let machine = scene.get(Kind::Machine, name).await;
            let told = machine["status"]["lastOperation"]["description"].as_str();
            let told = told.unwrap_or_default();
            match texts.iter().all(|text| told.contains(text)) {
                true => Ok(()),
                false => Err(format!("it says {told:?}")),
            }
        })
        .await;
}

/// Waits until an event of the class with this reason says all of it.
async fn class_tells(scene: &mut Scene, reason: &str, texts: &[&str]) {
    let what = format!("event {reason} of the class says {texts:?}");
    scene
        .until(&what, LIMIT, async |scene: &Scene| {
            let events = scene.events_about(NAME).await?;
            let all = |text: &str| texts.iter().all(|wanted| text.contains(wanted));
            match events.iter().any(|(told, text)| told == reason && all(text)) {
                true => Ok(()),
                false => Err(format!("{events:?}")),
            }
        })
        .await;
}

async fn is_there(scene: &mut Scene, name: &str) -> String {
    scene
        .until(&format!("{name} has its VM"), LIMIT, async |scene: &Scene| {
            let machine = scene.get(Kind::Machine, name).await;
            match machine["spec"]["providerID"].as_str() {
                Some(_) => Ok(laws::uid(&machine).to_owned()),
                None => Err(machine["status"].to_string()),
            }
        })
        .await
}

/// The answer of an honest driver, but for the id of the VM.
#[expect(clippy::unnecessary_wraps, reason = "an answer may be none, or an error")]
fn with_id(key: v1::MachineKey, id: &str) -> Result<Option<v1::Machine>, Status> {
    Ok(Some(v1::Machine {
        provider_id: id.to_owned(),
        ..vm_of(key)
    }))
}

/// A creation that is answered so is told in these words, and costs neither the Machine nor a VM. An honest answer heals it: the
/// driver's return is the sign to try again.
async fn told_of_creation(
    prefix: &str,
    lie: fn(v1::MachineKey) -> Result<Option<v1::Machine>, Status>,
    texts: &[&str],
) {
    let Some((mut scene, liar)) = scene(&format!("a creation answered with a lie, {prefix}"), prefix).await else {
        return;
    };
    liar.creates(lie);
    let name = machine(&scene, 1).await;
    says(&mut scene, &name, texts).await;
    let before = scene.get(Kind::Machine, &name).await;
    assert_eq!(laws::phase(&before), "CrashLoopBackOff");
    assert!(before["spec"]["providerID"].is_null(), "{}", before["spec"]);

    liar.creates(|key| Ok(Some(vm_of(key))));
    scene.manager.service.kill();
    scene.manager.service.restart();
    assert_eq!(
        is_there(&mut scene, &name).await,
        laws::uid(&before),
        "it is the same Machine"
    );
    assert!(liar.deletes().is_empty(), "{:?}", liar.deletes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vm_of_another_machine_is_told_and_not_taken() {
    let lie = |key: v1::MachineKey| {
        let uid = "00000000-0000-0000-0000-000000000000".to_owned();
        Ok(Some(vm_of(v1::MachineKey { uid, ..key })))
    };
    let texts = ["the VM of another machine", "00000000-0000-0000-0000-000000000000"];
    told_of_creation("lie-uid", lie, &texts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ok_without_a_vm_is_told() {
    told_of_creation("lie-none", |_| Ok(None), &["answered OK without a machine"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_vm_without_an_id_is_told() {
    let lie = |key| with_id(key, "");
    told_of_creation("lie-id", lie, &["without provider_id", "Running"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_five_mib_is_told_with_its_size() {
    let lie = |key: v1::MachineKey| {
        let state_message = "x".repeat(FIVE_MIB);
        Ok(Some(v1::Machine {
            state_message,
            ..vm_of(key)
        }))
    };
    told_of_creation("lie-big", lie, &["too large", "524"]).await;
}

/// Rows: O21, D8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_of_a_hundred_kilobytes_is_told_by_its_size() {
    let lie = |key| with_id(key, &"x".repeat(100_000));
    told_of_creation("lie-long", lie, &["a provider_id of 100000 bytes"]).await;
}

/// Rows: D8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_of_two_lines_is_told() {
    let lie = |key| with_id(key, "liar:///a\nb");
    told_of_creation("lie-line", lie, &["control characters"]).await;
}

/// Rows: O4, O18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_an_error_reaches_no_status_no_event_and_no_log_and_no_line_is_forged() {
    let Some((mut scene, liar)) = scene("a driver that quotes its credentials", "lie-tell").await else {
        return;
    };
    liar.creates(|_| {
        let said =
            format!("login of admin with {PASSWORD} failed\n2026 ERROR forged: the token is abcdef.0123456789abcdef");
        Err(Status::internal(said))
    });
    let name = machine(&scene, 1).await;
    says(
        &mut scene,
        &name,
        &["login of admin with *** failed 2026 ERROR forged: the token is abcdef.***"],
    )
    .await;
    let events = scene.events_about(&name).await.unwrap();
    let log = scene.manager.service.log();
    for (place, text) in [("events", format!("{events:?}")), ("log", log.clone())] {
        assert!(!text.contains(PASSWORD), "{place}: {text}");
        assert!(!text.contains("0123456789abcdef"), "{place}: {text}");
    }
    assert!(!log.lines().any(|line| line.starts_with("2026 ERROR forged")), "{log}");
}

/// Rows: D4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twelve_hundred_violations_the_class_tells_the_first_and_how_many_more() {
    let Some((mut scene, liar)) = scene("a driver with many violations", "lie-many").await else {
        return;
    };
    liar.validates(|| {
        let one = v1::Violation {
            field: "/size".into(),
            severity: v1::violation::Severity::Error.into(),
            reason: "BAD".into(),
            description: "x".repeat(1000),
        };
        vec![one; 1200]
    });
    scene
        .patch(Kind::Class, NAME, json!({ "providerSpec": { "size": "l" } }))
        .await;
    scene
        .until("the class says so", LIMIT, async |scene: &Scene| {
            let class = scene.get(Kind::Class, NAME).await;
            match class["status"].to_string() {
                told if told.contains("(and 1136 more)") && told.len() < 256 << 10 => Ok(()),
                told => Err(format!("{} bytes, {told:.300}", told.len())),
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_vms_of_one_machine_are_told_by_their_ids() {
    let lie = |_: v1::MachineKey| Err(duplicates());
    told_of_creation("lie-two", lie, &["two of them", "liar:///a", "liar:///b"]).await;
}

/// What a driver says that finds two VMs of one machine, the ids where the contract has them.
fn duplicates() -> Status {
    use prost_types::Any;
    let info = pb::ErrorInfo {
        domain: "machine.driver.v1".into(),
        reason: "DUPLICATE_VMS".into(),
        ..Default::default()
    };
    let detail = v1::ErrorDetail {
        outcome: v1::error_detail::Outcome::Partial.into(),
        provider_ids: vec!["liar:///a".into(), "liar:///b".into()],
        ..Default::default()
    };
    let any = |kind: &str, value: Vec<u8>| Any {
        type_url: format!("type.googleapis.com/{kind}"),
        value,
    };
    let body = pb::Status {
        code: tonic::Code::OutOfRange as i32,
        message: String::new(),
        details: vec![
            any("google.rpc.ErrorInfo", info.encode_to_vec()),
            any("machine.driver.v1.ErrorDetail", detail.encode_to_vec()),
        ],
    };
    Status::with_details(tonic::Code::OutOfRange, "two of them", body.encode_to_vec().into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_its_driver_misses_is_named_by_the_class() {
    let Some((mut scene, liar)) = scene("a Secret without a driver's key", "lie-key").await else {
        return;
    };
    liar.validates(|| {
        vec![v1::Violation {
            field: "secret:apiToken".into(),
            severity: v1::violation::Severity::Error.into(),
            reason: "MISSING_KEY".into(),
            description: "the Secret has no key apiToken".into(),
        }]
    });
    scene
        .patch(Kind::Class, NAME, json!({ "providerSpec": { "size": "l" } }))
        .await;
    scene
        .until("the class says so", LIMIT, async |scene: &Scene| {
            let class = scene.get(Kind::Class, NAME).await;
            let told = condition(&class["status"]["conditions"], "Ready")
                .ok_or("no condition")?
                .clone();
            let message = told["message"].as_str().unwrap_or_default();
            match told["status"] == "False"
                && message.contains("secret:apiToken")
                && message.contains("no key apiToken")
            {
                true => Ok(()),
                false => Err(told.to_string()),
            }
        })
        .await;
    let name = machine(&scene, 1).await;
    says(&mut scene, &name, &["no key apiToken"]).await;
}

/// Three machines with their VMs.
async fn three(scene: &mut Scene) -> Vec<String> {
    let mut names = Vec::new();
    for number in 1..=3 {
        let name = machine(scene, number).await;
        is_there(scene, &name).await;
        names.push(name);
    }
    names
}

/// After some listings all three machines are as they were, and no VM was to be deleted.
async fn nothing_goes(scene: &Scene, liar: &Liar, names: &[String]) {
    tokio::time::sleep(LISTINGS).await;
    assert!(liar.deletes().is_empty(), "{:?}", liar.deletes());
    for name in names {
        let machine = scene.get(Kind::Machine, name).await;
        assert_eq!(laws::phase(&machine), "Available", "{name}: {}", machine["status"]);
        assert!(machine["metadata"]["deletionTimestamp"].is_null(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_vm_of_a_machine_in_a_list_is_told_and_neither_is_deleted() {
    let Some((mut scene, liar)) = scene("a list with a second VM", "list-two").await else {
        return;
    };
    let names = three(&mut scene).await;
    liar.lists(|mut vms| {
        let twin = vms.first().cloned().map(|vm| v1::Machine {
            provider_id: "liar:///twin".into(),
            ..vm
        });
        vms.extend(twin);
        vms
    });
    class_tells(&mut scene, "DuplicateVm", &["liar:///twin", &names[0]]).await;
    nothing_goes(&scene, &liar, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_a_list_gives_to_a_machine_that_there_is_not_stays_while_a_machine_names_it() {
    let Some((mut scene, liar)) = scene("a list with a wrong owner", "list-uid").await else {
        return;
    };
    let names = three(&mut scene).await;
    // One of them: more would be held back because they are too many.
    liar.lists(|mut vms| {
        if let Some(key) = vms.first_mut().and_then(|vm| vm.key.as_mut()) {
            key.uid = "of-nobody".into();
            key.name.push_str("-of-nobody");
        }
        vms
    });
    nothing_goes(&scene, &liar, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_whose_vms_a_list_does_not_show_stay() {
    let Some((mut scene, liar)) = scene("an empty list", "list-none").await else {
        return;
    };
    let names = three(&mut scene).await;
    liar.lists(|_| Vec::new());
    nothing_goes(&scene, &liar, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_cannot_be_read_is_told_by_the_class() {
    let Some((mut scene, liar)) = scene("a list of 5 MiB", "list-big").await else {
        return;
    };
    let names = three(&mut scene).await;
    liar.lists(|mut vms| {
        if let Some(vm) = vms.first_mut() {
            vm.state_message = "x".repeat(FIVE_MIB);
        }
        vms
    });
    class_tells(&mut scene, "VmsNotListed", &["too large"]).await;
    nothing_goes(&scene, &liar, &names).await;
}

/// Rows: D1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_without_an_end_is_told_by_the_class() {
    let Some((mut scene, liar)) = scene("a list without an end", "list-end").await else {
        return;
    };
    let names = three(&mut scene).await;
    liar.lists_without_end();
    class_tells(&mut scene, "VmsNotListed", &["one page token twice and nothing new"]).await;
    nothing_goes(&scene, &liar, &names).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vms_of_a_list_without_id_or_tags_are_told_and_stay() {
    let Some((mut scene, liar)) = scene("a list with lost tags", "list-tag").await else {
        return;
    };
    let names = three(&mut scene).await;
    liar.lists(|mut vms| {
        let first = vms.first().cloned().unwrap_or_default();
        let nameless = v1::Machine {
            provider_id: String::new(),
            ..first.clone()
        };
        let untagged = v1::Machine {
            provider_id: "liar:///untagged".into(),
            key: Some(v1::MachineKey::default()),
            ..first
        };
        vms.extend([nameless, untagged]);
        vms
    });
    class_tells(&mut scene, "UnmarkedVm", &["liar:///untagged"]).await;
    nothing_goes(&scene, &liar, &names).await;
}
