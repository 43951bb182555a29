//! What a thousand Machines cost a provider that refuses their credentials or has nothing left: a call now and then, not one each.

use std::time::Duration;

use millwright_core::api::{Machine, OperationState, OperationType, Phase, keys};
use millwright_core::change::Change;
use millwright_core::driver::{Code, Failure, Reason};
use millwright_core::ids::Name;
use millwright_core::kinds::SecretMeta;
use serde_json::json;

use crate::cloud::failure;
use crate::script;
use crate::stage::Stage;
use crate::turns::Turn;

const MACHINES: usize = 1000;

/// Machines of a class: one, and the others when that has its answer.
fn of_class(stage: &mut Stage, class: &str, machines: usize) {
    let known = machines_of(stage, class).count();
    for number in known..known + machines {
        script::line(stage, &format!("create machine {class}-{number} of {class}"));
        if number == known {
            pass(stage, 1);
        }
    }
    pass(stage, 5);
}

/// So many seconds pass. A thousand Machines take more looks than a story may.
fn pass(stage: &mut Stage, seconds: u64) {
    let until = stage.uptime + Duration::from_secs(seconds);
    loop {
        match stage.turn() {
            Some(Turn::Look(key)) => {
                let verdict = stage.pass(&key).expect("nothing crashes");
                stage.world.queue.give_back(key, verdict, stage.uptime);
            }
            Some(Turn::Answer(place)) => stage.deliver(place),
            None => match stage.world.queue.next_due().filter(|due| *due <= until) {
                Some(due) => stage.uptime = stage.uptime.max(due),
                None => break,
            },
        }
        stage.told.clear();
    }
    stage.uptime = until;
}

fn class(stage: &mut Stage, name: &str) {
    script::line(stage, &format!("create class {name}"));
    let secret = json!({"secretRef": {"name": "cloud", "namespace": "test"}});
    script::line(stage, &format!("edit class {name} {secret}"));
    pass(stage, 5);
}

/// A thousand Machines of a class whose driver says so to all.
fn crowd(refusal: Failure) -> Stage {
    let mut stage = Stage::default();
    class(&mut stage, "small");
    stage.cloud.refuses = Some(refusal);
    of_class(&mut stage, "small", MACHINES);
    stage
}

/// Somebody writes the Secret.
fn rotate(stage: &mut Stage, version: u32) {
    let metadata = json!({"name": "cloud", "namespace": "test", "uid": "s", "resourceVersion": version.to_string()});
    let secret: SecretMeta = serde_json::from_value(json!({ "metadata": metadata })).expect("it is a Secret");
    stage.world.observe(Change::Applied(secret), stage.uptime);
}

fn machines(stage: &Stage) -> impl Iterator<Item = &Machine> {
    stage.etcd.machines.values()
}

fn machines_of<'a>(stage: &'a Stage, class: &'a str) -> impl Iterator<Item = &'a Machine> {
    machines(stage).filter(move |machine| machine.class_name() == Some(class))
}

fn with_vm(stage: &Stage) -> usize {
    machines(stage)
        .filter(|machine| machine.provider_id().is_some())
        .count()
}

/// How many Machines say this, with this code, as a failed creation.
fn say(stage: &Stage, code: &str, text: &str) -> usize {
    let tells = |machine: &&Machine| {
        let said = machine.last_operation().cloned().unwrap_or_default();
        let kind = (
            machine.operation_type(),
            machine.operation_state(),
            said.error_code.as_deref(),
        );
        let description = said.description.unwrap_or_default();
        kind == (Some(OperationType::Create), Some(OperationState::Failed), Some(code)) && description.contains(text)
    };
    machines(stage).filter(tells).count()
}

fn rejected() -> Failure {
    failure(Code::Unauthenticated, Some(Reason::CredentialsRejected))
}

fn sold_out() -> Failure {
    failure(Code::ResourceExhausted, Some(Reason::CapacityUnavailable))
}

/// Status, reason and message of a class's condition.
fn condition(stage: &Stage, type_: &str) -> Option<[String; 3]> {
    let status = stage.etcd.classes.get(&Name::new("small"))?.status.as_ref()?;
    let told = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some([told.status.clone(), told.reason.clone(), told.message.clone()])
}

#[test]
fn a_class_says_by_its_conditions_what_stops_its_machines_and_when_nothing_does_any_more() {
    let causes = [
        (rejected(), "CredentialsAccepted", "CredentialsRejected"),
        (sold_out(), "CapacityAvailable", "ResourceExhausted"),
        (
            failure(Code::PermissionDenied, Some(Reason::AccessDenied)),
            "CreationPermitted",
            "AccessDenied",
        ),
    ];
    for (refusal, type_, reason) in causes {
        let mut stage = Stage::default();
        class(&mut stage, "small");
        stage.cloud.refuses = Some(refusal.clone());
        of_class(&mut stage, "small", 3);
        let told = ["False", reason, &refusal.message].map(str::to_owned);
        assert_eq!(condition(&stage, type_), Some(told));
        stage.cloud.refuses = None;
        pass(&mut stage, 620);
        assert_eq!(with_vm(&stage), 3);
        let told = condition(&stage, type_).expect("the condition stays");
        assert_eq!((told[0].as_str(), told[1].as_str()), ("True", "Recovered"));
    }
}

/// Rows: pains 104.
#[test]
fn a_thousand_machines_with_a_bad_password_log_in_once_every_ten_minutes_and_all_go_on_when_the_secret_changes() {
    let mut stage = crowd(rejected());
    let first = stage.cloud.asked;
    assert!(first <= 3, "{first} calls for {MACHINES} machines");
    assert_eq!(say(&stage, "Unauthenticated", "CredentialsRejected"), MACHINES);
    let waiting = say(
        &stage,
        "Unauthenticated",
        "Waiting: the provider refused the credentials of the class",
    );
    assert!(waiting >= MACHINES - 3, "{waiting} say what they wait for");
    pass(&mut stage, 3600);
    let probes = stage.cloud.asked - first;
    assert!((4..=7).contains(&probes), "{probes} calls in an hour");
    let failed = machines(&stage)
        .filter(|machine| *machine.phase() == Phase::Failed)
        .count();
    assert_eq!(failed, 0, "waiting uses up no creation timeout");

    // Still wrong: one finds out for all.
    let before = stage.cloud.asked;
    rotate(&mut stage, 2);
    pass(&mut stage, 5);
    assert_eq!(
        stage.cloud.asked - before,
        1,
        "calls after a password that is wrong too"
    );
    stage.cloud.refuses = None;
    rotate(&mut stage, 3);
    pass(&mut stage, 10);
    assert_eq!(with_vm(&stage), MACHINES, "all have their VM at once");
}

fn delete_all(stage: &mut Stage) {
    for number in 0..MACHINES {
        script::line(stage, &format!("delete machine small-{number}"));
    }
}

/// Rows: D5.
#[test]
fn a_thousand_machines_with_a_bad_password_that_are_known_to_have_no_vm_leave_without_a_call() {
    let mut stage = crowd(rejected());
    let before = stage.cloud.asked;
    delete_all(&mut stage);
    pass(&mut stage, 5);
    assert_eq!((machines(&stage).count(), stage.cloud.asked - before), (0, 0));
}

/// Rows: pains 30.
#[test]
fn a_thousand_machines_with_a_bad_password_leave_with_a_handful_of_calls_once_it_is_good() {
    let mut stage = crowd(rejected());
    // What came of the creations is not known any more.
    stage.restart();
    let before = stage.cloud.asked;
    delete_all(&mut stage);
    pass(&mut stage, 3600);
    let calls = stage.cloud.asked - before;
    assert!(calls <= 15, "{calls} calls in an hour");
    let left = machines(&stage).count();
    assert!((1..=3).contains(&left), "{left} are left, for which a VM was asked for");
    stage.cloud.refuses = None;
    rotate(&mut stage, 2);
    pass(&mut stage, 60);
    assert_eq!(machines(&stage).count(), 0);
}

#[test]
fn a_password_that_is_refused_to_one_class_is_not_tried_by_others_that_have_it_too() {
    let mut stage = Stage::default();
    for name in ["small", "large"] {
        class(&mut stage, name);
    }
    stage.cloud.refuses = Some(rejected());
    of_class(&mut stage, "small", 20);
    of_class(&mut stage, "large", 20);
    assert!(stage.cloud.asked <= 2, "{} calls", stage.cloud.asked);
    assert_eq!(say(&stage, "Unauthenticated", "CredentialsRejected"), 40);
    stage.cloud.refuses = None;
    pass(&mut stage, 620);
    assert_eq!(with_vm(&stage), 40, "the success of one class is the other's");
}

#[test]
fn a_class_that_is_refused_for_a_fault_of_its_own_keeps_no_other_from_its_account() {
    let mut stage = Stage::default();
    for name in ["small", "large"] {
        class(&mut stage, name);
    }
    of_class(&mut stage, "large", 1);
    stage.cloud.refuses = Some(rejected());
    of_class(&mut stage, "small", 20);
    stage.cloud.refuses = None;
    of_class(&mut stage, "large", 20);
    let made = machines_of(&stage, "large").filter(|machine| machine.provider_id().is_some());
    assert_eq!(made.count(), 21);
}

/// Rows: pains 105, 109, 110, 167.
#[test]
fn a_thousand_machines_without_capacity_ask_once_every_ten_minutes_and_each_tells_the_autoscaler() {
    let mut stage = crowd(sold_out());
    let first = stage.cloud.asked;
    assert!(first <= 3, "{first} calls for {MACHINES} machines");
    assert_eq!(say(&stage, "ResourceExhausted", "CapacityUnavailable"), MACHINES);
    pass(&mut stage, 3600);
    let probes = stage.cloud.asked - first;
    assert!((4..=7).contains(&probes), "{probes} calls in an hour");
    assert_eq!(
        say(&stage, "ResourceExhausted", "CapacityUnavailable"),
        MACHINES,
        "and all the time"
    );

    // A hundred places come free: the hundred that get them, and a few calls in vain at their end.
    (stage.cloud.refuses, stage.cloud.places) = (None, Some(100));
    let before = stage.cloud.asked;
    pass(&mut stage, 620);
    assert_eq!(with_vm(&stage), 100);
    let in_vain = stage.cloud.asked - before - 100;
    assert!(in_vain <= 66, "{in_vain} calls in vain");
    stage.cloud.places = None;
    pass(&mut stage, 1250);
    assert_eq!(with_vm(&stage), MACHINES);
}

/// What people read of a Machine or a class is another version's words; the original's marks stay.
fn reword(stage: &mut Stage) {
    for machine in stage.etcd.machines.values_mut() {
        let status = machine.status.as_mut().expect("the Machine has a status");
        let said = status
            .last_operation
            .as_mut()
            .and_then(|last| last.description.as_mut());
        let said = said.expect("the Machine says something");
        let mark = [keys::MARK_VM_DELETION, keys::MARK_VM_STATUS, keys::MARK_DRAIN]
            .into_iter()
            .find(|mark| said.ends_with(mark));
        *said = format!("Reworded. {}", mark.unwrap_or_default());
    }
    for class in stage.etcd.classes.values_mut() {
        let conditions = class.status.iter_mut().flat_map(|status| &mut status.conditions);
        conditions.for_each(|condition| condition.message = "Reworded".to_owned());
    }
}

/// Nothing is decided from a sentence: a manager that finds every sentence reworded asks no more often, nor does one whose CRDs store no
/// status of classes.
#[test]
fn a_manager_that_starts_anew_and_knows_none_of_the_words_tries_the_refused_credentials_once_as_well() {
    for (leaves, has_conditions) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut stage = crowd(rejected());
        if leaves {
            stage.restart();
            delete_all(&mut stage);
            pass(&mut stage, 5);
        }
        let before = stage.cloud.asked;
        reword(&mut stage);
        if !has_conditions {
            stage.etcd.classes.values_mut().for_each(|class| class.status = None);
        }
        stage.restart();
        pass(&mut stage, 60);
        let calls = stage.cloud.asked - before;
        assert!(
            (1..=3).contains(&calls),
            "{calls} calls, leaving: {leaves}, conditions: {has_conditions}"
        );
        stage.cloud.refuses = None;
        stage.restart();
        pass(&mut stage, 60);
        let wanted = if leaves { 0 } else { MACHINES };
        assert_eq!(with_vm(&stage), wanted);
    }
}

#[test]
fn a_manager_that_starts_anew_tries_the_refused_credentials_once_as_well() {
    let mut stage = crowd(rejected());
    let before = stage.cloud.asked;
    stage.restart();
    pass(&mut stage, 5);
    let calls = stage.cloud.asked - before;
    assert!((1..=3).contains(&calls), "{calls} calls");
    stage.cloud.refuses = None;
    stage.restart();
    pass(&mut stage, 5);
    assert_eq!(with_vm(&stage), MACHINES);
}
