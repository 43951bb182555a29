//! What must hold in every step of a run, and at its end (tests/README.md has the list).
//!
//! Judges only ground truth: the objects that the API server holds, the VMs that the cloud holds, and the record of who
//! did what. It shares no rule and no line with the program under test, and depends on nothing of it: an oracle that
//! reused the planner would agree with its mistakes. One module a property; `tests/violations.rs` shows for each one a trace that
//! breaks it.
//!
//! What an oracle never met it cannot have judged: each counts how often its antecedent came about ([`Panel::hits`]).

pub mod bounds;
pub mod diff;
pub mod ending;
pub mod event;
pub mod liveness;
pub mod object;
pub mod oracle;
pub mod panel;
pub mod safety;
pub mod settings;
pub mod truth;
pub mod wanted;

pub use ending::Ending;
pub use event::{Act, By, Call, Event, Heard, Method, Outcome, Verb, VmChange, Write};
pub use panel::{Panel, Violation};
pub use truth::{Truth, Vm};
