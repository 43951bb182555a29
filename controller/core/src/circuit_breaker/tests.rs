use serde_json::json;

use super::*;
use crate::ids::{DriverName, SecretKey};

const PAUSE: SignedDuration = SignedDuration::from_mins(10);

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("it is a time")
}

fn uid(number: usize) -> Uid {
    Uid::new(format!("uid-{number:04}"))
}

fn machine(class: &str, number: usize) -> Machine {
    let metadata = json!({"name": format!("m-{number}"), "uid": uid(number).as_str()});
    let spec = json!({"class": {"kind": "MachineClass", "name": class}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("it is a Machine")
}

/// Breakers of these classes of one account.
fn breakers(classes: &[&str]) -> Breakers {
    let mut breakers = Breakers::default();
    classes
        .iter()
        .for_each(|class| changed(&mut breakers, class, Vec::new()));
    breakers
}

fn changed(breakers: &mut Breakers, class: &str, stored: Vec<(Option<Operation>, CircuitBreaker)>) {
    let (namespace, name) = ("default".to_owned(), "cloud".to_owned());
    let account = Account(DriverName::new("virtual"), SecretKey { namespace, name });
    breakers.class_changed(&Name::new(class), Some(account), || stored);
}

/// The answer to a creation of a Machine of that class.
fn hear_of(breakers: &mut Breakers, class: &str, of: usize, reason: Option<Reason>, at: Timestamp) -> Change {
    let failure = reason.map(|reason| Failure {
        reason: Some(reason),
        ..Failure::transport(Code::ResourceExhausted, format!("{reason:?}"))
    });
    let outcome = Outcome {
        uid: &uid(of),
        operation: Some(Operation::Create),
        failure: failure.as_ref(),
        retry_at: at + PAUSE,
        waiting: 1000,
    };
    breakers.record(&Name::new(class), outcome)
}

fn hear(breakers: &mut Breakers, of: usize, reason: Option<Reason>, at: Timestamp) -> Change {
    hear_of(breakers, "small", of, reason, at)
}

fn admission(breakers: &Breakers, class: &str, operation: Operation, of: usize, at: Timestamp) -> &'static str {
    match breakers
        .circuits(&Name::new(class))
        .admit(operation, &machine(class, of), at)
    {
        Admission::Allow => "allow",
        Admission::Probe => "probe",
        Admission::Deny(..) => "deny",
    }
}

fn way(breakers: &Breakers, of: usize, at: Timestamp) -> &'static str {
    admission(breakers, "small", Operation::Create, of, at)
}

/// Reserves a creation and begins the call.
fn tries_of(breakers: &mut Breakers, class: &str, of: usize, at: Timestamp) -> bool {
    let may_call = breakers.reserve(Operation::Create, &machine(class, of), at);
    if may_call {
        breakers.begin(&Name::new(class), Operation::Create, &uid(of));
    }
    may_call
}

fn tries(breakers: &mut Breakers, of: usize, at: Timestamp) -> bool {
    tries_of(breakers, "small", of, at)
}

/// Rows: pains 105.
#[test]
fn one_refusal_stops_all_and_one_at_a_time_tries_again_at_the_pace_of_the_failure() {
    for reason in [
        Reason::CredentialsRejected,
        Reason::AccessDenied,
        Reason::CapacityUnavailable,
        Reason::QuotaExceeded,
    ] {
        let mut breakers = breakers(&["small"]);
        assert_eq!(way(&breakers, 1, now()), "allow");
        let change = hear(&mut breakers, 1, Some(reason), now());
        assert!(change.classes.contains(&Name::new("small")), "{reason:?}");
        let both = (way(&breakers, 1, now()), way(&breakers, 2, now()));
        assert_eq!(both, ("deny", "deny"), "{reason:?}");
        let due = now() + PAUSE;
        assert!(tries(&mut breakers, 1, due), "{reason:?}");
        assert!(!tries(&mut breakers, 2, due), "{reason:?}: one at a time");
        hear(&mut breakers, 1, Some(reason), due);
        assert_eq!(way(&breakers, 2, due), "deny", "{reason:?}");
        assert_eq!(way(&breakers, 2, due + PAUSE), "probe", "{reason:?}");
    }
}

#[test]
fn a_call_from_before_the_refusal_neither_prolongs_nor_ends_it() {
    let mut breakers = breakers(&["small"]);
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    let late = now() + SignedDuration::from_mins(5);
    for reason in [
        Some(Reason::CredentialsRejected),
        Some(Reason::CapacityUnavailable),
        None,
    ] {
        assert_eq!(hear(&mut breakers, 2, reason, late), Change::default(), "{reason:?}");
        assert_eq!(way(&breakers, 3, now() + PAUSE), "probe");
        assert_eq!(way(&breakers, 3, late), "deny");
    }
}

#[test]
fn good_credentials_let_all_go_at_once_even_where_the_call_fails_otherwise() {
    for reason in [None, Some(Reason::NameConflict), Some(Reason::QuotaExceeded)] {
        let mut breakers = breakers(&["small"]);
        hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
        assert!(tries(&mut breakers, 1, now() + PAUSE));
        let change = hear(&mut breakers, 1, reason, now() + PAUSE);
        assert!(change.is_closed, "{reason:?}: {change:?}");
        let of_others = admission(&breakers, "small", Operation::Delete, 2, now() + PAUSE);
        assert_eq!(of_others, "allow", "{reason:?}");
    }
}

#[test]
fn capacity_that_is_back_is_used_in_batches_that_double_and_its_end_stops_all_again() {
    let (mut breakers, due) = (breakers(&["small"]), now() + PAUSE);
    hear(&mut breakers, 1, Some(Reason::CapacityUnavailable), now());
    assert!(tries(&mut breakers, 1, due));
    hear(&mut breakers, 1, None, due);
    let (mut batches, mut next) = (Vec::new(), 2);
    while batches.len() < 4 {
        let batch: Vec<usize> = (next..next + 50)
            .take_while(|of| tries(&mut breakers, *of, due))
            .collect();
        next += batch.len();
        batches.push(batch.len());
        let last = batch.into_iter().map(|of| hear(&mut breakers, of, None, due)).last();
        assert!(!last.expect("somebody tried").classes.is_empty(), "the others are told");
    }
    assert_eq!(batches, [2, 4, 8, 16]);
    assert!(tries(&mut breakers, next, due));
    hear(&mut breakers, next, Some(Reason::CapacityUnavailable), due);
    assert_eq!(way(&breakers, 999, due), "deny");
    assert_eq!(way(&breakers, 999, due + PAUSE), "probe");
}

#[test]
fn a_breaker_closes_when_a_batch_would_hold_all_that_wait() {
    let mut breakers = breakers(&["small"]);
    hear(&mut breakers, 1, Some(Reason::QuotaExceeded), now());
    assert!(tries(&mut breakers, 1, now() + PAUSE));
    let outcome = Outcome {
        uid: &uid(1),
        operation: Some(Operation::Create),
        failure: None,
        retry_at: now(),
        waiting: 2,
    };
    assert!(breakers.record(&Name::new("small"), outcome).is_closed);
    assert!(breakers.all().all(|circuits| circuits.causes().is_empty()));
}

#[test]
fn a_reservation_that_comes_to_no_call_is_another_machines_soon() {
    let (mut breakers, due) = (breakers(&["small"]), now() + PAUSE);
    hear(&mut breakers, 1, Some(Reason::CapacityUnavailable), now());
    assert!(breakers.reserve(Operation::Create, &machine("small", 1), due));
    assert_eq!(way(&breakers, 2, due), "deny");
    assert_eq!(way(&breakers, 2, due + RESERVED_FOR), "probe");
    breakers.begin(&Name::new("small"), Operation::Create, &uid(1));
    assert_eq!(way(&breakers, 2, due + RESERVED_FOR), "deny", "its call is under way");
}

#[test]
fn a_probe_in_vain_for_a_reason_of_its_own_lets_another_machine_probe() {
    let (mut breakers, due) = (breakers(&["small"]), now() + PAUSE);
    hear(&mut breakers, 1, Some(Reason::CapacityUnavailable), now());
    assert!(tries(&mut breakers, 1, due));
    assert!(
        !hear(&mut breakers, 1, Some(Reason::NameConflict), due)
            .classes
            .is_empty()
    );
    assert!(tries(&mut breakers, 2, due));
    assert!(
        !hear(&mut breakers, 2, Some(Reason::ProviderUnavailable), due)
            .classes
            .is_empty()
    );
    assert_eq!(way(&breakers, 3, due), "deny", "the provider is away for all");
    assert_eq!(way(&breakers, 3, due + PAUSE), "probe");
}

#[test]
fn a_change_lets_one_probe_at_once_and_what_was_asked_before_it_counts_no_more() {
    let mut breakers = breakers(&["small"]);
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    assert!(tries(&mut breakers, 1, now() + PAUSE));
    changed(&mut breakers, "small", Vec::new());
    let is_admitted = tries(&mut breakers, 2, now() + PAUSE);
    assert!(is_admitted, "the call under way is of another class");
    assert!(!tries(&mut breakers, 3, now() + PAUSE));
}

#[test]
fn other_credentials_than_the_refused_ones_are_tried_by_one() {
    let mut breakers = breakers(&["small"]);
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    breakers.class_changed(&Name::new("small"), None, Vec::new);
    assert!(tries(&mut breakers, 2, now()));
    assert_eq!(way(&breakers, 3, now()), "deny");
}

#[test]
fn an_accepted_class_is_not_stopped_by_anothers_refusal_and_a_new_one_of_the_account_is_not() {
    let mut breakers = breakers(&["small", "large", "huge"]);
    hear_of(&mut breakers, "large", 7, None, now());
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    let of = |class| admission(&breakers, class, Operation::Create, 9, now());
    assert_eq!(["small", "large", "huge"].map(of), ["deny", "allow", "allow"]);
}

#[test]
fn a_refusal_stops_the_account_and_another_class_of_it_finds_out_for_itself_first() {
    let mut breakers = breakers(&["small", "large"]);
    let change = hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    assert_eq!(change.classes.len(), 2);
    assert_eq!(admission(&breakers, "large", Operation::Delete, 9, now()), "deny");
    let first = now() + PAUSE - APART;
    assert_eq!(way(&breakers, 1, first), "deny");
    assert!(tries_of(&mut breakers, "large", 9, first));
    let change = hear_of(&mut breakers, "large", 9, None, first);
    assert!(change.is_closed && change.classes.len() == 2, "{change:?}");
    assert_eq!(admission(&breakers, "large", Operation::Create, 8, first), "allow");
}

#[test]
fn what_is_forbidden_or_sold_out_to_some_is_no_matter_of_those_that_leave() {
    for reason in [Reason::AccessDenied, Reason::CapacityUnavailable] {
        let mut breakers = breakers(&["small"]);
        hear(&mut breakers, 1, Some(reason), now());
        let leaving = admission(&breakers, "small", Operation::Delete, 2, now());
        assert_eq!(leaving, "allow", "{reason:?}");
    }
    let mut breakers = breakers(&["small"]);
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    assert_eq!(admission(&breakers, "small", Operation::Delete, 2, now()), "deny");
}

#[test]
fn a_breaker_that_an_earlier_process_left_open_is_probed_by_one_at_once() {
    let mut breakers = breakers(&["large"]);
    let stored = CircuitBreaker::restored(Cause::Credentials, "no".to_owned());
    changed(&mut breakers, "small", vec![(None, stored)]);
    assert_eq!(admission(&breakers, "large", Operation::Create, 9, now()), "allow");
    assert!(tries(&mut breakers, 1, now()));
    assert_eq!(way(&breakers, 2, now()), "deny");
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    assert_eq!(way(&breakers, 2, now()), "deny");
    assert_eq!(way(&breakers, 1, now() + PAUSE), "probe");
    breakers.forget_class(&Name::new("small"));
    assert!(
        breakers.all().all(|circuits| circuits.causes().is_empty()),
        "nothing outlives the class"
    );
}

/// A CRD without the status subresource keeps no condition; neither does a process that dies before it has written one.
#[test]
fn a_machine_that_was_told_to_wait_probes_first_where_its_class_says_nothing() {
    for (code, stops_deletions) in [("Unauthenticated", true), ("ResourceExhausted", false)] {
        let mut told = machine("small", 1);
        let last = json!({"lastOperation": {"type": "Create", "reason": "Suspended", "errorCode": code}});
        told.status = serde_json::from_value(last).expect("it is a status");
        let mut fresh = breakers(&["small"]);
        assert!(fresh.reserve(Operation::Create, &told, now()));
        assert_eq!(way(&fresh, 2, now()), "deny", "{code}");
        let leaving = admission(&fresh, "small", Operation::Delete, 2, now());
        assert_eq!(leaving == "deny", stops_deletions, "{code}");

        let mut heard = breakers(&["small"]);
        hear(&mut heard, 1, None, now());
        assert!(heard.reserve(Operation::Create, &told, now()));
        assert_eq!(way(&heard, 2, now()), "allow", "this process knows better");
    }
}

/// After the move, the answer to the probe no longer finds the old account's breaker by the class.
#[test]
fn a_class_that_moves_to_another_account_in_mid_probe_leaves_no_reservation_behind() {
    let mut breakers = breakers(&["small", "large"]);
    hear(&mut breakers, 1, Some(Reason::CredentialsRejected), now());
    let later = now() + PAUSE + PAUSE;
    assert!(tries(&mut breakers, 2, later));
    let name = "another".to_owned();
    let namespace = "default".to_owned();
    let moved = Account(DriverName::new("virtual"), SecretKey { namespace, name });
    breakers.class_changed(&Name::new("small"), Some(moved), Vec::new);
    let large = |breakers: &Breakers| admission(breakers, "large", Operation::Create, 3, later);
    assert_eq!(large(&breakers), "deny");
    breakers.abandon(&uid(2));
    assert_eq!(large(&breakers), "probe");
}
