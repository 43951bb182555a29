//! The provider's process: the SDK's service around the virtual driver, over a cloud that outlives it, and what becomes of
//! a call on its way there.
//!
//! Two ways lead there: in the process, with real messages and statuses but no HTTP/2, and gRPC over pipes ([`crate::pipes`]).
//! A process that dies takes the SDK's memory and the driver's with it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http_body_util::{BodyExt as _, Full};
use jiff::SignedDuration;
use millwright::driver::{Connect, Wire};
use millwright_oracles::Outcome;
use millwright_proto::LEADER_EPOCH_KEY;
use millwright_provider_sdk::in_process;
use millwright_provider_virtual::cloud::Delays;
use millwright_provider_virtual::driver::VirtualDriver;
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::pb;
use tower::{ServiceExt as _, service_fn};

use crate::account::Account;
use crate::call_fault::{self, CallFault};
use crate::call_recorder::{CALLER, CallRecorder, Served, about, read};
use crate::event::{Departure, What};
use crate::faulty_provider::Provider;
use crate::pipes::Listener;
use crate::process::Process;
use crate::world::World;

/// Milliseconds of a way to the driver or back.
const WAYS: [u64; 4] = [0, 1, 3, 10];

/// What carries calls to a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A call of a function: fast.
    #[default]
    InProcess,
    /// gRPC over pipes: true.
    Grpc,
}

/// A process that listens.
struct Serving {
    process: Arc<Process>,
    call_recorder: CallRecorder,
}

/// The socket at which a provider listens, if one lives.
pub struct Port {
    /// What ails the cloud.
    pub account: Arc<Account>,
    world: Arc<World>,
    transport: Transport,
    listener: Arc<Listener>,
    current: Mutex<(u32, Option<Serving>)>,
    delays: Delays,
    list_lag: Duration,
}

/// How one manager reaches the port.
#[derive(Clone)]
enum Way {
    InProcess,
    Grpc(Channel),
}

type Reply = Result<http::Response<Body>, Status>;

impl Port {
    /// A port at which nobody listens yet.
    pub fn new(world: Arc<World>, transport: Transport, delays: Delays, list_lag: Duration) -> Arc<Self> {
        Arc::new(Self {
            account: Account::new(Arc::clone(&world)),
            world,
            transport,
            listener: Arc::default(),
            current: Mutex::default(),
            delays,
            list_lag,
        })
    }

    /// How a manager behind this process reaches the port.
    pub fn connect(self: &Arc<Self>, process: &Arc<Process>) -> Connect {
        let (port, process) = (Arc::clone(self), Arc::clone(process));
        Arc::new(move |_, _| {
            let (port, process) = (Arc::clone(&port), Arc::clone(&process));
            let way = match port.transport {
                Transport::InProcess => Way::InProcess,
                Transport::Grpc => Way::Grpc(port.listener.channel(&process)),
            };
            Wire::new(service_fn(move |request| {
                let (port, process, way) = (Arc::clone(&port), Arc::clone(&process), way.clone());
                async move {
                    let carried = carry(port, Arc::clone(&process), way, request);
                    process.pass(carried).await
                }
            }))
        })
    }

    /// Starts a process.
    pub fn start(&self) {
        let is_old = self.world.strikes("F33");
        if is_old {
            let about = "the driver is an older version without any capability".to_owned();
            self.world.tell(What::Fault { name: "F33", about });
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 += 1;
        let process = Arc::new(Process::new(current.0));
        let provider = Provider {
            driver: VirtualDriver::new(self.world.cloud.clone(), self.delays, self.list_lag),
            world: Arc::clone(&self.world),
            account: Arc::clone(&self.account),
            process: Arc::clone(&process),
            is_old,
        };
        let service = in_process(provider).expect("the virtual driver's info keeps the contract");
        let service = Served::new(service);
        let call_recorder = CallRecorder::new(service, Arc::clone(&self.world));
        if self.transport == Transport::Grpc {
            self.listener.open(&process, call_recorder.clone(), &self.world);
        }
        current.1 = Some(Serving { process, call_recorder });
        if let Some(sockets) = &self.world.sockets {
            sockets.show(true);
        }
    }

    /// The process ends and takes its socket along, or the socket alone goes for a while.
    pub fn move_socket(self: &Arc<Self>) {
        let Some(sockets) = &self.world.sockets else { return };
        let seconds = self.world.pick("socket-gone", &[5, 1, 20, 90]);
        let is_alone = self.world.choose("socket-alone", 3) == 1;
        let how = if is_alone { "goes" } else { "goes with its process" };
        let about = format!("the driver's socket {how} for {seconds} s");
        self.world.tell(What::Fault { name: "F60", about });
        let lasts = Duration::from_secs(seconds);
        if !is_alone {
            self.restart_after(lasts);
            return;
        }
        sockets.show(false);
        let port = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            if let Some(sockets) = port.world.sockets.as_ref().filter(|_| port.listening().is_some()) {
                sockets.show(true);
            }
        });
    }

    /// Ends the provider's process; another is started some time later.
    pub fn restart(self: &Arc<Self>) {
        if self.listening().is_some() {
            let downtime = self.world.pick("driver-downtime", &[0, 1, 5, 40]);
            self.restart_after(Duration::from_secs(downtime));
        }
    }

    /// Ends the provider's process; another is started after so long.
    pub fn restart_after(self: &Arc<Self>, downtime: Duration) {
        self.listener.close();
        let serving = {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.1.take()
        };
        // Dead already: whoever ended it starts the next.
        let Some(serving) = serving else { return };
        serving.process.close();
        if let Some(sockets) = &self.world.sockets {
            sockets.show(false);
        }
        let port = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(downtime + Duration::from_millis(1)).await;
            port.start();
        });
    }

    /// The process that listens now.
    fn listening(&self) -> Option<(Arc<Process>, CallRecorder)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = current.1.as_ref()?;
        Some((Arc::clone(&serving.process), serving.call_recorder.clone()))
    }
}

/// Carries one call of a manager to the driver, and its answer back.
async fn carry(port: Arc<Port>, process: Arc<Process>, way: Way, request: http::Request<Body>) -> Reply {
    let world = Arc::clone(&port.world);
    if process.frozen_until().is_some() {
        process.thawed().await;
        return Err(Status::unavailable("a process that stands still calls nobody"));
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (method, uid) = about(&parts, &body);
    let call_fault = world.call_fault(&format!("{method} {uid}"), call_fault::of_call(&method));
    if call_fault == Some(CallFault::DieBefore) {
        process.die().await;
    }
    let call = (method.as_str(), uid.as_str());
    let request = http::Request::from_parts(parts, body);
    let answer = exchange(&port, &process, &way, request, call, call_fault).await;
    hear(&world, &process, call, answer).await
}

/// The same, once it is known what becomes of it.
async fn exchange(
    port: &Arc<Port>,
    process: &Arc<Process>,
    way: &Way,
    request: http::Request<Bytes>,
    (method, uid): (&str, &str),
    call_fault: Option<CallFault>,
) -> Reply {
    let world = Arc::clone(&port.world);
    let (mut parts, body) = request.into_parts();
    let epoch = retold_epoch(&world, &mut parts.headers);
    world.tell(What::Leaves(Departure {
        incarnation: process.incarnation,
        method: method.to_owned(),
        uid: uid.to_owned(),
        epoch,
    }));
    match call_fault {
        Some(CallFault::Hang) => return std::future::pending().await,
        Some(CallFault::DriverDiesBefore) => {
            port.restart();
            return Err(reset());
        }
        Some(CallFault::Fail) => return Err(failure(&world)),
        Some(CallFault::Freeze) => world.freeze(process),
        Some(CallFault::Cut) => world.cut(process),
        Some(call_fault) => port.account.order(method, uid, call_fault),
        None => {}
    }
    parts.headers.insert(CALLER, process.incarnation.into());
    let request = http::Request::from_parts(parts, Body::new(Full::new(body)));
    let answer = send(port, process, way, request);
    match call_fault {
        Some(CallFault::DieDuring) => {
            depart(&world, way, answer).await;
            process.die().await;
            Err(reset())
        }
        Some(CallFault::Silence) => {
            tokio::spawn(answer);
            std::future::pending().await
        }
        _ => {
            let answer = answer.await;
            // A call that never arrived leaves its fault behind.
            port.account.ordered(method, uid);
            come_back(port, process, call_fault, answer).await
        }
    }
}

/// Tells what a manager hears of a call.
async fn hear(world: &World, process: &Process, (method, uid): (&str, &str), answer: Reply) -> Reply {
    let (answer, status) = match answer {
        Ok(answer) => {
            let (answer, status, _) = read(answer).await?;
            (Ok(answer), status)
        }
        Err(status) => (Err(status.clone()), status),
    };
    world.tell(What::Heard {
        incarnation: process.incarnation,
        method: method.to_owned(),
        uid: uid.to_owned(),
        outcome: outcome(&status),
    });
    answer
}

/// What a status says of when to try again.
fn outcome(status: &Status) -> Outcome {
    let details = pb::Status::decode(status.details())
        .unwrap_or_default()
        .details
        .into_iter();
    let (mut reason, mut pause) = (None, None);
    for detail in details {
        match detail.type_url.rsplit('/').next() {
            Some("google.rpc.ErrorInfo") => {
                let info = pb::ErrorInfo::decode(&*detail.value).unwrap_or_default();
                reason = Some(info.reason);
            }
            Some("google.rpc.RetryInfo") => {
                let told = pb::RetryInfo::decode(&*detail.value).unwrap_or_default();
                let told = told.retry_delay.map(|it| SignedDuration::new(it.seconds, it.nanos));
                pause = told;
            }
            _ => {}
        }
    }
    let is_throttled = reason.as_deref() == Some("RATE_LIMITED");
    match (status.code(), reason, pause) {
        (Code::Ok, ..) => Outcome::Done,
        (_, _, Some(pause)) if is_throttled => Outcome::Throttled(pause),
        (_, _, Some(pause)) => Outcome::Later(pause),
        (
            Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::Aborted
            | Code::Internal
            | Code::DataLoss,
            None,
            None,
        ) => Outcome::Transient,
        (_, _, None) => Outcome::Refused,
    }
}

/// The epoch of leadership that a call carries once the hook has had its hand on it.
fn retold_epoch(world: &World, headers: &mut http::HeaderMap) -> Option<u64> {
    let epoch = headers
        .get(LEADER_EPOCH_KEY)
        .and_then(|epoch| epoch.to_str().ok())
        .and_then(|epoch| epoch.parse().ok());
    let told = (world.hooks.epoch)(epoch);
    if told != epoch {
        headers.remove(LEADER_EPOCH_KEY);
        headers.extend(told.map(|epoch| {
            (
                http::HeaderName::from_static(LEADER_EPOCH_KEY),
                http::HeaderValue::from(epoch),
            )
        }));
    }
    told
}

/// What the manager hears of an answer.
async fn come_back(port: &Arc<Port>, process: &Process, call_fault: Option<CallFault>, answer: Reply) -> Reply {
    match call_fault {
        Some(CallFault::DieAfter) => {
            process.die().await;
            Err(reset())
        }
        Some(CallFault::LoseAnswer) => Err(reset()),
        Some(CallFault::DriverDiesAfter) => {
            port.restart();
            Err(reset())
        }
        _ => answer,
    }
}

fn reset() -> Status {
    Status::unavailable("connection reset by peer")
}

/// A failure as what stands between manager and driver makes it: a bare code.
fn failure(world: &World) -> Status {
    let codes = [
        Code::Unavailable,
        Code::Internal,
        Code::Unknown,
        Code::ResourceExhausted,
        Code::DeadlineExceeded,
        Code::Cancelled,
        Code::Aborted,
        Code::FailedPrecondition,
        Code::PermissionDenied,
        Code::Unauthenticated,
    ];
    Status::new(world.pick("code", &codes), "made up by the simulator")
}

/// Sends a call on its way. In the process it does not come back from there; over gRPC it is called off where nobody waits.
fn send(
    port: &Arc<Port>,
    process: &Arc<Process>,
    way: &Way,
    request: http::Request<Body>,
) -> BoxFuture<'static, Reply> {
    let there = Duration::from_millis(port.world.pick("driver-way", &WAYS));
    let back = Duration::from_millis(port.world.pick("driver-way", &WAYS));
    let process = Arc::clone(process);
    let is_held = process.frozen_until().is_some();
    match way {
        Way::InProcess => {
            let (reply, answer) = oneshot::channel();
            let port = Arc::clone(port);
            tokio::spawn(async move {
                process.thawed().await;
                // Who was killed while it stood still had not sent it.
                if is_held && process.is_closed() {
                    return;
                }
                tokio::time::sleep(there).await;
                let answer = call(&port, request).await;
                tokio::time::sleep(back).await;
                // Nobody hears it if the manager died or gave up.
                reply.send(answer).ok();
            });
            async move { answer.await.unwrap_or_else(|_| Err(reset())) }.boxed()
        }
        Way::Grpc(channel) => {
            let channel = channel.clone();
            async move {
                process.thawed().await;
                tokio::time::sleep(there).await;
                let answer = channel.oneshot(request).await;
                let answer = answer.map_err(|error| Status::from_error(error.into()))?;
                let (answer, ..) = read(answer).await?;
                tokio::time::sleep(back).await;
                Ok(answer)
            }
            .boxed()
        }
    }
}

/// Calls the process that listens, which may die of it.
async fn call(port: &Port, request: http::Request<Body>) -> Reply {
    let Some((process, call_recorder)) = port.listening() else {
        return Err(Status::unavailable("connection refused"));
    };
    tokio::select! {
        biased;
        answer = call_recorder.oneshot(request) => answer.map_err(|never: Infallible| match never {}),
        () = process.closed() => Err(reset()),
    }
}

/// Lets a call go whose sender is about to die. Over gRPC its connection dies too: it may have arrived by then, or not.
async fn depart(world: &World, way: &Way, answer: BoxFuture<'static, Reply>) {
    tokio::spawn(answer);
    if let Way::Grpc(_) = way {
        world.delay("driver-way", &WAYS).await;
    }
}
