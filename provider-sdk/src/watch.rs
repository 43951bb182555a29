//! The stream of WatchMachines: the author's events, heartbeats between them, and an end when the process stops.
//!
//! Nothing is buffered here: the author's stream is polled when the transport has room.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, stream};
use millwright_proto::v1;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tracing::Instrument as _;

use crate::call::Observation;
use crate::error::DriverError;
use crate::translate;
use crate::types::{Change, WatchEvent, WatchStream};

/// What to stream.
pub(crate) struct Source {
    pub(crate) cluster_id: String,
    pub(crate) events: WatchStream,
    pub(crate) heartbeat: Duration,
}

struct Watch {
    cluster_id: String,
    events: WatchStream,
    heartbeat: Interval,
    /// Repeated in heartbeats, so that a manager that missed nothing resumes there.
    resume_token: String,
    stopping: CancellationToken,
    seen: Observation,
}

/// The stream for the wire. It ends with OK when the process stops: the manager comes back to the next one.
pub(crate) fn stream(
    source: Source,
    stopping: CancellationToken,
    seen: Observation,
) -> BoxStream<v1::WatchMachinesResponse> {
    let mut heartbeat = tokio::time::interval_at(Instant::now() + source.heartbeat, source.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let Source { cluster_id, events, .. } = source;
    let watch = Watch {
        cluster_id,
        events,
        heartbeat,
        resume_token: String::new(),
        stopping,
        seen,
    };
    let span = tracing::Span::current();
    let messages = stream::unfold(Some(watch), move |watch| {
        let span = span.clone();
        async move {
            let mut watch = watch?;
            match watch.next().await {
                None => {
                    watch.seen.succeeded();
                    None
                }
                Some(Ok(message)) => Some((Ok(message), Some(watch))),
                Some(Err(error)) => Some((Err(watch.seen.failed(&error)), None)),
            }
        }
        .instrument(span)
    });
    Box::pin(messages)
}

impl Watch {
    async fn next(&mut self) -> Option<Result<v1::WatchMachinesResponse, DriverError>> {
        loop {
            let event = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return None,
                event = AssertUnwindSafe(self.events.next()).catch_unwind() => event,
                _ = self.heartbeat.tick() => return Some(Ok(self.sign_of_life())),
            };
            let Ok(event) = event else {
                return Some(Err(DriverError::fault("the driver panicked; its log says where")));
            };
            match event? {
                Ok(event) if self.is_foreign(&event) => {
                    tracing::error!(
                        cluster_id = self.cluster_id,
                        "the driver told of a VM of another cluster; left out"
                    );
                }
                Ok(event) => {
                    self.heartbeat.reset();
                    self.resume_token.clone_from(&event.resume_token);
                    return Some(translate::watch_event(event));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn is_foreign(&self, event: &WatchEvent) -> bool {
        match &event.change {
            Change::Upsert(machine) | Change::Deleted(machine) => machine.key.cluster_id != self.cluster_id,
            Change::Synced => false,
        }
    }

    fn sign_of_life(&self) -> v1::WatchMachinesResponse {
        v1::WatchMachinesResponse {
            r#type: v1::watch_machines_response::Type::Heartbeat.into(),
            machine: None,
            resume_token: self.resume_token.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use v1::watch_machines_response::Type;

    use super::*;
    use crate::call::{Asked, Call};
    use crate::metrics::Metrics;
    use crate::types::{Machine, MachineKey, MachineState};

    fn watch(events: WatchStream, stopping: CancellationToken) -> BoxStream<v1::WatchMachinesResponse> {
        let seen = Observation::new(
            Call::WatchMachines,
            &Call::WatchMachines.spans(&Asked::default()),
            Metrics::new(),
            None,
        );
        stream(
            Source {
                cluster_id: "c".into(),
                events,
                heartbeat: Duration::from_secs(5),
            },
            stopping,
            seen,
        )
    }

    fn event(cluster_id: &str, resume_token: &str) -> Result<WatchEvent, DriverError> {
        let key = MachineKey {
            cluster_id: cluster_id.into(),
            ..Default::default()
        };
        let machine = Box::new(Machine::new(key, "p:///1", MachineState::Stopped));
        Ok(WatchEvent {
            change: Change::Upsert(machine),
            resume_token: resume_token.into(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_driver_is_heard_by_its_heartbeats_until_the_process_stops() {
        let stopping = CancellationToken::new();
        let events = stream::iter([event("c", "7")]).chain(stream::pending()).boxed();
        let mut watch = watch(events, stopping.clone());
        assert_eq!(watch.next().await.unwrap().unwrap().r#type(), Type::Upsert);
        let started = Instant::now();
        for _ in 0..2 {
            let message = watch.next().await.unwrap().unwrap();
            assert_eq!(
                (message.r#type(), message.resume_token.as_str()),
                (Type::Heartbeat, "7")
            );
        }
        assert_eq!(started.elapsed().as_secs(), 10);
        stopping.cancel();
        assert!(watch.next().await.is_none());
    }

    #[tokio::test]
    async fn vms_of_another_cluster_are_left_out() {
        let events = stream::iter([event("foreign", "1"), event("c", "2")]).boxed();
        let seen: Vec<_> = watch(events, CancellationToken::new()).collect().await;
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].as_ref().unwrap().resume_token, "2");
    }

    #[tokio::test]
    async fn a_panicking_stream_ends_with_a_driver_fault() {
        let events =
            stream::poll_fn(|_| -> std::task::Poll<Option<Result<WatchEvent, DriverError>>> { panic!("boom") });
        let seen: Vec<_> = watch(events.boxed(), CancellationToken::new()).collect().await;
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].as_ref().unwrap_err().code(), tonic::Code::Internal);
    }
}
