//! What a safety property is to the panel: a judge that sees every event.

use crate::event::Event;
use crate::truth::Truth;

/// One property.
pub trait Oracle: Send {
    /// "S1".
    fn id(&self) -> &'static str;
    /// Judges one event.
    ///
    /// # Errors
    /// What is wrong, for people.
    fn see(&mut self, event: &Event, truth: &dyn Truth) -> Result<(), String>;
    /// How often it had something to judge.
    fn hits(&self) -> u64;
}
