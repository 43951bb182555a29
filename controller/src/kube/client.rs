//! The clients of the control and the target cluster, and what every request passes on its way out.
//!
//! In this order: places and budget, the fence, the time limit, the count. Decides no retries: kube's own are off,
//! because a POST that is silently sent twice and an eviction that is silently repeated are worse than an error.
//! Who asked decides what a failure means.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::{Client, Config};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::kube::access::{Access, AccessError, prepared};
use crate::kube::budget::Budget;
use crate::kube::call::{Answer, Call, TIME_LIMIT};
use crate::kube::credentials::Credentials;
use crate::kube::error::NotCarried;
use crate::kube::leadership::LeadershipReader;
use crate::kube::outage::{Outage, OutageEnds};
use crate::kube::retry_after::RetryAfter;
use crate::telemetry::Metrics;

/// How many requests are under way at once, watches and the lease apart. Each needs a connection of its own (HTTP/1.1),
/// and a server with two cores was busy with 32.
const PLACES: usize = 32;

/// Which of the two clusters; a label of metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Has our kinds, Secrets and the lease.
    Control,
    /// Has the nodes.
    Target,
}

impl Role {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Target => "target",
        }
    }
}

/// What decides about requests of one cluster.
#[derive(Debug)]
pub struct Policy {
    /// Which cluster.
    pub role: Role,
    /// Who may write; nobody is asked where absent.
    pub leadership: Option<LeadershipReader>,
    /// How fast; no limit where absent.
    pub budget: Option<Budget>,
    /// Where requests are counted.
    pub metrics: Metrics,
}

/// More requests than this under way at once are load: what has time waits.
const BUSY: usize = 8;

/// How much is under way to one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Load(Arc<Semaphore>);

impl Default for Load {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

impl Load {
    /// Whether what has time should wait.
    pub fn is_high(&self) -> bool {
        PLACES.saturating_sub(self.0.available_permits()) > BUSY
    }

    /// Takes a place until the guard is dropped.
    pub async fn enter(&self) -> SemaphorePermit<'_> {
        self.0.acquire().await.expect("the semaphore is never closed")
    }
}

/// One cluster that can be spoken to. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// Which.
    pub role: Role,
    /// Its client, with everything above built in.
    pub client: Client,
    /// The same for Leases. It shares no connection with the other and keeps none: one that was kept may be dead without anybody
    /// knowing, and the lead would be lost before that shows.
    pub lease: Client,
    /// Where its numbers go.
    pub metrics: Metrics,
    /// How much is under way to it.
    pub load: Load,
    /// When it answers again after an outage.
    pub outages: OutageEnds,
}

impl Cluster {
    /// Builds the client. Nothing is sent yet: a server that is down is no error here.
    pub async fn open(access: &Access, policy: Policy) -> Result<Self, AccessError> {
        let credentials = Credentials::read(access).await?;
        let (mut cluster, gate) = Self::gated(credentials.service()?, policy);
        cluster.lease = credentials.service()?.with_layer(&gate).build();
        Ok(cluster)
    }

    /// Builds the client of a configuration that was read elsewhere.
    pub fn configured(config: Config, policy: Policy) -> Result<Self, kube::Error> {
        Ok(Self::over(ClientBuilder::try_from(prepared(config))?, policy))
    }

    /// Puts the policy around any service; tests bring their own.
    pub fn over<S>(builder: ClientBuilder<S>, policy: Policy) -> Self
    where
        S: Service<Request<Body>, Response = Answer, Error = BoxError> + Send + 'static,
        S::Future: Send + 'static,
    {
        Self::gated(builder, policy).0
    }

    fn gated<S>(builder: ClientBuilder<S>, policy: Policy) -> (Self, GateLayer)
    where
        S: Service<Request<Body>, Response = Answer, Error = BoxError> + Send + 'static,
        S::Future: Send + 'static,
    {
        let (role, metrics, load) = (policy.role, policy.metrics.clone(), Load::default());
        let outage = Outage::new();
        let outages = outage.ends();
        let gate = GateLayer(Arc::new(Rules {
            policy,
            load: load.clone(),
            retry_after: RetryAfter::default(),
            outage,
        }));
        let client = builder.with_layer(&gate).build();
        let cluster = Self {
            role,
            lease: client.clone(),
            client,
            metrics,
            load,
            outages,
        };
        (cluster, gate)
    }
}

struct Rules {
    policy: Policy,
    load: Load,
    retry_after: RetryAfter,
    outage: Outage,
}

impl Rules {
    /// Waits for a place, the budget, and a server that asked to be left alone. The lease must not wait. Watches stay open for minutes and
    /// take no place; nor do events: `events.rs` sends them one at a time and at a rate of its own, and machines must not wait for them.
    async fn admit(&self, call: &Call) -> Option<SemaphorePermit<'_>> {
        if call.is_lease() {
            return None;
        }
        let place = if call.is_watch() || call.is_event() {
            None
        } else {
            if let Some(budget) = &self.policy.budget {
                budget.take().await;
            }
            Some(self.load.enter().await)
        };
        self.retry_after.passed().await;
        place
    }

    /// Asked after all waiting, since leadership may end meanwhile. Followers may fight for the lease.
    fn fence(&self, call: &Call) -> Result<(), NotCarried> {
        let Some(leadership) = &self.policy.leadership else {
            return Ok(());
        };
        if !call.is_write() || call.is_lease() {
            return Ok(());
        }
        if leadership.borrow().may_act(Instant::now()) {
            Ok(())
        } else {
            Err(NotCarried::Fenced)
        }
    }

    fn note(&self, call: &Call, answer: &Result<Answer, BoxError>, took: Duration) {
        // A PodDisruptionBudget's refusal is a 429 too, and speaks of one pod.
        if let Ok(response) = answer
            && !call.is_eviction()
        {
            self.retry_after.note(response);
            self.outage.note(Some(response.status()));
        }
        let code = match answer {
            Ok(response) => response.status().as_u16().to_string(),
            Err(error) => match error.downcast_ref::<NotCarried>() {
                // Nobody was asked.
                Some(NotCarried::Fenced) => "fenced".to_owned(),
                Some(NotCarried::TimedOut) => {
                    self.outage.note(None);
                    "timeout".to_owned()
                }
                None => {
                    self.outage.note(None);
                    "error".to_owned()
                }
            },
        };
        self.policy
            .metrics
            .api_request(self.policy.role.word(), call.verb, &call.resource, code, took);
    }
}

/// Takes one request through the rules. `answer` is not polled, so nothing is sent, before the fence has said yes.
async fn carry<F>(rules: Arc<Rules>, call: Call, answer: F) -> Result<Answer, BoxError>
where
    F: Future<Output = Result<Answer, BoxError>>,
{
    let _place = rules.admit(&call).await;
    let started = Instant::now();
    let result = match rules.fence(&call) {
        Ok(()) => bounded(&call, answer).await,
        Err(fenced) => Err(fenced.into()),
    };
    rules.note(&call, &result, started.elapsed());
    result
}

/// The time limit holds for the whole answer, except for watches, where it holds for the beginning of it.
async fn bounded<F>(call: &Call, answer: F) -> Result<Answer, BoxError>
where
    F: Future<Output = Result<Answer, BoxError>>,
{
    let whole = async {
        let response = answer.await?;
        if call.is_watch() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let collected: Box<DynBody> = Box::new(Full::new(bytes).map_err(|never| match never {}));
        Ok(Response::from_parts(head, collected))
    };
    tokio::time::timeout(TIME_LIMIT, whole)
        .await
        .unwrap_or_else(|_| Err(NotCarried::TimedOut.into()))
}

struct GateLayer(Arc<Rules>);

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate {
            inner,
            rules: self.0.clone(),
        }
    }
}

/// The service that asks the rules.
struct Gate<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let call = Call::of(request.method(), request.uri());
        if call.is_lease() {
            request
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let answer = self.inner.call(request);
        Box::pin(carry(self.rules.clone(), call, answer))
    }
}

#[cfg(test)]
mod tests;
