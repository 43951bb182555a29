use jiff::SignedDuration;

use super::*;
use crate::driver::Code;

const PAUSE: SignedDuration = SignedDuration::from_mins(10);

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("it is a time")
}

fn uid(number: usize) -> Uid {
    Uid::new(format!("uid-{number:04}"))
}

fn failure(reason: Reason) -> Failure {
    Failure {
        reason: Some(reason),
        ..Failure::transport(Code::ResourceExhausted, format!("{reason:?}"))
    }
}

/// The answer to a creation.
fn hear(gates: &mut Gates, of: usize, reason: Option<Reason>, at: Timestamp) -> News {
    let failure = reason.map(failure);
    gates.hear(Heard {
        uid: &uid(of),
        errand: Some(Errand::Make),
        failure: failure.as_ref(),
        until: at + PAUSE,
        waiting: 1000,
    })
}

fn way(gates: &Gates, of: usize, at: Timestamp) -> &'static str {
    match gates.way(Errand::Make, &uid(of), at) {
        Way::Open => "open",
        Way::Turn => "turn",
        Way::Shut(..) => "shut",
    }
}

/// Takes the turn and makes the call.
fn tries(gates: &mut Gates, of: usize, at: Timestamp) -> bool {
    let has_turn = gates.takes_turn(Errand::Make, &uid(of), at);
    if has_turn {
        gates.begins(Errand::Make, &uid(of));
    }
    has_turn
}

/// Rows: pains 105.
#[test]
fn one_refusal_shuts_all_out_and_one_at_a_time_tries_again_at_the_pace_of_the_failure() {
    for reason in [
        Reason::CredentialsRejected,
        Reason::AccessDenied,
        Reason::CapacityUnavailable,
        Reason::QuotaExceeded,
    ] {
        let mut gates = Gates::default();
        assert_eq!(way(&gates, 1, now()), "open");
        assert!(hear(&mut gates, 1, Some(reason), now()).of_class, "{reason:?}");
        assert_eq!(
            (way(&gates, 1, now()), way(&gates, 2, now())),
            ("shut", "shut"),
            "{reason:?}"
        );
        let due = now() + PAUSE;
        assert!(tries(&mut gates, 1, due), "{reason:?}");
        assert!(!tries(&mut gates, 2, due), "{reason:?}: one at a time");
        hear(&mut gates, 1, Some(reason), due);
        assert_eq!(way(&gates, 2, due), "shut", "{reason:?}");
        assert_eq!(way(&gates, 2, due + PAUSE), "turn", "{reason:?}");
    }
}

#[test]
fn whoever_asked_before_the_refusal_neither_prolongs_nor_ends_it() {
    let mut gates = Gates::default();
    hear(&mut gates, 1, Some(Reason::CredentialsRejected), now());
    let late = now() + SignedDuration::from_mins(5);
    for reason in [
        Some(Reason::CredentialsRejected),
        Some(Reason::CapacityUnavailable),
        None,
    ] {
        assert_eq!(hear(&mut gates, 2, reason, late), News::default(), "{reason:?}");
        assert_eq!(way(&gates, 3, now() + PAUSE), "turn");
        assert_eq!(way(&gates, 3, late), "shut");
    }
}

#[test]
fn good_credentials_let_all_go_at_once_even_where_the_call_fails_otherwise() {
    for reason in [None, Some(Reason::NameConflict), Some(Reason::QuotaExceeded)] {
        let mut gates = Gates::default();
        hear(&mut gates, 1, Some(Reason::CredentialsRejected), now());
        assert!(tries(&mut gates, 1, now() + PAUSE));
        let news = hear(&mut gates, 1, reason, now() + PAUSE);
        assert!(news.accepted && news.is_open, "{reason:?}: {news:?}");
        let of_others = gates.way(Errand::Remove, &uid(2), now() + PAUSE);
        assert_eq!(of_others, Way::Open, "{reason:?}");
    }
}

#[test]
fn capacity_that_is_back_is_used_in_batches_that_grow_and_its_end_shuts_the_gate_again() {
    let (mut gates, due) = (Gates::default(), now() + PAUSE);
    hear(&mut gates, 1, Some(Reason::CapacityUnavailable), now());
    assert!(tries(&mut gates, 1, due));
    hear(&mut gates, 1, None, due);
    let (mut batches, mut next) = (Vec::new(), 2);
    while batches.len() < 4 {
        let batch: Vec<usize> = (next..next + 50).take_while(|of| tries(&mut gates, *of, due)).collect();
        next += batch.len();
        batches.push(batch.len());
        let last = batch.into_iter().map(|of| hear(&mut gates, of, None, due)).last();
        assert!(last.expect("somebody tried").of_class, "the others are told");
    }
    assert_eq!(batches, [2, 4, 8, 16]);
    assert!(tries(&mut gates, next, due));
    hear(&mut gates, next, Some(Reason::CapacityUnavailable), due);
    assert_eq!(way(&gates, 999, due), "shut");
    assert_eq!(way(&gates, 999, due + PAUSE), "turn");
}

#[test]
fn the_gate_is_gone_when_a_batch_would_hold_all_who_wait() {
    let mut gates = Gates::default();
    hear(&mut gates, 1, Some(Reason::QuotaExceeded), now());
    assert!(tries(&mut gates, 1, now() + PAUSE));
    let news = gates.hear(Heard {
        uid: &uid(1),
        errand: Some(Errand::Make),
        failure: None,
        until: now(),
        waiting: 2,
    });
    assert!(news.is_open);
    assert_eq!(gates.shut().count(), 0);
}

#[test]
fn a_turn_that_comes_to_no_call_is_another_machines_soon() {
    let (mut gates, due) = (Gates::default(), now() + PAUSE);
    hear(&mut gates, 1, Some(Reason::CapacityUnavailable), now());
    assert!(gates.takes_turn(Errand::Make, &uid(1), due));
    assert_eq!(way(&gates, 2, due), "shut");
    assert_eq!(way(&gates, 2, due + TURN_LASTS), "turn");
    gates.begins(Errand::Make, &uid(1));
    assert_eq!(way(&gates, 2, due + TURN_LASTS), "shut", "its call is under way");
}

#[test]
fn who_tried_in_vain_for_a_reason_of_its_own_gives_the_turn_to_another() {
    let (mut gates, due) = (Gates::default(), now() + PAUSE);
    hear(&mut gates, 1, Some(Reason::CapacityUnavailable), now());
    assert!(tries(&mut gates, 1, due));
    assert!(hear(&mut gates, 1, Some(Reason::NameConflict), due).of_class);
    assert!(tries(&mut gates, 2, due));
    assert!(hear(&mut gates, 2, Some(Reason::ProviderUnavailable), due).of_class);
    assert_eq!(way(&gates, 3, due), "shut", "the provider is away for all");
    assert_eq!(way(&gates, 3, due + PAUSE), "turn");
}

#[test]
fn a_change_lets_one_try_at_once_and_what_was_asked_before_it_counts_no_more() {
    let mut gates = Gates::default();
    hear(&mut gates, 1, Some(Reason::CredentialsRejected), now());
    assert!(tries(&mut gates, 1, now() + PAUSE));
    gates.doubt();
    assert!(
        tries(&mut gates, 2, now() + PAUSE),
        "the call under way is of another class"
    );
    assert!(!tries(&mut gates, 3, now() + PAUSE));
}

#[test]
fn a_class_that_was_let_in_is_not_shut_out_for_anothers_refusal_and_one_that_was_not_tries_for_itself_later() {
    let mut refused = Gates::default();
    hear(&mut refused, 1, Some(Reason::CredentialsRejected), now());
    let mut good = Gates::default();
    hear(&mut good, 7, None, now());
    assert!(!good.shut_out(&refused, now()));
    let mut unknown = Gates::default();
    assert!(unknown.shut_out(&refused, now()));
    assert_eq!(way(&unknown, 9, now() + PAUSE), "shut");
    assert_eq!(way(&unknown, 9, now() + PAUSE + PAUSE), "turn");
    assert!(unknown.may_try());
    assert_eq!(way(&unknown, 9, now()), "turn");
}

#[test]
fn what_is_forbidden_or_sold_out_to_some_is_no_matter_of_those_who_leave() {
    for reason in [Reason::AccessDenied, Reason::CapacityUnavailable] {
        let mut gates = Gates::default();
        hear(&mut gates, 1, Some(reason), now());
        assert_eq!(gates.way(Errand::Remove, &uid(2), now()), Way::Open, "{reason:?}");
    }
    let mut gates = Gates::default();
    hear(&mut gates, 1, Some(Reason::CredentialsRejected), now());
    assert!(matches!(gates.way(Errand::Remove, &uid(2), now()), Way::Shut(..)));
}

#[test]
fn what_a_machine_says_of_an_earlier_processs_gate_is_tried_by_one_first() {
    let mut refused = Gates::default();
    hear(&mut refused, 1, Some(Reason::CredentialsRejected), now());
    let text = refused.make.as_ref().expect("it is shut").to_string();
    for description in [
        format!("Waiting: {text}"),
        format!("Waiting to remove the VM: {text}. {}", keys::MARK_VM_DELETION),
    ] {
        let status = serde_json::json!({"lastOperation": {"description": description, "errorCode": "Unauthenticated"}});
        let machine = serde_json::json!({"metadata": {"name": "m", "uid": "uid-0001"}, "status": status});
        let machine: Machine = serde_json::from_value(machine).expect("it is a Machine");
        assert!(is_parked(&machine), "{description}");
        let mut gates = Gates::default();
        gates.recall(Errand::Make, &machine);
        assert_eq!(gates.make.as_ref().map(ToString::to_string), Some(text.clone()));
        for errand in [Errand::Make, Errand::Remove] {
            assert!(gates.takes_turn(errand, &uid(1), now()), "{errand:?}");
            assert!(!gates.takes_turn(errand, &uid(2), now()), "{errand:?}");
        }
        let mut let_in = Gates::default();
        hear(&mut let_in, 1, None, now());
        let_in.recall(Errand::Make, &machine);
        assert_eq!(way(&let_in, 2, now()), "open", "this process knows better");
    }
}
