//! Makes a failing run small: cuts the tape, puts zeros for faults and delays, lowers numbers, as long as the same property
//! breaks.

use crate::run::{Outcome, Plan, by_tape};

/// The smallest tape found within so many runs that breaks the same property, and what came of it. `None`: the tape breaks
/// nothing.
pub fn shrink(plan: &Plan, tape: Vec<u32>, budget: usize) -> Option<(Vec<u32>, Outcome)> {
    let first = by_tape(plan, tape);
    let property = first.violation.as_ref()?.property;
    let mut search = Search {
        plan,
        property,
        left: budget,
        tape: first.tape.clone(),
        best: first,
    };
    loop {
        let before = search.tape.clone();
        search.cut();
        search.zero();
        search.lower();
        if search.tape == before || search.left == 0 {
            return Some((search.tape, search.best));
        }
    }
}

struct Search<'a> {
    plan: &'a Plan,
    property: &'static str,
    left: usize,
    tape: Vec<u32>,
    best: Outcome,
}

impl Search<'_> {
    /// Whether this tape is as bad; then it is the best.
    fn is_as_bad(&mut self, tape: Vec<u32>) -> bool {
        if self.left == 0 || tape == self.tape {
            return false;
        }
        self.left -= 1;
        let outcome = by_tape(self.plan, tape);
        let same = outcome
            .violation
            .as_ref()
            .is_some_and(|broken| broken.property == self.property);
        if same && weight(&outcome.tape) < weight(&self.tape) {
            self.tape.clone_from(&outcome.tape);
            self.best = outcome;
            return true;
        }
        false
    }

    /// Takes chunks away, from the end, ever smaller ones.
    fn cut(&mut self) {
        let mut size = self.tape.len() / 2;
        while size > 0 {
            let mut end = self.tape.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut shorter = self.tape.clone();
                shorter.drain(start..end.min(shorter.len()));
                self.is_as_bad(shorter);
                end = start.min(self.tape.len());
            }
            size /= if size > 64 { 4 } else { 2 };
        }
    }

    /// Makes stretches tame.
    fn zero(&mut self) {
        let mut size = self.tape.len().next_power_of_two();
        while size > 0 {
            let mut start = 0;
            while start < self.tape.len() {
                let mut tamer = self.tape.clone();
                tamer.iter_mut().skip(start).take(size).for_each(|value| *value = 0);
                if tamer != self.tape {
                    self.is_as_bad(tamer);
                }
                start += size;
            }
            size /= 2;
        }
    }

    /// Lowers single numbers.
    fn lower(&mut self) {
        for at in 0..self.tape.len() {
            while let Some(value) = self.tape.get(at).copied().filter(|value| *value > 1) {
                let mut lower = self.tape.clone();
                if let Some(number) = lower.get_mut(at) {
                    *number = value / 2;
                }
                if !self.is_as_bad(lower) {
                    break;
                }
            }
        }
    }
}

/// What is smaller: fewer choices that are not tame, then a shorter tape, then smaller numbers.
fn weight(tape: &[u32]) -> (usize, usize, u64) {
    let wild = tape.iter().filter(|value| **value != 0).count();
    (wild, tape.len(), tape.iter().copied().map(u64::from).sum())
}
