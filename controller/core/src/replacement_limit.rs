//! The limit of replacements: where many machines are unhealthy at once, the cause is not theirs, and replacing them mends nothing.
//!
//! Says when a limit is reached; [`tally`] counts, `set::repair` decides about single Machines. MS-9; pains 35–37, 41; S6. The default is
//! that of the node lifecycle controller of Kubernetes; Cluster API calls such a limit `maxUnhealthy`.

pub mod tally;

use std::fmt;

use crate::api::lenient::{IntOrPercent, Rounding};
use crate::kinds::Health;
use crate::settings::Settings;

/// A share of unhealthy ones is nobody's common cause while there are no more than these.
const FEW: usize = 2;

/// How many of some are unhealthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// So many.
    pub ill: usize,
    /// Of so many that have joined.
    pub all: usize,
}

/// Why unhealthy machines are not replaced now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tripped {
    /// Too many machines of the deployment, or of the set that has none, are unhealthy.
    Group(Tally, IntOrPercent),
    /// Too many machines of the namespace are unhealthy.
    Namespace(Tally, IntOrPercent),
    /// Too many nodes of one zone are not ready.
    Zone(String, Tally, IntOrPercent),
}

impl fmt::Display for Tripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(Tally { ill, all }, limit) => {
                write!(
                    f,
                    "{ill} of its owner's {all} machines are unhealthy (--unhealthy-threshold {limit})"
                )
            }
            Self::Namespace(Tally { ill, all }, limit) => {
                write!(
                    f,
                    "{ill} of {all} machines are unhealthy (--unhealthy-threshold {limit})"
                )
            }
            Self::Zone(name, Tally { ill, all }, limit) => {
                write!(
                    f,
                    "{ill} of {all} nodes of zone {name} are not ready (--unhealthy-zone-threshold {limit})"
                )
            }
        }
    }
}

impl Tally {
    /// Whether these are so many that nothing is replaced: a number means so many, a percentage at least three.
    pub fn reaches(self, limit: &IntOrPercent) -> bool {
        let all = i32::try_from(self.all).unwrap_or(i32::MAX);
        // What cannot be read was refused where the settings were read.
        let share = limit.resolve(all, Rounding::Up).unwrap_or(0);
        let least = match limit {
            IntOrPercent::Int(_) => 1,
            IntOrPercent::Text(_) => FEW + 1,
        };
        self.ill >= usize::try_from(share).unwrap_or(0).max(least)
    }

    fn add(&mut self, health: Option<Health>) {
        self.ill += usize::from(health == Some(Health::Ill));
        self.all += usize::from(health.is_some());
    }
}

/// Whether too many Nodes of a zone are not ready.
pub fn tripped_zone(zone: &str, tally: Tally, settings: &Settings) -> Option<Tripped> {
    let limit = &settings.unhealthy_zone_threshold;
    tally
        .reaches(limit)
        .then(|| Tripped::Zone(zone.to_owned(), tally, limit.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_are_few_and_more_than_half_are_many_but_a_number_is_meant_as_it_is() {
        let reaches = |ill, all, limit: &IntOrPercent| Tally { ill, all }.reaches(limit);
        let share = IntOrPercent::Text("55%".to_owned());
        for (ill, all, many) in [
            (2, 2, false),
            (3, 5, true),
            (3, 6, false),
            (54, 100, false),
            (55, 100, true),
            (0, 0, false),
        ] {
            assert_eq!(reaches(ill, all, &share), many, "{ill} of {all}");
        }
        for (ill, number, many) in [(1, 2, false), (2, 2, true), (0, 0, false), (1, 0, true)] {
            assert_eq!(reaches(ill, 9, &IntOrPercent::Int(number)), many, "{ill} with {number}");
        }
    }
}
