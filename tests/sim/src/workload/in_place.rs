//! Machines that keep their VMs when their template changes.

use super::action::{Action, make, moment, of_class, paused, scale};
use super::body::updated_in_place;

/// Workloads in which machines are updated in place.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    let begin = |surge, unavailable| {
        let deployment = updated_in_place(3, surge, unavailable);
        [
            make("creates the deployment", "machinedeployments", deployment),
            Action::Settle,
        ]
    };
    let (begun, more) = match name {
        "in-place" => (
            begin(0, 1),
            vec![
                of_class("large"),
                moment(),
                scale(4),
                moment(),
                of_class("small"),
                moment(),
                scale(2),
            ],
        ),
        "in-place-surge" => (
            begin(1, 0),
            vec![
                of_class("large"),
                moment(),
                paused(true),
                moment(),
                scale(4),
                moment(),
                paused(false),
                moment(),
                scale(3),
            ],
        ),
        "in-place-once" => (begin(0, 1), vec![moment(), of_class("large"), Action::Settle]),
        _ => return None,
    };
    Some(begun.into_iter().chain(more).collect())
}
