//! A cloud in one file: VMs with their own life, an API as clouds have it, and a journal of all that happened.
//!
//! Honest to real clouds where it matters to a driver: an accepted VM is durable before the answer, ids are constant,
//! tags are stored, the client's token makes a repeat harmless, creation and deletion take time and go on without the
//! driver, and lists may lag behind. Each region is an inventory of its own, as in real clouds: lookups, lists and tokens are of one region,
//! and a VM of another is not there. Knows nothing of the Driver API, of gRPC or of Kubernetes.
//!
//! | what | lags by `--list-lag` |
//! |---|---|
//! | `run_vm` with a known token | no: the token is looked up where VMs are made |
//! | `terminate` by id | no: it is addressed to the VM, not found by search |
//! | `find_*`, `list` | yes: they read a copy that follows |
//! | console, journal | no: they are for people and proofs |

mod clockwork;
mod fleet;
mod journal;
mod ledger;
mod vm;
mod writer;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, mpsc},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, broadcast, mpsc as async_mpsc, oneshot};

pub(crate) use self::vm::id_in;
use self::{
    fleet::Fleet,
    ledger::Ledger,
    writer::{Answer, Ask, Order, Writer},
};
pub use self::{
    journal::{Entry, Event},
    ledger::LedgerError,
    vm::{Delays, Deletion, Launch, Owner, Phase, Vm, VmId},
};
use crate::clock::{self, Outside};

/// How far a watch may fall behind before it must start over.
const WATCH_BACKLOG: usize = 1024;
/// How long a deletion call stays for a node registration in flight before it answers "on its way".
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(2);

/// Why the cloud did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloudError {
    /// No VM has this id.
    #[error("no VM has the id {id}")]
    NoSuchVm {
        /// The id asked for.
        id: VmId,
    },
    /// The token's VM was removed; a token makes one VM and never another.
    #[error("the VM of this token was terminated")]
    TokenSpent,
    /// The token was used for something else.
    #[error("the token was used with other parameters, for {provider_id}")]
    ParameterMismatch {
        /// The VM that the token made.
        provider_id: String,
    },
    /// The change could not be made durable, so it did not happen.
    #[error("the state file failed")]
    Storage(#[source] Arc<LedgerError>),
    /// The cloud is being shut down.
    #[error("the cloud is shutting down")]
    Closed,
}

/// A change of a VM that has just become durable.
#[derive(Clone, Debug)]
pub struct Happening {
    /// What happened.
    pub event: Event,
    /// The VM as it is now, or as it last was.
    pub vm: Arc<Vm>,
}

/// What the writer and the readers share.
struct Shared {
    ledger: Ledger,
    outside: Arc<dyn Outside>,
    fleet: Mutex<Fleet>,
    changed: Notify,
    happenings: broadcast::Sender<Happening>,
}

impl Shared {
    fn new(ledger: Ledger, fleet: Fleet, outside: Arc<dyn Outside>) -> Self {
        Self {
            ledger,
            outside,
            fleet: Mutex::new(fleet),
            changed: Notify::new(),
            happenings: broadcast::Sender::new(WATCH_BACKLOG),
        }
    }

    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().expect("no holder of this lock panics")
    }
}

/// A handle on the cloud; clones are the same cloud.
#[derive(Clone)]
pub struct Cloud {
    shared: Arc<Shared>,
    orders: Orders,
}

/// Who carries orders out.
#[derive(Clone)]
enum Orders {
    /// The thread that commits them in groups to the file.
    Thread(mpsc::Sender<Order>),
    /// Whoever orders, at once: where nothing is made durable there is nothing to wait for.
    Here(Arc<Writer>),
}

impl Cloud {
    /// Opens the state file and brings the cloud to where the clock says it is.
    pub fn open(state: &Path, list_lag: Duration) -> Result<Self, LedgerError> {
        let ledger = Ledger::open(state)?;
        let fleet = ledger.load()?;
        let shared = Arc::new(Shared::new(ledger, fleet, Arc::new(clock::System)));
        catch_up(&shared)?;
        let (orders, queue) = mpsc::channel();
        let writer = Writer {
            shared: Arc::clone(&shared),
            list_lag,
        };
        std::thread::Builder::new()
            .name("cloud-writer".to_owned())
            .spawn(move || writer.run(&queue))
            .expect("a process that cannot start one thread cannot serve either");
        let orders = Orders::Thread(orders);
        Ok(Self { shared, orders })
    }

    /// A cloud without file and thread, for simulations: its time and chance come from `outside`, and every order is
    /// carried out where it is given.
    pub fn in_memory(outside: Arc<dyn Outside>, list_lag: Duration) -> Self {
        let shared = Arc::new(Shared::new(Ledger::in_memory(), Fleet::default(), outside));
        let writer = Writer {
            shared: Arc::clone(&shared),
            list_lag,
        };
        let orders = Orders::Here(Arc::new(writer));
        Self { shared, orders }
    }

    /// The time as this cloud sees it.
    pub(crate) fn now(&self) -> Timestamp {
        self.shared.outside.now()
    }

    /// Makes the VM of this token, or finds it. Durable when it returns.
    pub async fn run_vm(&self, launch: Launch) -> Answer {
        self.ask(Ask::Run(Box::new(launch))).await
    }

    /// Starts the removal of a VM. `true`: nothing is left of it.
    pub async fn terminate(&self, id: &VmId) -> Result<bool, CloudError> {
        self.end(id, false).await
    }

    /// The VM of a machine's uid in a region, as far as lookups can see yet.
    pub fn find_by_uid(&self, region: &str, cluster: &str, uid: &str) -> Option<Arc<Vm>> {
        // The driver hands the uid over as token too, so one index serves both.
        let fleet = self.shared.fleet();
        let vm = fleet.by_token(region, uid)?;
        (vm.owner.cluster == cluster && vm.is_visible(self.now())).then(|| Arc::clone(vm))
    }

    /// The VMs of a machine's name in a region, as far as lookups can see yet.
    pub fn find_by_name(&self, region: &str, cluster: &str, name: &str) -> Vec<Arc<Vm>> {
        let now = self.now();
        self.shared
            .fleet()
            .by_name(cluster, name)
            .filter(|vm| vm.region == region && vm.is_visible(now))
            .cloned()
            .collect()
    }

    /// The VM of this id in a region, as far as lookups can see yet.
    pub fn find_by_id(&self, region: &str, id: &VmId) -> Option<Arc<Vm>> {
        self.shared
            .fleet()
            .get(id)
            .filter(|vm| vm.region == region && vm.is_visible(self.now()))
            .cloned()
    }

    /// Up to `limit` VMs of a cluster in a region with ids beyond `after`, in the order of ids.
    pub fn list(&self, region: &str, cluster: &str, after: Option<&VmId>, limit: usize) -> Vec<Arc<Vm>> {
        self.select(region, after, limit, |vm| vm.owner.cluster == cluster)
    }

    /// Up to `limit` VMs in a region that are wanted, with ids beyond `after`, in the order of ids.
    pub fn select(
        &self,
        region: &str,
        after: Option<&VmId>,
        limit: usize,
        is_wanted: impl Fn(&Vm) -> bool,
    ) -> Vec<Arc<Vm>> {
        let now = self.now();
        let fleet = self.shared.fleet();
        let shown = fleet
            .beyond(after)
            .filter(|vm| vm.region == region && vm.is_visible(now) && is_wanted(vm));
        shown.take(limit).cloned().collect()
    }

    /// The VM of this id, without lag. For its own kubelet, not for drivers.
    pub(crate) fn any_by_id(&self, id: &VmId) -> Option<Arc<Vm>> {
        self.shared.fleet().get(id).cloned()
    }

    /// Every VM of every cluster, without lag. For the console, not for drivers.
    pub fn everything(&self) -> Vec<Arc<Vm>> {
        self.shared.fleet().beyond(None).cloned().collect()
    }

    /// All that happened.
    pub fn journal(&self) -> Result<Vec<Entry>, LedgerError> {
        self.shared.ledger.journal()
    }

    /// Powers a VM off, as somebody at the console would.
    pub async fn stop(&self, id: &VmId) -> Answer {
        self.ask(Ask::Stop(id.clone())).await
    }

    /// Powers a VM on again.
    pub async fn start(&self, id: &VmId) -> Answer {
        self.ask(Ask::Start(id.clone())).await
    }

    /// Takes a VM away at once, as a failing host would. `true`: nothing is left of it.
    pub async fn remove(&self, id: &VmId) -> Result<bool, CloudError> {
        self.end(id, true).await
    }

    /// Opens a node registration. `None` if the VM is gone, leaving, off, registered, or registers already. While
    /// the guard lives the VM cannot count as gone.
    pub fn begin_registration(&self, id: &VmId) -> Option<Registration> {
        let vm = self.shared.fleet().begin_registration(id)?;
        Some(Registration {
            cloud: self.clone(),
            vm,
        })
    }

    /// All VMs, and everything that happens from then on.
    pub fn follow(&self) -> (Vec<Arc<Vm>>, async_mpsc::UnboundedReceiver<Happening>) {
        let mut fleet = self.shared.fleet();
        let vms = fleet.beyond(None).cloned().collect();
        (vms, fleet.listen())
    }

    /// What happens from now on, with a bound on how much is kept for a slow reader.
    pub fn watch(&self) -> broadcast::Receiver<Happening> {
        self.shared.happenings.subscribe()
    }

    /// Runs the clock's own events (power-on, end of a deletion) until it is dropped.
    pub async fn run_clockwork(&self) {
        clockwork::run(self).await;
    }

    async fn end(&self, id: &VmId, at_once: bool) -> Result<bool, CloudError> {
        let vm = self
            .ask(Ask::Terminate {
                id: id.clone(),
                at_once,
            })
            .await?;
        let is_gone = || self.shared.fleet().get(&vm.id).is_none();
        let waits_for_registration = || self.shared.fleet().get(&vm.id).is_some_and(|vm| vm.is_past(self.now()));
        let settled = async {
            loop {
                // Listens before it looks, so that a change in between is heard. Waiters wake in their order, which
                // simulations rely on.
                let changed = self.shared.changed.notified();
                if !waits_for_registration() {
                    break;
                }
                changed.await;
            }
        };
        tokio::time::timeout(REGISTRATION_PATIENCE, settled).await.ok();
        Ok(is_gone())
    }

    async fn ask(&self, ask: Ask) -> Answer {
        let (reply, answer) = oneshot::channel();
        let order = Order {
            ask,
            reply: Some(reply),
        };
        match &self.orders {
            Orders::Thread(orders) => orders.send(order).map_err(|_| CloudError::Closed)?,
            Orders::Here(writer) => writer.carry_out(vec![order]),
        }
        answer.await.map_err(|_| CloudError::Closed)?
    }

    /// An order whose answer nobody needs.
    fn tell(&self, ask: Ask) {
        let order = Order { ask, reply: None };
        match &self.orders {
            // The writer outlives every handle, so this fails only while the process ends.
            Orders::Thread(orders) => drop(orders.send(order)),
            Orders::Here(writer) => writer.carry_out(vec![order]),
        }
    }
}

/// A node registration in flight. Its VM cannot count as gone before this is dropped.
pub struct Registration {
    cloud: Cloud,
    vm: Arc<Vm>,
}

impl Registration {
    /// The VM that registers.
    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// Notes that the API server has the node. The guard stays while this is made durable, so a deletion that comes
    /// meanwhile finds the VM registering and the journal tells of the node before the removal.
    pub async fn joined(&self) -> Result<(), CloudError> {
        self.cloud.ask(Ask::Joined(self.vm.id.clone())).await.map(drop)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cloud.shared.fleet().end_registration(&self.vm.id);
        self.cloud.tell(Ask::Purge(self.vm.id.clone()));
    }
}

/// What happened while no process lived: deletions that ended are noted at the instant they ended.
fn catch_up(shared: &Shared) -> Result<(), LedgerError> {
    let now = shared.outside.now();
    let mut fleet = shared.fleet();
    let past: Vec<_> = fleet.beyond(None).filter(|vm| vm.is_past(now)).cloned().collect();
    let changes: Vec<_> = past
        .iter()
        .flat_map(|vm| writer::removal(vm, vm.deletion.map_or(now, |deletion| deletion.gone_at)))
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    shared.ledger.commit(changes.iter())?;
    changes.into_iter().for_each(|change| fleet.apply(change));
    Ok(())
}

/// VMs and journal of a state file that no process has open. VMs whose deletion ended meanwhile are not among them.
pub fn read_state(path: &Path) -> Result<(Vec<Arc<Vm>>, Vec<Entry>), LedgerError> {
    let ledger = Ledger::open_existing(path)?;
    let (fleet, now): (Fleet, Timestamp) = (ledger.load()?, clock::now());
    let vms = fleet.beyond(None).filter(|vm| !vm.is_past(now)).cloned().collect();
    Ok((vms, ledger.journal()?))
}
