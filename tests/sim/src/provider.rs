//! The provider's process: the SDK's service around the virtual driver, over a cloud that outlives it.
//!
//! The wire that managers get leads here without a socket: real messages and statuses, no HTTP/2. A process that dies takes
//! the SDK's memory and the driver's with it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use millwright::driver::{Connect, Wire};
use millwright_proto::{LEADER_EPOCH_KEY, v1};
use millwright_provider_sdk::{
    ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, GetNodeTemplate, GetVolumeIds, ListMachines, MachinePage, MachineStatus, NodeTemplate, Reason,
    ValidateMachineClass, VolumeIds, WatchMachines, WatchStream, in_process,
};
use millwright_provider_virtual::cloud::Delays;
use millwright_provider_virtual::driver::VirtualDriver;
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::util::BoxCloneSyncService;
use tower::{Service as _, ServiceExt, service_fn};

use crate::event::{Departure, DriverCall, What};
use crate::gate::Gate;
use crate::strike::{self, Blow};
use crate::world::World;

/// Milliseconds of a way to the driver or back.
const WAYS: [u64; 4] = [0, 1, 3, 10];
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

type Served = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// The socket at which a provider listens, if one lives.
pub struct Port {
    world: Arc<World>,
    served: Mutex<Option<Served>>,
    delays: Delays,
    list_lag: Duration,
}

impl Port {
    /// A port with a provider that has just been started.
    pub fn open(world: Arc<World>, delays: Delays, list_lag: Duration) -> Arc<Self> {
        let port = Arc::new(Self {
            world,
            served: Mutex::new(None),
            delays,
            list_lag,
        });
        port.start();
        port
    }

    /// How a manager behind this gate reaches the port.
    pub fn connect(self: &Arc<Self>, gate: &Arc<Gate>) -> Connect {
        let (port, gate) = (Arc::clone(self), Arc::clone(gate));
        Arc::new(move |_| {
            let (port, gate) = (Arc::clone(&port), Arc::clone(&gate));
            Wire::new(service_fn(move |request| {
                let (port, gate) = (Arc::clone(&port), Arc::clone(&gate));
                async move {
                    let carried = carry(port, Arc::clone(&gate), request);
                    gate.pass(carried).await
                }
            }))
        })
    }

    fn start(&self) {
        let driver = VirtualDriver::new(self.world.cloud.clone(), self.delays, self.list_lag);
        let provider = Provider {
            driver,
            world: Arc::clone(&self.world),
        };
        let service = in_process(provider).expect("the virtual driver's info keeps the contract");
        let service = ServiceExt::<http::Request<Body>>::map_err(service, |never: Infallible| match never {});
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(Served::new(service));
    }

    /// Ends the provider's process; another is started some time later.
    fn restart(self: &Arc<Self>) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let port = Arc::clone(self);
        let downtime = self.world.pick("driver-downtime", &[0, 1, 5, 40]);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(downtime) + Duration::from_millis(1)).await;
            port.start();
        });
    }

    fn served(&self) -> Option<Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn carry(port: Arc<Port>, gate: Arc<Gate>, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
    let world = Arc::clone(&port.world);
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let method = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let uid = uid_of(&method, &body);
    let blow = world.blow(&format!("{method} {uid}"), &strike::OF_CALLS);
    if blow == Some(Blow::DieBefore) {
        gate.die().await;
    }
    let epoch = parts
        .headers
        .get(LEADER_EPOCH_KEY)
        .and_then(|epoch| epoch.to_str().ok())
        .and_then(|epoch| epoch.parse().ok());
    let told = (world.hooks.epoch)(epoch);
    if told != epoch {
        parts.headers.remove(LEADER_EPOCH_KEY);
        parts.headers.extend(told.map(|epoch| {
            (
                http::HeaderName::from_static(LEADER_EPOCH_KEY),
                http::HeaderValue::from(epoch),
            )
        }));
    }
    world.tell(What::Leaves(Departure {
        incarnation: gate.incarnation,
        method: method.clone(),
        uid: uid.clone(),
        epoch: told,
    }));
    match blow {
        Some(Blow::Hang) => return std::future::pending().await,
        Some(Blow::DriverDiesBefore) => {
            port.restart();
            return Err(Status::unavailable("connection reset by peer"));
        }
        Some(Blow::Fail) => return Err(failure(&world)),
        _ => {}
    }
    let request = http::Request::from_parts(parts, Body::new(Full::new(body)));
    let call = DriverCall {
        incarnation: gate.incarnation,
        method,
        uid,
        code: Code::Ok.into(),
    };
    let answer = send(&port, request, call);
    match blow {
        Some(Blow::DieDuring) => gate.die().await,
        Some(Blow::Silence) => return std::future::pending().await,
        _ => {}
    }
    let answer = answer
        .await
        .unwrap_or_else(|_| Err(Status::unavailable("connection reset by peer")));
    match blow {
        Some(Blow::DieAfter) => gate.die().await,
        Some(Blow::LoseAnswer) => return Err(Status::unavailable("connection reset by peer")),
        Some(Blow::DriverDiesAfter) => {
            port.restart();
            return Err(Status::unavailable("connection reset by peer"));
        }
        _ => {}
    }
    answer
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

/// Sends a call on its way; it does not come back from there.
fn send(
    port: &Arc<Port>,
    request: http::Request<Body>,
    mut call: DriverCall,
) -> oneshot::Receiver<Result<http::Response<Body>, Status>> {
    let (reply, answer) = oneshot::channel();
    let (there, back) = (
        port.world.pick("driver-way", &WAYS),
        port.world.pick("driver-way", &WAYS),
    );
    let port = Arc::clone(port);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(there)).await;
        let answer = match port.served() {
            None => Err(Status::unavailable("connection refused")),
            Some(mut served) => {
                let is_creation = call.method == "CreateMachine";
                if is_creation {
                    port.world.creation_begins(&call.uid);
                }
                let answer = match served.ready().await {
                    Ok(served) => served.call(request).await,
                    Err(error) => Err(error),
                };
                let (answer, code) = read(answer).await;
                call.code = code;
                if is_creation {
                    port.world.creation_ends(&call.uid);
                }
                port.world.tell(What::Driver(call));
                answer
            }
        };
        tokio::time::sleep(Duration::from_millis(back)).await;
        // Nobody hears it if the manager died or gave up.
        reply.send(answer).ok();
    });
    answer
}

/// Reads an answer to its end, for its code.
async fn read(answer: Result<http::Response<Body>, Status>) -> (Result<http::Response<Body>, Status>, i32) {
    let response = match answer {
        Ok(response) => response,
        Err(status) => return (Err(status.clone()), status.code().into()),
    };
    let (head, body) = response.into_parts();
    let collected = match body.collect().await {
        Ok(collected) => collected,
        Err(status) => return (Err(status.clone()), status.code().into()),
    };
    let told = collected.trailers().unwrap_or(&head.headers).get("grpc-status");
    let code = told
        .and_then(|code| code.to_str().ok())
        .and_then(|code| code.parse().ok());
    let code = code.unwrap_or_else(|| Code::Unknown.into());
    (Ok(http::Response::from_parts(head, Body::new(collected))), code)
}

/// The Machine that a call is about.
fn uid_of(method: &str, body: &Bytes) -> String {
    let message = body.get(PREFIX..).unwrap_or_default();
    let has_key = matches!(
        method,
        "CreateMachine" | "InitializeMachine" | "DeleteMachine" | "GetMachineStatus"
    );
    let keyed = has_key.then(|| Keyed::decode(message).ok()).flatten();
    keyed.and_then(|keyed| keyed.key).map(|key| key.uid).unwrap_or_default()
}

/// What the requests about one Machine begin with.
#[derive(Clone, PartialEq, prost::Message)]
struct Keyed {
    #[prost(message, optional, tag = "1")]
    key: Option<v1::MachineKey>,
}

/// Why a creation may fail that was never begun.
fn honest() -> Vec<Reason> {
    let (zone, instance_type) = (String::new(), String::new());
    vec![
        Reason::ProviderUnavailable,
        Reason::CapacityUnavailable { zone, instance_type },
        Reason::QuotaExceeded { quota: String::new() },
        Reason::RateLimited,
        Reason::CredentialsRejected,
        Reason::AccessDenied { action: String::new() },
        Reason::DriverFault,
    ]
}

/// The virtual driver, with lies.
struct Provider {
    driver: VirtualDriver,
    world: Arc<World>,
}

impl Driver for Provider {
    fn info(&self) -> DriverInfo {
        self.driver.info()
    }

    async fn create_machine(&self, request: CreateMachine, context: Context) -> Result<MachineStatus, DriverError> {
        if self.world.strikes("F30") {
            let all = honest();
            let nth = self
                .world
                .choose("reason", u32::try_from(all.len()).unwrap_or(u32::MAX)) as usize;
            let reason = all.get(nth).cloned().unwrap_or(Reason::ProviderUnavailable);
            let about = format!("CreateMachine of {} fails", request.key.name);
            self.world.tell(What::Fault { name: "F30", about });
            return Err(DriverError::new(reason, "made up by the simulator"));
        }
        self.driver.create_machine(request, context).await
    }

    async fn delete_machine(&self, request: DeleteMachine, context: Context) -> Result<Deletion, DriverError> {
        self.driver.delete_machine(request, context).await
    }

    async fn get_machine_status(
        &self,
        request: GetMachineStatus,
        context: Context,
    ) -> Result<MachineStatus, DriverError> {
        if self.world.strikes("F37") {
            let about = format!("lookup of {} finds nothing", request.key.name);
            self.world.tell(What::Fault { name: "F37", about });
            return Err(DriverError::not_found("made up by the simulator"));
        }
        self.driver.get_machine_status(request, context).await
    }

    async fn list_machines(&self, request: ListMachines, context: Context) -> Result<MachinePage, DriverError> {
        self.driver.list_machines(request, context).await
    }

    async fn watch_machines(&self, request: WatchMachines, context: Context) -> Result<WatchStream, DriverError> {
        self.driver.watch_machines(request, context).await
    }

    async fn get_volume_ids(&self, request: GetVolumeIds, context: Context) -> Result<VolumeIds, DriverError> {
        self.driver.get_volume_ids(request, context).await
    }

    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        self.driver.machine_class_schema()
    }

    async fn validate_machine_class(
        &self,
        request: ValidateMachineClass,
        context: Context,
    ) -> Result<ClassReport, DriverError> {
        self.driver.validate_machine_class(request, context).await
    }

    async fn node_template(&self, request: GetNodeTemplate, context: Context) -> Result<NodeTemplate, DriverError> {
        self.driver.node_template(request, context).await
    }
}
