//! A driver whose provider is scripted by the test, served over a real unix socket, and a plain client for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use millwright_proto::v1;
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use millwright_provider_sdk::{
    Capability, Change, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, ListMachines, Machine, MachinePage, MachineState, MachineStatus, ServeError, ServeOptions,
    Server, WatchEvent, WatchMachines, WatchStream,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// What the scripted provider has seen and made. Outlives the server, as a cloud does.
#[derive(Default)]
pub struct Cloud {
    pub vms: Mutex<BTreeMap<String, Machine>>,
    /// Times that the author's CreateMachine was entered.
    pub creates: AtomicUsize,
    /// Time left to the last CreateMachine or GetMachineStatus, as its context said.
    pub told_deadline: Mutex<Option<Duration>>,
    /// The spec of the last CreateMachine.
    pub told_spec: Mutex<Option<serde_json::Value>>,
}

/// What CreateMachine does.
#[derive(Clone, Default)]
pub enum Script {
    #[default]
    Succeed,
    /// Makes the VM after this time.
    Take(Duration),
    /// Panics once, then succeeds.
    PanicOnce,
    /// Fails with this error.
    Fail(DriverError),
    /// Makes the VM, logs what an author may log, and fails with it.
    LogAll,
    /// Makes the VM once the process is asked to stop.
    UntilStopping,
}

#[derive(Default)]
pub struct Scripted {
    pub cloud: Arc<Cloud>,
    pub script: Script,
    pub propagation_delay: Duration,
    /// How long the answer of a lookup or deletion takes that has looked at its beginning.
    pub lookup: Duration,
}

impl Driver for Scripted {
    fn info(&self) -> DriverInfo {
        let mut info = DriverInfo::new("scripted", "7.1");
        info.propagation_delay = self.propagation_delay;
        info.with_capabilities([Capability::WatchMachines, Capability::NodeTemplate])
    }

    async fn create_machine(&self, request: CreateMachine, context: Context) -> Result<MachineStatus, DriverError> {
        let first = self.cloud.creates.fetch_add(1, Ordering::SeqCst) == 0;
        *self.cloud.told_deadline.lock().unwrap() = context.remaining();
        *self.cloud.told_spec.lock().unwrap() = Some(request.machine_class.provider_spec.clone());
        match &self.script {
            Script::Succeed => {}
            Script::Take(time) => tokio::time::sleep(*time).await,
            Script::PanicOnce if first => panic!("scripted"),
            Script::PanicOnce => {}
            Script::Fail(error) => return Err(error.clone()),
            Script::UntilStopping => {
                assert!(!context.is_stopping(), "nobody has asked it to stop yet");
                context.stopping().await;
                assert!(context.is_stopping() && !context.is_cancelled());
            }
            Script::LogAll => tracing::info!(key = ?request.key, class = ?request.machine_class, "author"),
        }
        let mut vms = self.cloud.vms.lock().unwrap();
        let number = vms.len();
        let vm = vms.entry(request.key.uid.clone()).or_insert_with(|| {
            let id = format!("scripted:///{number}");
            let mut vm = Machine::new(request.key.clone(), id, MachineState::Running);
            vm.node_name = request.key.node_name();
            vm
        });
        Ok(vm.clone().into())
    }

    async fn delete_machine(&self, request: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
        self.cloud.vms.lock().unwrap().remove(&request.key.uid);
        tokio::time::sleep(self.lookup).await;
        Ok(Deletion::Deleted)
    }

    async fn get_machine_status(
        &self,
        request: GetMachineStatus,
        context: Context,
    ) -> Result<MachineStatus, DriverError> {
        *self.cloud.told_deadline.lock().unwrap() = context.remaining();
        let vm = self.cloud.vms.lock().unwrap().get(&request.key.uid).cloned();
        tokio::time::sleep(self.lookup).await;
        vm.map(Into::into).ok_or_else(|| DriverError::not_found("no such VM"))
    }

    async fn list_machines(&self, request: ListMachines, _: Context) -> Result<MachinePage, DriverError> {
        let vms = self.cloud.vms.lock().unwrap();
        Ok(MachinePage::of(&request, vms.values().cloned()))
    }

    async fn watch_machines(&self, _: WatchMachines, _: Context) -> Result<WatchStream, DriverError> {
        let mut synced = WatchEvent::new(Change::Synced);
        synced.resume_token = "1".into();
        Ok(stream::iter([Ok(synced)]).chain(stream::pending()).boxed())
    }
}

/// A served driver.
pub struct Served {
    pub cloud: Arc<Cloud>,
    pub path: PathBuf,
    pub metrics_addr: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
    _dir: tempfile::TempDir,
}

impl Served {
    pub async fn start(script: Script) -> Self {
        Self::start_with(script, Duration::from_secs(5)).await
    }

    pub async fn start_with(script: Script, drain_timeout: Duration) -> Self {
        let driver = Scripted {
            script,
            ..Scripted::default()
        };
        Self::start_as(driver, |options| options.drain_timeout = drain_timeout).await
    }

    pub async fn start_as(driver: Scripted, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("driver.sock");
        let cloud = Arc::clone(&driver.cloud);
        let mut options = ServeOptions::new(format!("unix://{}", path.display()).parse().unwrap());
        options.drain_timeout = Duration::from_secs(5);
        options.metrics_addr = Some(([127, 0, 0, 1], 0).into());
        change(&mut options);
        let server = Server::bind(driver, options).await.unwrap();
        let metrics_addr = server.metrics_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run_until(async { stopped.await.unwrap_or_default() }));
        Self {
            cloud,
            path,
            metrics_addr,
            stop: Some(stop),
            task,
            _dir: dir,
        }
    }

    pub async fn channel(&self) -> Channel {
        let uri = format!("unix://{}", self.path.display());
        Endpoint::from_shared(uri).unwrap().connect().await.unwrap()
    }

    pub async fn client(&self) -> DriverServiceClient<Channel> {
        DriverServiceClient::new(self.channel().await)
    }

    /// What SIGTERM does.
    pub fn ask_to_stop(&mut self) {
        self.stop.take().expect("asked once").send(()).expect("the server runs");
    }

    pub async fn ended(self) -> Result<(), ServeError> {
        self.task.await.unwrap()
    }
}

pub fn uid(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

pub fn digest(n: u8) -> String {
    format!("{n:02x}").repeat(32)
}

pub fn key(n: u32) -> v1::MachineKey {
    v1::MachineKey {
        cluster_id: "dev".into(),
        namespace: "default".into(),
        name: format!("m{n}"),
        uid: uid(n),
    }
}

pub fn class() -> v1::MachineClass {
    let size = prost_types::Value {
        kind: Some(prost_types::value::Kind::NumberValue(4.0)),
    };
    v1::MachineClass {
        name: "small".into(),
        namespace: "default".into(),
        provider: "scripted".into(),
        provider_spec: Some(prost_types::Struct {
            fields: [("size".to_owned(), size)].into(),
        }),
        ..Default::default()
    }
}

pub fn create(n: u32) -> v1::CreateMachineRequest {
    v1::CreateMachineRequest {
        key: Some(key(n)),
        machine_class: Some(class()),
        tags: [("cluster".to_owned(), "dev".to_owned())].into(),
        spec_digest: digest(1),
        ..Default::default()
    }
}

pub fn delete(n: u32) -> v1::DeleteMachineRequest {
    v1::DeleteMachineRequest {
        key: Some(key(n)),
        machine_class: Some(class()),
        ..Default::default()
    }
}

pub fn status(n: u32) -> v1::GetMachineStatusRequest {
    v1::GetMachineStatusRequest {
        key: Some(key(n)),
        machine_class: Some(class()),
        ..Default::default()
    }
}

/// The reason of a failed call, which must carry exactly one ErrorInfo of our domain.
pub fn reason(status: &tonic::Status) -> String {
    use prost::Message as _;
    use tonic_types::StatusExt as _;
    let details = tonic_types::Status::decode(status.details()).unwrap().details;
    assert_eq!(
        details.iter().filter(|any| any.type_url.ends_with("ErrorInfo")).count(),
        1,
        "{status:?}"
    );
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.domain, "machine.driver.v1");
    info.reason
}
