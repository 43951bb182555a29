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
//! - A region is an inventory of its own. Every call but the validation of a class is about the one that the class names; without one nothing
//!   is said to be absent.

mod answer;
mod recent;
mod refusal;
mod watch;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use millwright_provider_sdk::{
    Capability, ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError,
    DriverInfo, GetMachineStatus, GetNodeTemplate, GetVolumeIds, ListMachines, MachineKey, MachinePage, MachineStatus,
    NodeTemplate, Reason, SecretKey, ValidateMachineClass, VolumeId, VolumeIds, VolumeSource, WatchMachines,
    WatchStream,
};

use self::{
    recent::Recent,
    refusal::{
        PASSWORD, check_credentials, cloud_failure, failed_order, readable, region_of, too_early, warning_of_faults,
    },
};
use crate::{
    clock,
    cloud::{Cloud, CloudError, Delays, Launch, Owner, Vm, VmId, id_in},
    fault::{Call, Due, Fault, Script},
    spec::{self, Span, Spec},
};

/// The driver's name: what `MachineClass.provider` says.
pub const NAME: &str = "virtual";
/// Name of the CSI driver whose volumes are this cloud's.
const CSI_DRIVER: &str = "virtual.csi";

/// The driver of the simulated cloud.
pub struct VirtualDriver {
    cloud: Cloud,
    delays: Delays,
    list_lag: Duration,
    started: Timestamp,
    recent: Recent,
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
        let (recent, script) = (Recent::default(), Script::default());
        Self {
            started: cloud.now(),
            cloud,
            delays,
            list_lag,
            recent,
            script,
        }
    }

    fn locate(&self, region: &str, key: &MachineKey) -> Located {
        let now = self.cloud.now();
        if let Some(vm) = self
            .cloud
            .find_by_uid(region, &key.cluster_id, &key.uid)
            .filter(|_| !key.uid.is_empty())
        {
            return Located::Found(vm);
        }
        // A VM without a uid was made by an older controller: its name makes it the Machine's own.
        let mut named = self.cloud.find_by_name(region, &key.cluster_id, &key.name).into_iter();
        if let Some(vm) = named.find(|vm| vm.owner.uid.is_empty()) {
            return Located::Found(vm);
        }
        if let Some(vm) = self.recent.by_uid(region, &key.cluster_id, &key.uid, now) {
            return Located::Found(vm);
        }
        let sure_from = clock::after(self.started, self.list_lag);
        if now < sure_from {
            return Located::TooEarly(clock::until(sure_from, now));
        }
        Located::Absent
    }

    /// The VM of a Machine that was restored from a backup: its id is named, and it bears the Machine's name and the uid of before.
    fn restored(&self, region: &str, key: &MachineKey, provider_id: &str) -> Option<Arc<Vm>> {
        let vm = self.cloud.find_by_id(region, &id_in(provider_id)?)?;
        let owner = MachineKey {
            cluster_id: vm.owner.cluster.clone(),
            namespace: vm.owner.namespace.clone(),
            name: vm.owner.name.clone(),
            uid: vm.owner.uid.clone(),
        };
        key.is_namesake(&owner).then_some(vm)
    }

    /// Refuses a provider id that points at somebody else's VM. An id of nothing is only a stale hint.
    fn refuse_foreign(&self, region: &str, key: &MachineKey, provider_id: &str) -> Result<(), DriverError> {
        let Some(id) = id_in(provider_id) else { return Ok(()) };
        let seen = self
            .cloud
            .find_by_id(region, &id)
            .or_else(|| self.recent.by_id(region, &id, self.cloud.now()));
        let Some(vm) = seen else { return Ok(()) };
        if vm.owner.cluster == key.cluster_id && (vm.owner.uid == key.uid || vm.owner.uid.is_empty()) {
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
        let key = request.key;
        let pick = |wanted: Option<Span>, usual: Duration| wanted.map_or(usual, |Span(wanted)| wanted);
        Launch {
            token: key.uid.clone(),
            owner: Owner {
                cluster: key.cluster_id,
                namespace: key.namespace,
                name: key.name,
                uid: key.uid,
            },
            machine_class: request.machine_class.name,
            spec_digest: request.spec_digest,
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

    async fn order(&self, request: CreateMachine, spec: Spec) -> Result<Arc<Vm>, DriverError> {
        self.refuse_name_conflict(&spec.region, &request.key)?;
        let vm = self
            .cloud
            .run_vm(self.launch(request, spec))
            .await
            .map_err(failed_order)?;
        self.recent.note(&vm, self.cloud.now());
        Ok(vm)
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
    fn due(&self, call: Call, class: &millwright_provider_sdk::MachineClass) -> Due {
        let faults: Vec<Fault> = Spec::read(&class.provider_spec)
            .map(|spec| spec.faults)
            .unwrap_or_default();
        self.script.next(call, class, &faults)
    }
}

impl Driver for VirtualDriver {
    fn info(&self) -> DriverInfo {
        let capabilities = [
            Capability::WatchMachines,
            Capability::GetVolumeIds,
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
        let vm = self.order(request, spec).await?;
        due.after(Some(&vm.provider_id())).await?;
        let mut status = answer::status(&vm, self.cloud.now());
        status.machine.last_known_state = last_known_state;
        Ok(status)
    }

    /// Gone is success. An absence that is no fact yet is an error with the time to wait, never `Deleted`.
    async fn delete_machine(&self, request: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
        check_credentials(&request.secrets)?;
        let region = region_of(&request.machine_class.provider_spec)?;
        // The class may have become invalid since the VM was made: only its region and its script are of interest.
        let due = self.due(Call::DeleteMachine, &request.machine_class);
        due.before().await?;
        self.refuse_foreign(region, &request.key, &request.provider_id)?;
        let (deletion, provider_id) = match self.locate(region, &request.key) {
            Located::Found(vm) => (self.terminate(&vm).await?, Some(vm.provider_id())),
            Located::Absent => (Deletion::Deleted, None),
            Located::TooEarly(left) => return Err(too_early(left)),
        };
        due.after(provider_id.as_deref()).await?;
        Ok(deletion)
    }

    async fn get_machine_status(&self, request: GetMachineStatus, _: Context) -> Result<MachineStatus, DriverError> {
        check_credentials(&request.secrets)?;
        let region = region_of(&request.machine_class.provider_spec)?;
        let due = self.due(Call::GetMachineStatus, &request.machine_class);
        due.before().await?;
        let found = self.locate(region, &request.key);
        due.after(None).await?;
        match found {
            Located::Found(vm) => Ok(answer::status(&vm, self.cloud.now())),
            Located::Absent => match self.restored(region, &request.key, &request.provider_id) {
                Some(vm) => Ok(answer::status(&vm, self.cloud.now())),
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
        let region = region_of(&request.machine_class.provider_spec)?;
        let due = self.due(Call::ListMachines, &request.machine_class);
        due.before().await?;
        let after = (!request.cursor.is_empty()).then(|| VmId::new(request.cursor));
        let one_more = request.page_size.saturating_add(1);
        let mut vms = self.cloud.list(region, &request.cluster_id, after.as_ref(), one_more);
        let is_last = vms.len() <= request.page_size;
        vms.truncate(request.page_size);
        let cursor = vms.last().filter(|_| !is_last).map(|vm| vm.id.to_string());
        let unreachable = due.unreachable();
        vms.retain(|vm| !unreachable.contains(&vm.zone));
        due.after(None).await?;
        let now = self.cloud.now();
        Ok(MachinePage {
            machines: vms.iter().map(|vm| answer::machine(vm, now)).collect(),
            next_cursor: cursor.unwrap_or_default(),
            unreachable,
        })
    }

    async fn watch_machines(&self, request: WatchMachines, _: Context) -> Result<WatchStream, DriverError> {
        check_credentials(&request.secrets)?;
        if !request.resume_token.is_empty() {
            return Err(DriverError::new(
                Reason::ResumeTokenExpired,
                "this driver cannot resume a watch",
            ));
        }
        let region = region_of(&request.machine_class.provider_spec)?.to_owned();
        Ok(watch::stream(&self.cloud, region, request.cluster_id))
    }

    async fn get_volume_ids(&self, request: GetVolumeIds, _: Context) -> Result<VolumeIds, DriverError> {
        let mut answer = VolumeIds::default();
        for volume in request.volumes {
            match volume.source {
                Some(VolumeSource::Csi {
                    driver, volume_handle, ..
                }) if driver == CSI_DRIVER => {
                    answer.volume_ids.push(VolumeId {
                        name: volume.name,
                        volume_id: volume_handle,
                    });
                }
                Some(VolumeSource::Csi { .. } | VolumeSource::InTree { .. }) | None => {
                    answer.unrecognized.push(volume.name);
                }
            }
        }
        Ok(answer)
    }

    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        let password = SecretKey {
            name: PASSWORD.to_owned(),
            required: false,
            description: "Anything but \"wrong\", which the cloud refuses.".to_owned(),
        };
        let (provider_spec_schema, examples) = (spec::schema(), spec::examples());
        Ok(ClassSchema {
            provider_spec_schema,
            secret_keys: vec![password],
            examples,
        })
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
