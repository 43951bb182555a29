//! Calls over a real socket: what a driver gets, and what its answers and failures become.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test says by its panic what went wrong, and waits in real time"
)]

mod stub;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use millwright::driver::{Creation, Driver, DriverClass, NodeMetadata, Scope, SecretData, Target};
use millwright_core::driver::{Code, Deletion, Effect, Failure, Initialization, Pace, Reason, VmState};
use millwright_core::ids::{DriverName, NodeName, ProviderId, SecretKey};
use millwright_core::permit::DeletePermit;
use millwright_proto::v1;
use prost::Message;
use stub::{Act, Desk, Running, Script, Stub, target, throttled};
use tonic::Status;
use tonic_types::pb;
use zeroize::Zeroizing;

/// A stub with its pool, and the driver that the pool made of it.
struct Line {
    stub: Stub,
    desk: Desk,
    driver: Arc<Driver>,
    running: Running,
    _directory: tempfile::TempDir,
}

async fn line(script: impl FnOnce(&mut Script)) -> Line {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("x.sock");
    let stub = Stub::named("x").with(script);
    let running = stub.serve(&socket);
    let desk = Desk::at(&[&socket]);
    let driver = desk.ready("x").await;
    Line {
        stub,
        desk,
        driver,
        running,
        _directory: directory,
    }
}

fn creation() -> Creation {
    Creation {
        token: None,
        user_data: Zeroizing::new(b"#cloud-config".to_vec()),
        spec_digest: "d".into(),
        node: NodeMetadata::default(),
    }
}

fn permit_of(uid: &str) -> DeletePermit {
    let machine = serde_json::json!({ "metadata": { "name": "m", "uid": uid, "deletionTimestamp": Timestamp::UNIX_EPOCH.to_string() } });
    let machine = serde_json::from_value(machine).expect("a Machine");
    DeletePermit::for_deleting(&machine).expect("it is being deleted")
}

fn permit() -> DeletePermit {
    permit_of(target().key.uid.as_str())
}

/// Advice for one call.
fn advice(method: &str, seconds: i64, max_in_flight: Option<i32>) -> Vec<v1::CallAdvice> {
    let timeout = Some(prost_types::Duration { seconds, nanos: 0 });
    vec![v1::CallAdvice {
        method: method.into(),
        timeout,
        max_in_flight,
        ..Default::default()
    }]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_time_is_over_changes_nothing_any_more_and_may_still_look() {
    let line = line(|_| {}).await;
    line.desk.leads(7, Some(tokio::time::Instant::now()));
    let created = line.driver.create_machine(&target(), &creation()).await;
    let deleted = line.driver.delete_machine(&target(), permit()).await;
    for failure in [created.expect_err("not sent"), deleted.expect_err("not sent")] {
        assert_eq!(failure.effect, Effect::None, "{failure:?}");
        assert!(failure.message.contains("not sent"), "{failure:?}");
    }
    assert!(line.stub.heard.lock().unwrap().creates.is_empty());
    // The stub has no such call: its answer shows that a look was sent.
    let looked = line.driver.get_machine_status(&target()).await;
    assert_eq!(looked.expect_err("the stub cannot").code, Code::Unimplemented);

    line.desk.leads(7, None);
    line.driver
        .create_machine(&target(), &creation())
        .await
        .expect("renewed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_request_carries_all_that_the_contract_asks_for() {
    let line = line(|_| {}).await;
    line.desk.leads(7, None);
    let vm = line
        .driver
        .create_machine(&target(), &creation())
        .await
        .expect("the stub answers");
    assert_eq!(
        (vm.provider_id, vm.node_name),
        (Some(ProviderId::new("stub:///1")), Some(NodeName::new("node-1")))
    );
    assert_eq!(
        (vm.state, vm.initialization),
        (VmState::Running, Initialization::NotNeeded)
    );
    assert_eq!(vm.poll_after, Some(SignedDuration::from_secs(2)));

    let heard = line.stub.heard.lock().unwrap().creates.pop().expect("one create");
    assert_eq!(
        heard
            .metadata()
            .get("machine-leader-epoch")
            .map(|value| value.to_str().unwrap()),
        Some("7")
    );
    assert_eq!(
        heard
            .metadata()
            .get("grpc-timeout")
            .map(|value| value.to_str().unwrap()),
        Some("120000m")
    );
    let request = heard.into_inner();
    let key = request.key.expect("a key");
    assert_eq!(
        (key.cluster_id.as_str(), key.namespace.as_str(), key.name.as_str()),
        ("c", "default", "m-1")
    );
    assert_eq!(key.uid, "0e7b5bd0-6f2c-4f0e-9a55-3f0b8f1f2d11");
    let class = request.machine_class.expect("a class");
    assert_eq!(
        (class.name.as_str(), class.namespace.as_str(), class.provider.as_str()),
        ("small", "default", "x")
    );
    assert_eq!(class.provider_spec.expect("a spec").fields.len(), 2);
    assert_eq!(
        request.secret_data,
        BTreeMap::from([("key".to_owned(), b"canary".to_vec())])
    );
    assert_eq!(
        (request.user_data.as_slice(), request.spec_digest.as_str()),
        (&b"#cloud-config"[..], "d")
    );
    let tags: Vec<(&str, &str)> = request
        .tags
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        tags,
        [
            ("millwright/cluster", "c"),
            ("millwright/machine-class", "small"),
            ("millwright/name", "m-1"),
            ("millwright/namespace", "default"),
            ("millwright/spec-digest", "d"),
            ("millwright/uid", "0e7b5bd0-6f2c-4f0e-9a55-3f0b8f1f2d11"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_lease_the_epoch_is_left_out() {
    let line = line(|_| {}).await;
    line.driver
        .create_machine(&target(), &creation())
        .await
        .expect("the stub answers");
    assert!(
        line.stub.heard.lock().unwrap().creates[0]
            .metadata()
            .get("machine-leader-epoch")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_remembers_a_higher_epoch_is_told_a_higher_one_and_no_other_driver_is() {
    let directory = tempfile::tempdir().unwrap();
    let sockets = ["x.sock", "y.sock"].map(|name| directory.path().join(name));
    let stubs = [
        Stub::named("x").with(|script| script.remembers = 2000),
        Stub::named("y"),
    ];
    let _running = [stubs[0].serve(&sockets[0]), stubs[1].serve(&sockets[1])];
    let desk = Desk::at(&[&sockets[0], &sockets[1]]);
    let (x, y) = (desk.ready("x").await, desk.ready("y").await);
    desk.leads(7, None);
    let told = |stub: &Stub| stub::epoch(stub.heard.lock().unwrap().creates.last().unwrap());

    // 1024 ahead is not enough, 4096 is; a driver that asks for more without end is told four times as much each time.
    for (epoch, is_stale) in [(7, true), (1031, true), (4103, false), (16391, false)] {
        let answer = x.create_machine(&target(), &creation()).await;
        assert_eq!(told(&stubs[0]), Some(epoch));
        let reason = answer.err().and_then(|failure| failure.reason);
        assert_eq!(reason, is_stale.then_some(Reason::StaleLeader), "{epoch}");
        x.raise_epoch();
        y.create_machine(&target(), &creation())
            .await
            .expect("it remembers none");
        assert_eq!(told(&stubs[1]), Some(7), "it is another driver");
    }
    for _ in 0..40 {
        x.raise_epoch();
    }
    x.create_machine(&target(), &creation())
        .await
        .expect("it is high enough");
    assert_eq!(told(&stubs[0]), Some(7 + (1 << 40)), "there is an end to it");
}

/// A manager before this one may have gone as far ahead as it could, so no step that is known beforehand is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_names_the_epoch_that_it_remembers_is_told_the_next_one() {
    let line = line(|script| (script.remembers, script.names_epoch) = (1 << 41, true)).await;
    line.desk.leads(7, None);
    let told = || stub::epoch(line.stub.heard.lock().unwrap().creates.last().unwrap());
    let refused = line.driver.create_machine(&target(), &creation()).await;
    assert_eq!(
        refused.expect_err("it remembers another").reason,
        Some(Reason::StaleLeader)
    );
    line.driver.raise_epoch();
    let made = line.driver.create_machine(&target(), &creation()).await;
    made.expect("it remembers no higher one");
    assert_eq!(told(), Some((1 << 41) + 1));
}

/// Rows: W36.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_at_the_advised_deadline_with_unknown_outcome() {
    let line = line(|script| {
        script.on_create = Act::Hang;
        script.info.call_advice = advice("CreateMachine", 1, None);
    })
    .await;
    let begun = Instant::now();
    let failure = line
        .driver
        .create_machine(&target(), &creation())
        .await
        .expect_err("it hangs");
    assert!(
        begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        (failure.code, failure.reason, failure.effect),
        (Code::DeadlineExceeded, None, Effect::Unknown)
    );
    assert_eq!(failure.word(), "DeadlineExceeded");
}

fn any(kind: &str, message: &impl Message) -> prost_types::Any {
    prost_types::Any {
        type_url: format!("type.googleapis.com/{kind}"),
        value: message.encode_to_vec(),
    }
}

/// A status as a driver makes it.
fn driver_status(code: tonic::Code, reason: &str, detail: &v1::ErrorDetail) -> Status {
    let info = pb::ErrorInfo {
        domain: "machine.driver.v1".into(),
        reason: reason.into(),
        ..Default::default()
    };
    let retry = pb::RetryInfo {
        retry_delay: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
    };
    let details = vec![
        any("google.rpc.ErrorInfo", &info),
        any("google.rpc.RetryInfo", &retry),
        any("machine.driver.v1.ErrorDetail", detail),
    ];
    let body = pb::Status {
        code: code as i32,
        message: String::new(),
        details,
    };
    Status::with_details(code, "its words", body.encode_to_vec().into())
}

/// The code that goes with each reason, as `driver.proto` says.
#[rustfmt::skip]
const REASONS: [(tonic::Code, &str, Reason); 24] = [
    (tonic::Code::InvalidArgument, "INVALID_FIELD", Reason::InvalidField),
    (tonic::Code::Unauthenticated, "CREDENTIALS_REJECTED", Reason::CredentialsRejected),
    (tonic::Code::PermissionDenied, "ACCESS_DENIED", Reason::AccessDenied),
    (tonic::Code::Aborted, "OPERATION_IN_PROGRESS", Reason::OperationInProgress),
    (tonic::Code::Unavailable, "RATE_LIMITED", Reason::RateLimited),
    (tonic::Code::Unavailable, "PROVIDER_UNAVAILABLE", Reason::ProviderUnavailable),
    (tonic::Code::FailedPrecondition, "STALE_LEADER", Reason::StaleLeader),
    (tonic::Code::NotFound, "MACHINE_NOT_FOUND", Reason::MachineNotFound),
    (tonic::Code::AlreadyExists, "NAME_CONFLICT", Reason::NameConflict),
    (tonic::Code::AlreadyExists, "SPEC_CONFLICT", Reason::SpecConflict),
    (tonic::Code::ResourceExhausted, "CAPACITY_UNAVAILABLE", Reason::CapacityUnavailable),
    (tonic::Code::ResourceExhausted, "QUOTA_EXCEEDED", Reason::QuotaExceeded),
    (tonic::Code::FailedPrecondition, "DEPENDENCY_MISSING", Reason::DependencyMissing),
    (tonic::Code::FailedPrecondition, "MACHINE_DELETED", Reason::MachineDeleted),
    (tonic::Code::FailedPrecondition, "VM_INCONSISTENT", Reason::VmInconsistent),
    (tonic::Code::FailedPrecondition, "NOT_OWNED", Reason::NotOwned),
    (tonic::Code::FailedPrecondition, "DELETE_BLOCKED", Reason::DeleteBlocked),
    (tonic::Code::OutOfRange, "SPEC_OUT_OF_RANGE", Reason::SpecOutOfRange),
    (tonic::Code::OutOfRange, "DUPLICATE_VMS", Reason::DuplicateVms),
    (tonic::Code::Internal, "INITIALIZATION_FAILED", Reason::InitializationFailed),
    (tonic::Code::Aborted, "PAGE_TOKEN_EXPIRED", Reason::PageTokenExpired),
    (tonic::Code::Aborted, "RESUME_TOKEN_EXPIRED", Reason::ResumeTokenExpired),
    (tonic::Code::Internal, "DRIVER_FAULT", Reason::DriverFault),
    (tonic::Code::FailedPrecondition, "CREDENTIALS_MISSING", Reason::CredentialsMissing),
];

/// Rows: W46, pains 165, 167.
#[tokio::test(flavor = "multi_thread")]
async fn every_reason_arrives_with_code_outcome_and_pace() {
    let line = line(|_| {}).await;
    let detail = v1::ErrorDetail {
        outcome: v1::error_detail::Outcome::Partial.into(),
        provider_ids: vec!["stub:///1".into(), "stub:///2".into()],
        last_known_state: "step=2".into(),
        ..Default::default()
    };
    for (code, name, reason) in REASONS {
        line.stub
            .set(|script| script.on_create = Act::Fail(driver_status(code, name, &detail)));
        let failure = line
            .driver
            .create_machine(&target(), &creation())
            .await
            .expect_err("it fails");
        assert_eq!(failure.word(), word(code, reason), "{name}");
        let expected = Failure {
            code: failure.code,
            reason: Some(reason),
            effect: Effect::Partial,
            message: "its words (about stub:///1, stub:///2)".into(),
            retry_after: Some(SignedDuration::from_secs(7)),
            provider_ids: vec![ProviderId::new("stub:///1"), ProviderId::new("stub:///2")],
            last_known_state: Some("step=2".into()),
        };
        assert_eq!(failure, expected, "{name}");
        let line = line.desk.recorder.0.lock().unwrap().pop();
        assert_eq!(line, Some(("x".to_owned(), "CreateMachine", failure.word(), name)));
    }
}

/// What `lastOperation.errorCode` says: the code's name, but for the one of the original's that gRPC does not have.
fn word(code: tonic::Code, reason: Reason) -> String {
    if reason == Reason::InitializationFailed {
        "Uninitialized".into()
    } else {
        format!("{code:?}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_dies_during_a_call_leaves_a_failure_without_reason() {
    let line = line(|script| script.on_create = Act::Hang).await;
    let driver = Arc::clone(&line.driver);
    let call = tokio::spawn(async move { driver.create_machine(&target(), &creation()).await });
    stub::until("under way", || {
        (!line.stub.heard.lock().unwrap().creates.is_empty()).then_some(())
    })
    .await;
    line.running.kill();
    let failure = call.await.unwrap().expect_err("it died");
    assert_eq!((failure.reason, failure.effect), (None, Effect::Unknown), "{failure:?}");
    assert_eq!(failure.pace(), Pace::Growing, "{failure:?}");
    line.desk.away("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_driver_does_not_have_has_done_nothing() {
    let line = line(|_| {}).await;
    let failure = line
        .driver
        .initialize_machine(&target())
        .await
        .expect_err("the stub has no such call");
    assert_eq!(
        (failure.code, failure.reason, failure.effect),
        (Code::Unimplemented, None, Effect::None)
    );
    let scope = Scope {
        cluster_id: "c".into(),
        class: target().class,
        secrets: Arc::new(SecretData::default()),
    };
    assert_eq!(
        line.driver
            .validate_machine_class(&scope, false)
            .await
            .map_err(|failure| failure.code),
        Err(Code::Unimplemented)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_request_carries_what_class_and_machine_say_beside_the_spec() {
    use serde_json::json;
    let line = line(|_| {}).await;
    let class = json!({
        "metadata": {"name": "small", "labels": {"pool": "a"}},
        "nodeTemplate": {"capacity": {"cpu": "4"}, "instanceType": "large", "region": "r", "zone": "z"},
    });
    let machine = json!({"metadata": {}, "spec": {"nodeTemplate": {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}}}});
    let marks = BTreeMap::from([("kubernetes.io/cluster/shoot".to_owned(), "1".to_owned())]);
    let mut target = target();
    target.class = target
        .class
        .with_object(&serde_json::from_value(class).expect("a class"))
        .at(&json!({"region": "r"}), &marks)
        .expect("it can travel");
    let creation = Creation {
        node: NodeMetadata::of(&serde_json::from_value(machine).expect("a Machine")),
        ..creation()
    };
    line.driver
        .create_machine(&target, &creation)
        .await
        .expect("the stub answers");

    let heard = line
        .stub
        .heard
        .lock()
        .unwrap()
        .creates
        .pop()
        .expect("one create")
        .into_inner();
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    assert_eq!(
        (heard.node_labels, heard.node_annotations),
        (one("l", "1"), one("a", "2"))
    );
    let class = heard.machine_class.expect("a class");
    assert_eq!((class.labels, class.legacy_marks), (one("pool", "a"), marks));
    let template = class.node_template.expect("the class has one");
    assert_eq!(
        (template.capacity, template.instance_type),
        (one("cpu", "4"), "large".to_owned())
    );
    assert!(class.locator.expect("a locator").fields.contains_key("region"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_as_many_calls_as_advised_are_under_way_and_no_other_kind_waits_for_them() {
    let line = line(|script| {
        script.on_create = Act::Hang;
        script.info.call_advice = advice("CreateMachine", 2, Some(2));
    })
    .await;
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let driver = Arc::clone(&line.driver);
            tokio::spawn(async move { driver.create_machine(&target(), &creation()).await })
        })
        .collect();
    stub::until("two under way", || {
        (line.stub.heard.lock().unwrap().creates.len() == 2).then_some(())
    })
    .await;
    let deletion = line
        .driver
        .delete_machine(&target(), permit())
        .await
        .expect("deletions have a lane of their own");
    assert_eq!(
        deletion,
        Deletion {
            gone: true,
            poll_after: None,
            last_known_state: None
        }
    );
    assert_eq!(line.stub.heard.lock().unwrap().creates.len(), 2, "the third waits");
    for call in calls {
        let failure = call.await.unwrap().expect_err("they hang");
        let is_unsent = failure.effect == Effect::None && failure.code == Code::Unavailable;
        assert!(is_unsent || failure.code == Code::DeadlineExceeded, "{failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_for_another_machine_deletes_nothing() {
    let line = line(|_| {}).await;
    let foreign = permit_of("another");
    let failure = line
        .driver
        .delete_machine(&target(), foreign)
        .await
        .expect_err("it is refused here");
    assert_eq!(failure.effect, Effect::None);
    assert!(line.stub.heard.lock().unwrap().deletes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_tells_vms_owners_and_what_could_not_be_asked() {
    let machine = v1::Machine {
        key: Some(v1::MachineKey {
            cluster_id: "c".into(),
            namespace: "n".into(),
            name: "m-1".into(),
            uid: String::new(),
        }),
        provider_id: "stub:///1".into(),
        state: v1::machine::State::Running.into(),
        create_time: Some(prost_types::Timestamp {
            seconds: 1_800_000_000,
            nanos: 0,
        }),
        spec_digest: "d".into(),
        ..Default::default()
    };
    let line = line(|script| {
        script.page = v1::ListMachinesResponse {
            machines: vec![machine],
            next_page_token: "2".into(),
            unreachable: vec!["zone-b".into()],
        };
    })
    .await;
    let class = DriverClass::new("default", "small", &DriverName::new("x"), &serde_json::json!({})).unwrap();
    let scope = Scope {
        cluster_id: "c".into(),
        class,
        secrets: Arc::new(SecretData::default()),
    };
    let page = line.driver.list_machines(&scope, None).await.expect("the stub answers");
    assert_eq!(
        (page.next.as_deref(), page.unreachable.as_slice()),
        (Some("2"), &["zone-b".to_owned()][..])
    );
    let [listed] = page.vms.as_slice() else {
        panic!("one VM")
    };
    assert_eq!((listed.uid.clone(), listed.spec_digest.as_deref()), (None, Some("d")));
    assert_eq!(listed.created.map(Timestamp::as_second), Some(1_800_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ok_without_a_machine_is_no_success() {
    let line = line(|script| script.machine = None).await;
    let failure = line
        .driver
        .create_machine(&target(), &creation())
        .await
        .expect_err("an OK without a VM");
    assert_eq!(
        (failure.code, failure.reason, failure.effect),
        (Code::Internal, None, Effect::Unknown)
    );
}

/// The target, with the credentials of that Secret.
fn of_account(name: &str) -> Target {
    let key = SecretKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    Target {
        tagged_uid: None,
        former_namespace: None,
        secrets: Arc::new(SecretData::default().of_account(vec![key])),
        ..target()
    }
}

/// 500 machines at an account that allows 100 calls a second, which come at 250 a second. Each asks again as its Machine would, at the
/// pause of its failure.
///
/// Rows: pains 106, 112.
#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_at_a_throttled_account_takes_as_long_as_its_limit_asks_and_few_calls_are_refused() {
    let line = line(|script| script.on_create = Act::AtMost(100, Arc::default())).await;
    let begun = Instant::now();
    let machines: Vec<_> = (0..500)
        .map(|number| {
            let driver = Arc::clone(&line.driver);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(4) * number).await;
                let mut refused: u32 = 0;
                while let Err(failure) = driver.create_machine(&target(), &creation()).await {
                    assert_eq!(failure.reason, Some(Reason::RateLimited), "{failure:?}");
                    refused += 1;
                    let pause = failure.pause(refused, SignedDuration::from_mins(10));
                    tokio::time::sleep(Duration::try_from(pause).unwrap()).await;
                }
                refused
            })
        })
        .collect();
    let refused: Vec<u32> = futures::future::join_all(machines)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let (took, sum) = (begun.elapsed(), refused.iter().sum::<u32>());
    let asked = line.stub.heard.lock().unwrap().creates.len();
    println!("{took:?} for 500 machines at 100 calls a second, {asked} calls, {sum} of them refused");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(asked < 600, "{asked} calls for 500 machines");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_account_takes_no_place_of_its_lane_from_others() {
    let line = line(|script| {
        script.info.call_advice = advice("CreateMachine", 120, Some(1));
        script.on_create = Act::Fail(throttled(Duration::from_secs(20)));
    })
    .await;
    let refused = line.driver.create_machine(&of_account("a"), &creation()).await;
    assert_eq!(refused.expect_err("it is throttled").reason, Some(Reason::RateLimited));
    line.stub.set(|script| script.on_create = Act::Answer);
    let driver = Arc::clone(&line.driver);
    let waiting = tokio::spawn(async move { driver.create_machine(&of_account("a"), &creation()).await });
    let begun = Instant::now();
    for _ in 0..5 {
        let made = line.driver.create_machine(&of_account("b"), &creation()).await;
        made.expect("another account is not slowed");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(
        !waiting.is_finished(),
        "the account waits as long as its provider asked"
    );
    assert_eq!(line.stub.heard.lock().unwrap().creates.len(), 6);
    waiting.abort();
}

/// Its node may have joined meanwhile, with pods to drain.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_waited_for_its_account_is_sent_only_if_it_is_still_wanted() {
    let pause = Duration::from_millis(1500);
    let line = line(|script| script.on_create = Act::Fail(throttled(pause))).await;
    let refused = line.driver.create_machine(&target(), &creation()).await;
    assert_eq!(refused.expect_err("it is throttled").reason, Some(Reason::RateLimited));
    let asked = AtomicU32::new(0);
    let still_wanted = async || {
        asked.fetch_add(1, Ordering::Relaxed);
        Err(Failure::not_sent(Code::Aborted, "not sent: its node has joined"))
    };
    let put_off = line.driver.delete_machine_if(&target(), permit(), still_wanted).await;
    assert_eq!(put_off.expect_err("it waited").code, Code::Aborted);
    assert_eq!(asked.into_inner(), 1);
    assert_eq!(line.stub.heard.lock().unwrap().deletes.len(), 0);
}

/// Its provider refuses another call of the account in the moment in which it is asked whether this one is still wanted
/// (`sim replay 4000900`).
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_for_its_account_waits_again_where_a_pause_is_asked_for_meanwhile() {
    let pause = Duration::from_millis(1500);
    let line = line(|script| script.on_create = Act::Fail(throttled(pause))).await;
    let refused = line.driver.create_machine(&target(), &creation()).await;
    assert_eq!(refused.expect_err("it is throttled").reason, Some(Reason::RateLimited));
    let (asked, refused_at) = (AtomicU32::new(0), Mutex::new(None));
    let still_wanted = async || {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            *refused_at.lock().unwrap() = Some(Instant::now());
            let other = line.driver.create_machine(&target(), &creation()).await;
            assert_eq!(other.expect_err("it is throttled").reason, Some(Reason::RateLimited));
            line.stub.set(|script| script.on_create = Act::Answer);
        }
        Ok(())
    };
    let made = line
        .driver
        .create_machine_if(&target(), &creation(), still_wanted)
        .await;
    made.expect("the pause is over");
    let waited = refused_at.into_inner().unwrap().unwrap().elapsed();
    assert!(waited >= pause, "{waited:?}");
    assert_eq!(asked.into_inner(), 2);
    assert_eq!(line.stub.heard.lock().unwrap().creates.len(), 3);
}
