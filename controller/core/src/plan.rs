//! What every planner returns, whatever its kind: steps, when to look again, why; and what a step's failure means to the others.
//!
//! Decides nothing. Rules (GE-1, GE-2): every prefix of the steps is safe, because a crash can stop after any of
//! them; telling a failure never stands behind the step that failed; a plan can say why it does not act.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::meta;
use crate::ids::Name;
use crate::refusal::Refusal;

/// What to do now, when to look again, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S, W> {
    /// In order; every prefix is safe.
    pub steps: Vec<S>,
    /// When to look again if nothing happens.
    pub wake: Option<Timestamp>,
    /// The reason that logs, status and golden files show.
    pub why: W,
    /// Objects that are left alone although something is wanted of them, each with the reason.
    pub withheld: Vec<(Name, W)>,
}

/// What the failure of a step means to the steps after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearing {
    /// It rests on nothing before it and nothing after it rests on it: it is carried out although an earlier step failed, and
    /// its own failure holds nobody up. Reports and work on single children. A conflict over the plan's own object ends the plan
    /// nevertheless: it was made from what is no longer so.
    Independent,
    /// The steps after it were planned on the assumption that it took effect: its failure ends the plan, but for the
    /// independent steps.
    Stops,
}

/// One effect that a plan asks for.
pub trait Step: fmt::Debug + Send {
    /// What its failure means to the others.
    fn bearing(&self) -> Bearing;

    /// The part of the plan that it belongs to, where a plan has several: a failure of one part stops only the rest of that part. The failure
    /// of a step of no part stops the whole.
    fn part(&self) -> Option<&str> {
        None
    }
}

/// Which steps of a plan are void because one failed that they rest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    all: bool,
    parts: BTreeSet<String>,
}

impl Stopped {
    /// A step failed that stops its part, or the whole plan if it belongs to none.
    pub fn add(&mut self, part: Option<String>) {
        match part {
            Some(part) => drop(self.parts.insert(part)),
            None => self.all = true,
        }
    }

    /// Whether a step of that part is void.
    pub fn holds(&self, part: Option<&str>) -> bool {
        self.all || part.is_some_and(|part| self.parts.contains(part))
    }
}

impl<S, W> Plan<S, W> {
    /// Nothing to do until something changes.
    pub fn rest(why: W) -> Self {
        Self::act(Vec::new(), why)
    }

    /// Nothing to do before `wake`.
    pub fn wait(wake: Timestamp, why: W) -> Self {
        Self {
            wake: Some(wake),
            ..Self::rest(why)
        }
    }

    /// Steps to take now.
    pub fn act(steps: Vec<S>, why: W) -> Self {
        Self {
            steps,
            wake: None,
            why,
            withheld: Vec::new(),
        }
    }

    /// Looks again at `wake` too, if that is sooner and still to come.
    pub fn or_at(mut self, wake: Option<Timestamp>, now: Timestamp) -> Self {
        self.look_at(wake, now);
        self
    }

    /// The same of a plan that is being made.
    pub fn look_at(&mut self, wake: Option<Timestamp>, now: Timestamp) {
        self.wake = match (self.wake, wake.filter(|at| *at > now)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// Those of the objects that may be written now. The others, which the API server refused, are left alone until they may be tried again.
    pub fn writable<'r, O>(
        &mut self,
        objects: impl IntoIterator<Item = O>,
        refused: impl Fn(&O) -> (&ObjectMeta, Option<&'r Refusal>),
        why: impl Fn(String) -> W,
        now: Timestamp,
    ) -> Vec<O> {
        let mut free = Vec::new();
        for object in objects {
            let (metadata, refusal) = refused(&object);
            match refusal.filter(|refusal| refusal.holds(now)) {
                Some(refusal) => {
                    self.look_at(Some(refusal.retry_at), now);
                    self.withheld
                        .push((Name::new(meta::name(metadata)), why(refusal.message.clone())));
                }
                None => free.push(object),
            }
        }
        free
    }
}

/// The reason in one word, for metrics and events: the name of its variant.
pub fn label(why: &impl fmt::Debug) -> String {
    let text = format!("{why:?}");
    let end = text.find(['(', ' ', '{']).unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::label;

    #[derive(Debug)]
    enum Why {
        Bare,
        Wide(u8),
        Named { by: u8 },
    }

    #[test]
    fn the_label_of_a_reason_is_the_name_of_its_variant() {
        let all = [Why::Bare, Why::Wide(1), Why::Named { by: 2 }];
        assert!(
            all.iter()
                .all(|why| !matches!(why, Why::Wide(0) | Why::Named { by: 0 }))
        );
        assert_eq!(all.map(|why| label(&why)), ["Bare", "Wide", "Named"]);
    }
}
