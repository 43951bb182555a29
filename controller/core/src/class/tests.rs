//! What is said of a Secret that somebody deleted and that classes still need; for classes there is a story.

use super::*;

fn at(seconds: i64) -> Timestamp {
    let began: Timestamp = "2026-01-01T00:00:00Z".parse().expect("it is a time");
    began + SignedDuration::from_secs(seconds)
}

/// A Secret that carries our finalizer; whoever deleted it did so at `at(0)`.
fn secret(is_deleted: bool) -> ObjectMeta {
    let meta = serde_json::json!({
        "name": "cloud", "namespace": "test", "uid": "1", "finalizers": [keys::SECRET_FINALIZER],
        "deletionTimestamp": is_deleted.then(|| at(0).to_string()),
    });
    serde_json::from_value(meta).expect("it is metadata")
}

fn needed_by(users: usize) -> InUse {
    InUse {
        kind: "MachineClass",
        users,
        first: "small".to_owned(),
    }
}

fn seen<'a>(secret: &'a ObjectMeta, classes: usize, reported: Option<&'a InUse>, seconds: i64) -> SecretObserved<'a> {
    SecretObserved {
        secret,
        classes,
        first_class: (classes > 0).then_some("small"),
        first_machine: None,
        reported,
        now: at(seconds),
    }
}

#[test]
fn a_secret_that_is_deleted_and_needed_says_once_for_whom_and_again_when_they_change() {
    let secret = secret(true);
    let (two, one) = (needed_by(2), needed_by(1));
    let steps = |classes, reported, seconds| {
        let plan = plan_secret(&seen(&secret, classes, reported, seconds));
        assert_eq!(plan.why, Why::InUse);
        plan.steps
    };
    assert_eq!(steps(2, None, 1), [SecretStep::Report(two.clone())]);
    assert_eq!(steps(2, Some(&two), 2), []);
    assert_eq!(steps(1, Some(&two), 3600), [SecretStep::Report(one.clone())]);
    assert_eq!(steps(1, Some(&one), 3601), []);
}

#[test]
fn a_process_that_begins_long_after_the_deletion_leaves_it_at_what_its_predecessor_has_said() {
    let secret = secret(true);
    let plan = plan_secret(&seen(&secret, 2, None, 301));
    assert_eq!((plan.steps, plan.why), (Vec::new(), Why::InUse));
}

#[test]
fn a_secret_that_nobody_deleted_or_nobody_needs_has_nothing_to_say() {
    let (held, deleted) = (secret(false), secret(true));
    let plan = plan_secret(&seen(&held, 2, None, 1));
    assert_eq!((plan.steps, plan.why), (Vec::new(), Why::Settled));
    let plan = plan_secret(&seen(&deleted, 0, Some(&needed_by(1)), 1));
    assert_eq!(
        (plan.steps, plan.why),
        (vec![SecretStep::RemoveFinalizer], Why::NotNeeded)
    );
}

/// A class that names another Secret now does not take from the VMs that were made with the old one what removes them.
#[test]
fn a_secret_that_only_vms_need_stays_until_the_last_of_them_is_gone() {
    let secret = secret(true);
    let needed = SecretObserved {
        first_machine: Some("m1"),
        ..seen(&secret, 0, None, 1)
    };
    let plan = plan_secret(&needed);
    assert!(
        matches!(&plan.steps[..], [SecretStep::Report(in_use)] if in_use.first == "m1"),
        "{:?}",
        plan.steps
    );
    let free = plan_secret(&seen(&secret, 0, None, 1));
    assert_eq!(free.steps, [SecretStep::RemoveFinalizer]);
}
