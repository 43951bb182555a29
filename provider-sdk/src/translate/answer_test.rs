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
        inventory_key: String::new(),
    });
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
