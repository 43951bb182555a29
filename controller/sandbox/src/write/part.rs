//! Which part of an object a write is about.

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Whole,
    Status,
    /// The whole, by way of the scale: what differs is the scale's.
    Scale,
}
