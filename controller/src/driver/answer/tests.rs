use millwright_core::driver::{Code, Effect};

use super::*;

fn key() -> MachineKey {
    MachineKey {
        cluster_id: "c".into(),
        namespace: "n".into(),
        name: Name::new("m-1"),
        uid: Uid::new("uid-1"),
    }
}

#[test]
fn what_a_driver_tells_of_another_cluster_or_in_words_of_tomorrow_says_nothing() {
    use v1::watch_machines_response::Type;
    let message = |of_type: i32, cluster: &str| v1::WatchMachinesResponse {
        r#type: of_type,
        machine: Some(v1::Machine {
            key: Some(v1::MachineKey {
                cluster_id: cluster.into(),
                namespace: "n".into(),
                name: "m-1".into(),
                uid: "uid-1".into(),
            }),
            state: v1::machine::State::Running.into(),
            ..Default::default()
        }),
        resume_token: String::new(),
    };
    let state = |of_type: Type| match told("c", &SecretData::default(), message(of_type.into(), "c")).unwrap() {
        Told::Of(notice) => Some(notice.state),
        Told::All | Told::Stranger(_) | Told::Nothing => None,
    };
    let told = |message| told("c", &SecretData::default(), message);
    assert_eq!(state(Type::Upsert), Some(VmState::Running));
    assert_eq!(state(Type::Deleted), Some(VmState::Deleted), "whatever state it shows");
    assert_eq!(told(message(Type::Synced.into(), "c")).unwrap(), Told::All);
    assert_eq!(told(message(Type::Heartbeat.into(), "c")).unwrap(), Told::Nothing);
    assert_eq!(
        told(message(Type::Upsert.into(), "d")).unwrap(),
        Told::Stranger("VM  of cluster d".into()),
        "another cluster's"
    );
    assert_eq!(told(message(99, "c")).unwrap(), Told::Nothing);
    let bare = v1::WatchMachinesResponse {
        r#type: Type::Upsert.into(),
        ..Default::default()
    };
    assert_eq!(told(bare).unwrap(), Told::Nothing, "no VM in it");
}

fn machine(name: &str, uid: &str) -> v1::Machine {
    v1::Machine {
        key: Some(v1::MachineKey {
            cluster_id: "c".into(),
            namespace: "n".into(),
            name: name.into(),
            uid: uid.into(),
        }),
        provider_id: "virtual:///1".into(),
        state: v1::machine::State::Running.into(),
        ..Default::default()
    }
}

#[test]
fn a_vm_that_bears_the_uid_of_before_a_restore_is_found_by_id_and_name_together() {
    use crate::driver::DriverClass;
    let target = |named: &str, tagged_uid: Option<&str>| Target {
        key: key(),
        class: DriverClass::new("n", "c", &DriverName::new("d"), &serde_json::json!({})).unwrap(),
        secrets: std::sync::Arc::default(),
        tagged_uid: tagged_uid.map(Uid::new),
        former_namespace: Some("moved".into()),
        provider_id: ProviderId::non_empty(Some(named)),
        last_known_state: None,
    };
    let vm = |cluster: &str, name: &str, uid: &str| v1::Machine {
        key: Some(v1::MachineKey {
            cluster_id: cluster.into(),
            namespace: "n".into(),
            name: name.into(),
            uid: uid.into(),
        }),
        provider_id: "p:///1".into(),
        state: v1::machine::State::Running.into(),
        ..Default::default()
    };
    let found = |target: Target, vm| vm_found(&target, Some(vm), None).map(|vm| vm.tagged_uid);
    let before = || vm("c", "m-1", "before");
    let tagged_uid = Some(Uid::new("before"));
    assert_eq!(found(target("p:///1", None), before()).unwrap(), tagged_uid);
    assert_eq!(
        found(target("", Some("before")), before()).unwrap(),
        tagged_uid,
        "once it is known"
    );
    assert_eq!(found(target("p:///1", None), vm("c", "m-1", "uid-1")).unwrap(), None);
    for (named, vm) in [
        ("p:///2", before()),
        ("", before()),
        ("p:///1", vm("c", "m-2", "before")),
        ("p:///1", vm("d", "m-1", "before")),
    ] {
        found(target(named, None), vm).expect_err(named);
    }
    let of = |namespace: &str| {
        let mut vm = before();
        vm.key.as_mut().expect("it has a key").namespace = namespace.into();
        found(target("p:///1", None), vm)
    };
    assert_eq!(of("moved").unwrap(), Some(Uid::new("before")));
    let copied = of("other").expect_err("nobody said that it was restored from there");
    assert_eq!(copied.reason, Some(Reason::MachineNotFound), "it has no VM: {copied:?}");
}

#[test]
fn the_vm_of_another_machine_is_never_taken_for_ours() {
    for (name, uid) in [("m-1", "uid-2"), ("m-2", "")] {
        let failure =
            vm_of(&key(), &SecretData::default(), Some(machine(name, uid)), None).expect_err("it is another's");
        assert_eq!(
            (failure.code, failure.reason, failure.effect),
            (Code::Internal, None, Effect::Unknown)
        );
    }
    let elsewhere = |uid: &str| {
        let mut machine = machine("m-1", uid);
        machine.key.as_mut().expect("it has a key").namespace = "other".into();
        machine
    };
    assert!(
        broken(elsewhere("")).contains("another machine"),
        "only its name is the same"
    );
    assert!(vm_of(&key(), &SecretData::default(), Some(elsewhere("uid-1")), None).is_ok());
    for (name, uid) in [("m-1", "uid-1"), ("m-1", ""), ("", "")] {
        assert!(
            vm_of(&key(), &SecretData::default(), Some(machine(name, uid)), None).is_ok(),
            "{name} {uid}"
        );
    }
}

fn broken(machine: v1::Machine) -> String {
    let failure = vm_of(&key(), &SecretData::default(), Some(machine), None).expect_err("no VM is taken from it");
    assert_eq!(
        (failure.code, failure.reason, failure.effect),
        (Code::Internal, None, Effect::Unknown)
    );
    failure.message
}

/// Rows: O4.
#[test]
fn what_is_wrong_with_an_answer_is_told_without_what_is_secret() {
    let secrets: SecretData = [("key".to_owned(), b"hush-hush".to_vec())].into_iter().collect();
    // A text is cut in the middle of the secret, or holds what is escaped where it is shown.
    for before in ["No ", "\"No\" ", &"N".repeat(76)] {
        let text = format!("{before}hush-hush");
        let named = v1::Machine {
            node_name: text.clone(),
            ..machine("m-1", "uid-1")
        };
        let identified = v1::Machine {
            provider_id: format!("{text}\n{}", "x".repeat(600)),
            ..machine("m-1", "uid-1")
        };
        for bad in [named, identified] {
            let failure = vm_of(&key(), &secrets, Some(bad), None).expect_err("no VM is taken from it");
            assert!(!failure.message.contains("hu"), "{}", failure.message);
        }
    }
}

#[test]
fn the_vm_of_another_cluster_is_never_taken_for_ours_and_one_that_names_none_may_be() {
    let of = |cluster: &str| {
        let mut machine = machine("m-1", "uid-1");
        machine.key.as_mut().expect("it has a key").cluster_id = cluster.into();
        machine
    };
    assert!(broken(of("other")).contains("another cluster, other"));
    assert!(vm_of(&key(), &SecretData::default(), Some(of("")), None).is_ok());
}

#[test]
fn a_vm_that_is_gone_is_neither_a_vm_nor_proof_of_its_end() {
    let gone = v1::Machine {
        state: v1::machine::State::Deleted.into(),
        ..machine("m-1", "uid-1")
    };
    assert!(broken(gone).contains("DELETED (virtual:///1)"));
}

#[test]
fn a_node_name_that_no_node_can_have_is_a_failure_that_says_what_is_wrong() {
    let named = |name: &str| v1::Machine {
        node_name: name.into(),
        ..machine("m-1", "uid-1")
    };
    for fine in ["", "m-1", "ip-10-0-0-1.eu.internal", "1", &"x".repeat(63)] {
        assert!(
            vm_of(&key(), &SecretData::default(), Some(named(fine)), None).is_ok(),
            "{fine}"
        );
    }
    for wrong in [
        "M-1",
        "a_b",
        "-a",
        "a-",
        "a..b",
        ".a",
        "a b",
        "ä",
        "a/b",
        &"x".repeat(64),
    ] {
        let why = broken(named(wrong));
        assert!(
            why.contains("node_name") && why.contains("virtual:///1"),
            "{wrong}: {why}"
        );
    }
    assert!(broken(named(&"x".repeat(64))).contains("64 bytes"));
}

#[test]
fn one_vm_with_a_bad_node_name_does_not_hide_the_others_of_a_list() {
    let bad = v1::Machine {
        node_name: "No Name".into(),
        ..machine("m-1", "uid-1")
    };
    let response = v1::ListMachinesResponse {
        machines: vec![bad, machine("m-2", "uid-2")],
        ..Default::default()
    };
    let page = page("c", &SecretData::default(), response.into()).unwrap();
    assert_eq!(page.vms.len(), 2);
    assert!(page.vms.iter().all(|listed| listed.vm.node_name.is_none()));
}

#[test]
fn a_propagation_delay_beyond_an_hour_is_cut_and_said() {
    let info = |seconds| v1::GetDriverInfoResponse {
        name: "virtual".into(),
        vendor_version: "1".into(),
        propagation_delay: Some(prost_types::Duration { seconds, nanos: 0 }),
        ..Default::default()
    };
    let delay = |seconds| {
        driver_info(&info(seconds))
            .expect("a good name")
            .propagation_delay
            .as_secs()
    };
    assert_eq!((delay(-1), delay(3), delay(3600)), (0, 3, 3600));
    assert_eq!((delay(3601), delay(i64::MAX)), (3600, 3600));
    assert_eq!(flaws(&info(3600)), Vec::<String>::new());
    assert!(flaws(&info(i64::MAX)).join("").contains("3600 s is taken"));
    let nameless = v1::GetDriverInfoResponse {
        vendor_version: " ".to_owned(),
        ..info(1)
    };
    assert!(flaws(&nameless).join("").starts_with("vendor_version is empty: "));
}

#[test]
fn an_answer_without_a_vm_or_with_a_nameless_one_is_no_answer() {
    assert!(vm_of(&key(), &SecretData::default(), None, None).is_err());
    let nameless = |state: v1::machine::State| v1::Machine {
        provider_id: String::new(),
        state: state.into(),
        ..machine("m-1", "uid-1")
    };
    assert!(
        vm_of(
            &key(),
            &SecretData::default(),
            Some(nameless(v1::machine::State::Running)),
            None
        )
        .is_err()
    );
    let early = vm_of(
        &key(),
        &SecretData::default(),
        Some(nameless(v1::machine::State::Creating)),
        None,
    )
    .expect("ids may come late");
    assert_eq!(early.provider_id, None);
}

#[test]
fn only_deleted_is_gone() {
    for state in [
        v1::machine::State::Unspecified,
        v1::machine::State::Deleting,
        v1::machine::State::Running,
    ] {
        assert!(
            !deletion(
                &SecretData::default(),
                v1::DeleteMachineResponse {
                    state: state.into(),
                    ..Default::default()
                }
            )
            .gone
        );
    }
    assert!(
        !deletion(
            &SecretData::default(),
            v1::DeleteMachineResponse {
                state: 99,
                ..Default::default()
            }
        )
        .gone
    );
    assert!(
        deletion(
            &SecretData::default(),
            v1::DeleteMachineResponse {
                state: v1::machine::State::Deleted.into(),
                ..Default::default()
            }
        )
        .gone
    );
}

#[test]
fn vms_of_another_cluster_are_not_looked_at() {
    let foreign = v1::Machine {
        key: Some(v1::MachineKey {
            cluster_id: "other".into(),
            ..Default::default()
        }),
        ..machine("m-2", "uid-2")
    };
    let response = v1::ListMachinesResponse {
        machines: vec![foreign, machine("m-1", "uid-1")],
        ..Default::default()
    };
    let page = page("c", &SecretData::default(), response.into()).unwrap();
    assert_eq!(
        page.vms.iter().map(|listed| listed.name.clone()).collect::<Vec<_>>(),
        [Some(Name::new("m-1"))]
    );
    assert_eq!(page.next, None);
}

#[test]
fn names_that_a_class_could_not_say_are_refused() {
    let info = |name: &str| {
        driver_info(&v1::GetDriverInfoResponse {
            name: name.into(),
            ..Default::default()
        })
    };
    for fine in ["virtual", "AWS", "drivers.example.com", "a", &"x".repeat(63)] {
        assert!(info(fine).is_ok(), "{fine}");
    }
    for wrong in ["", "-a", "a.", "a b", "a/b", "ä", &"x".repeat(64)] {
        assert!(info(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn capabilities_of_tomorrow_are_passed_over() {
    let response = v1::GetDriverInfoResponse {
        name: "virtual".into(),
        capabilities: vec![5, 999, 0],
        ..Default::default()
    };
    assert_eq!(
        driver_info(&response).map(|info| info.capabilities),
        Ok([Capability::ValidateMachineClass].into())
    );
}

/// Rows: D4.
#[test]
fn what_is_too_much_is_cut_and_counted() {
    let one = |severity: v1::violation::Severity| v1::Violation {
        severity: severity.into(),
        field: "f".repeat(1000),
        description: "the key hunter22 is no key".into(),
        ..Default::default()
    };
    let mut violations = vec![one(v1::violation::Severity::Warning); 100];
    violations.push(one(v1::violation::Severity::Error));
    let response = v1::ValidateMachineClassResponse {
        violations,
        ..Default::default()
    };
    let secrets: SecretData = [("password".to_owned(), b"hunter22\n".to_vec())].into_iter().collect();
    let report = validation(&secrets, response.into()).unwrap();
    assert_eq!(report.violations.len(), bounds::VIOLATIONS);
    let first = report.violations.first().unwrap();
    assert!(first.fatal, "what stops machines is not cut for warnings");
    assert_eq!(first.description, "the key *** is no key");
    assert_eq!(first.field.len(), 256);
    assert!(report.violations.last().unwrap().description.ends_with("(and 37 more)"));
}

fn located(secrets: &SecretData, locator: serde_json::Value) -> ValidationReport {
    let response = v1::ValidateMachineClassResponse {
        locator: Some(structs::provider_spec(&locator).expect("it can travel")),
        inventory_key: "account".to_owned(),
        ..Default::default()
    };
    validation(secrets, response.into()).expect("the rest of the answer is good")
}

/// What is stored must come back from the API server as it was, or each look would find it changed.
#[test]
fn a_locator_is_kept_as_the_api_server_stores_it() {
    use serde_json::json;
    let none = SecretData::default();
    let told = json!({"region": "eu-1", "shards": [1, -3], "unset": null, "tags": {"a": ""}});
    let kept = json!({"region": "eu-1", "shards": [1, -3], "tags": {"a": ""}});
    assert_eq!(located(&none, told).locator, Some(kept));
    assert_eq!(located(&none, json!({})).locator, Some(json!({})));
    let unsaid = validation(&none, v1::ValidateMachineClassResponse::default().into());
    assert_eq!(unsaid.expect("a good class").locator, None);
}

#[test]
fn a_locator_that_cannot_be_kept_is_dropped_and_told_and_the_rest_of_the_answer_holds() {
    use serde_json::json;
    let dropped = |secrets: &SecretData, locator| {
        let report = located(secrets, locator);
        assert_eq!(
            (report.locator, report.inventory_key.as_deref()),
            (None, Some("account"))
        );
        let told = report.violations.first().expect("a warning").clone();
        assert!(!told.fatal && told.reason == "LOCATOR_DROPPED", "{told:?}");
        told.description
    };
    let none = SecretData::default();
    let long = dropped(&none, json!({"region": "x".repeat(5000)}));
    assert!(long.contains("bytes as JSON; at most 4096"), "{long}");
    let fraction = dropped(&none, json!({"x": [31.245_270_191_439_438]}));
    assert!(fraction.contains("is not a whole one"), "{fraction}");
    let many = v1::ValidateMachineClassResponse {
        violations: vec![v1::Violation::default(); bounds::VIOLATIONS],
        locator: Some(structs::provider_spec(&json!({"x": 0.5})).expect("it can travel")),
        ..Default::default()
    };
    let report = validation(&none, many.into()).expect("a bad class");
    assert_eq!(report.violations.len(), bounds::VIOLATIONS);
    let [.., last, warning] = report.violations.as_slice() else {
        panic!("there are {} violations", bounds::VIOLATIONS)
    };
    assert_eq!(last.description, " (and 1 more)");
    assert_eq!(warning.reason, "LOCATOR_DROPPED");
    for locator in [json!({"region": "eu\u{1b}[31m"}), json!({"a": [{"\r": 1}]})] {
        let told = dropped(&none, locator);
        assert!(told.contains("control character"), "{told}");
    }
    for secret in ["0123456789abcdef0123", r#"pa"ss\word-0123456789"#] {
        let secrets = SecretData::from_iter([("key".to_owned(), secret.as_bytes().to_vec())]);
        for locator in [json!({"account": [{"key": secret}]}), json!({"account": {secret: 1}})] {
            let told = dropped(&secrets, locator);
            assert!(told.contains("it holds a secret") && !told.contains(secret), "{told}");
        }
    }
    let short = SecretData::from_iter([("region".to_owned(), b"eu-1".to_vec())]);
    assert_eq!(
        located(&short, json!({"region": "eu-1"})).locator,
        Some(json!({"region": "eu-1"}))
    );
}
