//! A driver that breaks the contract: in a process's place a server of this test on a real socket, which answers what it is told to
//! answer. Written on the generated server, because the SDK keeps its authors from all of this.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use millwright_proto::v1;
use millwright_proto::v1::driver_service_server::{DriverService, DriverServiceServer};
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

/// The name by which classes ask for it.
pub const NAME: &str = "liar";
/// More than a message may have.
pub const FIVE_MIB: usize = 5 << 20;

type Create = fn(v1::MachineKey) -> Result<Option<v1::Machine>, Status>;
type List = fn(Vec<v1::Machine>) -> Vec<v1::Machine>;

/// What it says.
struct Script {
    create: Create,
    list: List,
    /// The token of the next page, after each.
    next_page: &'static str,
    validate: fn() -> Vec<v1::Violation>,
    /// The VMs that there are.
    vms: Vec<v1::Machine>,
    /// The machines whose VMs it was to delete.
    deletes: Vec<String>,
}

/// A driver that is asked over a socket. Dropping it ends it.
pub struct Liar {
    script: Arc<Mutex<Script>>,
    socket: PathBuf,
    serving: JoinHandle<()>,
}

impl Liar {
    /// An honest one, at first.
    pub fn at(socket: &Path) -> Self {
        let script = Arc::new(Mutex::new(Script {
            create: |key| Ok(Some(vm_of(key))),
            list: |vms| vms,
            next_page: "",
            validate: Vec::new,
            vms: Vec::new(),
            deletes: Vec::new(),
        }));
        let listener = tokio::net::UnixListener::bind(socket).expect("the path is free");
        // The bound on what is sent is the manager's to keep.
        let service = DriverServiceServer::new(Voice(Arc::clone(&script))).max_encoding_message_size(usize::MAX);
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                let one = futures::stream::iter([Ok::<_, std::io::Error>(stream)]);
                connections.spawn(
                    tonic::transport::Server::builder()
                        .add_service(service)
                        .serve_with_incoming(one),
                );
            }
        });
        Self {
            script,
            socket: socket.to_owned(),
            serving,
        }
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// What it answers to CreateMachine from now on.
    pub fn creates(&self, create: Create) {
        self.script().create = create;
    }

    /// What it makes of the list of its VMs from now on.
    pub fn lists(&self, list: List) {
        self.script().list = list;
    }

    /// From now on each page of a list names the same next one.
    pub fn lists_without_end(&self) {
        self.script().next_page = "again";
    }

    /// What it says of classes from now on.
    pub fn validates(&self, validate: fn() -> Vec<v1::Violation>) {
        self.script().validate = validate;
    }

    /// The machines whose VMs it was to delete so far.
    pub fn deletes(&self) -> Vec<String> {
        self.script().deletes.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("nobody panics with it")
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The VM of a machine as the contract has it.
pub fn vm_of(key: v1::MachineKey) -> v1::Machine {
    v1::Machine {
        provider_id: format!("{NAME}:///{}", key.uid),
        node_name: key.name.clone(),
        key: Some(key),
        state: v1::machine::State::Running.into(),
        create_time: Some(prost_types::Timestamp::from(std::time::SystemTime::now())),
        ..Default::default()
    }
}

struct Voice(Arc<Mutex<Script>>);

impl Voice {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("nobody panics with it")
    }
}

#[tonic::async_trait]
impl DriverService for Voice {
    async fn get_driver_info(
        &self,
        _: Request<v1::GetDriverInfoRequest>,
    ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
        Ok(Response::new(v1::GetDriverInfoResponse {
            name: NAME.to_owned(),
            vendor_version: "1".to_owned(),
            capabilities: vec![v1::Capability::ValidateMachineClass.into()],
            ..Default::default()
        }))
    }

    async fn create_machine(
        &self,
        request: Request<v1::CreateMachineRequest>,
    ) -> Result<Response<v1::CreateMachineResponse>, Status> {
        let key = request.into_inner().key.unwrap_or_default();
        let mut script = self.script();
        let machine = (script.create)(key)?;
        let made = machine.iter().filter(|vm| !vm.provider_id.is_empty()).cloned();
        script.vms.extend(made);
        Ok(Response::new(v1::CreateMachineResponse {
            machine,
            ..Default::default()
        }))
    }

    async fn delete_machine(
        &self,
        request: Request<v1::DeleteMachineRequest>,
    ) -> Result<Response<v1::DeleteMachineResponse>, Status> {
        let key = request.into_inner().key.unwrap_or_default();
        let mut script = self.script();
        script.vms.retain(|vm| vm.key.as_ref() != Some(&key));
        script.deletes.push(key.name);
        Ok(Response::new(v1::DeleteMachineResponse {
            state: v1::machine::State::Deleted.into(),
            ..Default::default()
        }))
    }

    async fn get_machine_status(
        &self,
        request: Request<v1::GetMachineStatusRequest>,
    ) -> Result<Response<v1::GetMachineStatusResponse>, Status> {
        let key = request.into_inner().key;
        let found = self.script().vms.iter().find(|vm| vm.key == key).cloned();
        let machine = Some(found.ok_or_else(|| Status::not_found("there is no such VM"))?);
        Ok(Response::new(v1::GetMachineStatusResponse {
            machine,
            ..Default::default()
        }))
    }

    async fn list_machines(
        &self,
        _: Request<v1::ListMachinesRequest>,
    ) -> Result<Response<v1::ListMachinesResponse>, Status> {
        let script = self.script();
        let machines = (script.list)(script.vms.clone());
        Ok(Response::new(v1::ListMachinesResponse {
            machines,
            next_page_token: script.next_page.to_owned(),
            ..Default::default()
        }))
    }

    async fn validate_machine_class(
        &self,
        _: Request<v1::ValidateMachineClassRequest>,
    ) -> Result<Response<v1::ValidateMachineClassResponse>, Status> {
        Ok(Response::new(v1::ValidateMachineClassResponse {
            violations: (self.script().validate)(),
            ..Default::default()
        }))
    }
}
