//! The way from a manager's kube client to the API: delays, losses, refusals, and watches that lag.
//!
//! A request that has left its manager is carried by a task of the world's: it arrives whatever becomes of the manager. What
//! the API says is the sandbox's affair.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::unfold;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::{Body, DynBody};
use millwright_sandbox::api::Answer;
use millwright_sandbox::reply::{Reply, Style, head, lines};
use millwright_sandbox::request::{Http, Request, Verb};
use millwright_sandbox::watch::{Started, Watch};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Service};

use crate::bell::Ear;
use crate::event::{Actor, What};
use crate::gate::Gate;
use crate::strike::{self, Blow};
use crate::world::World;

/// Milliseconds of a way to the API or back.
const WAYS: [u64; 6] = [1, 0, 2, 3, 6, 15];
/// Milliseconds that watches lag behind.
const LAGS: [u64; 5] = [1, 0, 4, 15, 60];
/// Seconds of what is slow.
const SLOW: [u64; 4] = [2, 8, 20, 29];
/// Seconds after which a late request arrives.
const LATE: [u64; 6] = [1, 5, 35, 70, 150, 290];
/// How long a watch lasts whose caller leaves that to the server.
const LASTS: Duration = Duration::from_mins(30);

type Response = http::Response<Box<DynBody>>;

/// The service under one manager's client.
#[derive(Clone)]
pub struct Door {
    world: Arc<World>,
    gate: Arc<Gate>,
}

impl Door {
    /// A door for the manager behind this gate.
    pub fn new(world: Arc<World>, gate: Arc<Gate>) -> Self {
        Self { world, gate }
    }
}

impl Service<http::Request<Body>> for Door {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let door = self.clone();
        Box::pin(async move {
            let gate = Arc::clone(&door.gate);
            gate.pass(door.carry(request)).await
        })
    }
}

impl Door {
    async fn carry(self, request: http::Request<Body>) -> Result<Response, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let http = Http {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            content_type: text(http::header::CONTENT_TYPE),
            accept: text(http::header::ACCEPT),
            agent: "millwright",
            user: "millwright",
            body: &body,
        };
        let sent = self.world.time.passed();
        let mut request = match Request::parse(&http) {
            Ok(request) => request,
            Err(failure) => return Ok(whole(failure.into())),
        };
        self.world.look(|truth| (self.world.hooks.request)(&mut request, truth));
        let is_read = matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
        let kinds: &[_] = if is_read { &strike::OF_READS } else { &strike::OF_WRITES };
        let about = format!("{:?} {} {}", request.verb, request.target.resource, request.target.name);
        let blow = self.world.blow(&about, kinds);
        if blow == Some(Blow::DieBefore) {
            self.gate.die().await;
        }
        if self.world.is_away() {
            self.world.delay("way", &WAYS).await;
            return Err("connection refused".into());
        }
        match blow {
            Some(Blow::Refuse(code)) => {
                self.world.delay("way", &WAYS).await;
                let pause = self.world.choose("retry-after", 2) == 1;
                return Ok(whole(refusal(code, pause)));
            }
            Some(Blow::Hang) => return std::future::pending().await,
            _ => {}
        }
        let answer = self.send(request, sent, blow);
        if blow == Some(Blow::DieDuring) {
            self.gate.die().await;
        }
        let answer = match blow {
            Some(Blow::LoseAnswer) => {
                answer.await.ok();
                return Err("connection reset by peer".into());
            }
            Some(Blow::Late) => return Err("connection reset by peer".into()),
            Some(Blow::Silence) => return std::future::pending().await,
            _ => answer.await,
        };
        if blow == Some(Blow::DieAfter) {
            self.gate.die().await;
        }
        match answer {
            Ok(Answer::Watch(started)) => Ok(self.stream(*started)),
            Ok(answer) => Ok(whole(answer)),
            Err(_) => Err("connection reset by peer".into()),
        }
    }

    /// Sends a request on its way; it does not come back from there.
    fn send(&self, request: Request, sent: Duration, blow: Option<Blow>) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        let (world, actor) = (Arc::clone(&self.world), Actor::Manager(self.gate.incarnation));
        // Drawn here, so that the order of the tape is that of the requests.
        let (there, back) = (world.pick("way", &WAYS), world.pick("way", &WAYS));
        let extra = match blow {
            Some(Blow::Late) => world.pick("late", &LATE),
            Some(Blow::Slow) => world.pick("slow", &SLOW),
            _ => 0,
        };
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(extra) + Duration::from_millis(there)).await;
            let answer = match lost_place(&world, &request) {
                Some(answer) => answer,
                None => world.ask(actor, &request, sent),
            };
            if back > 0 {
                tokio::time::sleep(Duration::from_millis(back)).await;
            }
            // Nobody hears it if the manager died or gave up.
            reply.send(answer).ok();
        });
        answer
    }

    fn stream(&self, started: Started) -> Response {
        let world = &self.world;
        let lasts = started.watch.ends.map_or(LASTS, |ends| {
            Duration::try_from(ends.duration_since(world.time.wall())).unwrap_or_default()
        });
        let flow = Flow {
            bell: world.bell(),
            storms: world.storms(),
            world: Arc::clone(world),
            gate: Arc::clone(&self.gate),
            watch: started.watch,
            at: started.at,
            ready: started.first,
            ends: Instant::now() + lasts,
            is_new: true,
            is_over: false,
        };
        let frames = unfold(flow, |mut flow| async move {
            let next = flow.next().await?;
            Some((next.map(Frame::data), flow))
        });
        let body: Box<DynBody> = Box::new(StreamBody::new(
            Box::pin(frames) as Pin<Box<dyn futures::Stream<Item = _> + Send>>
        ));
        let mut response = http::Response::new(body);
        dress(&mut response, head("application/json"));
        response
    }
}

/// A watch whose place in history is lost when it begins.
fn lost_place(world: &World, request: &Request) -> Option<Answer> {
    let is_resumed = request.verb == Verb::Watch && !matches!(request.query.first("resourceVersion"), "" | "0");
    if !is_resumed || !world.strikes("F20") {
        return None;
    }
    let about = format!("watch of {} is refused", request.target.resource);
    world.tell(What::Fault { name: "F20", about });
    Some(Answer::Object {
        code: 410,
        body: expired(),
        warnings: Vec::new(),
    })
}

fn expired() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    })
}

fn refusal(code: u16, pause: bool) -> Answer {
    let (reason, message) = match code {
        403 => ("Forbidden", "machines is forbidden"),
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        429 => ("TooManyRequests", "the server has received too many requests"),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted",
        ),
        _ => ("InternalError", "etcdserver: leader changed"),
    };
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if code == 429
        && pause
        && let Some(fields) = body.as_object_mut()
    {
        fields.insert("details".to_owned(), json!({ "retryAfterSeconds": 1 }));
    }
    Answer::Object {
        code,
        body,
        warnings: Vec::new(),
    }
}

/// An answer in one piece.
fn whole(answer: Answer) -> Response {
    let Reply { code, headers, body } = Reply::of(answer, Style::Compact);
    let body: Box<DynBody> = Box::new(Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {}));
    let mut response = http::Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    dress(&mut response, headers);
    response
}

fn dress(response: &mut Response, headers: Vec<(&'static str, String)>) {
    for (name, value) in headers {
        if let Ok(value) = http::HeaderValue::from_str(&value) {
            response
                .headers_mut()
                .append(http::HeaderName::from_static(name), value);
        }
    }
}

/// One watch as it is sent.
struct Flow {
    world: Arc<World>,
    gate: Arc<Gate>,
    bell: Ear,
    storms: Ear,
    watch: Watch,
    at: u64,
    ready: Vec<Value>,
    ends: Instant,
    /// What happened while the answer was on its way back rang for nobody.
    is_new: bool,
    is_over: bool,
}

enum Woken {
    Changed,
    TimeIsUp,
    Broken,
    Dead,
}

impl Flow {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if !self.ready.is_empty() {
                return Some(Ok(lines(&std::mem::take(&mut self.ready)).into()));
            }
            if self.is_over {
                return None;
            }
            match self.wait().await {
                Woken::Changed => self.catch_up().await,
                Woken::TimeIsUp => {
                    self.look(true);
                    self.is_over = true;
                }
                Woken::Broken => {
                    self.is_over = true;
                    return Some(Err("connection reset by peer".into()));
                }
                Woken::Dead => return std::future::pending().await,
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        if std::mem::take(&mut self.is_new) {
            return Woken::Changed;
        }
        tokio::select! {
            biased;
            () = self.gate.closed() => Woken::Dead,
            () = self.storms.rung() => Woken::Broken,
            () = sleep_until(self.ends) => Woken::TimeIsUp,
            () = self.bell.rung() => Woken::Changed,
        }
    }

    /// Waits as long as this watch lags, then looks. Changes of other kinds cost no choice.
    async fn catch_up(&mut self) {
        let is_mine = {
            let state = self.world.enter();
            state.api.changes_of(&self.watch.kind.place(), self.at).next().is_some()
        };
        if !is_mine {
            return;
        }
        let about = || self.watch.kind.plural.clone();
        if self.world.strikes("F20") {
            self.world.tell(What::Fault {
                name: "F20",
                about: format!("watch of {} ends by 410", about()),
            });
            if self.world.hooks.skips_gaps {
                self.at = self.world.look(|truth| truth.api.version());
                return;
            }
            self.ready.push(json!({ "type": "ERROR", "object": expired() }));
            self.is_over = true;
            return;
        }
        let pause = if self.world.strikes("F21") {
            self.world.tell(What::Fault {
                name: "F21",
                about: format!("watch of {} goes silent", about()),
            });
            self.ends.saturating_duration_since(Instant::now())
        } else if self.world.strikes("F18") {
            let seconds = self.world.pick("lag-seconds", &[1, 3, 10, 30, 55]);
            self.world.tell(What::Fault {
                name: "F18",
                about: format!("watch of {} lags {seconds} s behind", about()),
            });
            Duration::from_secs(seconds)
        } else {
            Duration::from_millis(self.world.pick("lag", &LAGS))
        };
        let until = (Instant::now() + pause).min(self.ends);
        tokio::select! {
            biased;
            () = self.gate.closed() => {}
            () = sleep_until(until) => {}
        }
        self.look(false);
    }

    fn look(&mut self, is_last: bool) {
        let state = self.world.enter();
        let batch = state.api.events(&self.watch, self.at);
        self.at = batch.upto;
        self.is_over |= batch.closed;
        let mut events = batch.events;
        (self.world.hooks.watched)(&self.watch.kind.plural, &mut events);
        self.ready.extend(events);
        if is_last && !batch.closed {
            self.ready.extend(state.api.bookmark(&self.watch));
        }
    }
}
