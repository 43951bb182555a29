//! The way from a manager's kube client to the API: delays, losses, refusals, and watches that lag.
//!
//! A request that has left its manager is carried by a task of the world's: it arrives whatever becomes of the manager. What
//! the API says is the sandbox's affair.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::unfold;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::{Body, DynBody};
use millwright_sandbox::api::Answer;
use millwright_sandbox::failure::Failure;
use millwright_sandbox::list::page_expired;
use millwright_sandbox::reply::{Reply, Style, head};
use millwright_sandbox::request::{Http, Query, Request, Verb};
use millwright_sandbox::watch::Started;
use serde_json::json;
use tokio::sync::oneshot;
use tower::{BoxError, Service};

use crate::call_fault::{self, CallFault};
use crate::event::{Actor, What};
use crate::flow::{Flow, expired};
use crate::process::{Cut, Process};
use crate::world::World;

/// Milliseconds of a way to the API or back.
const WAYS: [u64; 6] = [1, 0, 2, 3, 6, 15];
/// Milliseconds between two pages of a list.
const PAGES: [u64; 4] = [20, 1000, 6000, 20_000];
/// Seconds of what is slow.
const SLOW: [u64; 4] = [2, 8, 20, 29];
/// Seconds after which a late request arrives.
const LATE: [u64; 6] = [1, 5, 35, 70, 150, 290];
/// The same for what is very late: beyond the five minutes after which the manager takes a request for lost.
const VERY_LATE: [u64; 3] = [330, 420, 600];
/// When the last request has arrived that was sent before some moment: the latest of these, and its way.
pub const LATEST: Duration = Duration::from_secs(610);

type Response = http::Response<Box<DynBody>>;

/// The service under one manager's client.
#[derive(Clone)]
pub struct Transport {
    world: Arc<World>,
    process: Arc<Process>,
    /// Whether it leads to the cluster of the Nodes and tokens. It is the same API, on a way of its own.
    is_target: bool,
    /// The lists that come in pages, by resource.
    lists: Arc<Mutex<BTreeMap<String, Paging>>>,
}

/// How a list comes.
#[derive(Clone, Copy)]
struct Paging {
    size: u32,
    is_lost: bool,
}

impl Transport {
    /// A transport to the control cluster for the manager behind this process.
    pub fn new(world: Arc<World>, process: Arc<Process>) -> Self {
        Self {
            world,
            process,
            is_target: false,
            lists: Arc::default(),
        }
    }

    /// A transport to the target cluster.
    pub fn to_target(world: Arc<World>, process: Arc<Process>) -> Self {
        Self {
            is_target: true,
            ..Self::new(world, process)
        }
    }
}

impl Service<http::Request<Body>> for Transport {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move {
            let process = Arc::clone(&transport.process);
            process.pass(transport.carry(request)).await
        })
    }
}

impl Transport {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<String, Paging>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry(self, request: http::Request<Body>) -> Result<Response, BoxError> {
        if self.process.frozen_until().is_some() {
            self.process.thawed().await;
            return Err("a process that stands still asks nothing".into());
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let sent = self.world.time.passed();
        let mut request = match parse(&parts, &body) {
            Ok(request) => request,
            Err(failure) => return Ok(whole(failure.into())),
        };
        self.world.look(|truth| (self.world.hooks.request)(&mut request, truth));
        let kinds: &[_] = match request.verb {
            // What no method stands for is only refused.
            Verb::Get | Verb::Other => &call_fault::OF_READS,
            Verb::List => &call_fault::OF_LISTS,
            Verb::Watch => &call_fault::OF_WATCHES,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => &call_fault::OF_WRITES,
        };
        let about = format!("{:?} {} {}", request.verb, request.target.resource, request.target.name);
        let call_fault = self.world.call_fault(&about, kinds);
        if let Some(answer) = self.stopped(call_fault).await? {
            return Ok(whole(answer));
        }
        if request.verb == Verb::List
            && let Some(failure) = self.turn_page(&mut request, parts.uri.query(), call_fault).await
        {
            return Ok(whole(failure.into()));
        }
        let answer = self.send(request, sent, call_fault);
        if call_fault == Some(CallFault::DieDuring) {
            self.process.die().await;
        }
        let answer = match call_fault {
            Some(CallFault::LoseAnswer) => {
                answer.await.ok();
                return Err("connection reset by peer".into());
            }
            Some(CallFault::Late | CallFault::VeryLate) => return Err("connection reset by peer".into()),
            Some(CallFault::Silence) => return std::future::pending().await,
            _ => answer.await,
        };
        self.reach().await?;
        if call_fault == Some(CallFault::DieAfter) {
            self.process.die().await;
        }
        match answer {
            Ok(Answer::Watch(started)) => Ok(self.stream(*started, call_fault)),
            Ok(answer) => Ok(whole(answer)),
            Err(_) => Err("connection reset by peer".into()),
        }
    }

    /// What becomes of a request before it is sent: an answer of nobody who ever saw it, a failure, or nothing.
    async fn stopped(&self, call_fault: Option<CallFault>) -> Result<Option<Answer>, BoxError> {
        if call_fault == Some(CallFault::DieBefore) {
            self.process.die().await;
        }
        if self.world.is_away() {
            self.world.delay("way", &WAYS).await;
            return Err("connection refused".into());
        }
        if call_fault == Some(CallFault::Cut) {
            self.world.cut(&self.process);
        }
        self.reach().await?;
        let answer = match call_fault {
            Some(CallFault::Refuse(code)) => refusal(code, self.world.choose("retry-after", 2) == 1),
            Some(CallFault::LostPlace) => lost_place(),
            Some(CallFault::Freeze) => {
                self.world.freeze(&self.process);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        self.world.delay("way", &WAYS).await;
        Ok(Some(answer))
    }

    /// Fails, or never ends, where the manager is cut off from the API, or the target cluster is away.
    async fn reach(&self) -> Result<(), BoxError> {
        let target = self.is_target.then(|| self.world.target.is_cut()).flatten();
        match self.process.link.is_cut().or(target) {
            None => Ok(()),
            Some(Cut::Refused) => {
                self.world.delay("way", &WAYS).await;
                Err("no route to host".into())
            }
            Some(Cut::Silent) => std::future::pending().await,
        }
    }

    /// Sends a request on its way; it does not come back from there.
    fn send(&self, request: Request, sent: Duration, call_fault: Option<CallFault>) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        let (world, actor) = (Arc::clone(&self.world), Actor::Manager(self.process.incarnation));
        // Drawn here, so that the order of the tape is that of the requests.
        let (there, back) = (world.pick("way", &WAYS), world.pick("way", &WAYS));
        let extra = match call_fault {
            Some(CallFault::Late) => world.pick("late", &LATE),
            Some(CallFault::VeryLate) => world.pick("very-late", &VERY_LATE),
            Some(CallFault::Slow) => world.pick("slow", &SLOW),
            _ => 0,
        };
        let process = Arc::clone(&self.process);
        let is_held = process.frozen_until().is_some();
        tokio::spawn(async move {
            process.thawed().await;
            // Who was killed while it stood still had not sent it.
            if is_held && process.is_closed() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(extra) + Duration::from_millis(there)).await;
            let answer = world.ask(actor, &request, sent);
            if back > 0 {
                tokio::time::sleep(Duration::from_millis(back)).await;
            }
            // Nobody hears it if the manager died or gave up.
            reply.send(answer).ok();
        });
        answer
    }

    fn stream(&self, started: Started, call_fault: Option<CallFault>) -> Response {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        let flow = Flow::begin(world, process, self.is_target, started, call_fault);
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

    /// A list that comes in pages goes on in pages, some time later; the version that it is of may be forgotten by then.
    async fn turn_page(
        &self,
        request: &mut Request,
        query: Option<&str>,
        call_fault: Option<CallFault>,
    ) -> Option<Failure> {
        let resource = request.target.resource.clone();
        let token = request.query.first("continue").to_owned();
        let paging = match call_fault {
            _ if !token.is_empty() => self.lists().get(&resource).copied(),
            Some(CallFault::Pages | CallFault::PagesLost) => {
                let size = self.world.pick("page-size", &[1, 2]);
                let paging = Paging {
                    size,
                    is_lost: call_fault == Some(CallFault::PagesLost),
                };
                self.lists().insert(resource, paging);
                Some(paging)
            }
            // A list from the beginning on forgets how the last one was.
            _ => {
                self.lists().remove(&resource);
                None
            }
        };
        let paging = paging?;
        // The first of two values counts.
        request.query = Query::parse(&format!("limit={}&{}", paging.size, query.unwrap_or_default()));
        if token.is_empty() {
            return None;
        }
        let pause = self.world.pick("page-pause", &PAGES);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if !paging.is_lost {
            return None;
        }
        let resource = &request.target.resource;
        let note = format!("the version of the list of {resource} is forgotten between two pages");
        self.world.tell(What::Note(note));
        Some(page_expired(&token).unwrap_or_else(|failure| failure))
    }
}

fn parse(parts: &http::request::Parts, body: &Bytes) -> Result<Request, Failure> {
    let text = |name| {
        let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    Request::parse(&Http {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        content_type: text(http::header::CONTENT_TYPE),
        accept: text(http::header::ACCEPT),
        agent: "millwright",
        user: "millwright",
        body,
    })
}

fn lost_place() -> Answer {
    Answer::Object {
        code: 410,
        body: expired().into(),
        warnings: Vec::new(),
    }
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
        body: body.into(),
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
