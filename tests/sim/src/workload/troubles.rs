//! Workloads in which something else than the size changes: drivers, classes, Machines of others.

use std::time::Duration;

use super::action::{Action, begin, delete, make, moment, of_class, scale};
use super::body::FORSAKEN;
use super::body::{forsaken, held, of_secret, set_of, user_data};

/// Workloads in which something else than the size changes: drivers, classes, Machines of others.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    Some(match name {
        "away" => vec![
            Action::DriverAway(Duration::from_secs(20)),
            begin(2),
            moment(),
            Action::DriverAway(Duration::from_secs(90)),
            moment(),
            scale(1),
        ],
        "node" => vec![begin(2), Action::Settle, Action::DeleteOne("nodes"), moment(), scale(3)],
        "victim" => vec![begin(2), moment(), Action::DeleteOne("machines"), moment(), scale(1)],
        "repair" => vec![
            make(
                "creates a class whose secret is not there",
                "machineclasses",
                of_secret("later", "later"),
            ),
            make("creates the set", "machinesets", set_of("workers", 2, "later")),
            moment(),
            make("creates the secret", "secrets", user_data("later")),
        ],
        "beside" => vec![
            make("creates a class that nobody serves", "machineclasses", forsaken()),
            make("creates a set of it", "machinesets", set_of("lost", 2, FORSAKEN)),
            begin(2),
            moment(),
            scale(3),
        ],
        "prefer" => vec![
            begin(3),
            Action::Settle,
            Action::Prefer,
            scale(2),
            moment(),
            Action::Prefer,
            scale(1),
        ],
        "takeover" => vec![
            Action::DriverAway(Duration::from_secs(20)),
            Action::Leave("left"),
            moment(),
            delete("machines/left"),
        ],
        "orphans" => vec![
            begin(2),
            moment(),
            Action::Orphans,
            moment(),
            scale(4),
            moment(),
            of_class("large"),
            moment(),
            scale(1),
        ],
        // An orphan that the set selects and that is on its way out, held by somebody else.
        "held" => vec![
            make("creates a machine of another tool's", "machines", held("orphan")),
            moment(),
            delete("machines/orphan"),
            moment(),
            make("creates the set", "machinesets", set_of("workers", 2, "small")),
            moment(),
            Action::Unhold("orphan"),
        ],
        _ => return None,
    })
}
