//! The stream of WatchMachines: opened, read message by message, and given up when it is silent.
//!
//! Chooses nothing: what a notice means is core's, when to open it again is `work::notices`'. A driver that stays silent for longer than
//! its heartbeats allow is not waited for: behind a connection that broke without a word it would be waited for without end.

use std::sync::Arc;
use std::time::Duration;

use millwright_core::driver::{Code, Failure};
use millwright_proto::v1;
use tokio::time::Instant;
use tonic::{Request, Streaming};

use super::answer::{self, Told};
use super::bounds;
use super::call::{self, Driver};
use super::lanes::Method;
use super::secrets::SecretData;
use super::status::broken_answer;
use super::target::Scope;

/// How often a driver gives a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// How long a stream may be silent: three signs of life are missing.
const SILENT: Duration = Duration::from_secs(90);

/// An open stream.
pub struct Notices {
    cluster_id: String,
    secrets: Arc<SecretData>,
    stream: Streaming<v1::WatchMachinesResponse>,
    resume_token: String,
}

impl Driver {
    /// Begins to watch all VMs that a class reaches; from the start, or from where `resume_token` was told.
    pub async fn watch_machines(&self, scope: &Scope, resume_token: &str) -> Result<Notices, Failure> {
        // Without a deadline of its own: servers end the whole stream at it.
        let request = Request::new(v1::WatchMachinesRequest {
            cluster_id: scope.cluster_id.clone(),
            machine_class: Some(scope.class.to_wire()),
            secret_data: scope.secrets.to_wire(),
            resume_token: resume_token.to_owned(),
            heartbeat_interval: prost_types::Duration::try_from(HEARTBEAT).ok(),
        });
        let (begun, mut client) = (Instant::now(), call::client(self.wire.clone()));
        // Some servers answer with the first message only.
        let opened = match tokio::time::timeout(SILENT, client.watch_machines(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(scope.secrets.failure(&status)),
            Err(_) => Err(silent()),
        };
        self.record(Method::WatchMachines, opened.as_ref().err(), begun.elapsed());
        Ok(Notices {
            cluster_id: scope.cluster_id.clone(),
            secrets: Arc::clone(&scope.secrets),
            stream: opened?,
            resume_token: resume_token.to_owned(),
        })
    }
}

impl Notices {
    /// The next thing told. `None`: the driver has ended the stream in order, as it does when its process stops.
    pub async fn next(&mut self) -> Result<Option<Told>, Failure> {
        let message = match tokio::time::timeout(SILENT, self.stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(status)) => return Err(self.secrets.failure(&status)),
            Err(_) => return Err(silent()),
        };
        // A sign of life need not carry one: the last that was seen counts.
        if !message.resume_token.is_empty() {
            let token = bounds::token(message.resume_token.clone());
            self.resume_token = token.map_err(|why| broken_answer(format!("the driver's watch goes on by {why}")))?;
        }
        answer::told(&self.cluster_id, &self.secrets, message).map(Some)
    }

    /// From where the stream can be resumed. Empty: from the start.
    pub fn resume_token(&self) -> &str {
        &self.resume_token
    }
}

fn silent() -> Failure {
    Failure::transport(
        Code::DeadlineExceeded,
        format!("the driver gave no sign of life for {} s", SILENT.as_secs()),
    )
}
