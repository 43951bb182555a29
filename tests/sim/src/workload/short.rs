//! Workloads that no campaign draws: bugs of the zoo show best in what is short, or says one thing again and again.

use std::time::Duration;

use super::action::{Action, begin, make, moment, of_class, paused, relabel, scale};
use super::body::set_of;
use serde_json::Value;

/// Not drawn by any campaign: bugs of the zoo show best in what is short, or says one thing again and again.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    Some(match name {
        "create-deployment" => vec![begin(2)],
        "drift" => vec![
            make("creates the set", "machinesets", set_of("workers", 2, "small")),
            Action::Settle,
            relabel(Value::Null),
        ],
        "lose" => vec![
            make("creates the set", "machinesets", set_of("workers", 2, "small")),
            Action::Settle,
            Action::DeleteOne("machines"),
        ],
        // Some are up and some are not when fewer are wanted.
        "shrink-early" => vec![begin(4), moment(), scale(2), moment(), scale(1)],
        "shrink" => vec![begin(3), Action::Settle, scale(2)],
        "shrink-by-ones" => {
            let by_one = |size| [scale(size), moment(), Action::Prefer];
            let mut actions = vec![begin(6), Action::Settle];
            actions.extend((1..6).rev().flat_map(by_one));
            actions
        }
        "roll-once" => vec![begin(2), moment(), of_class("large")],
        // Nobody goes on with it.
        "pause-for-good" => vec![
            begin(3),
            Action::Settle,
            paused(true),
            of_class("large"),
            Action::Moment,
        ],
        "orphans-few" => vec![begin(1), Action::Settle, Action::Orphans],
        // They are old when they are seen first.
        "orphans-late" => vec![
            begin(1),
            Action::Settle,
            Action::DriverAway(Duration::from_secs(220)),
            Action::Orphans,
            Action::Settle,
            Action::Settle,
        ],
        _ => return None,
    })
}
