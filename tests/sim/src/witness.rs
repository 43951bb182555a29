//! Who sees all that happens: it is traced, counted and shown to the oracles, and the first property that breaks is kept.
//!
//! Decides when there is nothing more to see. Changes nothing in the world; the truth is shown by whoever tells of something.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Event, Oracle, Truth, Violation, What};
use crate::notifier::{Notifier, Subscription};
use crate::spin::{Instant, is_endless};
use crate::trace::Trace;

/// The witness of one run.
pub struct Witness {
    /// What happened.
    pub trace: Trace,
    /// How often each fault struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// The first property that was broken.
    pub violation: Option<Violation>,
    oracles: Vec<Box<dyn Oracle>>,
    instant: Instant,
    doom: Arc<Notifier>,
}

impl Witness {
    /// A witness who has seen nothing.
    pub fn new(oracles: Vec<Box<dyn Oracle>>, is_told: bool) -> Self {
        Self {
            trace: Trace::new(is_told),
            struck: BTreeMap::new(),
            violation: None,
            oracles,
            instant: Instant::default(),
            doom: Arc::default(),
        }
    }

    /// Rings when a property is broken.
    pub fn doom(&self) -> Subscription {
        self.doom.subscribe()
    }

    /// Counts a fault that nobody tells of.
    pub fn struck(&mut self, fault: &'static str) {
        *self.struck.entry(fault).or_default() += 1;
    }

    /// Sees what happened, and what is true right after it.
    pub fn see(&mut self, what: What, truth: &Truth<'_>) {
        if let What::Fault { name, .. } = &what {
            self.struck(name);
        }
        let event = Event { at: truth.now, what };
        self.trace.add(&event);
        if self.instant.is_overfull(event.at) {
            self.spins("event follows event");
        }
        if let Some(how) = is_endless(event.at, self.trace.events()) {
            let text = format!("{how}; last came: {}", self.trace.recent());
            self.broken(Violation { property: "L1", text });
        }
        let oracles = self.oracles.iter_mut();
        let broken: Vec<Violation> = oracles.filter_map(|oracle| oracle.see(&event, truth).err()).collect();
        for violation in broken {
            self.broken(violation);
        }
    }

    /// Lets the oracles judge the end.
    pub fn judge(&mut self, truth: &Truth<'_>) {
        for oracle in &mut self.oracles {
            if let Err(violation) = oracle.end(truth) {
                self.violation.get_or_insert(violation);
            }
        }
    }

    /// Notes a property that is broken, if it is the first.
    pub fn broken(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
        self.doom.notify();
    }

    /// Something goes round while no time passes, as this says: L1 is out of reach.
    pub fn spins(&mut self, how: &str) {
        let text = format!("{how} while no time passes; last came: {}", self.trace.recent());
        self.broken(Violation { property: "L1", text });
    }

    /// How often each oracle could judge.
    pub fn antecedents(&self) -> Vec<(&'static str, u64)> {
        self.oracles.iter().flat_map(|oracle| oracle.antecedents()).collect()
    }
}
