//! [`link`](crate) of a program that exports no spans: there is nothing to join.

use std::future::Future;

use tonic::metadata::MetadataMap;
use tracing::Span;

use crate::context::{Parent, TraceId};

/// The task as it is.
pub fn beneath<F: Future>(task: F) -> impl Future<Output = F::Output> {
    task
}

/// Nothing: the span is not exported.
pub fn adopt(_: &Span, _: &Parent) {}

/// Nothing: there is no span to tell of.
pub fn send(_: &Span, _: &mut MetadataMap) {}

/// None.
pub fn trace_of(_: &Span) -> Option<TraceId> {
    None
}
