use super::*;
use crate::api::lenient::Lenient;
use crate::api::machine_deployment::RollingUpdate;

fn rolling(surge: &str, unavailable: &str, wanted: i32) -> (i32, i32) {
    let bound = |text: &str| match text.parse() {
        Ok(count) => IntOrPercent::Int(count),
        Err(_) => IntOrPercent::Text(text.to_owned()),
    };
    let strategy = Strategy {
        type_: Some(Lenient::from(StrategyType::RollingUpdate)),
        rolling_update: Some(RollingUpdate {
            max_surge: Some(bound(surge)),
            max_unavailable: Some(bound(unavailable)),
        }),
        ..Strategy::default()
    };
    let bounds = Bounds::of(Some(&strategy), wanted);
    (bounds.surge, bounds.unavailable)
}

#[test]
fn percents_are_rounded_so_that_surge_is_up_and_unavailable_is_down() {
    assert_eq!(rolling("25%", "25%", 10), (3, 2));
    assert_eq!(rolling("1%", "99%", 10), (1, 9));
    assert_eq!(rolling("20%", "0", 200), (40, 0));
}

#[test]
fn bounds_that_let_nothing_move_let_one_machine_be_unavailable() {
    assert_eq!(rolling("0", "0", 10), (0, 1));
    assert_eq!(rolling("0%", "9%", 10), (0, 1));
    assert_eq!(rolling("0", "0", 0), (0, 0));
}

#[test]
fn bounds_that_make_no_sense_are_clamped() {
    assert_eq!(rolling("-3", "-20%", 10), (0, 1));
    assert_eq!(rolling("300%", "300%", 2), (6, 2));
    assert_eq!(rolling("x", "5", 10), (0, 5));
    assert_eq!(rolling("2147483647", "2147483647", 3), (2_147_483_647, 3));
}

#[test]
fn bounds_that_nobody_gave_are_a_quarter() {
    let (strategy, wanted) = (Strategy::default(), 10);
    let bounds = |strategy| Bounds::of(strategy, wanted);
    let quarter = Bounds {
        surge: 3,
        unavailable: 2,
    };
    assert_eq!([bounds(None), bounds(Some(&strategy))], [quarter, quarter]);
}

fn row(is_new: bool, number: i64, available: i64) -> Row {
    Row {
        is_new,
        number,
        present: number,
        available,
        ..Row::default()
    }
}

fn group(rows: Vec<Row>, wanted: i64, surge: i64, unavailable: i64) -> Group {
    Group {
        rows,
        wanted,
        surge,
        unavailable,
        is_in_sight: true,
        ..Group::default()
    }
}

#[test]
fn a_rollout_begins_with_the_surge_and_takes_off_what_may_be_unavailable() {
    let begun = group(vec![row(false, 10, 10), row(true, 0, 0)], 10, 2, 1);
    assert_eq!(numbers(Mode::Rolling, &begun), [9, 2]);
}

#[test]
fn what_leaves_holds_its_place_until_it_is_gone() {
    let mut group = group(vec![row(false, 8, 8), row(true, 2, 2)], 10, 2, 0);
    group.rows[0].leaving = 2;
    assert_eq!(numbers(Mode::Rolling, &group), [8, 2]);
    group.rows[0].leaving = 0;
    assert_eq!(numbers(Mode::Rolling, &group), [8, 4]);
}

#[test]
fn a_template_that_does_not_work_takes_no_available_machine() {
    let group = group(vec![row(false, 10, 10), row(true, 2, 0)], 10, 2, 0);
    assert_eq!(numbers(Mode::Rolling, &group), [10, 2]);
}

#[test]
fn old_machines_that_are_not_available_go_first_and_need_no_slack() {
    let group = group(vec![row(false, 4, 4), row(false, 4, 1), row(true, 4, 4)], 10, 2, 1);
    assert_eq!(numbers(Mode::Rolling, &group), [4, 1, 4]);
}

#[test]
fn nothing_available_is_taken_while_nobody_sees_nodes() {
    let mut group = group(vec![row(false, 10, 10), row(true, 2, 2)], 10, 2, 5);
    group.is_in_sight = false;
    assert_eq!(numbers(Mode::Rolling, &group), [10, 2]);
    assert_eq!(allowance(Mode::Rolling, &group).lose, Some(0));
}

#[test]
fn a_smaller_d_in_the_middle_takes_old_machines_first() {
    let group = group(vec![row(false, 6, 6), row(true, 6, 6)], 4, 2, 0);
    assert_eq!(numbers(Mode::Rolling, &group), [0, 4]);
}

#[test]
fn old_machines_go_before_new_ones_come_where_the_strategy_says_so() {
    let both = group(vec![row(false, 3, 3), row(true, 0, 0)], 3, 0, 0);
    assert_eq!(numbers(Mode::Recreating, &both), [0, 0]);
    let mut leaving = group(vec![row(false, 0, 0), row(true, 0, 0)], 3, 0, 0);
    leaving.rows[0].leaving = 1;
    assert_eq!(numbers(Mode::Recreating, &leaving), [0, 0]);
    // The old set's only machine has moved to the new one, and neither number says so yet.
    let mut moved = group(vec![row(false, 1, 0), row(true, 0, 1)], 5, 0, 0);
    (moved.rows[0].present, moved.rows[1].present) = (0, 1);
    assert_eq!(numbers(Mode::Recreating, &moved), [0, 1]);
}

#[test]
fn a_paused_rollout_keeps_its_numbers_and_follows_d_alone() {
    let rows = vec![row(false, 6, 6), row(true, 4, 4)];
    assert_eq!(numbers(Mode::Holding, &group(rows.clone(), 10, 2, 0)), [6, 4]);
    assert_eq!(numbers(Mode::Holding, &group(rows.clone(), 12, 2, 0)), [6, 6]);
    assert_eq!(numbers(Mode::Holding, &group(rows, 5, 2, 0)), [3, 4]);
}

#[test]
fn a_set_that_may_be_there_unseen_holds_its_number() {
    let mut group = group(vec![row(true, 0, 0)], 3, 1, 0);
    group.unseen = 3;
    assert!(group.has_old());
    assert_eq!(mode(&group, Some(StrategyType::RollingUpdate), true), Mode::Rolling);
    assert_eq!(numbers(Mode::Rolling, &group), [1], "only the surge is free");
    assert_eq!(mode(&group, Some(StrategyType::Recreate), true), Mode::Recreating);
    assert_eq!(numbers(Mode::Recreating, &group), [0], "it is waited for");
}

#[test]
fn a_paused_rollout_does_not_grow_into_the_surge() {
    // One of the old set's number left, whose Machines are still two.
    let mut old = row(false, 1, 1);
    old.present = 2;
    let held = group(vec![old, row(true, 1, 1)], 4, 1, 0);
    assert_eq!(numbers(Mode::Holding, &held), [1, 2]);
}

#[test]
fn while_nobody_sees_nodes_only_what_is_beyond_the_surge_may_go() {
    let mut blind = group(vec![row(false, 3, 3), row(true, 1, 1)], 2, 1, 0);
    blind.is_in_sight = false;
    assert_eq!(allowance(Mode::Rolling, &blind).lose, Some(1));
    assert_eq!(numbers(Mode::Rolling, &blind), [2, 1]);
    blind.wanted = 4;
    assert_eq!(allowance(Mode::Rolling, &blind).lose, Some(0));
}

/// One was to go, and whether it went is not known; then somebody deleted the new set with its two (`sim replay 9113558 --no-rest`).
#[test]
fn a_deletion_that_was_not_answered_is_sent_again_only_while_enough_are_available_without_it() {
    let mut group = group(vec![row(false, 0, 0), row(true, 2, 2)], 2, 1, 0);
    group.rows[0].present = 1;
    assert!(allowance(Mode::Rolling, &group).resend);
    group.rows[1] = Row {
        leaving: 2,
        ..Row::default()
    };
    assert!(!allowance(Mode::Rolling, &group).resend);
    assert!(allowance(Mode::Scaling, &group).resend, "nobody wants it any more");
}

/// One beyond the new set's number is not available and cannot be deleted: it takes part of the surge, and the rest is used.
///
/// Rows: R20.
#[test]
fn a_machine_too_many_in_the_new_set_does_not_stop_its_growth() {
    let mut group = group(vec![row(false, 2, 2), row(true, 1, 1)], 3, 2, 0);
    group.rows[1].present = 2;
    assert_eq!(numbers(Mode::Rolling, &group), [2, 3]);
}

/// Rows: R12.
#[test]
fn once_a_rollout_has_timed_out_the_set_that_works_grows_within_the_same_bounds() {
    let mut group = group(vec![row(false, 1, 0), row(false, 3, 3), row(true, 4, 0)], 6, 2, 0);
    assert_eq!(numbers(Mode::Rolling, &group), [1, 3, 4]);
    group.has_timed_out = true;
    assert_eq!(
        numbers(Mode::Rolling, &group),
        [1, 3, 2],
        "its machines hold their place until they are gone"
    );
    group.rows[2] = row(true, 2, 0);
    assert_eq!(numbers(Mode::Rolling, &group), [1, 5, 2]);
    group.rows[1].available = 0;
    assert_eq!(numbers(Mode::Rolling, &group), [1, 3, 4], "nothing works");
}

/// Rows: R17.
#[test]
fn an_old_set_falls_with_the_machines_that_the_autoscaler_names_only_where_d_fell() {
    let mut group = group(vec![row(false, 8, 7), row(true, 3, 0)], 9, 3, 0);
    group.rows[0] = Row {
        present: 7,
        leaving: 1,
        named: 1,
        ..group.rows[0]
    };
    assert_eq!(numbers(Mode::Rolling, &group), [8, 3]);
    group.fallen = 1;
    assert_eq!(numbers(Mode::Rolling, &group), [7, 4]);
}
