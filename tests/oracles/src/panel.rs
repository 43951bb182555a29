//! All oracles of a run side by side: each sees every event, and the first that objects ends the run.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::event::Event;
use crate::liveness::End;
use crate::oracle::Oracle;
use crate::safety;
use crate::settings::Settings;
use crate::truth::Truth;

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{property} at {at}: {what}")]
pub struct Violation {
    /// "S1", "L2".
    pub property: &'static str,
    pub at: Timestamp,
    pub what: String,
}

/// The oracles of one run.
pub struct Panel {
    safety: Vec<Box<dyn Oracle>>,
    end: End,
}

impl Panel {
    /// All oracles there are.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            safety: safety::all(settings),
            end: End::new(settings.clone()),
        }
    }

    /// Shows an event to every oracle.
    ///
    /// # Errors
    /// The first property that it breaks.
    pub fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), Violation> {
        self.end.see(event);
        for oracle in &mut self.safety {
            oracle.see(event, truth).map_err(|what| Violation {
                property: oracle.id(),
                at: event.at,
                what,
            })?;
        }
        Ok(())
    }

    /// Judges where the run came to, after faults have stopped and the bound has passed.
    ///
    /// # Errors
    /// The first property that does not hold.
    pub fn end(&mut self, truth: &dyn Truth) -> Result<(), Violation> {
        self.end.judge(truth).map_err(|(property, what)| Violation {
            property,
            at: truth.now(),
            what,
        })
    }

    /// How often each property had something to judge.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<&'static str, u64> {
        let mut hits: BTreeMap<_, _> = BTreeMap::new();
        for oracle in &self.safety {
            *hits.entry(oracle.id()).or_default() += oracle.hits();
        }
        hits.extend(self.end.hits());
        hits
    }
}
