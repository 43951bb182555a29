//! The virtual driver in one life of its process, with what may go wrong behind the wire: at the cloud, and in what the
//! driver itself says. A process that died does nothing more, whatever it was about.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use millwright_provider_sdk::{
    Capability, ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError,
    DriverInfo, GetMachineStatus, GetNodeTemplate, ListMachines, MachinePage, MachineStatus, NodeTemplate, Outcome,
    Reason, ValidateMachineClass, WatchMachines, WatchStream,
};
use millwright_provider_virtual::driver::VirtualDriver;
use serde_json::json;

use crate::account::{Account, bare, no_stock, throttled};
use crate::call_fault::CallFault;
use crate::process::Process;
use crate::workload::body::ZONE;
use crate::world::World;

/// A boot that nobody lives to see.
const NEVER: &str = "1000h";

/// One process.
pub struct Provider {
    /// The driver.
    pub driver: VirtualDriver,
    /// The world.
    pub world: Arc<World>,
    /// The account at the cloud.
    pub account: Arc<Account>,
    /// The process's life.
    pub process: Arc<Process>,
    /// An older version, without any capability.
    pub is_old: bool,
}

impl Provider {
    /// Works as long as the process lives; then nobody hears of it again.
    async fn live<T>(&self, work: impl Future<Output = T>) -> T {
        self.process.pass(work).await
    }

    /// What is asked of the cloud is metered.
    fn begin(&self, method: &str, uid: &str) -> Result<Option<CallFault>, DriverError> {
        let call_fault = self.account.ordered(method, uid);
        if call_fault == Some(CallFault::Throttle) {
            return Err(throttled(Duration::from_secs(7)));
        }
        self.account.heed(method)?;
        self.account.meter(method)?;
        Ok(call_fault)
    }

    async fn create(&self, mut request: CreateMachine, context: Context) -> Result<MachineStatus, DriverError> {
        let call_fault = self.begin("CreateMachine", &request.key.uid)?;
        match call_fault {
            Some(CallFault::Excuse) => return Err(self.honest()),
            Some(CallFault::NoStock) => return Err(no_stock(&request)),
            Some(CallFault::NeverBoots) => request = never_boots(request),
            Some(CallFault::FailsLater) => {
                self.account.fail_later(&request.key.uid);
                request = never_boots(request);
            }
            _ => self.account.admit(&request)?,
        }
        if let Some(launch) = (self.world.hooks.second_order)(&self.world.cloud, &request.key.uid) {
            // What comes of it is seen by what there is.
            self.world.cloud.run_vm(launch).await.ok();
        }
        let status = self.driver.create_machine(request, context).await?;
        match call_fault {
            Some(CallFault::Partial) => {
                let id = status.machine.provider_id;
                let error = DriverError::new(Reason::DriverFault, "the VM is there, its network card is not");
                Err(error.outcome(Outcome::Partial).provider_ids([id]))
            }
            Some(CallFault::Bare) => Ok(bare(status, None)),
            _ => Ok(self.account.failing(status)),
        }
    }

    /// Why a creation may fail that was never begun.
    fn honest(&self) -> DriverError {
        let (zone, instance_type) = (String::new(), String::new());
        let all = [
            Reason::ProviderUnavailable,
            Reason::CapacityUnavailable { zone, instance_type },
            Reason::QuotaExceeded { quota: String::new() },
            Reason::RateLimited,
            Reason::CredentialsRejected,
            Reason::AccessDenied { action: String::new() },
            Reason::DriverFault,
        ];
        let nth = self
            .world
            .choose("reason", u32::try_from(all.len()).unwrap_or(u32::MAX)) as usize;
        let reason = all.into_iter().nth(nth).unwrap_or(Reason::ProviderUnavailable);
        DriverError::new(reason, "made up by the simulator")
    }

    async fn delete(&self, request: DeleteMachine, context: Context) -> Result<Deletion, DriverError> {
        let call_fault = self.begin("DeleteMachine", &request.key.uid)?;
        let key = request.key.clone();
        let deletion = self.driver.delete_machine(request, context).await?;
        // What lookups show cannot be said to be gone.
        if deletion == Deletion::Deleted && self.account.ghost(&key).is_some() {
            return Ok(Deletion::deleting(Duration::from_secs(1)));
        }
        match call_fault {
            // It may be gone: asked again, the driver will say so.
            Some(CallFault::Bare) => Ok(Deletion::Deleting {
                poll_after: None,
                last_known_state: String::new(),
            }),
            _ => Ok(deletion),
        }
    }

    /// A listing, perhaps one that is wrong in a way that the contract lets pass, or that nobody can tell.
    async fn list(&self, mut request: ListMachines, context: Context) -> Result<MachinePage, DriverError> {
        let call_fault = self.begin("ListMachines", "")?;
        if call_fault == Some(CallFault::SmallPages) {
            request.page_size = 1;
        }
        let cluster = request.cluster_id.clone();
        let mut page = self.driver.list_machines(request, context).await?;
        match call_fault {
            Some(CallFault::Unreachable) => {
                if self.world.choose("unreachable", 2) == 1 {
                    page.machines.clear();
                }
                page.unreachable.push(ZONE.to_owned());
            }
            Some(CallFault::Truncated) => {
                page.machines.truncate(page.machines.len() / 2);
                page.next_cursor = String::new();
            }
            Some(CallFault::Empty) => page = MachinePage::default(),
            Some(CallFault::Stale) => page.machines.extend(self.account.ghosts(&cluster)),
            _ => {}
        }
        Ok(page)
    }

    async fn look(&self, request: GetMachineStatus, context: Context) -> Result<MachineStatus, DriverError> {
        let call_fault = self.begin("GetMachineStatus", &request.key.uid)?;
        if call_fault == Some(CallFault::Blind) {
            return Err(DriverError::not_found("made up by the simulator"));
        }
        let key = request.key.clone();
        match self.driver.get_machine_status(request, context).await {
            Ok(status) if call_fault == Some(CallFault::Bare) => Ok(bare(status, None)),
            Ok(status) => Ok(self.account.failing(status)),
            Err(error) if *error.reason() == Reason::MachineNotFound => self.account.ghost(&key).ok_or(error),
            Err(error) => Err(error),
        }
    }
}

fn never_boots(mut request: CreateMachine) -> CreateMachine {
    if let Some(spec) = request.machine_class.provider_spec.as_object_mut() {
        spec.insert("delays".to_owned(), json!({ "create": NEVER }));
    }
    request
}

/// A creation that the driver is at work on.
struct Creating(Arc<World>, String);

impl Creating {
    fn begin(world: &Arc<World>, uid: &str) -> Self {
        world.creation_begins(uid);
        Self(Arc::clone(world), uid.to_owned())
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        self.0.creation_ends(&self.1);
    }
}

impl Driver for Provider {
    fn info(&self) -> DriverInfo {
        let mut info = self.driver.info();
        // The simulator's wire gives whole answers only. What a manager does with notices is told by stories of core.
        info.capabilities
            .retain(|capability| *capability != Capability::WatchMachines);
        if !self.is_old {
            return info;
        }
        // It knows how long its cloud's lookups lag, as any driver must.
        let propagation_delay = info.propagation_delay;
        let mut info = DriverInfo::new(info.name, "0.0.1");
        info.propagation_delay = propagation_delay;
        info
    }

    async fn create_machine(&self, request: CreateMachine, context: Context) -> Result<MachineStatus, DriverError> {
        let creating = Creating::begin(&self.world, &request.key.uid);
        let work = async {
            let answer = self.create(request, context).await;
            drop(creating);
            answer
        };
        Box::pin(self.live(work)).await
    }

    async fn delete_machine(&self, request: DeleteMachine, context: Context) -> Result<Deletion, DriverError> {
        self.live(self.delete(request, context)).await
    }

    async fn get_machine_status(
        &self,
        request: GetMachineStatus,
        context: Context,
    ) -> Result<MachineStatus, DriverError> {
        self.live(self.look(request, context)).await
    }

    async fn list_machines(&self, request: ListMachines, context: Context) -> Result<MachinePage, DriverError> {
        self.live(self.list(request, context)).await
    }

    async fn watch_machines(&self, request: WatchMachines, context: Context) -> Result<WatchStream, DriverError> {
        self.live(self.driver.watch_machines(request, context)).await
    }

    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        self.driver.machine_class_schema()
    }

    async fn validate_machine_class(
        &self,
        request: ValidateMachineClass,
        context: Context,
    ) -> Result<ClassReport, DriverError> {
        self.live(self.driver.validate_machine_class(request, context)).await
    }

    async fn node_template(&self, request: GetNodeTemplate, context: Context) -> Result<NodeTemplate, DriverError> {
        self.live(self.driver.node_template(request, context)).await
    }
}
