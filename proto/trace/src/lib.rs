//! Traces across the Driver API, for both ends of the wire: the W3C trace context in a call's metadata, the spans that are joined by
//! it, and (feature `otlp`) their export to a collector.
//!
//! Decides what is exported: spans of the target [`TRACED`] and nothing else, no log line and no other span, so that what leaves the
//! process is what was written down for it. Without `otlp` nothing is exported; the context of an incoming call is still read.

#![warn(missing_docs)]

#[cfg(feature = "otlp")]
mod away;
#[cfg(feature = "otlp")]
mod collector;
mod context;
#[cfg(feature = "otlp")]
mod export;
#[cfg_attr(not(feature = "otlp"), path = "no_link.rs")]
mod link;

#[cfg(feature = "otlp")]
pub use self::collector::{Collector, CollectorError};
pub use self::context::{Parent, TRACEPARENT, TRACESTATE, TraceId};
#[cfg(feature = "otlp")]
pub use self::export::{Export, ExportError, layer};
pub use self::link::{adopt, beneath, send, trace_of};

/// The target of spans that are exported.
pub const TRACED: &str = "millwright::trace";

/// What is added to the filter of a log, which would show these spans around its lines otherwise.
pub const NOT_LOGGED: &str = "millwright::trace=off";
