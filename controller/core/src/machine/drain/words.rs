//! How a drain is told of. Decides nothing.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::api::keys;
use crate::api::lenient::GoDuration;
use crate::drain::{Blocker, Drain, Leaving, Removal};
use crate::machine::node;
use crate::machine::observed::Observed;

/// How far the pods of a Node are that stays.
pub fn staying(seen: &Observed<'_>, found: &Node, now: Timestamp) -> String {
    let told = format!("Draining node {} for its update in place", node::name(found));
    match seen.drain.filter(|drain| drain.is_listed()) {
        None => told,
        Some(drain) => format!("{told}: {}", left(drain, now)),
    }
}

/// How many pods are left, and what holds the first of them; or else which one leaves, and since when.
pub fn left(drain: &Drain, now: Timestamp) -> String {
    let left = match drain.left().count() {
        1 => "1 pod is left".to_owned(),
        many => format!("{many} pods are left"),
    };
    match drain.blocker(now) {
        Some(Blocker::Refused(pod, removal)) => match removal {
            Removal::OverBudget(words) => format!("{left}; {pod} may not be evicted now: {words}"),
            Removal::Misconfigured { fault, .. } => format!("{left}; {pod} may never be evicted: {fault}"),
            Removal::Accepted => left,
            Removal::Failed(words) => format!("{left}; the API server did not evict {pod}: {words}"),
        },
        Some(Blocker::Overdue(overdue)) => format!("{left}; {}; its grace is over", leaves(&overdue)),
        None => match drain.leaving() {
            Some(leaving) => format!("{left}; {}", leaves(&leaving)),
            None => left,
        },
    }
}

/// Which pod leaves, since when, and what it may wait for.
fn leaves(leaving: &Leaving) -> String {
    let Leaving {
        pod,
        since,
        until,
        finalizers,
    } = leaving;
    let holds = match finalizers.as_slice() {
        [] => String::new(),
        held => format!(", held by the finalizer {}", held.join(", ")),
    };
    let grace = GoDuration::from(node::whole_seconds(until.duration_since(*since)));
    format!("{pod} has been leaving since {since:.0} with a grace of {grace}{holds}")
}

/// How many pods are deleted without grace.
pub fn forced(left: usize, why: &impl std::fmt::Display) -> String {
    match left {
        1 => format!("1 pod is deleted without grace, because {why}"),
        many => format!("{many} pods are deleted without grace, because {why}"),
    }
}

/// How many pods end with their VM.
pub fn cut_off(left: usize, why: &impl std::fmt::Display) -> String {
    match left {
        1 => format!("The drain ends with 1 pod left, because {why}"),
        many => format!("The drain ends with {many} pods left, because {why}"),
    }
}

/// Which volumes are waited for.
pub fn attached(volumes: &[String]) -> String {
    match volumes {
        [first] => format!("no pod is left; volume {first} is attached"),
        many => {
            let first = many.first().map_or("", String::as_str);
            format!("no pod is left; {} volumes are attached, {first} first", many.len())
        }
    }
}

/// A description without the original's marker at its end, for people.
pub fn without_mark(said: &str) -> &str {
    let marks = keys::DELETION_MARKS.iter();
    let cut = marks.filter_map(|mark| said.strip_suffix(*mark)).next();
    cut.unwrap_or(said).trim_end()
}
