//! Drivers that do harm without end: each a server of this test on a socket and under a name of its own, hostile in one way. Written on
//! the generated server, because the SDK keeps its authors from all of this.
//!
//! All of them share one thread: together they take no more than one core, whatever the manager reads.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millwright_proto::v1;
use millwright_proto::v1::driver_service_server::{DriverService, DriverServiceServer};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

/// A value of every class's Secret, which each of them quotes wherever there is a text for people.
pub const PASSWORD: &str = "correct-horse-battery";
/// Nearly as much as a message may have.
const A_MESSAGE: usize = 4_000_000;

/// What a driver does without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It tells of ever other VMs in messages of a megabyte, and never of all.
    LargeMessages,
    /// It tells, as fast as the stream takes it, that its VMs stopped and that they are gone. Asked for them, it says that they run.
    BadNews,
    /// It tells of VMs of another cluster, as fast as the stream takes it, and lists such.
    Strangers,
    /// Its list goes on and on, with long ids.
    Pages,
    /// Its list goes on and on with one token.
    OneToken,
    /// Its list is of so many empty VMs as two bytes each fit into a message.
    EmptyVms,
    /// The VMs of its list have the longest names, and crumbs that are too long.
    LongNames,
    /// Its list is of other VMs each time, and of none can be told whose it is.
    Unmarked,
    /// It fails with megabytes of lines.
    LongErrors,
    /// It finds 1,200 faults in each class, and refuses each creation: the manager asks for one where the check's answer came too late.
    Violations,
    /// The ids of its VMs have 100 KB.
    LongIds,
    /// Its VMs have 20,000 addresses.
    Addresses,
    /// It answers nothing after its name.
    Hangs,
    /// It closes each connection.
    Closes,
}

impl Way {
    pub const ALL: [Self; 14] = [
        Self::LargeMessages,
        Self::BadNews,
        Self::Strangers,
        Self::Pages,
        Self::OneToken,
        Self::EmptyVms,
        Self::LongNames,
        Self::Unmarked,
        Self::LongErrors,
        Self::Violations,
        Self::LongIds,
        Self::Addresses,
        Self::Hangs,
        Self::Closes,
    ];

    /// The driver's name.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Whether its Machines get VMs that the manager may keep.
    pub fn makes_vms(self) -> bool {
        use Way::{
            Addresses, BadNews, Closes, EmptyVms, Hangs, LargeMessages, LongErrors, LongIds, LongNames, OneToken,
            Pages, Strangers, Unmarked, Violations,
        };
        match self {
            LargeMessages | BadNews | Strangers | Pages | OneToken | EmptyVms | LongNames | Unmarked | Addresses => {
                true
            }
            LongErrors | Violations | LongIds | Hangs | Closes => false,
        }
    }
}

/// All of them, listening. Dropping it ends them.
pub struct Hostile {
    /// Dropped, it ends them.
    end: Option<oneshot::Sender<()>>,
    deletes: Arc<Mutex<Vec<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Hostile {
    /// Each at the socket that `socket` names for it.
    pub fn all(socket: impl Fn(Way) -> std::path::PathBuf) -> Self {
        let (end, ended) = oneshot::channel::<()>();
        let deletes = Arc::<Mutex<Vec<String>>>::default();
        let sockets: Vec<_> = Way::ALL.map(|way| (way, socket(way))).into();
        let deleted = Arc::clone(&deletes);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut all = JoinSet::new();
                for (way, socket) in sockets {
                    all.spawn(serve(way, listener(&socket), Arc::clone(&deleted)));
                }
                drop(ended.await);
            });
        });
        Self {
            end: Some(end),
            deletes,
            thread: Some(thread),
        }
    }

    /// The machines whose VMs they were to delete so far.
    pub fn deletes(&self) -> Vec<String> {
        self.deletes.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn listener(socket: &Path) -> UnixListener {
    UnixListener::bind(socket).expect("the path is free")
}

async fn serve(way: Way, listener: UnixListener, deletes: Arc<Mutex<Vec<String>>>) {
    let voice = Voice {
        way,
        count: Arc::default(),
        vms: Arc::default(),
        deletes,
    };
    let service = DriverServiceServer::new(voice).max_encoding_message_size(usize::MAX);
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        if way == Way::Closes {
            continue;
        }
        let one = futures::stream::iter([Ok::<_, std::io::Error>(stream)]);
        let server = tonic::transport::Server::builder().add_service(service.clone());
        connections.spawn(server.serve_with_incoming(one));
        while connections.try_join_next().is_some() {}
    }
}

struct Voice {
    way: Way,
    /// No two ids are the same.
    count: Arc<AtomicU64>,
    /// The VMs that it has made.
    vms: Arc<Mutex<Vec<v1::Machine>>>,
    deletes: Arc<Mutex<Vec<String>>>,
}

/// What a text for people says, so that none of it may be passed on as it is.
fn text(bytes: usize) -> String {
    let line = format!("login with {PASSWORD} failed\n2026 ERROR forged: the end is near\n");
    line.repeat(bytes / line.len() + 1)
}

impl Voice {
    fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    fn vms(&self) -> Vec<v1::Machine> {
        self.vms.lock().expect("nobody panics with it").clone()
    }

    /// The VM of a machine.
    fn vm_of(&self, key: v1::MachineKey) -> v1::Machine {
        let id = format!("{}:///{}", self.way.name(), key.uid);
        let address = |number: usize| v1::NodeAddress {
            r#type: v1::node_address::Type::InternalIp.into(),
            address: format!("10.0.{}.{}", number / 256 % 256, number % 256),
        };
        v1::Machine {
            provider_id: match self.way {
                Way::LongIds => format!("{id}{}", "x".repeat(100_000)),
                _ => id,
            },
            addresses: match self.way {
                Way::Addresses => (0..20_000).map(address).collect(),
                _ => Vec::new(),
            },
            state_message: text(1000),
            node_name: key.name.clone(),
            key: Some(key),
            state: v1::machine::State::Running.into(),
            create_time: Some(prost_types::Timestamp::from(std::time::SystemTime::now())),
            ..Default::default()
        }
    }

    /// A VM that nobody asked for.
    fn stranger(&self, cluster_id: &str, id_bytes: usize) -> v1::Machine {
        let number = self.number();
        let key = v1::MachineKey {
            cluster_id: cluster_id.to_owned(),
            namespace: "n".repeat(250),
            name: format!("of-nobody-{number}"),
            uid: format!("uid-{number}"),
        };
        v1::Machine {
            provider_id: format!("{number:0id_bytes$}"),
            ..self.vm_of(key)
        }
    }

    fn page(&self, cluster_id: &str) -> (Vec<v1::Machine>, String) {
        let many = |count: usize, of: &dyn Fn() -> v1::Machine| (0..count).map(|_| of()).collect::<Vec<_>>();
        match self.way {
            Way::Pages => {
                let vms = many(900, &|| self.stranger(cluster_id, 500));
                (vms, format!("{:0400}", self.number()))
            }
            Way::OneToken => (many(1000, &|| self.stranger(cluster_id, 500)), "again".to_owned()),
            Way::EmptyVms => (vec![v1::Machine::default(); A_MESSAGE / 2], String::new()),
            Way::Strangers => (many(900, &|| self.stranger("another", 40)), String::new()),
            Way::Unmarked => {
                let unmarked = || v1::Machine {
                    key: None,
                    ..self.stranger(cluster_id, 40)
                };
                (many(1000, &unmarked), String::new())
            }
            Way::LongNames => {
                let long = || {
                    let mut vm = self.stranger(cluster_id, 40);
                    if let Some(key) = &mut vm.key {
                        (key.name, key.uid) = ("m".repeat(40_000), "u".repeat(40_000));
                    }
                    vm.last_known_state = "s".repeat(10_000);
                    vm
                };
                (many(40, &long), self.number().to_string())
            }
            Way::LargeMessages
            | Way::BadNews
            | Way::LongErrors
            | Way::Violations
            | Way::LongIds
            | Way::Addresses
            | Way::Hangs
            | Way::Closes => (self.vms(), String::new()),
        }
    }

    /// The next thing that it tells.
    fn news(&self, cluster_id: &str) -> v1::WatchMachinesResponse {
        use v1::watch_machines_response::Type;
        let number = self.number();
        let (kind, machine) = match self.way {
            Way::BadNews => {
                let mut vms = self.vms();
                let at = usize::try_from(number).unwrap_or(0) / 2 % vms.len().max(1);
                let vm = (!vms.is_empty()).then(|| vms.swap_remove(at));
                match number % 2 {
                    0 => {
                        let state = v1::machine::State::Stopped.into();
                        (Type::Upsert, vm.map(|vm| v1::Machine { state, ..vm }))
                    }
                    _ => (Type::Deleted, vm),
                }
            }
            Way::Strangers => (Type::Upsert, Some(self.stranger("another", 40))),
            _ => {
                let state_message = "x".repeat(1 << 20);
                let vm = self.stranger(cluster_id, 500);
                (Type::Upsert, Some(v1::Machine { state_message, ..vm }))
            }
        };
        v1::WatchMachinesResponse {
            r#type: kind.into(),
            machine,
            resume_token: number.to_string(),
        }
    }

    /// Returns at once, or never.
    async fn hang(&self) {
        if self.way == Way::Hangs {
            std::future::pending::<()>().await;
        }
    }
}

#[tonic::async_trait]
impl DriverService for Voice {
    async fn get_driver_info(
        &self,
        _: Request<v1::GetDriverInfoRequest>,
    ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
        let watches = matches!(
            self.way,
            Way::LargeMessages | Way::BadNews | Way::Strangers | Way::Hangs
        );
        let watches = watches.then_some(v1::Capability::WatchMachines.into());
        Ok(Response::new(v1::GetDriverInfoResponse {
            name: self.way.name(),
            vendor_version: "v".repeat(100_000),
            capabilities: watches
                .into_iter()
                .chain([v1::Capability::ValidateMachineClass.into()])
                .collect(),
            ..Default::default()
        }))
    }

    async fn create_machine(
        &self,
        request: Request<v1::CreateMachineRequest>,
    ) -> Result<Response<v1::CreateMachineResponse>, Status> {
        self.hang().await;
        if self.way == Way::LongErrors {
            // Short enough for the header of an answer, or not.
            let bytes = if self.number().is_multiple_of(2) {
                4000
            } else {
                3_000_000
            };
            return Err(Status::internal(text(bytes)));
        }
        if self.way == Way::Violations {
            return Err(Status::invalid_argument(text(4000)));
        }
        let machine = self.vm_of(request.into_inner().key.unwrap_or_default());
        self.vms.lock().expect("nobody panics with it").push(machine.clone());
        Ok(Response::new(v1::CreateMachineResponse {
            machine: Some(machine),
            ..Default::default()
        }))
    }

    async fn delete_machine(
        &self,
        request: Request<v1::DeleteMachineRequest>,
    ) -> Result<Response<v1::DeleteMachineResponse>, Status> {
        let key = request.into_inner().key.unwrap_or_default();
        self.deletes.lock().expect("nobody panics with it").push(key.name);
        self.hang().await;
        Err(Status::internal(text(4000)))
    }

    async fn get_machine_status(
        &self,
        request: Request<v1::GetMachineStatusRequest>,
    ) -> Result<Response<v1::GetMachineStatusResponse>, Status> {
        self.hang().await;
        let key = request.into_inner().key;
        let found = self.vms().into_iter().find(|vm| vm.key == key);
        let machine = Some(found.ok_or_else(|| Status::not_found(text(4000)))?);
        Ok(Response::new(v1::GetMachineStatusResponse {
            machine,
            ..Default::default()
        }))
    }

    async fn list_machines(
        &self,
        request: Request<v1::ListMachinesRequest>,
    ) -> Result<Response<v1::ListMachinesResponse>, Status> {
        self.hang().await;
        if self.way == Way::LongErrors {
            return Err(Status::internal(text(4000)));
        }
        let (machines, next_page_token) = self.page(&request.into_inner().cluster_id);
        Ok(Response::new(v1::ListMachinesResponse {
            machines,
            next_page_token,
            unreachable: match self.way {
                Way::BadNews => vec![text(1000); 1000],
                _ => Vec::new(),
            },
        }))
    }

    async fn watch_machines(
        &self,
        request: Request<v1::WatchMachinesRequest>,
    ) -> Result<Response<BoxStream<v1::WatchMachinesResponse>>, Status> {
        self.hang().await;
        let cluster_id = request.into_inner().cluster_id;
        let voice = Self {
            way: self.way,
            count: Arc::clone(&self.count),
            vms: Arc::clone(&self.vms),
            deletes: Arc::clone(&self.deletes),
        };
        let news = futures::stream::unfold((voice, cluster_id), async |(voice, cluster_id)| {
            // The other drivers of the thread have their turns.
            tokio::task::yield_now().await;
            Some((Ok(voice.news(&cluster_id)), (voice, cluster_id)))
        });
        Ok(Response::new(Box::pin(news)))
    }

    async fn validate_machine_class(
        &self,
        _: Request<v1::ValidateMachineClassRequest>,
    ) -> Result<Response<v1::ValidateMachineClassResponse>, Status> {
        self.hang().await;
        let one = v1::Violation {
            field: "/size".into(),
            severity: v1::violation::Severity::Error.into(),
            reason: "BAD".into(),
            description: text(1000),
        };
        let count = if self.way == Way::Violations { 1200 } else { 0 };
        Ok(Response::new(v1::ValidateMachineClassResponse {
            violations: vec![one; count],
            inventory_key: self.way.name(),
            locator: None,
        }))
    }
}
