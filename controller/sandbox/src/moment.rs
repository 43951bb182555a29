//! What the outside lends to one request, as the API has neither a clock nor chance.

use jiff::Timestamp;

/// What the outside lends to one request: the time, and ids that were never given before.
#[derive(Debug, Clone)]
pub struct Moment {
    pub now: Timestamp,
    /// The uid of the object that the request creates, if it creates one.
    pub uid: String,
    /// What is put behind `generateName`.
    pub suffix: String,
}

impl Moment {
    /// The time as metadata tells it, in whole seconds.
    pub fn seconds(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
