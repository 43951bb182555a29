//! For tests: what workers share, over an API server and a driver that do what a test says.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::{Body, Client, ClientBuilder, DynBody};
use millwright_core::ids::DriverName;
use millwright_core::settings::Settings;
use millwright_laws::LAWS;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use super::shared::{Parts, Shared};
use crate::driver::{
    CallObserver, CallRecord, Deadlines, Endpoint, Endpoints, Lead, Lifeline, ManagerIdentity, Pauses, Pool,
    PoolSettings, SecretStore, Wire,
};
use crate::env::{Env, Outside, Planners, System};
use crate::kube::client::{Cluster, Load, Policy, Role};
use crate::kube::events;
use crate::kube::write::Writer;
use crate::telemetry::Metrics;

/// The code and the body of an answer.
pub(super) type Answer = (u16, Value);

/// A manager without processes around it, whose driver answers as a test says.
pub(super) struct Scripted {
    pub(super) shared: Arc<Shared>,
    heard: Heard,
    _upkeep: JoinSet<()>,
}

/// Method and path of every request, in order.
type Heard = Arc<Mutex<Vec<String>>>;

struct Nobody;

impl CallObserver for Nobody {
    fn called(&self, _: CallRecord<'_>) {}
    fn held_up(&self, _: &DriverName, _: crate::driver::Method, _: std::time::Duration) {}
}

impl Scripted {
    /// No driver, and the planners of core.
    pub(super) fn new(answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static) -> Self {
        Self::with(answer, Planners::default(), None)
    }

    pub(super) fn with(
        answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static,
        planners: Planners,
        driver: Option<Wire>,
    ) -> Self {
        Self::within(answer, planners, driver, Arc::new(System))
    }

    pub(super) fn within(
        answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static,
        planners: Planners,
        driver: Option<Wire>,
        outside: Arc<dyn Outside>,
    ) -> Self {
        let planners = Planners {
            laws: Some(LAWS),
            ..planners
        };
        let heard = Heard::default();
        let client = client(answer, Arc::clone(&heard));
        let (env, metrics) = (Env::within(outside, planners), Metrics::default());
        let (publisher, _) = events::channel(client.clone(), Load::default(), metrics.clone(), "test", env.clone());
        let lead = Arc::new(Lead::alone());
        let (drivers, upkeep) = pool(driver, &lead);
        let mut tasks = JoinSet::new();
        tasks.spawn(upkeep);
        let shared = Shared::new(Parts {
            env,
            write: Writer::new(client.clone(), Some(client.clone()), "default"),
            drivers,
            secrets: SecretStore::new(client),
            events: publisher,
            settings: Settings::new("test"),
            token_groups: String::new(),
            metrics,
            lead,
            control_views: Vec::new(),
            target_view: None,
            target: None,
            stop: CancellationToken::new(),
        });
        Self {
            shared,
            heard,
            _upkeep: tasks,
        }
    }

    /// The requests with these words in their line.
    pub(super) fn heard(&self, words: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|line| line.contains(words)).cloned().collect()
    }
}

fn client(answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static, heard: Heard) -> Client {
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Body>| {
        let (answer, heard) = (Arc::clone(&answer), Arc::clone(&heard));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = head.uri.path();
            heard.lock().unwrap().push(format!("{} {path}", head.method));
            let (code, value) = answer(&head.method, path, &body);
            let body: Box<DynBody> = Box::new(Full::from(value.to_string()).map_err(|never| match never {}));
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    let policy = Policy {
        role: Role::Control,
        leadership: None,
        budget: None,
        metrics: Metrics::default(),
    };
    Cluster::over(ClientBuilder::new(service, "default"), policy).client
}

fn pool(driver: Option<Wire>, lead: &Arc<Lead>) -> (Pool, impl Future<Output = ()> + Send + 'static) {
    let endpoint: Endpoint = "unix:///run/test.sock".parse().unwrap();
    let endpoints = driver.iter().map(|_| endpoint.clone());
    Pool::new(PoolSettings {
        endpoints: Endpoints::listed(endpoints),
        manager: ManagerIdentity {
            name: "millwright".to_owned(),
            version: "test".to_owned(),
        },
        deadlines: Deadlines::new(),
        pauses: Pauses::default(),
        connect: Arc::new(move |_: &Endpoint, _: &Arc<Lifeline>| {
            driver.clone().expect("only a driver that is there is connected to")
        }),
        lead: Arc::clone(lead),
        observer: Arc::new(Nobody),
        on_change: Arc::new(|_: &DriverName| {}),
    })
}

/// A refusal of the API server.
pub(super) fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
    (code, status)
}
