//! A driver for tests, written by hand on the generated server: it says what its script says, and can be killed.
//! Not built on the SDK, so that it can break the contract.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use millwright::driver::{
    CallObserver, CallRecord, Connect, Deadlines, Driver, DriverClass, DriverState, Endpoint, Endpoints, Lead,
    MachineKey, ManagerIdentity, Method, Pauses, Peers, Pool, PoolSettings, SecretData, Target,
};
use millwright::kube::leadership::Leadership;
use millwright_core::ids::{DriverName, Name, Uid};
use millwright_proto::v1;
use millwright_proto::v1::driver_service_server::{DriverService, DriverServiceServer};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

/// What the stub does with a call.
#[derive(Clone)]
pub enum Act {
    /// Answers OK.
    Answer,
    /// Fails.
    Fail(Status),
    /// Answers OK after a while.
    Late(Duration),
    /// Never answers.
    Hang,
    /// Answers OK for so many calls a second, and throttles the others.
    AtMost(u32, Arc<Mutex<Option<Instant>>>),
}

/// What the stub says.
#[derive(Clone)]
pub struct Script {
    pub info: v1::GetDriverInfoResponse,
    pub on_info: Act,
    pub on_create: Act,
    pub on_delete: Act,
    /// The highest epoch that it was ever told: creations of a lower one are refused.
    pub remembers: u64,
    /// Whether it names that epoch where it refuses for it.
    pub names_epoch: bool,
    pub machine: Option<v1::Machine>,
    pub page: v1::ListMachinesResponse,
    /// What each next stream of WatchMachines says. One that nothing is left for says nothing.
    pub watches: VecDeque<Watch>,
}

/// One stream of WatchMachines.
#[derive(Clone)]
pub struct Watch {
    /// What it says at once.
    pub says: Vec<v1::WatchMachinesResponse>,
    /// How it ends. `None`: it stays open and silent.
    pub ends: Option<Result<(), Status>>,
}

/// What the stub was asked.
#[derive(Default)]
pub struct Heard {
    pub creates: Vec<Request<v1::CreateMachineRequest>>,
    pub deletes: Vec<v1::DeleteMachineRequest>,
    pub infos: Vec<v1::GetDriverInfoRequest>,
    pub watches: Vec<(Instant, v1::WatchMachinesRequest)>,
    /// Of the machines that VMs were asked for, in this order.
    uids: Vec<String>,
}

/// The id of the first machine's VM.
const FIRST_ID: &str = "stub:///1";

impl Heard {
    /// Keeps a request for a VM, and gives the number of the machine.
    fn creates(&mut self, request: Request<v1::CreateMachineRequest>) -> usize {
        let uid = request.get_ref().key.clone().unwrap_or_default().uid;
        self.creates.push(request);
        let known = self.uids.iter().position(|known| *known == uid);
        known.unwrap_or_else(|| {
            self.uids.push(uid);
            self.uids.len() - 1
        }) + 1
    }
}

/// A driver that does what its script says.
#[derive(Clone)]
pub struct Stub {
    pub script: Arc<Mutex<Script>>,
    pub heard: Arc<Mutex<Heard>>,
}

impl Stub {
    /// A driver of that name which answers everything with OK.
    pub fn named(name: &str) -> Self {
        let info = v1::GetDriverInfoResponse {
            name: name.into(),
            vendor_version: "1".into(),
            ..Default::default()
        };
        let machine = v1::Machine {
            provider_id: FIRST_ID.into(),
            node_name: "node-1".into(),
            state: v1::machine::State::Running.into(),
            ..Default::default()
        };
        let script = Script {
            info,
            on_info: Act::Answer,
            on_create: Act::Answer,
            on_delete: Act::Answer,
            remembers: 0,
            names_epoch: false,
            machine: Some(machine),
            page: v1::ListMachinesResponse::default(),
            watches: VecDeque::new(),
        };
        Self {
            script: Arc::new(Mutex::new(script)),
            heard: Arc::default(),
        }
    }

    /// Changes the script.
    pub fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    /// Changes the script, for the making of a stub.
    pub fn with(self, change: impl FnOnce(&mut Script)) -> Self {
        self.set(change);
        self
    }

    fn script(&self) -> Script {
        self.script.lock().unwrap().clone()
    }

    /// Serves on a socket until dropped or killed.
    pub fn serve(&self, socket: &Path) -> Running {
        let runtime = runtime();
        // As a driver that restarts does: its old socket may still lie there.
        let _ = std::fs::remove_file(socket);
        let listener = {
            let _inside = runtime.enter();
            tokio::net::UnixListener::bind(socket).unwrap()
        };
        let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
        let server = tonic::transport::Server::builder().add_service(DriverServiceServer::new(self.clone()));
        runtime.spawn(server.serve_with_incoming(incoming));
        Running(Some(runtime))
    }
}

async fn act(act: Act) -> Result<(), Status> {
    match act {
        Act::Answer => Ok(()),
        Act::Fail(status) => Err(status),
        Act::Late(pause) => {
            tokio::time::sleep(pause).await;
            Ok(())
        }
        Act::Hang => std::future::pending().await,
        Act::AtMost(calls, free_at) => {
            let (now, mut free_at) = (Instant::now(), free_at.lock().unwrap());
            if free_at.is_some_and(|at| now < at) {
                return Err(throttled(Duration::ZERO));
            }
            // What a late call leaves unused is not lost, as with the buckets of clouds.
            let every = Duration::from_secs(1) / calls;
            *free_at = Some(free_at.map_or(now, |at| at.max(now - every)) + every);
            Ok(())
        }
    }
}

/// The leader's epoch that a request carries.
pub fn epoch<T>(request: &Request<T>) -> Option<u64> {
    let value = request.metadata().get(millwright_proto::LEADER_EPOCH_KEY)?;
    value.to_str().ok()?.parse().ok()
}

/// A failure as a driver tells it.
pub fn failure(code: tonic::Code, reason: &str, message: &str) -> Status {
    use tonic_types::StatusExt as _;
    let details = tonic_types::ErrorDetails::with_error_info(reason, "machine.driver.v1", []);
    Status::with_error_details(code, message, details)
}

/// What a driver says to who calls too often.
pub fn throttled(retry_after: Duration) -> Status {
    use tonic_types::StatusExt as _;
    let mut details = tonic_types::ErrorDetails::with_error_info("RATE_LIMITED", "machine.driver.v1", []);
    if !retry_after.is_zero() {
        details.set_retry_info(Some(retry_after));
    }
    Status::with_error_details(tonic::Code::Unavailable, "too many calls of this account", details)
}

/// What a driver says to who was told a lower epoch than another before.
fn stale_leader(remembered: Option<u64>) -> Status {
    use tonic_types::StatusExt as _;
    let metadata: HashMap<String, String> = remembered
        .map(|epoch| ("epoch".to_owned(), epoch.to_string()))
        .into_iter()
        .collect();
    let details = tonic_types::ErrorDetails::with_error_info("STALE_LEADER", "machine.driver.v1", metadata);
    Status::with_error_details(
        tonic::Code::FailedPrecondition,
        "a newer leader has spoken to this driver",
        details,
    )
}

#[tonic::async_trait]
impl DriverService for Stub {
    async fn get_driver_info(
        &self,
        request: Request<v1::GetDriverInfoRequest>,
    ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
        self.heard.lock().unwrap().infos.push(request.into_inner());
        let script = self.script();
        act(script.on_info).await?;
        Ok(Response::new(script.info))
    }

    async fn create_machine(
        &self,
        request: Request<v1::CreateMachineRequest>,
    ) -> Result<Response<v1::CreateMachineResponse>, Status> {
        let epoch = epoch(&request);
        let number = self.heard.lock().unwrap().creates(request);
        let mut script = self.script();
        // An id names one VM.
        if let Some(machine) = script
            .machine
            .as_mut()
            .filter(|machine| machine.provider_id == FIRST_ID)
        {
            machine.provider_id = format!("stub:///{number}");
        }
        if epoch.is_some_and(|epoch| epoch < script.remembers) {
            return Err(stale_leader(script.names_epoch.then_some(script.remembers)));
        }
        act(script.on_create).await?;
        let poll_after = Some(prost_types::Duration { seconds: 2, nanos: 0 });
        Ok(Response::new(v1::CreateMachineResponse {
            machine: script.machine,
            poll_after,
        }))
    }

    async fn delete_machine(
        &self,
        request: Request<v1::DeleteMachineRequest>,
    ) -> Result<Response<v1::DeleteMachineResponse>, Status> {
        self.heard.lock().unwrap().deletes.push(request.into_inner());
        act(self.script().on_delete).await?;
        let state = v1::machine::State::Deleted.into();
        Ok(Response::new(v1::DeleteMachineResponse {
            state,
            ..Default::default()
        }))
    }

    async fn list_machines(
        &self,
        _: Request<v1::ListMachinesRequest>,
    ) -> Result<Response<v1::ListMachinesResponse>, Status> {
        Ok(Response::new(self.script().page))
    }

    async fn watch_machines(
        &self,
        request: Request<v1::WatchMachinesRequest>,
    ) -> Result<Response<BoxStream<v1::WatchMachinesResponse>>, Status> {
        let heard = (Instant::now(), request.into_inner());
        self.heard.lock().unwrap().watches.push(heard);
        let watch = self.script.lock().unwrap().watches.pop_front();
        let (says, ends) = watch.map_or((Vec::new(), None), |watch| (watch.says, watch.ends));
        let says = stream::iter(says.into_iter().map(Ok));
        Ok(Response::new(match ends {
            None => Box::pin(says.chain(stream::pending())),
            Some(Ok(())) => Box::pin(says),
            Some(Err(status)) => Box::pin(says.chain(stream::iter([Err(status)]))),
        }))
    }
}

/// A server with threads of its own, so that its death is a death: connections are cut, handlers dropped.
pub struct Running(Option<tokio::runtime::Runtime>);

impl Running {
    /// Ends it as kill -9 would.
    pub fn kill(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs any server in the way of [`Running`].
pub fn run_server<F: Future<Output = ()> + Send + 'static>(serve: impl FnOnce() -> F) -> Running {
    let runtime = runtime();
    let server = {
        let _inside = runtime.enter();
        serve()
    };
    runtime.spawn(server);
    Running(Some(runtime))
}

/// Keeps what it hears of calls: driver, method, code, reason.
#[derive(Default)]
pub struct Recorder(pub Mutex<Vec<(String, &'static str, &'static str, &'static str)>>);

impl CallObserver for Recorder {
    fn called(&self, record: CallRecord<'_>) {
        let line = (
            record.driver.to_string(),
            record.method.name(),
            record.code,
            record.reason,
        );
        self.0.lock().unwrap().push(line);
    }

    fn held_up(&self, _: &DriverName, _: Method, _: Duration) {}
}

/// A pool under test.
pub struct Desk {
    pub pool: Pool,
    pub changes: mpsc::UnboundedReceiver<DriverName>,
    pub recorder: Arc<Recorder>,
    lead: Arc<Lead>,
    leads: watch::Sender<Leadership>,
    upkeep: tokio::task::JoinHandle<()>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

/// Pauses short enough to test with, and long enough for a busy machine to answer within.
pub fn pauses() -> Pauses {
    Pauses {
        away: Duration::from_millis(30),
        wrong: Duration::from_millis(60),
        ready: Duration::from_secs(60),
        least: Duration::from_millis(5),
        handshake: Duration::from_secs(4),
        first: Duration::from_secs(1),
        lasting: Duration::from_millis(20),
        scan: Duration::from_millis(50),
        forget: Duration::from_secs(60),
    }
}

impl Desk {
    pub fn new(endpoints: Endpoints, pauses: Pauses) -> Self {
        Self::connecting(endpoints, pauses, Peers::new(&[]).connect())
    }

    pub fn connecting(endpoints: Endpoints, pauses: Pauses, connect: Connect) -> Self {
        let (sender, changes) = mpsc::unbounded_channel();
        let recorder = Arc::new(Recorder::default());
        let (leads, leadership) = watch::channel(Leadership::ALONE);
        let lead = Arc::new(Lead::new(leadership));
        let (pool, upkeep) = Pool::new(PoolSettings {
            endpoints,
            manager: ManagerIdentity {
                name: "millwright".into(),
                version: "test".into(),
            },
            deadlines: Deadlines::new(),
            pauses,
            connect,
            lead: Arc::clone(&lead),
            observer: Arc::clone(&recorder) as Arc<dyn CallObserver>,
            on_change: Arc::new(move |name: &DriverName| drop(sender.send(name.clone()))),
        });
        Self {
            pool,
            changes,
            recorder,
            lead,
            leads,
            upkeep: tokio::spawn(upkeep),
        }
    }

    /// This process leads under an epoch, until then if there is an end.
    pub fn leads(&self, epoch: u32, valid_until: Option<Instant>) {
        self.lead.begin(epoch);
        self.leads.send_replace(Leadership::Leader {
            epoch: Some(epoch),
            valid_until,
        });
    }

    pub fn at(sockets: &[&Path]) -> Self {
        Self::new(
            Endpoints::listed(sockets.iter().map(|socket| endpoint(socket))),
            pauses(),
        )
    }

    /// Waits until the driver is ready.
    pub async fn ready(&self, name: &str) -> Arc<Driver> {
        let name = DriverName::new(name);
        until("ready", || match self.pool.get(&name) {
            DriverState::Ready(driver) => Some(driver),
            DriverState::Away { .. } | DriverState::Missing { .. } => None,
        })
        .await
    }

    /// Waits until the driver is away, and says why.
    pub async fn away(&self, name: &str) -> String {
        let name = DriverName::new(name);
        until("away", || match self.pool.get(&name) {
            DriverState::Away { why } => Some(why),
            DriverState::Ready(_) | DriverState::Missing { .. } => None,
        })
        .await
    }

    /// The text of the endpoint's health.
    pub fn health(&self, endpoint: &Endpoint) -> String {
        let states = self.pool.states();
        states
            .iter()
            .find(|state| state.endpoint == *endpoint)
            .map(|state| state.health.to_string())
            .unwrap_or_default()
    }

    /// Waits for the next name that the callback is told.
    pub async fn change(&mut self) -> String {
        let change = tokio::time::timeout(Duration::from_secs(20), self.changes.recv()).await;
        change
            .expect("a change within 20 s")
            .expect("the pool lives")
            .to_string()
    }
}

pub fn endpoint(socket: &Path) -> Endpoint {
    format!("unix://{}", socket.display()).parse().unwrap()
}

/// Looks again and again, for at most 20 s.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 20 s: {what}");
}

/// A call's target: machine `m-1` of a class of the driver `x`.
pub fn target() -> Target {
    let spec = serde_json::json!({ "size": "small", "disks": [{ "gib": 10 }] });
    Target {
        tagged_uid: None,
        former_namespace: None,
        key: MachineKey {
            cluster_id: "c".into(),
            namespace: "default".into(),
            name: Name::new("m-1"),
            uid: Uid::new("0e7b5bd0-6f2c-4f0e-9a55-3f0b8f1f2d11"),
        },
        class: DriverClass::new("default", "small", &DriverName::new("x"), &spec).unwrap(),
        secrets: Arc::new(SecretData::from_iter([("key".to_owned(), b"canary".to_vec())])),
        provider_id: None,
        last_known_state: None,
    }
}
