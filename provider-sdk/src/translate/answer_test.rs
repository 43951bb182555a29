//! What an author may answer, and what becomes a fault of the driver.

use super::*;
use crate::reason::Reason;
use crate::types::{MachineClass, Violation};

fn key() -> MachineKey {
    MachineKey {
        cluster_id: "c".into(),
        namespace: "n".into(),
        name: "m".into(),
        uid: "u".into(),
    }
}

fn running() -> Machine {
    Machine {
        node_name: "node".into(),
        ..Machine::new(key(), "p:///1", MachineState::Running)
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, DriverError>) -> bool {
    matches!(result, Err(error) if error.reason() == &Reason::DriverFault)
}

#[test]
fn a_vm_of_another_uid_or_cluster_is_never_answered() {
    assert!(status(running().into(), &key(), "").is_ok());
    let other = MachineKey {
        uid: "x".into(),
        ..key()
    };
    assert!(refused(created(
        Machine {
            key: other,
            ..running()
        }
        .into(),
        &key()
    )));
    let other = MachineKey {
        cluster_id: "x".into(),
        ..key()
    };
    assert!(refused(status(
        Machine {
            key: other,
            ..running()
        }
        .into(),
        &key(),
        &running().provider_id
    )));
    let restored = MachineKey {
        uid: "before".into(),
        ..key()
    };
    for (key_of_vm, named, is_refused) in [
        (restored.clone(), running().provider_id, false),
        (
            MachineKey {
                namespace: "before".into(),
                ..restored.clone()
            },
            running().provider_id,
            false,
        ),
        (restored.clone(), String::new(), true),
        (restored.clone(), "other:///1".to_owned(), true),
        (
            MachineKey {
                name: "other".into(),
                ..restored
            },
            running().provider_id,
            true,
        ),
    ] {
        let vm = Machine {
            key: key_of_vm,
            ..running()
        };
        assert_eq!(refused(status(vm.into(), &key(), &named)), is_refused, "{named}");
    }
    let adopted = MachineKey {
        uid: String::new(),
        ..key()
    };
    assert!(
        created(
            Machine {
                key: adopted,
                ..running()
            }
            .into(),
            &key()
        )
        .is_ok()
    );
}

#[test]
fn an_incomplete_vm_is_a_fault_of_the_driver() {
    let creating = Machine::new(key(), "", MachineState::Creating);
    assert!(created(creating.clone().into(), &key()).is_ok());
    assert!(refused(created(
        Machine {
            state: MachineState::Stopped,
            ..creating
        }
        .into(),
        &key()
    )));
    assert!(refused(created(
        Machine {
            node_name: String::new(),
            ..running()
        }
        .into(),
        &key()
    )));
    assert!(refused(created(
        Machine {
            state: MachineState::Deleted,
            ..running()
        }
        .into(),
        &key()
    )));
    assert!(refused(created(
        Machine {
            last_known_state: "s".repeat(4097),
            ..running()
        }
        .into(),
        &key()
    )));
}

#[test]
fn ids_and_node_names_are_held_to_the_characters_of_the_contract() {
    let with_id = |id: &str| Machine {
        provider_id: id.into(),
        ..running()
    };
    for id in ["p:///1\n", "p:///\u{7f}", &"p".repeat(513)] {
        assert!(refused(status(with_id(id).into(), &key(), "")), "{id:?}");
    }
    let with_name = |name: &str| Machine {
        node_name: name.into(),
        ..running()
    };
    for name in ["Node", "a_b", "-a", "a.", "a..b", "a b", &"a".repeat(64)] {
        assert!(refused(created(with_name(name).into(), &key())), "{name:?}");
    }
    assert!(created(with_name("ip-10.eu-west-1").into(), &key()).is_ok());
    assert!(created(with_id(&"p".repeat(512)).into(), &key()).is_ok());
}

#[test]
fn an_odd_vm_is_shown_in_a_list_without_what_is_wrong_with_it() {
    let odd = Machine {
        provider_id: "p:///\n".into(),
        node_name: "Bad Name".into(),
        last_known_state: "s".repeat(4097),
        ..running()
    };
    let seal = Seal::new("c", &MachineClass::default());
    let answer = MachinePage {
        machines: vec![odd.clone(), running()],
        ..MachinePage::default()
    };
    let vms = page(answer, &seal, "c", 2).unwrap().machines;
    assert_eq!(vms.len(), 2);
    assert_eq!((vms[0].provider_id.as_str(), vms[0].node_name.as_str()), ("", ""));
    assert_eq!(vms[0].last_known_state, "");
    assert_eq!(vms[1].provider_id, "p:///1");
    let event = WatchEvent::new(Change::Upsert(Box::new(odd)));
    assert_eq!(watch_event(event).unwrap().machine.unwrap().node_name, "");
}

#[test]
fn a_page_of_long_states_fits_into_a_message() {
    let seal = Seal::new("c", &MachineClass::default());
    let long = Machine {
        last_known_state: "s".repeat(4096),
        state_message: "m".repeat(1024),
        ..running()
    };
    let answer = MachinePage::last(vec![long; 1000]);
    let page = page(answer, &seal, "c", 1000).unwrap();
    assert_eq!(page.machines.len(), 1000);
    assert!(page.encoded_len() <= PAGE_MAX, "{}", page.encoded_len());
}

#[test]
fn texts_for_people_are_cut() {
    let answer = Machine {
        state_message: "é".repeat(2000),
        ..running()
    };
    let wire = created(answer.into(), &key()).unwrap().machine.unwrap();
    assert_eq!(wire.state_message.len(), 1024);
}

#[test]
fn a_page_leaves_foreign_and_deleted_vms_out_and_is_never_too_long() {
    let seal = Seal::new("c", &MachineClass::default());
    let foreign = Machine {
        key: MachineKey {
            cluster_id: "x".into(),
            ..key()
        },
        ..running()
    };
    let gone = Machine {
        state: MachineState::Deleted,
        ..running()
    };
    let answer = MachinePage {
        machines: vec![running(), foreign, gone],
        ..MachinePage::default()
    };
    assert_eq!(page(answer.clone(), &seal, "c", 3).unwrap().machines.len(), 1);
    assert!(refused(page(answer, &seal, "c", 2)));
}

/// The log of what is done in between, without its times and levels.
fn logged(deed: impl FnOnce()) -> String {
    let kept = crate::test_log::Log::default();
    let writer = kept.clone();
    let log = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false);
    tracing::subscriber::with_default(log.finish(), deed);
    kept.text()
}

/// The manager never takes such a VM for an orphan (MAN-44): it may cost money for ever, and only the log can say why.
#[test]
fn vms_that_are_listed_without_create_time_are_told_in_the_log() {
    let seal = Seal::new("c", &MachineClass::default());
    let list = |machines: Vec<Machine>| {
        let answer = MachinePage {
            machines,
            ..MachinePage::default()
        };
        page(answer, &seal, "c", 3).unwrap();
    };
    let dated = Machine {
        create_time: Some(Timestamp::UNIX_EPOCH),
        ..running()
    };
    let text = logged(|| list(vec![dated.clone(), running(), running()]));
    assert!(
        text.contains("without create_time") && text.contains("count=2"),
        "{text}"
    );
    assert_eq!(logged(|| list(vec![dated])), "");
}

#[test]
fn errors_of_a_class_come_before_warnings() {
    let violation = |severity| Violation {
        field: "/a".into(),
        severity,
        reason: "X".into(),
        description: "d".into(),
    };
    let mut violations = vec![violation(Severity::Warning); 100];
    violations.push(violation(Severity::Error));
    let wire = class_report(ClassReport {
        violations,
        ..ClassReport::default()
    })
    .unwrap();
    assert_eq!(wire.violations.len(), 64);
    assert_eq!(wire.violations[0].severity(), v1::violation::Severity::Error);
}

#[test]
fn times_before_the_epoch_keep_a_positive_fraction() {
    let wire = timestamp(Timestamp::new(-1, -250_000_000).unwrap());
    assert_eq!((wire.seconds, wire.nanos), (-2, 750_000_000));
    let wire = timestamp(Timestamp::new(7, 5).unwrap());
    assert_eq!((wire.seconds, wire.nanos), (7, 5));
}

#[test]
fn a_locator_of_more_than_4_kib_is_a_fault_of_the_driver() {
    // {"a":"…"} is 8 bytes longer than the text.
    let report = |size: usize| ClassReport {
        locator: Some(
            [("a".to_owned(), Value::from("s".repeat(size - 8)))]
                .into_iter()
                .collect(),
        ),
        ..ClassReport::default()
    };
    assert!(refused(class_report(report(4097))));
    let wire = class_report(report(4096)).unwrap();
    assert!(wire.locator.unwrap().fields.contains_key("a"));
    assert_eq!(class_report(ClassReport::default()).unwrap().locator, None);
}

#[test]
fn a_vm_without_a_uid_is_answered_only_for_the_machine_of_its_name() {
    let older = |name: &str| {
        let key = MachineKey {
            name: name.into(),
            uid: String::new(),
            ..key()
        };
        Machine { key, ..running() }
    };
    assert!(refused(status(older("other").into(), &key(), "")));
    assert!(status(older("m").into(), &key(), "").is_ok());
}
