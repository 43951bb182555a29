//! Makes a failing run small: sets choices to their defaults, and lowers the others, as long as the same property breaks.

use std::collections::BTreeSet;

use crate::choices::Deviation;
use crate::run::{Outcome, Plan, by_names};

/// What came of the smallest run found within so many that breaks the same property. `None`: these choices break nothing.
pub fn shrink(plan: &Plan, deviations: &[Deviation], budget: usize) -> Option<Outcome> {
    let best = by_names(plan, deviations);
    let property = best.violation.as_ref()?.property;
    let mut search = Search {
        plan,
        property,
        left: budget,
        best,
    };
    loop {
        let before = weight(&search.best.deviations);
        search.tame_points();
        search.tame_stretches();
        search.lower();
        if weight(&search.best.deviations) == before || search.left == 0 {
            return Some(search.best);
        }
    }
}

struct Search<'a> {
    plan: &'a Plan,
    property: &'static str,
    left: usize,
    best: Outcome,
}

impl Search<'_> {
    /// Whether these choices are as bad, and fewer or lower; then they are the best.
    fn is_as_bad(&mut self, deviations: &[Deviation]) -> bool {
        if self.left == 0 || deviations == self.best.deviations {
            return false;
        }
        self.left -= 1;
        let outcome = by_names(self.plan, deviations);
        let broken = outcome.violation.as_ref();
        let is_same = broken.is_some_and(|broken| broken.property == self.property);
        let is_better = is_same && weight(&outcome.deviations) < weight(&self.best.deviations);
        if is_better {
            self.best = outcome;
        }
        is_better
    }

    /// Sets all that points chose to the defaults, a point at a time.
    fn tame_points(&mut self) {
        let points: BTreeSet<_> = self
            .best
            .deviations
            .iter()
            .map(|deviations| deviations.point.clone())
            .collect();
        for point in points {
            let others = self
                .best
                .deviations
                .iter()
                .filter(|deviations| deviations.point != point);
            let others: Vec<Deviation> = others.cloned().collect();
            self.is_as_bad(&others);
        }
    }

    /// Sets stretches to the defaults, from the end, ever shorter ones.
    fn tame_stretches(&mut self) {
        let mut size = self.best.deviations.len();
        while size > 0 {
            let mut end = self.best.deviations.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut fewer = self.best.deviations.clone();
                fewer.drain(start..end);
                self.is_as_bad(&fewer);
                end = start.min(self.best.deviations.len());
            }
            size /= 2;
        }
    }

    /// Lowers single numbers.
    fn lower(&mut self) {
        for at in 0..self.best.deviations.len() {
            while let Some(value) = self
                .best
                .deviations
                .get(at)
                .map(|deviations| deviations.value)
                .filter(|value| *value > 1)
            {
                let mut lower = self.best.deviations.clone();
                if let Some(deviations) = lower.get_mut(at) {
                    deviations.value = value / 2;
                }
                if !self.is_as_bad(&lower) {
                    break;
                }
            }
        }
    }
}

/// What is smaller: fewer choices, then smaller numbers.
fn weight(deviations: &[Deviation]) -> (usize, u64) {
    (
        deviations.len(),
        deviations.iter().map(|deviations| u64::from(deviations.value)).sum(),
    )
}
