//! The driver over its socket, in a process of its own: the contract's rules as a manager meets them.

use std::{collections::BTreeSet, time::Duration};

use crate::process::{
    Provider, class, class_with, create, delete, faulty, flag, key, list, make, number, reason, retry_after, status_of,
    text, watch,
};
use millwright_proto::v1::{
    self, GetDriverInfoRequest, GetMachineClassSchemaRequest, GetNodeTemplateRequest, ValidateMachineClassRequest,
    machine::State, watch_machines_response::Type,
};
use millwright_provider_virtual::{cloud::Event, console::listing};
use tonic::Code;

#[tokio::test]
async fn creates_at_once_and_again_make_one_vm() {
    let provider = Provider::start(&["--create-delay", "1h"]);
    let driver = provider.driver().await;
    let calls = (0..10).map(|_| {
        let mut driver = driver.clone();
        async move { make(&mut driver, "m").await.provider_id }
    });
    let ids: BTreeSet<_> = futures::future::join_all(calls).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let vms = provider.console().await.vms().await.expect("vms");
    assert_eq!(vms.len(), 1);
    assert_eq!(vms[0].tags.get("owner").map(String::as_str), Some("test"));
}

#[tokio::test]
async fn a_vm_accepted_survives_the_kill_and_boots_without_its_process() {
    let mut provider = Provider::start(&["--create-delay", "300ms"]);
    let made = make(&mut provider.driver().await, "m").await;
    assert_eq!(made.state(), State::Creating);
    provider.kill();
    let left = listing(&provider.state_file()).expect("the file of a killed process reads");
    assert_eq!(left.vms[0].provider_id, made.provider_id);
    tokio::time::sleep(Duration::from_millis(300)).await;
    provider.start_again();
    let now = provider
        .driver()
        .await
        .get_machine_status(status_of("m"))
        .await
        .expect("it is known")
        .into_inner();
    let now = now.machine.expect("a machine");
    assert_eq!((now.provider_id, now.state), (made.provider_id, State::Running as i32));
}

#[tokio::test]
async fn a_kill_at_any_moment_of_a_create_leaves_at_most_one_vm_which_the_repeat_finds() {
    let mut provider = Provider::start(&["--list-lag", "1h"]);
    for round in 0..8_u64 {
        let name = format!("m{round}");
        let mut driver = provider.driver().await;
        let call = {
            let name = name.clone();
            tokio::spawn(async move { driver.create_machine(create(&name)).await })
        };
        tokio::time::sleep(Duration::from_millis(round)).await;
        provider.kill();
        call.await.expect("no panic").ok();
        provider.start_again();
        make(&mut provider.driver().await, &name).await;
    }
    let accepted: Vec<_> = provider
        .journal()
        .await
        .into_iter()
        .filter(|entry| entry.event == Event::Accepted)
        .collect();
    let uids: BTreeSet<_> = accepted.iter().map(|entry| &entry.uid).collect();
    assert_eq!((accepted.len(), uids.len()), (8, 8));
}

#[tokio::test]
async fn with_a_list_lag_only_lists_are_late() {
    let provider = Provider::start(&["--list-lag", "1500ms"]);
    let mut driver = provider.driver().await;
    let info = driver
        .get_driver_info(GetDriverInfoRequest::default())
        .await
        .expect("info")
        .into_inner();
    assert_eq!(info.propagation_delay.expect("it is told").nanos, 500_000_000);
    tokio::time::sleep(Duration::from_millis(1600)).await;
    let made = make(&mut driver, "m").await;
    for _ in 0..50 {
        let seen = driver
            .get_machine_status(status_of("m"))
            .await
            .expect("never NOT_FOUND after an OK")
            .into_inner();
        assert_eq!(seen.machine.expect("a machine").provider_id, made.provider_id);
    }
    let early = driver.list_machines(list(0, "")).await.expect("a page").into_inner();
    assert!(early.machines.is_empty());
    tokio::time::sleep(Duration::from_millis(1600)).await;
    let late = driver.list_machines(list(0, "")).await.expect("a page").into_inner();
    assert_eq!(late.machines.len(), 1);
    let refused = driver.get_machine_status(status_of("never")).await.expect_err("a fact");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::NotFound, "MACHINE_NOT_FOUND")
    );
}

#[tokio::test]
async fn a_region_knows_nothing_of_another_and_without_one_nothing_is_absent() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let made = make(&mut driver, "m").await;
    let (mars, nowhere) = (
        class_with([("region", text("mars"))]),
        class_with([("region", text(""))]),
    );
    let elsewhere = |class: &v1::MachineClass| {
        let class = Some(class.clone());
        let status = v1::GetMachineStatusRequest {
            machine_class: class.clone(),
            ..status_of("m")
        };
        let delete = v1::DeleteMachineRequest {
            machine_class: class.clone(),
            ..delete("m")
        };
        let list = v1::ListMachinesRequest {
            machine_class: class,
            ..list(0, "")
        };
        (status, delete, list)
    };
    let (status, _, page) = elsewhere(&mars);
    let unknown = driver.get_machine_status(status).await.expect_err("it is on the moon");
    assert_eq!(reason(&unknown), "MACHINE_NOT_FOUND");
    let page = driver.list_machines(page).await.expect("a page").into_inner();
    assert!(page.machines.is_empty());
    let (status, removal, page) = elsewhere(&nowhere);
    for refused in [
        driver.get_machine_status(status).await.expect_err("nobody knows where"),
        driver.delete_machine(removal).await.expect_err("nobody knows where"),
        driver.list_machines(page).await.expect_err("nobody knows where"),
    ] {
        assert_eq!(reason(&refused), "CREDENTIALS_MISSING");
    }
    let (_, removal, _) = elsewhere(&mars);
    let nothing = driver
        .delete_machine(removal)
        .await
        .expect("nothing is there")
        .into_inner();
    assert_eq!(nothing.state(), State::Deleted);
    let page = driver.list_machines(list(0, "")).await.expect("a page").into_inner();
    let ids: Vec<_> = page.machines.iter().map(|vm| vm.provider_id.as_str()).collect();
    assert_eq!(ids, [made.provider_id.as_str()], "the moon's VM stays");
}

#[tokio::test]
async fn after_a_restart_absence_is_no_fact_until_the_lag_has_passed() {
    let mut provider = Provider::start(&["--list-lag", "3s"]);
    let made = make(&mut provider.driver().await, "m").await;
    provider.kill();
    provider.start_again();
    let mut driver = provider.driver().await;
    let status = driver
        .get_machine_status(status_of("m"))
        .await
        .expect_err("nothing shows yet");
    let deleted = driver.delete_machine(delete("m")).await.expect_err("nothing shows yet");
    for refused in [status, deleted] {
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::Unavailable, "PROVIDER_UNAVAILABLE")
        );
        assert!(retry_after(&refused).is_some_and(|wait| wait <= Duration::from_secs(3)));
    }
    tokio::time::sleep(Duration::from_millis(3100)).await;
    let deleted = driver.delete_machine(delete("m")).await.expect("it shows").into_inner();
    assert_eq!(deleted.state(), State::Deleted);
    let journal = provider.journal().await;
    let removed: Vec<_> = journal.iter().filter(|entry| entry.event == Event::Removed).collect();
    assert!(
        made.provider_id.ends_with(removed[0].vm_id.as_str()),
        "the delete by key alone took the right VM"
    );
}

#[tokio::test]
async fn a_deleted_uid_never_comes_back() {
    let mut provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    make(&mut driver, "m").await;
    for _ in 0..3 {
        let deleted = driver
            .delete_machine(delete("m"))
            .await
            .expect("gone is success")
            .into_inner();
        assert_eq!(deleted.state(), State::Deleted);
    }
    let never = driver
        .delete_machine(delete("never"))
        .await
        .expect("never made is success, too")
        .into_inner();
    assert_eq!(never.state(), State::Deleted);
    let refused = driver.get_machine_status(status_of("m")).await.expect_err("gone");
    assert_eq!(reason(&refused), "MACHINE_NOT_FOUND");
    for _ in 0..2 {
        let refused = provider
            .driver()
            .await
            .create_machine(create("m"))
            .await
            .expect_err("the uid is spent");
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::FailedPrecondition, "MACHINE_DELETED")
        );
        // The second time it is the cloud that knows: the SDK's tombstones died with the process.
        provider.kill();
        provider.start_again();
    }
}

#[tokio::test]
async fn a_deletion_that_takes_time_has_two_phases_and_ends_without_the_process() {
    let mut provider = Provider::start(&["--delete-delay", "400ms"]);
    let mut driver = provider.driver().await;
    make(&mut driver, "m").await;
    let first = driver.delete_machine(delete("m")).await.expect("accepted").into_inner();
    assert_eq!(first.state(), State::Deleting);
    assert!(first.poll_after.is_some());
    let seen = driver
        .get_machine_status(status_of("m"))
        .await
        .expect("still there")
        .into_inner();
    assert_eq!(seen.machine.expect("a machine").state(), State::Deleting);
    provider.kill();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(listing(&provider.state_file()).expect("the file reads").vms.is_empty());
    provider.start_again();
    let last = provider
        .driver()
        .await
        .delete_machine(delete("m"))
        .await
        .expect("gone")
        .into_inner();
    assert_eq!(last.state(), State::Deleted);
}

#[tokio::test]
async fn pages_show_every_vm_of_the_cluster_once_and_no_other() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let mut made = BTreeSet::new();
    for n in 0..25 {
        made.insert(make(&mut driver, &format!("m{n}")).await.provider_id);
    }
    let mut foreign = create("foreign");
    foreign.key = Some(v1::MachineKey {
        cluster_id: "other".into(),
        ..key("foreign")
    });
    driver.create_machine(foreign).await.expect("another cluster's VM");
    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = driver
            .list_machines(list(10, &token))
            .await
            .expect("a page")
            .into_inner();
        assert!(page.machines.len() <= 10);
        seen.extend(page.machines);
        pages += 1;
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, 3);
    assert!(
        seen.iter()
            .all(|vm| vm.create_time.is_some() && vm.machine_class == "small" && vm.spec_digest.len() == 64)
    );
    let ids: Vec<_> = seen.into_iter().map(|vm| vm.provider_id).collect();
    assert_eq!(ids.len(), 25);
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), made);
}

#[tokio::test]
async fn what_belongs_to_others_is_neither_made_nor_taken() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let made = make(&mut driver, "m").await;

    let mut other_uid = create("m");
    other_uid.key = Some(v1::MachineKey {
        uid: key("x").uid,
        ..key("m")
    });
    let refused = driver.create_machine(other_uid).await.expect_err("the name is taken");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::AlreadyExists, "NAME_CONFLICT")
    );

    let refused = driver
        .create_machine(v1::CreateMachineRequest {
            spec_digest: "b".repeat(64),
            ..create("m")
        })
        .await;
    assert_eq!(reason(&refused.expect_err("another spec")), "SPEC_CONFLICT");

    let hinted = v1::DeleteMachineRequest {
        provider_id: made.provider_id.clone(),
        ..delete("other")
    };
    let refused = driver.delete_machine(hinted).await.expect_err("it is not its own");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "NOT_OWNED")
    );
    let garbage = v1::DeleteMachineRequest {
        provider_id: "virtual:///a/b/garbage".into(),
        ..delete("m")
    };
    let deleted = driver
        .delete_machine(garbage)
        .await
        .expect("the key decides")
        .into_inner();
    assert_eq!(deleted.state(), State::Deleted);

    let stays = make(&mut driver, "stays").await;
    make(&mut driver, "goes").await;
    let misled = v1::DeleteMachineRequest {
        provider_id: stays.provider_id.clone(),
        ..delete("goes")
    };
    driver.delete_machine(misled).await.expect("the key finds its VM");
    let shown = driver.get_machine_status(status_of("stays")).await;
    assert_eq!(
        shown.expect("it stays").into_inner().machine.map(|vm| vm.provider_id),
        Some(stays.provider_id)
    );
}

#[tokio::test]
async fn a_bad_spec_is_refused_whole_and_an_unknown_size_is_out_of_range() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let mut bad = class_with([("size", number(1.0)), ("delays", text("1s"))]);
    bad.provider_spec.as_mut().expect("a spec").fields.remove("zone");
    let validated = driver
        .validate_machine_class(ValidateMachineClassRequest {
            machine_class: Some(bad.clone()),
            ..Default::default()
        })
        .await
        .expect("a bad class is an answer")
        .into_inner();
    let fields: BTreeSet<_> = validated.violations.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, BTreeSet::from(["/size", "/zone", "/delays"]));
    let refused = driver
        .create_machine(v1::CreateMachineRequest {
            machine_class: Some(bad),
            ..create("m")
        })
        .await;
    assert_eq!(reason(&refused.expect_err("a bad spec")), "INVALID_FIELD");

    let huge = class_with([("instanceType", text("huge"))]);
    let refused = driver
        .create_machine(v1::CreateMachineRequest {
            machine_class: Some(huge),
            ..create("m")
        })
        .await;
    let refused = refused.expect_err("not offered");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::OutOfRange, "SPEC_OUT_OF_RANGE")
    );

    let mut locked_out = create("m");
    locked_out.secret_data.insert("password".into(), "wrong".into());
    let refused = driver.create_machine(locked_out).await.expect_err("a wrong password");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::Unauthenticated, "CREDENTIALS_REJECTED")
    );
    assert!(provider.journal().await.is_empty(), "none of it made a VM");
}

#[tokio::test]
async fn a_class_says_what_it_offers() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let schema = driver
        .get_machine_class_schema(GetMachineClassSchemaRequest {})
        .await
        .expect("a schema")
        .into_inner();
    assert!(
        schema
            .provider_spec_schema
            .expect("a schema")
            .fields
            .contains_key("properties")
    );
    for (name, example) in schema.examples {
        let machine_class = Some(v1::MachineClass {
            provider_spec: Some(example),
            ..class()
        });
        let request = ValidateMachineClassRequest {
            machine_class,
            live: true,
            ..Default::default()
        };
        let report = driver
            .validate_machine_class(request)
            .await
            .expect("an answer")
            .into_inner();
        let errors = report
            .violations
            .iter()
            .filter(|fault| fault.severity() == v1::violation::Severity::Error);
        assert_eq!(errors.count(), 0, "{name}");
        assert_eq!(report.inventory_key, "moon", "a region is an inventory");
    }
    let request = GetNodeTemplateRequest {
        machine_class: Some(class()),
        ..Default::default()
    };
    let template = driver
        .get_node_template(request)
        .await
        .expect("a template")
        .into_inner()
        .node_template;
    assert_eq!(
        template.expect("a template").capacity.get("memory").map(String::as_str),
        Some("4Gi")
    );
}

/// Rows: pains 1.
#[tokio::test]
async fn scripted_errors_strike_on_their_call_and_partial_ones_leave_the_vm() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let stock_out = faulty([
        ("call", text("CreateMachine")),
        ("nth", number(2.0)),
        ("error", text("CAPACITY_UNAVAILABLE")),
    ]);
    let request = |name: &str| v1::CreateMachineRequest {
        machine_class: Some(stock_out.clone()),
        ..create(name)
    };
    driver.create_machine(request("a")).await.expect("the first succeeds");
    let refused = driver
        .create_machine(request("b"))
        .await
        .expect_err("the second is scripted");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::ResourceExhausted, "CAPACITY_UNAVAILABLE")
    );
    driver.create_machine(request("b")).await.expect("the third succeeds");

    let half = v1::MachineClass {
        name: "half".into(),
        ..faulty([
            ("call", text("CreateMachine")),
            ("nth", number(1.0)),
            ("partial", flag(true)),
        ])
    };
    let request = v1::CreateMachineRequest {
        machine_class: Some(half),
        ..create("c")
    };
    driver
        .create_machine(request.clone())
        .await
        .expect_err("it fails after the work");
    let vms = provider.console().await.vms().await.expect("vms");
    let left = vms
        .iter()
        .find(|vm| vm.name == "c")
        .expect("the VM is there")
        .provider_id
        .clone();
    let again = driver
        .create_machine(request)
        .await
        .expect("the repeat finds it")
        .into_inner();
    assert_eq!(again.machine.expect("a machine").provider_id, left);
}

#[tokio::test]
async fn a_scripted_panic_is_a_driver_fault_and_a_scripted_exit_ends_the_process_after_the_work() {
    let mut provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let panics = faulty([
        ("call", text("CreateMachine")),
        ("nth", number(1.0)),
        ("panic", flag(true)),
    ]);
    let request = v1::CreateMachineRequest {
        machine_class: Some(panics),
        ..create("a")
    };
    let refused = driver.create_machine(request.clone()).await.expect_err("it panics");
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::Internal, "DRIVER_FAULT")
    );
    driver.create_machine(request).await.expect("the process lives");

    let exits = faulty([
        ("call", text("CreateMachine")),
        ("nth", number(3.0)),
        ("exit", flag(true)),
        ("after", flag(true)),
    ]);
    driver
        .create_machine(v1::CreateMachineRequest {
            machine_class: Some(exits),
            ..create("b")
        })
        .await
        .expect_err("gone");
    assert_eq!(provider.exit_code(), Some(86));
    let names: BTreeSet<_> = listing(&provider.state_file())
        .expect("the file reads")
        .vms
        .into_iter()
        .map(|vm| vm.name)
        .collect();
    assert_eq!(names, ["a", "b"].map(str::to_owned).into());
}

#[tokio::test]
async fn an_answer_that_comes_late_is_met_by_the_repeat() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let late = faulty([
        ("call", text("CreateMachine")),
        ("nth", number(1.0)),
        ("lateAnswer", text("600ms")),
    ]);
    let body = v1::CreateMachineRequest {
        machine_class: Some(late),
        ..create("m")
    };
    let mut impatient = tonic::Request::new(body.clone());
    impatient.set_timeout(Duration::from_millis(100));
    driver.create_machine(impatient).await.expect_err("the deadline passes");
    driver
        .create_machine(body)
        .await
        .expect("the repeat joins the running work");
    assert_eq!(
        provider
            .journal()
            .await
            .iter()
            .filter(|entry| entry.event == Event::Accepted)
            .count(),
        1
    );
}

#[tokio::test]
async fn a_watch_tells_of_what_is_and_of_what_becomes() {
    let provider = Provider::start(&["--create-delay", "1h"]);
    let mut driver = provider.driver().await;
    make(&mut driver, "old").await;
    let mut events = driver
        .watch_machines(watch(Some(class())))
        .await
        .expect("a watch")
        .into_inner();
    let mut told = Vec::new();
    while told.len() < 5 {
        let event = events.message().await.expect("no error").expect("no end");
        if event.r#type() == Type::Heartbeat {
            continue;
        }
        told.push((
            event.r#type(),
            event
                .machine
                .and_then(|vm| vm.key)
                .map(|key| key.name)
                .unwrap_or_default(),
        ));
        if told.len() == 2 {
            make(&mut driver, "new").await;
            provider.console().await.stop("new").await.expect("it is off");
            provider.console().await.remove("new").await.expect("it is gone");
        }
    }
    let upsert = |name: &str| (Type::Upsert, name.to_owned());
    let expected = [
        upsert("old"),
        (Type::Synced, String::new()),
        upsert("new"),
        upsert("new"),
        (Type::Deleted, "new".to_owned()),
    ];
    assert_eq!(told, expected);
}

/// WAT-4: a VM that boots at once is running when it is first told of, so its boot is no news.
#[tokio::test]
async fn a_watch_tells_of_a_vm_again_only_when_it_has_changed() {
    let provider = Provider::start(&["--create-delay", "0s"]);
    let mut driver = provider.driver().await;
    let mut events = driver
        .watch_machines(watch(Some(class())))
        .await
        .expect("a watch")
        .into_inner();
    let mut told = Vec::new();
    while told.last() != Some(&(Type::Deleted, State::Deleted)) {
        let event = events.message().await.expect("no error").expect("no end");
        match event.r#type() {
            Type::Heartbeat => {}
            Type::Synced => {
                make(&mut driver, "m").await;
                // Long enough for its boot to be noted.
                tokio::time::sleep(Duration::from_millis(300)).await;
                let mut console = provider.console().await;
                console.stop("m").await.expect("it is off");
                console.remove("m").await.expect("it is gone");
            }
            kind => told.push((kind, event.machine.expect("a machine").state())),
        }
    }
    let expected = [
        (Type::Upsert, State::Running),
        (Type::Upsert, State::Stopped),
        (Type::Deleted, State::Deleted),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_watch_says_that_all_is_shown_only_when_lookups_that_lag_show_all() {
    let provider = Provider::start(&["--list-lag", "1s", "--create-delay", "0s"]);
    let mut driver = provider.driver().await;
    make(&mut driver, "m").await;
    let mut events = driver
        .watch_machines(watch(Some(class())))
        .await
        .expect("a watch")
        .into_inner();
    let mut told = Vec::new();
    while !told.contains(&Type::Synced) {
        told.push(events.message().await.expect("no error").expect("no end").r#type());
    }
    assert!(told.contains(&Type::Upsert), "the VM is shown before all is: {told:?}");
}

#[tokio::test]
async fn the_console_lets_hosts_fail_and_the_driver_says_so() {
    let provider = Provider::start(&["--create-delay", "0s"]);
    let mut driver = provider.driver().await;
    make(&mut driver, "m").await;
    let mut console = provider.console().await;
    let mut state = async || {
        let seen = driver.get_machine_status(status_of("m")).await.expect("it exists");
        seen.into_inner().machine.expect("a machine").state()
    };
    console.stop("m").await.expect("it is off");
    assert_eq!(state().await, State::Stopped);
    console.start("m").await.expect("it is on");
    assert_eq!(state().await, State::Running);
    console.remove("m").await.expect("it is gone");
    let refused = driver.get_machine_status(status_of("m")).await.expect_err("it is gone");
    assert_eq!(reason(&refused), "MACHINE_NOT_FOUND");
    console.stop("m").await.expect_err("nothing is left to stop");
}

#[tokio::test]
async fn a_thousand_creates_over_the_socket_are_measured() {
    let provider = Provider::start(&[]);
    let driver = provider.driver().await;
    let begun = std::time::Instant::now();
    let calls = (0..1000).map(|n| {
        let mut driver = driver.clone();
        tokio::spawn(async move { make(&mut driver, &format!("m{n}")).await })
    });
    for call in futures::future::join_all(calls).await {
        call.expect("accepted");
    }
    eprintln!("1000 creates over the socket: {:?}", begun.elapsed());
    assert_eq!(provider.console().await.vms().await.expect("vms").len(), 1000);
}

#[tokio::test]
async fn a_machine_with_a_long_name_has_a_node_with_a_short_one() {
    let provider = Provider::start(&["--create-delay", "0s"]);
    let mut driver = provider.driver().await;
    let name = format!("{}.b", "a".repeat(100));
    let made = make(&mut driver, &name).await;
    assert!(
        made.node_name.len() <= 63 && made.node_name.starts_with("aaa"),
        "{}",
        made.node_name
    );
    assert_eq!(made.key.expect("a key").name, name);
    assert_eq!(make(&mut driver, &name).await.node_name, made.node_name, "it stays");
}
