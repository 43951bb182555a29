//! How spans hang together: in one process from task to task, and over the wire from caller to driver.
//!
//! Decides nothing. Where no collector is given each of these functions is a look at an empty value.

use std::future::Future;

use opentelemetry::Context;
use opentelemetry::context::FutureExt as _;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceState};
use tonic::metadata::{MetadataMap, MetadataValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::context::{Parent, TRACEPARENT, TRACESTATE, TraceId};

/// A task that belongs to the span of the moment, without keeping that span from its end: what it does is seen below the span.
pub fn beneath<F: Future>(task: F) -> impl Future<Output = F::Output> {
    task.with_current_context()
}

/// Makes a span that has not begun the child of the caller's.
pub fn adopt(span: &Span, parent: &Parent) {
    let remote = SpanContext::new(
        opentelemetry::TraceId::from(parent.trace),
        SpanId::from(parent.span),
        TraceFlags::new(parent.flags),
        true,
        parent.state.parse().unwrap_or(TraceState::NONE),
    );
    // It fails where the span is not exported, and then it needs no parent.
    let _ = span.set_parent(Context::new().with_remote_span_context(remote));
}

/// Tells the callee of the caller's span. A context that is there already is left alone.
pub fn send(span: &Span, metadata: &mut MetadataMap) {
    if metadata.contains_key(TRACEPARENT) || metadata.contains_key(TRACESTATE) {
        return;
    }
    let Some(caller) = context_of(span) else { return };
    let headers = [(TRACEPARENT, caller.header()), (TRACESTATE, caller.state)];
    for (name, text) in headers.into_iter().filter(|(_, text)| !text.is_empty()) {
        // Both are ASCII: ours by its form, the other because it came as a header.
        if let Ok(value) = MetadataValue::try_from(text) {
            metadata.insert(name, value);
        }
    }
}

/// The trace of a span that is exported.
pub fn trace_of(span: &Span) -> Option<TraceId> {
    context_of(span).map(|context| context.trace_id())
}

fn context_of(span: &Span) -> Option<Parent> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let of = span.span_context();
    of.is_valid().then(|| Parent {
        trace: u128::from_be_bytes(of.trace_id().to_bytes()),
        span: u64::from_be_bytes(of.span_id().to_bytes()),
        flags: of.trace_flags().to_u8(),
        state: of.trace_state().header(),
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::subscriber::with_default;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::TRACED;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn exported(test: impl FnOnce()) {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        with_default(tracing_subscriber::registry().with(crate::layer(tracer)), test);
    }

    fn header(metadata: &MetadataMap, name: &str) -> String {
        let value = metadata
            .get(name)
            .map(|value| value.to_str().expect("ASCII").to_owned());
        value.unwrap_or_default()
    }

    #[test]
    fn a_callee_is_told_the_span_of_its_caller() {
        exported(|| {
            let span = tracing::info_span!(target: TRACED, "call");
            let mut metadata = MetadataMap::new();
            send(&span, &mut metadata);
            let told = Parent::of(&metadata).expect("it is of the form");
            assert_eq!(Some(told.trace_id()), trace_of(&span));
            assert_eq!(told.flags, 1, "it is recorded");
            assert!(!metadata.contains_key(TRACESTATE), "nobody added to it");
        });
    }

    #[test]
    fn a_child_of_another_process_passes_on_its_trace_and_its_state() {
        exported(|| {
            let mut came = MetadataMap::new();
            came.insert(TRACEPARENT, MetadataValue::from_static(GIVEN));
            came.insert(TRACESTATE, MetadataValue::from_static("vendor=1"));
            let parent = Parent::of(&came).expect("it is of the form");
            let span = tracing::info_span!(target: TRACED, "call");
            adopt(&span, &parent);
            let mut goes = MetadataMap::new();
            send(&span, &mut goes);
            let told = Parent::of(&goes).expect("it is of the form");
            assert_eq!(told.trace_id(), parent.trace_id());
            assert_ne!(told.span, parent.span, "it is a span of its own");
            assert_eq!(header(&goes, TRACESTATE), "vendor=1");
        });
    }

    #[test]
    fn a_context_that_is_there_is_left_alone() {
        exported(|| {
            let span = tracing::info_span!(target: TRACED, "call");
            let mut metadata = MetadataMap::new();
            metadata.insert(TRACEPARENT, MetadataValue::from_static(GIVEN));
            send(&span, &mut metadata);
            assert_eq!(header(&metadata, TRACEPARENT), GIVEN);
        });
    }

    #[test]
    fn nobody_is_told_of_a_span_that_is_not_exported() {
        let silent = |span: &Span| {
            let mut metadata = MetadataMap::new();
            send(span, &mut metadata);
            metadata.is_empty() && trace_of(span).is_none()
        };
        let log = tracing_subscriber::registry().with(tracing_subscriber::fmt::layer().with_writer(std::io::sink));
        with_default(log, || {
            assert!(silent(&tracing::info_span!(target: TRACED, "call")), "no collector");
        });
        exported(|| assert!(silent(&tracing::info_span!("of the log")), "of another target"));
        assert!(silent(&Span::none()));
    }

    /// The log of a manager: the filter is that of `--log-level`.
    #[test]
    fn where_no_collector_is_given_a_call_allocates_nothing_for_its_trace() {
        let filter = tracing_subscriber::EnvFilter::new(format!("trace,{}", crate::NOT_LOGGED));
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::sink)
            .with_filter(filter);
        with_default(tracing_subscriber::registry().with(lines), || {
            let mut metadata = MetadataMap::new();
            let mut call = || {
                let name = "m-1";
                let span = tracing::info_span!(target: TRACED, "call", machine = name, uid = %format_args!("u-{name}"));
                send(&span, &mut metadata);
                let task = beneath(async { trace_of(&span) });
                assert_eq!(task.now_or_never(), Some(None));
            };
            // What is made once a thread and once a call site.
            call();
            assert_eq!(allocation_counter::measure(call).count_total, 0);
        });
    }

    #[test]
    fn a_task_is_seen_below_the_span_in_which_it_began() {
        exported(|| {
            let pass = tracing::info_span!(target: TRACED, "pass");
            let task = pass.in_scope(|| beneath(async { trace_of(&tracing::info_span!(target: TRACED, "call")) }));
            let trace = trace_of(&pass);
            drop(pass);
            let seen = task.now_or_never().flatten();
            assert_eq!(seen, trace);
            assert!(seen.is_some());
        });
    }
}
