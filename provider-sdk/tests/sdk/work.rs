//! What becomes of the work when callers come twice, go away, or the author's code fails. Over a real socket.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Script, Scripted, Served, class, create, delete, digest, reason, status};
use millwright_proto::{LEADER_EPOCH_KEY, v1};
use millwright_provider_sdk::{DriverError, Reason};
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

fn with_timeout<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

fn of_epoch<T>(message: T, epoch: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(LEADER_EPOCH_KEY, epoch.parse().unwrap());
    request
}

#[tokio::test]
async fn callers_that_give_up_join_the_running_creation_and_one_vm_is_made() {
    // Long enough for every caller's second try to come while it runs, on a busy machine too.
    let served = Served::start(Script::Take(Duration::from_secs(4))).await;
    let callers = (0..10).map(|_| async {
        let mut client = served.client().await;
        let hasty = with_timeout(create(1), Duration::from_millis(250));
        let error = client.create_machine(hasty).await.unwrap_err();
        // tonic tells its client of a passed deadline as CANCELLED.
        assert!(
            matches!(error.code(), Code::Cancelled | Code::DeadlineExceeded),
            "{error:?}"
        );
        let patient = with_timeout(create(1), Duration::from_secs(60));
        let answer = client.create_machine(patient).await.unwrap();
        answer.into_inner().machine.unwrap().provider_id
    });
    let ids = futures::future::join_all(callers).await;
    assert!(ids.iter().all(|id| id == "scripted:///0"), "{ids:?}");
    assert_eq!(served.cloud.creates.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_cancelled_creation_is_finished_and_found_by_its_repeat() {
    let served = Served::start(Script::Take(Duration::from_millis(200))).await;
    let mut client = served.client().await;
    let call = tokio::time::timeout(Duration::from_millis(50), client.create_machine(create(1)));
    call.await.expect_err("the caller has gone away");
    tokio::time::sleep(Duration::from_millis(300)).await;
    client
        .get_machine_status(status(1))
        .await
        .expect("the VM was made all the same");
    assert_eq!(served.cloud.creates.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_author_of_a_read_is_told_the_deadline_and_gets_integers() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    client
        .create_machine(with_timeout(create(1), Duration::from_secs(40)))
        .await
        .unwrap();
    let of_work = *served.cloud.told_deadline.lock().unwrap();
    assert_eq!(of_work, None, "the deadline of a caller is not that of the work");
    client
        .get_machine_status(with_timeout(status(1), Duration::from_secs(40)))
        .await
        .unwrap();
    let left = served.cloud.told_deadline.lock().unwrap().unwrap();
    assert!(
        left > Duration::from_secs(38) && left <= Duration::from_secs(40),
        "{left:?}"
    );
    assert_eq!(
        served.cloud.told_spec.lock().unwrap().clone().unwrap().to_string(),
        r#"{"size":4}"#
    );
    client.get_machine_status(status(1)).await.unwrap();
    assert_eq!(*served.cloud.told_deadline.lock().unwrap(), None);
}

#[tokio::test]
async fn other_work_on_the_same_machine_has_to_wait() {
    let served = Served::start(Script::Take(Duration::from_millis(300))).await;
    let (mut one, mut two) = (served.client().await, served.client().await);
    let creation = tokio::spawn(async move { one.create_machine(create(1)).await });
    tokio::time::sleep(Duration::from_millis(100)).await;

    let other_spec = v1::CreateMachineRequest {
        spec_digest: digest(2),
        ..create(1)
    };
    let refused = [
        two.create_machine(other_spec).await.unwrap_err(),
        two.delete_machine(delete(1)).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(
            (error.code(), reason(&error).as_str()),
            (Code::Aborted, "OPERATION_IN_PROGRESS")
        );
        assert!(error.get_details_retry_info().unwrap().retry_delay.is_some());
    }
    creation.await.unwrap().expect("the first is not disturbed");
    let answer = two.delete_machine(delete(1)).await.unwrap().into_inner();
    assert_eq!(answer.state(), v1::machine::State::Deleted);
}

/// What is recorded within the time that is left is found by the repeat: the author has to know that the time runs.
#[tokio::test]
async fn work_under_way_is_told_that_the_process_stops_and_its_answer_still_arrives() {
    let mut served = Served::start_with(Script::UntilStopping, Duration::from_secs(60)).await;
    let mut client = served.client().await;
    let creation = tokio::spawn(async move { client.create_machine(create(1)).await });
    while served.cloud.creates.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!creation.is_finished(), "nobody has asked the process to stop");
    served.ask_to_stop();
    let made = creation.await.unwrap().expect("the work ends within the drain timeout");
    assert!(made.into_inner().machine.is_some());
    served.ended().await.expect("nothing is left");
}

#[tokio::test]
async fn a_deleted_uid_never_comes_back() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    client.create_machine(create(1)).await.unwrap();
    for _ in 0..2 {
        client.delete_machine(delete(1)).await.expect("deletion is repeatable");
    }
    let error = client.create_machine(create(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::FailedPrecondition, "MACHINE_DELETED")
    );
    assert!(served.cloud.vms.lock().unwrap().is_empty());
    client
        .delete_machine(delete(9))
        .await
        .expect("never created is gone, too");
    let error = client.get_machine_status(status(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::NotFound, "MACHINE_NOT_FOUND")
    );
}

#[tokio::test]
async fn a_panic_costs_one_call_and_not_the_process() {
    let served = Served::start(Script::PanicOnce).await;
    let mut client = served.client().await;
    let error = client.create_machine(create(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::Internal, "DRIVER_FAULT")
    );
    client.create_machine(create(1)).await.expect("the next call is served");
}

#[tokio::test]
async fn an_older_leader_may_ask_but_not_change() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    client.create_machine(of_epoch(create(1), "5")).await.unwrap();
    let error = client.delete_machine(of_epoch(delete(1), "4")).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::FailedPrecondition, "STALE_LEADER")
    );
    client
        .get_machine_status(of_epoch(status(1), "4"))
        .await
        .expect("the VM lives and may be asked for");
    client.create_machine(create(2)).await.expect("no epoch is no fence");
    let error = client.create_machine(of_epoch(create(3), "five")).await.unwrap_err();
    assert_eq!(reason(&error), "INVALID_FIELD");
}

#[tokio::test]
async fn a_stale_leaders_deletion_does_not_bury_the_machine() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    client.get_machine_status(of_epoch(status(1), "5")).await.unwrap_err();
    client.delete_machine(of_epoch(delete(1), "4")).await.unwrap_err();
    client
        .create_machine(of_epoch(create(1), "5"))
        .await
        .expect("the uid is still good");
}

#[tokio::test]
async fn an_error_text_of_20_kib_arrives_whole_and_keeps_its_code() {
    let text = "ä".repeat(10 * 1024);
    let error = DriverError::new(Reason::QuotaExceeded { quota: "vcpus".into() }, text)
        .provider_ids((0..8).map(|n| format!("scripted:///{n}/{}", "x".repeat(500))))
        .last_known_state("s".repeat(1024));
    let served = Served::start(Script::Fail(error)).await;
    let error = served.client().await.create_machine(create(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::ResourceExhausted, "QUOTA_EXCEEDED")
    );
    assert_eq!(error.message().len(), 1024);
    assert_eq!(
        error.get_details_quota_failure().unwrap().violations[0].subject,
        "vcpus"
    );
}

#[tokio::test]
async fn a_list_is_whole_over_pages_and_a_foreign_token_starts_over() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    for n in 0..7 {
        client.create_machine(create(n)).await.unwrap();
    }
    let page = |token: String| v1::ListMachinesRequest {
        cluster_id: "dev".into(),
        machine_class: Some(class()),
        page_size: 3,
        page_token: token,
        ..Default::default()
    };
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let answer = client.list_machines(page(token)).await.unwrap().into_inner();
        assert!(answer.machines.len() <= 3);
        seen.extend(answer.machines.into_iter().map(|machine| machine.key.unwrap().name));
        if answer.next_page_token.is_empty() {
            break;
        }
        token = answer.next_page_token;
        let other_cluster = v1::ListMachinesRequest {
            cluster_id: "prod".into(),
            ..page(token.clone())
        };
        let error = client.list_machines(other_cluster).await.unwrap_err();
        assert_eq!(
            (error.code(), reason(&error).as_str()),
            (Code::Aborted, "PAGE_TOKEN_EXPIRED")
        );
    }
    assert_eq!(seen, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
}

#[tokio::test]
async fn after_the_start_nothing_is_gone_before_the_propagation_delay_has_passed() {
    let driver = Scripted {
        propagation_delay: Duration::from_secs(2),
        ..Scripted::default()
    };
    let served = Served::start_as(driver, |_| ()).await;
    let mut client = served.client().await;
    let error = client.get_machine_status(status(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::Unavailable, "PROVIDER_UNAVAILABLE")
    );
    let wait = error.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(wait <= Duration::from_secs(2), "{wait:?}");
    let early = client.delete_machine(delete(1)).await.unwrap().into_inner();
    assert_eq!(early.state(), v1::machine::State::Deleting);
    assert!(early.poll_after.is_some_and(|wait| wait.seconds < 2));
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let error = client.get_machine_status(status(1)).await.unwrap_err();
    assert_eq!(reason(&error), "MACHINE_NOT_FOUND");
    let late = client.delete_machine(delete(1)).await.unwrap().into_inner();
    assert_eq!(late.state(), v1::machine::State::Deleted);
}

#[tokio::test]
async fn a_lookup_that_began_before_the_propagation_delay_had_passed_proves_no_absence_however_late_it_ends() {
    let driver = Scripted {
        propagation_delay: Duration::from_secs(3),
        lookup: Duration::from_secs(6),
        ..Scripted::default()
    };
    let served = Served::start_as(driver, |_| ()).await;
    let (mut one, mut two, mut three) = (served.client().await, served.client().await, served.client().await);
    let joined = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        three.delete_machine(delete(2)).await
    };
    let (looked_up, deleted, joined) =
        tokio::join!(one.get_machine_status(status(1)), two.delete_machine(delete(2)), joined);
    let error = looked_up.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::Unavailable, "PROVIDER_UNAVAILABLE")
    );
    for answer in [deleted, joined] {
        let answer = answer.unwrap().into_inner();
        assert_eq!(answer.state(), v1::machine::State::Deleting);
        assert!(answer.poll_after.is_some_and(|wait| wait.seconds > 0), "{answer:?}");
    }
    let late = two.delete_machine(delete(2)).await.unwrap().into_inner();
    assert_eq!(late.state(), v1::machine::State::Deleted);
}

#[tokio::test]
async fn what_a_creation_that_panicked_has_made_may_still_appear_for_the_propagation_delay() {
    let driver = Scripted {
        script: Script::PanicOnce,
        propagation_delay: Duration::from_secs(3),
        ..Scripted::default()
    };
    let served = Served::start_as(driver, |_| ()).await;
    let mut client = served.client().await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    client.create_machine(create(1)).await.expect_err("it panics");
    let error = client.get_machine_status(status(1)).await.unwrap_err();
    assert_eq!(reason(&error), "PROVIDER_UNAVAILABLE");
    let early = client.delete_machine(delete(1)).await.unwrap().into_inner();
    assert_eq!(early.state(), v1::machine::State::Deleting);
    let error = client.get_machine_status(status(2)).await.unwrap_err();
    assert_eq!(reason(&error), "MACHINE_NOT_FOUND", "another machine is not concerned");
    tokio::time::sleep(Duration::from_millis(3100)).await;
    let late = client.delete_machine(delete(1)).await.unwrap().into_inner();
    assert_eq!(late.state(), v1::machine::State::Deleted);
}

#[tokio::test]
async fn a_creation_that_hangs_is_given_up_at_its_greatest_age_and_the_machine_can_be_deleted() {
    let driver = Scripted {
        script: Script::Take(Duration::from_secs(3600)),
        ..Scripted::default()
    };
    let served = Served::start_as(driver, |options| options.work_timeout = Duration::from_millis(300)).await;
    let mut client = served.client().await;
    let error = client.create_machine(create(1)).await.unwrap_err();
    assert_eq!(reason(&error), "PROVIDER_UNAVAILABLE");
    assert!(error.message().contains("given up"), "{}", error.message());
    let answer = client.delete_machine(delete(1)).await.unwrap().into_inner();
    assert_eq!(answer.state(), v1::machine::State::Deleted);
}
