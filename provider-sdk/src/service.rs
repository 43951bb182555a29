//! The generated service around an author's driver: for each call admit, validate, translate, run, translate back.
//!
//! Decides the order of these checks and that mutating calls fly (`flight.rs`). Every answer leaves through one place,
//! [`Service::answer`], which catches what panics, counts, logs and makes the status.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millwright_proto::v1;
use millwright_proto::v1::driver_service_server::DriverService;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use crate::call::{Asked, Call, Observation};
use crate::deadline::deadline_of;
use crate::driver::Driver;
use crate::epoch::{Epochs, epoch_of};
use crate::error::DriverError;
use crate::flight::{FlightKey, Flights, Kind, Limits, Lookup, catch_panic};
use crate::metrics::Metrics;
use crate::page::Seal;
use crate::peer::Peers;
use crate::reason::Reason;
use crate::types::{Context, DriverInfo};
use crate::validate::Validator;
use crate::{translate, watch};

/// Default and shortest time between two signs of life of a watch.
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(30);
const HEARTBEAT_MIN: Duration = Duration::from_secs(5);

/// Everything that the calls of one process share.
pub(crate) struct Service<D> {
    driver: Arc<D>,
    info: DriverInfo,
    flights: Flights<Landed>,
    epochs: Epochs,
    peers: Peers,
    metrics: Metrics,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// The answer of a flight. Cloned for each caller that joined.
#[derive(Clone)]
enum Landed {
    Created(Box<v1::CreateMachineResponse>),
    Initialized(Box<v1::InitializeMachineResponse>),
    Deleted(v1::DeleteMachineResponse),
}

/// What is known of a call besides its message.
struct Head {
    call: Call,
    context: Context,
    epoch: Option<u64>,
}

impl<D: Driver> Service<D> {
    /// `greatest_age` is that of a piece of work.
    pub(crate) fn new(
        driver: D,
        peers: Peers,
        metrics: Metrics,
        tasks: TaskTracker,
        stopping: CancellationToken,
        greatest_age: Duration,
    ) -> Self {
        let info = driver.info();
        let limits = Limits {
            work: greatest_age,
            propagation: info.propagation_delay,
        };
        let flights = Flights::new(tasks.clone(), metrics.clone(), limits);
        Self {
            driver: Arc::new(driver),
            info,
            flights,
            epochs: Epochs::default(),
            peers,
            metrics,
            tasks,
            stopping,
        }
    }

    /// Whether the caller may make the call at all, and what its metadata says.
    fn admit<T>(&self, call: Call, request: &Request<T>) -> Result<Head, DriverError> {
        self.peers.admit(request.extensions())?;
        if call
            .capability()
            .is_some_and(|needed| !self.info.capabilities.contains(&needed))
        {
            return Err(DriverError::unimplemented(call.name()));
        }
        // The deadline of one caller must not end work that outlives it and that others join.
        let deadline = deadline_of(request.metadata(), Instant::now()).filter(|_| !call.mutating());
        Ok(Head {
            call,
            context: Context::new(deadline, self.stopping.clone()),
            epoch: epoch_of(request.metadata())?,
        })
    }

    /// Refuses a stale leader. After validation, so that only a real `cluster_id` is remembered.
    fn fence(&self, head: &Head, cluster_id: &str) -> Result<(), DriverError> {
        self.epochs.admit(cluster_id, head.epoch, head.call.mutating())
    }

    fn validator(&self) -> Validator<'_> {
        Validator::new(&self.info.name)
    }

    /// Runs a call to its answer. Dropped at the caller's deadline; what must not be dropped is in a flight.
    async fn answer<T>(
        &self,
        call: Call,
        asked: Asked,
        work: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<Response<T>, Status> {
        let spans = call.spans(&asked);
        let alive = Some(self.tasks.token());
        let seen = Observation::new(call, &spans, self.metrics.clone(), alive);
        let answer = async {
            match catch_panic(work).await {
                Ok(answer) => {
                    seen.succeeded();
                    Ok(Response::new(answer))
                }
                Err(error) => Err(seen.failed(&error)),
            }
        };
        spans.around(answer).await
    }

    async fn create(
        &self,
        request: Request<v1::CreateMachineRequest>,
    ) -> Result<v1::CreateMachineResponse, DriverError> {
        let head = self.admit(Call::CreateMachine, &request)?;
        self.validator().create_machine(request.get_ref())?;
        let request = translate::create_machine(request.into_inner());
        self.fence(&head, &request.key.cluster_id)?;

        let flight = FlightKey::new(&request.key, "");
        let kind = Kind::Create {
            spec_digest: request.spec_digest.clone(),
        };
        let driver = Arc::clone(&self.driver);
        let work = |cancelled| async move {
            let key = request.key.clone();
            let answer = driver.create_machine(request, head.context.until(cancelled)).await?;
            Ok(Landed::Created(Box::new(translate::created(answer, &key)?)))
        };
        match self.flights.run(flight, kind, work).await? {
            Landed::Created(answer) => Ok(*answer),
            Landed::Initialized(_) | Landed::Deleted(_) => Err(wrong_landing()),
        }
    }

    async fn initialize(
        &self,
        request: Request<v1::InitializeMachineRequest>,
    ) -> Result<v1::InitializeMachineResponse, DriverError> {
        let head = self.admit(Call::InitializeMachine, &request)?;
        self.validator().initialize_machine(request.get_ref())?;
        let request = translate::initialize_machine(request.into_inner());
        self.fence(&head, &request.key.cluster_id)?;

        let flight = FlightKey::new(&request.key, &request.provider_id);
        let (driver, lookup) = (Arc::clone(&self.driver), self.flights.lookup(&flight));
        let work = |cancelled| async move {
            let key = request.key.clone();
            let answer = driver
                .initialize_machine(request, head.context.until(cancelled))
                .await
                .map_err(|error| no_fact_yet(&lookup, error))?;
            Ok(Landed::Initialized(Box::new(translate::initialized(answer, &key)?)))
        };
        match self.flights.run(flight, Kind::Initialize, work).await? {
            Landed::Initialized(answer) => Ok(*answer),
            Landed::Created(_) | Landed::Deleted(_) => Err(wrong_landing()),
        }
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteMachineRequest>,
    ) -> Result<v1::DeleteMachineResponse, DriverError> {
        let head = self.admit(Call::DeleteMachine, &request)?;
        self.validator().delete_machine(request.get_ref())?;
        let request = translate::delete_machine(request.into_inner());
        self.fence(&head, &request.key.cluster_id)?;

        let flight = FlightKey::new(&request.key, &request.provider_id);
        let (driver, lookup) = (Arc::clone(&self.driver), self.flights.lookup(&flight));
        let work = |cancelled| async move {
            let answer = driver
                .delete_machine(request, head.context.until(cancelled))
                .await
                .map_err(|error| no_fact_yet(&lookup, error))?;
            let answer = translate::deletion(answer)?;
            Ok(Landed::Deleted(match lookup.settling() {
                Some(left) => translate::not_deleted_yet(answer, left),
                None => answer,
            }))
        };
        match self.flights.run(flight, Kind::Delete, work).await? {
            Landed::Deleted(answer) => Ok(answer),
            Landed::Created(_) | Landed::Initialized(_) => Err(wrong_landing()),
        }
    }

    async fn status(
        &self,
        request: Request<v1::GetMachineStatusRequest>,
    ) -> Result<v1::GetMachineStatusResponse, DriverError> {
        let head = self.admit(Call::GetMachineStatus, &request)?;
        self.validator().get_machine_status(request.get_ref())?;
        let request = translate::get_machine_status(request.into_inner());
        self.fence(&head, &request.key.cluster_id)?;
        let (key, provider_id) = (request.key.clone(), request.provider_id.clone());
        let lookup = self.flights.lookup(&FlightKey::new(&key, &provider_id));
        let answer = self.driver.get_machine_status(request, head.context).await;
        let answer = answer.map_err(|error| no_fact_yet(&lookup, error))?;
        translate::status(answer, &key, &provider_id)
    }

    async fn list(&self, request: Request<v1::ListMachinesRequest>) -> Result<v1::ListMachinesResponse, DriverError> {
        let head = self.admit(Call::ListMachines, &request)?;
        self.validator().list_machines(request.get_ref())?;
        let mut request = translate::list_machines(request.into_inner());
        self.fence(&head, &request.cluster_id)?;
        let seal = Seal::new(&request.cluster_id, &request.machine_class);
        request.cursor = seal.open(&request.cursor)?;
        let (cluster_id, page_size) = (request.cluster_id.clone(), request.page_size);
        let page = self.driver.list_machines(request, head.context).await?;
        translate::page(page, &seal, &cluster_id, page_size)
    }

    /// The author's stream and the time between heartbeats.
    async fn open_watch(&self, request: Request<v1::WatchMachinesRequest>) -> Result<watch::Source, DriverError> {
        let head = self.admit(Call::WatchMachines, &request)?;
        self.validator().watch_machines(request.get_ref())?;
        let request = request.into_inner();
        let heartbeat = request
            .heartbeat_interval
            .and_then(|interval| Duration::try_from(interval).ok());
        let request = translate::watch_machines(request);
        self.fence(&head, &request.cluster_id)?;
        let cluster_id = request.cluster_id.clone();
        let events = self.driver.watch_machines(request, head.context).await?;
        let heartbeat = heartbeat.unwrap_or(HEARTBEAT_DEFAULT).max(HEARTBEAT_MIN);
        Ok(watch::Source {
            cluster_id,
            events,
            heartbeat,
        })
    }
}

/// Absence is no fact where a VM of the process before, or of a creation that was given up, may show only since the lookup began (GEN-18).
fn no_fact_yet(lookup: &Lookup<Landed>, error: DriverError) -> DriverError {
    match lookup.settling() {
        Some(left) if error.reason() == &Reason::MachineNotFound => {
            let text = format!("{}; but what was made a moment ago may not show yet", error.message());
            DriverError::unavailable(text).retry_after(left)
        }
        _ => error,
    }
}

/// Flights of one kind land with the answer of that kind: only those of equal kinds are joined.
fn wrong_landing() -> DriverError {
    DriverError::fault("the SDK joined two calls of different kinds")
}

#[tonic::async_trait]
impl<D: Driver> DriverService for Service<D> {
    async fn get_driver_info(
        &self,
        request: Request<v1::GetDriverInfoRequest>,
    ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
        self.answer(Call::GetDriverInfo, Asked::by(&request), async {
            self.admit(Call::GetDriverInfo, &request)?;
            let manager = request.get_ref();
            tracing::debug!(
                name = manager.manager_name,
                version = manager.manager_version,
                "a manager asks"
            );
            Ok(translate::driver_info(self.info.clone()))
        })
        .await
    }

    async fn create_machine(
        &self,
        request: Request<v1::CreateMachineRequest>,
    ) -> Result<Response<v1::CreateMachineResponse>, Status> {
        let asked = Asked::about(request.get_ref().key.as_ref(), &request);
        self.answer(Call::CreateMachine, asked, self.create(request)).await
    }

    async fn initialize_machine(
        &self,
        request: Request<v1::InitializeMachineRequest>,
    ) -> Result<Response<v1::InitializeMachineResponse>, Status> {
        let asked = Asked::about(request.get_ref().key.as_ref(), &request);
        self.answer(Call::InitializeMachine, asked, self.initialize(request))
            .await
    }

    async fn delete_machine(
        &self,
        request: Request<v1::DeleteMachineRequest>,
    ) -> Result<Response<v1::DeleteMachineResponse>, Status> {
        let asked = Asked::about(request.get_ref().key.as_ref(), &request);
        self.answer(Call::DeleteMachine, asked, self.delete(request)).await
    }

    async fn get_machine_status(
        &self,
        request: Request<v1::GetMachineStatusRequest>,
    ) -> Result<Response<v1::GetMachineStatusResponse>, Status> {
        let asked = Asked::about(request.get_ref().key.as_ref(), &request);
        self.answer(Call::GetMachineStatus, asked, self.status(request)).await
    }

    async fn list_machines(
        &self,
        request: Request<v1::ListMachinesRequest>,
    ) -> Result<Response<v1::ListMachinesResponse>, Status> {
        self.answer(Call::ListMachines, Asked::by(&request), self.list(request))
            .await
    }

    async fn watch_machines(
        &self,
        request: Request<v1::WatchMachinesRequest>,
    ) -> Result<Response<BoxStream<v1::WatchMachinesResponse>>, Status> {
        let spans = Call::WatchMachines.spans(&Asked::by(&request));
        // The end of the process waits for no watch: a client that does not read would hold it up.
        let seen = Observation::new(Call::WatchMachines, &spans, self.metrics.clone(), None);
        let answer = async {
            match catch_panic(self.open_watch(request)).await {
                Ok(source) => Ok(Response::new(watch::stream(source, self.stopping.clone(), seen))),
                Err(error) => Err(seen.failed(&error)),
            }
        };
        spans.around(answer).await
    }

    async fn get_machine_class_schema(
        &self,
        request: Request<v1::GetMachineClassSchemaRequest>,
    ) -> Result<Response<v1::GetMachineClassSchemaResponse>, Status> {
        self.answer(Call::GetMachineClassSchema, Asked::by(&request), async {
            self.admit(Call::GetMachineClassSchema, &request)?;
            translate::class_schema(self.driver.machine_class_schema()?)
        })
        .await
    }

    async fn validate_machine_class(
        &self,
        request: Request<v1::ValidateMachineClassRequest>,
    ) -> Result<Response<v1::ValidateMachineClassResponse>, Status> {
        self.answer(Call::ValidateMachineClass, Asked::by(&request), async {
            let head = self.admit(Call::ValidateMachineClass, &request)?;
            self.validator().validate_machine_class(request.get_ref())?;
            let request = translate::validate_machine_class(request.into_inner());
            translate::class_report(self.driver.validate_machine_class(request, head.context).await?)
        })
        .await
    }

    async fn get_node_template(
        &self,
        request: Request<v1::GetNodeTemplateRequest>,
    ) -> Result<Response<v1::GetNodeTemplateResponse>, Status> {
        self.answer(Call::GetNodeTemplate, Asked::by(&request), async {
            let head = self.admit(Call::GetNodeTemplate, &request)?;
            self.validator().get_node_template(request.get_ref())?;
            let request = translate::get_node_template(request.into_inner());
            Ok(translate::node_template(
                self.driver.node_template(request, head.context).await?,
            ))
        })
        .await
    }
}
