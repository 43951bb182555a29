//! The Driver API on top of the simulated cloud, as a driver of a real one would be written.
//!
//! Knows the cloud only by what clouds offer: an order with a token, lookups and lists that may lag, a termination by
//! id. What it adds is the answer to one question: *when may absence be called a fact?*
//!
//! - A VM that this process ordered is remembered until lookups must show it, so that `get_machine_status` right after
//!   an accepted create never says `MACHINE_NOT_FOUND`, and `delete_machine` finds the VM to terminate.
//! - VMs that an earlier process ordered in its last moments are remembered by nobody. Until the propagation delay has
//!   passed since this process started, an empty lookup is therefore no fact: status and delete answer
//!   `PROVIDER_UNAVAILABLE` with the time that is left. No create of an earlier process can land later than its death,
//!   because the order is accepted within the call.
//! - A create of this process that is still running cannot slip past a delete: the SDK runs the calls of one uid one
//!   after the other. After `DELETED` the SDK's tombstone refuses the uid, and so does the cloud, whose token is spent.
//! - A repeated create needs no lookup at all: the cloud knows the token at once, whatever lists say.
//! - A region is an inventory of its own. Every call but the validation of a class is about the one that the class's locator names, or where
//!   there is no locator its spec; without one nothing is said to be absent.
//! - A VM that an older controller made is told by the marks that the class names (`ownership.rs`).

mod answer;
mod names;
mod ownership;
mod recent;
mod refusal;
mod watch;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use millwright_provider_sdk::{
    Capability, ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError,
    DriverInfo, GetMachineStatus, GetNodeTemplate, Identity, ListMachines, MachineClass, MachineKey, MachinePage,
    MachineStatus, NodeTemplate, Reason, SecretKey, ValidateMachineClass, WatchMachines, WatchStream,
};

use self::{
    names::Names,
    ownership::Ownership,
    recent::Recent,
    refusal::{PASSWORD, check_credentials, cloud_failure, failed_order, readable, too_early, warning_of_faults},
};
use crate::{
    clock,
    cloud::{Cloud, CloudError, Delays, Launch, Owner, Vm, VmId, id_in},
    fault::{Call, Due, Fault, Script},
    spec::{self, Span, Spec},
};

/// The driver's name: what `MachineClass.provider` says.
pub const NAME: &str = "virtual";

/// The driver of the simulated cloud.
pub struct VirtualDriver {
    cloud: Cloud,
    delays: Delays,
    list_lag: Duration,
    started: Timestamp,
    recent: Recent,
    names: Names,
    script: Script,
}

/// What a search for a Machine's VM came to.
enum Located {
    Found(Arc<Vm>),
    /// There is none: a fact.
    Absent,
    /// Nothing shows, but something may still appear for this long.
    TooEarly(Duration),
}

impl VirtualDriver {
    /// A driver for this cloud. `delays` are those of classes that set none, `list_lag` is the cloud's.
    pub fn new(cloud: Cloud, delays: Delays, list_lag: Duration) -> Self {
        let (recent, names, script) = (Recent::default(), Names::default(), Script::default());
        Self {
            started: cloud.now(),
            cloud,
            delays,
            list_lag,
            recent,
            names,
            script,
        }
    }

    fn locate(&self, region: &str, own: &Ownership, key: &MachineKey) -> Located {
        let now = self.cloud.now();
        if let Some(vm) = self
            .cloud
            .find_by_uid(region, &key.cluster_id, &key.uid)
            .filter(|_| !key.uid.is_empty())
        {
            return Located::Found(vm);
        }
        if let Some(vm) = self.older(region, own, key) {
            return Located::Found(vm);
        }
        if let Some(vm) = self.recent.by_uid(region, &key.cluster_id, &key.uid, now) {
            return Located::Found(vm);
        }
        self.nothing_shows()
    }

    /// The VM that an older controller made for the Machine: it bears no uid, and its name makes it the Machine's own.
    fn older(&self, region: &str, own: &Ownership, key: &MachineKey) -> Option<Arc<Vm>> {
        let mut named = self.cloud.find_by_name(region, &key.cluster_id, &key.name);
        named.extend(self.cloud.find_by_name(region, "", &key.name));
        named.into_iter().find(|vm| own.is_older_vm_of(vm, key))
    }

    /// The VM that a deletion is about. Without a uid only the id tells it from its namesakes.
    fn locate_doomed(&self, region: &str, own: &Ownership, request: &DeleteMachine) -> Located {
        if !request.key.uid.is_empty() {
            return self.locate(region, own, &request.key);
        }
        let found = id_in(&request.provider_id).and_then(|id| self.cloud.find_by_id(region, &id));
        found.map_or_else(|| self.nothing_shows(), Located::Found)
    }

    /// Nothing is there, if enough time has passed since this process started to be sure of it.
    fn nothing_shows(&self) -> Located {
        let now = self.cloud.now();
        let sure_from = clock::after(self.started, self.list_lag);
        if now < sure_from {
            return Located::TooEarly(clock::until(sure_from, now));
        }
        Located::Absent
    }

    /// The VM of a Machine that was restored from a backup: its id is named, and it bears the Machine's name and the uid of before.
    fn restored(&self, region: &str, key: &MachineKey, provider_id: &str) -> Option<Arc<Vm>> {
        let vm = self.cloud.find_by_id(region, &id_in(provider_id)?)?;
        key.may_be_restored_from(&ownership::key_of(&vm)).then_some(vm)
    }

    /// Refuses a provider id that points at somebody else's VM. An id of nothing is only a stale hint.
    fn refuse_foreign(
        &self,
        region: &str,
        own: &Ownership,
        key: &MachineKey,
        provider_id: &str,
    ) -> Result<(), DriverError> {
        let Some(id) = id_in(provider_id) else { return Ok(()) };
        let seen = self
            .cloud
            .find_by_id(region, &id)
            .or_else(|| self.recent.by_id(region, &id, self.cloud.now()));
        let Some(vm) = seen else { return Ok(()) };
        let is_own = vm.owner.cluster == key.cluster_id && !key.uid.is_empty() && vm.owner.uid == key.uid;
        if is_own || own.is_older_vm_of(&vm, key) {
            return Ok(());
        }
        let text = format!("{provider_id} bears the marks of another machine");
        Err(DriverError::new(Reason::NotOwned, text).provider_ids([provider_id]))
    }

    /// Refuses to make a second VM of one name in a cluster, namespace and region.
    fn refuse_name_conflict(&self, region: &str, key: &MachineKey) -> Result<(), DriverError> {
        let mut others = self.cloud.find_by_name(region, &key.cluster_id, &key.name);
        others.extend(
            self.recent
                .by_name(region, &key.cluster_id, &key.name, self.cloud.now()),
        );
        let Some(other) = others
            .into_iter()
            .find(|vm| vm.owner.namespace == key.namespace && vm.owner.uid != key.uid && !vm.owner.uid.is_empty())
        else {
            return Ok(());
        };
        let text = format!(
            "the VM of another machine with the uid {} has the name {}",
            other.owner.uid, key.name
        );
        Err(DriverError::new(Reason::NameConflict, text).provider_ids([other.provider_id()]))
    }

    fn launch(&self, request: CreateMachine, spec: Spec) -> Launch {
        let identity = Identity::of(&request);
        let key = identity.key;
        let pick = |wanted: Option<Span>, usual: Duration| wanted.map_or(usual, |Span(wanted)| wanted);
        Launch {
            token: key.uid.clone(),
            owner: Owner {
                cluster: key.cluster_id,
                namespace: key.namespace,
                name: key.name,
                uid: key.uid,
            },
            machine_class: identity.machine_class,
            spec_digest: identity.spec_digest,
            tags: request.tags,
            region: spec.region,
            zone: spec.zone,
            instance_type: spec.instance_type,
            delays: Delays {
                create: pick(spec.delays.create, self.delays.create),
                join: pick(spec.delays.join, self.delays.join),
                delete: pick(spec.delays.delete, self.delays.delete),
            },
        }
    }

    /// The VM of the Machine, made now if it is not there. Where the class's locator names another region than its spec, the class was edited
    /// since: what was made before is looked for there.
    async fn order(&self, request: CreateMachine, spec: Spec) -> Result<Arc<Vm>, DriverError> {
        let own = Ownership::of_machine(&request.key, &request.machine_class);
        let place = request.machine_class.place("region")?.to_owned();
        if let Some(vm) = self.standing(&place, &spec.region, &own, &request.key)? {
            return adopted(vm, &request);
        }
        let _claim = self.names.claim(&spec.region, &request.key)?;
        self.refuse_name_conflict(&spec.region, &request.key)?;
        let vm = self
            .cloud
            .run_vm(self.launch(request, spec))
            .await
            .map_err(failed_order)?;
        self.recent.note(&vm, self.cloud.now());
        Ok(vm)
    }

    /// The VM of the Machine that the cloud's token does not know: an older controller's, or one in another region than the spec's.
    fn standing(
        &self,
        place: &str,
        region: &str,
        own: &Ownership,
        key: &MachineKey,
    ) -> Result<Option<Arc<Vm>>, DriverError> {
        if place != region {
            match self.locate(place, own, key) {
                Located::Found(vm) => return Ok(Some(vm)),
                Located::TooEarly(left) => return Err(too_early(left)),
                Located::Absent => {}
            }
        }
        Ok(self.older(region, own, key))
    }

    async fn terminate(&self, vm: &Vm) -> Result<Deletion, DriverError> {
        let is_gone = match self.cloud.terminate(&vm.id).await {
            Ok(is_gone) => is_gone,
            Err(CloudError::NoSuchVm { .. }) => true,
            Err(error) => return Err(cloud_failure(error)),
        };
        if is_gone {
            self.recent.forget(vm);
            return Ok(Deletion::Deleted);
        }
        Ok(Deletion::deleting(answer::MIN_POLL.max(vm.delete_delay)))
    }

    /// The faults due on a call whose spec may be anything: an unreadable one has no script.
    fn due(&self, call: Call, class: &MachineClass) -> Due {
        let faults: Vec<Fault> = Spec::read(&class.provider_spec)
            .map(|spec| spec.faults)
            .unwrap_or_default();
        self.script.next(call, class, &faults)
    }
}

/// A VM that stands already, if it is what is asked for.
fn adopted(vm: Arc<Vm>, request: &CreateMachine) -> Result<Arc<Vm>, DriverError> {
    if vm.deletion.is_some() {
        let text = format!("{} is on its way out", vm.provider_id());
        return Err(DriverError::new(Reason::OperationInProgress, text).provider_ids([vm.provider_id()]));
    }
    if !request.is_made_of(&vm.spec_digest) {
        let text = format!("{} was made of another spec", vm.provider_id());
        return Err(DriverError::new(Reason::SpecConflict, text).provider_ids([vm.provider_id()]));
    }
    Ok(vm)
}

impl Driver for VirtualDriver {
    fn info(&self) -> DriverInfo {
        let capabilities = [
            Capability::WatchMachines,
            Capability::MachineClassSchema,
            Capability::ValidateMachineClass,
            Capability::NodeTemplate,
        ];
        let mut info = DriverInfo::new(NAME, env!("CARGO_PKG_VERSION")).with_capabilities(capabilities);
        info.propagation_delay = self.list_lag;
        info
    }

    /// The uid is the cloud's token, so a repeat finds the first one's VM, whatever died in between.
    async fn create_machine(&self, request: CreateMachine, _: Context) -> Result<MachineStatus, DriverError> {
        check_credentials(&request.secrets)?;
        let spec = readable(&request.machine_class.provider_spec)?;
        spec.size()
            .map_err(|fault| DriverError::new(Reason::SpecOutOfRange, fault.description))?;
        let due = self
            .script
            .next(Call::CreateMachine, &request.machine_class, &spec.faults);
        due.before().await?;
        let last_known_state = request.last_known_state.clone();
        let own = Ownership::of_machine(&request.key, &request.machine_class);
        let vm = self.order(request, spec).await?;
        due.after(Some(&vm.provider_id())).await?;
        let mut status = answer::status(&vm, own.key(&vm), self.cloud.now());
        status.machine.last_known_state = last_known_state;
        Ok(status)
    }

    /// Gone is success. An absence that is no fact yet is an error with the time to wait, never `Deleted`.
    async fn delete_machine(&self, request: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
        check_credentials(&request.secrets)?;
        let region = request.machine_class.place("region")?;
        // The class may have become invalid since the VM was made: only its region and its script are of interest.
        let due = self.due(Call::DeleteMachine, &request.machine_class);
        due.before().await?;
        let own = Ownership::of_machine(&request.key, &request.machine_class);
        let (deletion, provider_id) = match self.locate_doomed(region, &own, &request) {
            Located::Found(vm) => (self.terminate(&vm).await?, Some(vm.provider_id())),
            Located::Absent => {
                self.refuse_foreign(region, &own, &request.key, &request.provider_id)?;
                (Deletion::Deleted, None)
            }
            Located::TooEarly(left) => return Err(too_early(left)),
        };
        due.after(provider_id.as_deref()).await?;
        Ok(deletion)
    }

    async fn get_machine_status(&self, request: GetMachineStatus, _: Context) -> Result<MachineStatus, DriverError> {
        check_credentials(&request.secrets)?;
        let region = request.machine_class.place("region")?;
        let due = self.due(Call::GetMachineStatus, &request.machine_class);
        due.before().await?;
        let own = Ownership::of_machine(&request.key, &request.machine_class);
        let found = self.locate(region, &own, &request.key);
        due.after(None).await?;
        match found {
            Located::Found(vm) => Ok(answer::status(&vm, own.key(&vm), self.cloud.now())),
            Located::Absent => match self.restored(region, &request.key, &request.provider_id) {
                Some(vm) => Ok(answer::status(&vm, own.key(&vm), self.cloud.now())),
                None => {
                    let uid = &request.key.uid;
                    Err(DriverError::not_found(format!("no VM bears the uid {uid}")))
                }
            },
            Located::TooEarly(left) => Err(too_early(left)),
        }
    }

    /// In the order of ids; the cursor is the last id of the page, so it stays good whatever comes or goes.
    async fn list_machines(&self, request: ListMachines, _: Context) -> Result<MachinePage, DriverError> {
        check_credentials(&request.secrets)?;
        let region = request.machine_class.place("region")?;
        let due = self.due(Call::ListMachines, &request.machine_class);
        due.before().await?;
        let after = (!request.cursor.is_empty()).then(|| VmId::new(request.cursor));
        let one_more = request.page_size.saturating_add(1);
        let own = Ownership::of_cluster(&request.cluster_id, &request.machine_class);
        let mut vms = self.cloud.select(region, after.as_ref(), one_more, |vm| own.holds(vm));
        let is_last = vms.len() <= request.page_size;
        vms.truncate(request.page_size);
        let cursor = vms.last().filter(|_| !is_last).map(|vm| vm.id.to_string());
        let unreachable = due.unreachable();
        vms.retain(|vm| !unreachable.contains(&vm.zone));
        due.after(None).await?;
        let now = self.cloud.now();
        let mut page = MachinePage::last(vms.iter().map(|vm| answer::machine(vm, own.key(vm), now)).collect());
        page.next_cursor = cursor.unwrap_or_default();
        page.unreachable = unreachable;
        Ok(page)
    }

    async fn watch_machines(&self, request: WatchMachines, _: Context) -> Result<WatchStream, DriverError> {
        check_credentials(&request.secrets)?;
        if !request.resume_token.is_empty() {
            return Err(DriverError::new(
                Reason::ResumeTokenExpired,
                "this driver cannot resume a watch",
            ));
        }
        let region = request.machine_class.place("region")?.to_owned();
        let own = Ownership::of_cluster(&request.cluster_id, &request.machine_class);
        Ok(watch::stream(&self.cloud, region, own, self.list_lag))
    }

    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        let password = SecretKey::optional(PASSWORD, "Anything but \"wrong\", which the cloud refuses.");
        let mut schema = ClassSchema::of::<Spec>();
        schema.secret_keys = vec![password];
        schema.examples = spec::examples();
        Ok(schema)
    }

    async fn validate_machine_class(
        &self,
        request: ValidateMachineClass,
        _: Context,
    ) -> Result<ClassReport, DriverError> {
        let due = self.due(Call::ValidateMachineClass, &request.machine_class);
        due.before().await?;
        if request.live {
            check_credentials(&request.secrets)?;
        }
        let mut report = ClassReport::default();
        match Spec::read(&request.machine_class.provider_spec) {
            Ok(spec) => {
                // One account: every class of a region reaches the same VMs.
                report.inventory_key.clone_from(&spec.region);
                report.locator = Some(
                    [("region".to_owned(), spec.region.clone().into())]
                        .into_iter()
                        .collect(),
                );
                report.violations.extend(spec.size().err());
                report.violations.extend(warning_of_faults(&spec));
            }
            Err(faults) => report.violations = faults,
        }
        due.after(None).await?;
        Ok(report)
    }

    async fn node_template(&self, request: GetNodeTemplate, _: Context) -> Result<NodeTemplate, DriverError> {
        check_credentials(&request.secrets)?;
        let spec = readable(&request.machine_class.provider_spec)?;
        let due = self
            .script
            .next(Call::GetNodeTemplate, &request.machine_class, &spec.faults);
        due.before().await?;
        let size = spec
            .size()
            .map_err(|fault| DriverError::new(Reason::SpecOutOfRange, fault.description))?;
        due.after(None).await?;
        Ok(answer::template(&spec, size))
    }
}
