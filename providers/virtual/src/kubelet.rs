//! The kubelets of all VMs, and the node controller that a cloud brings along.
//!
//! A VM that has powered on registers its node (one POST with its status), then renews its Lease for as long as it
//! runs. It removes nothing by itself: nodes of VMs that are gone are the manager's.
//!
//! A real cluster has kube-controller-manager, which marks a node's Ready condition Unknown when its Lease is no longer
//! renewed. The set-ups that this cloud is for have none, so the cloud does it: some seconds after somebody powered a VM
//! off or took it away, and only to the node that bears the VM's provider id. The kubelet of a VM that is powered on again says
//! that the node is Ready.
//!
//! It does no more than that: the not-ready taint that the API server puts on every new node stays.
//!
//! One task serves all VMs: an agenda says whose turn it is, and a bounded number of requests is in flight. What is
//! due while all of them are busy waits in line.

mod api;
mod object;

use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::api::KubeconfigError;
use self::api::{NodeApi, Posted};
use crate::{
    agenda::Agenda,
    clock,
    cloud::{Cloud, Event, Happening, Phase, Vm, VmId, id_in},
};

/// Requests in flight at once, for all VMs together.
const IN_FLIGHT: usize = 16;
/// How long after its VM's end a node stays Ready.
const NODE_GRACE: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Something to do for one VM. Ordered only because the agenda wants an order among equals.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    /// Register the node; so many tries have failed.
    Register { vm: VmId, tries: u32 },
    /// Renew the Lease. A uid: the node was just registered and has no Lease yet.
    Heartbeat { vm: VmId, node_uid: Option<String> },
    /// Say whether the node is Ready, or nobody hears of it any more.
    Mark {
        node: String,
        provider_id: String,
        tries: u32,
    },
}

/// A duty to come, and in what time.
type Next = Option<(Duration, Duty)>;

/// The kubelets of one cloud on one cluster.
pub(crate) struct Kubelets {
    cloud: Cloud,
    api: NodeApi,
    heartbeat: Duration,
}

impl Kubelets {
    /// Reads the kubeconfig. Whether the API server answers is found out, and tried again, at work.
    pub(crate) async fn new(cloud: Cloud, kubeconfig: &Path, heartbeat: Duration) -> Result<Self, KubeconfigError> {
        Ok(Self {
            cloud,
            api: NodeApi::new(kubeconfig, heartbeat).await?,
            heartbeat,
        })
    }

    /// Serves all VMs until `stop`. What is in flight then is abandoned: the next process repeats it.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (vms, happenings) = self.cloud.follow();
        let mut agenda = Agenda::new();
        vms.iter().for_each(|vm| take_over(&mut agenda, vm));
        drop(vms);
        tokio::select! {
            () = stop.cancelled() => {}
            () = Arc::new(self).serve(agenda, happenings) => {}
        }
    }

    async fn serve(self: Arc<Self>, mut agenda: Agenda<Duty>, mut happenings: mpsc::UnboundedReceiver<Happening>) {
        let mut line = VecDeque::new();
        let mut busy = JoinSet::new();
        loop {
            while busy.len() < IN_FLIGHT
                && let Some(duty) = line.pop_front()
            {
                let kubelets = Arc::clone(&self);
                busy.spawn(async move { kubelets.carry_out(duty).await });
            }
            tokio::select! {
                () = agenda.wait(clock::now()) => while let Some(duty) = agenda.pop_due(clock::now()) {
                    line.push_back(duty);
                },
                Some(happening) = happenings.recv() => react(&mut agenda, &happening),
                Some(done) = busy.join_next(), if !busy.is_empty() => match done {
                    Ok(None) => {}
                    Ok(Some((wait, duty))) => agenda.add(clock::after(clock::now(), wait), duty),
                    Err(error) => tracing::error!(%error, "a kubelet's duty panicked and is dropped"),
                },
            }
        }
    }

    async fn carry_out(&self, duty: Duty) -> Next {
        match duty {
            Duty::Register { vm, tries } => self.register(vm, tries).await,
            Duty::Heartbeat { vm, node_uid } => self.heartbeat(vm, node_uid).await,
            Duty::Mark {
                node,
                provider_id,
                tries,
            } => self.mark(node, provider_id, tries).await,
        }
    }

    /// While the registration is open its VM cannot count as gone, so no node appears after its VM.
    async fn register(&self, id: VmId, tries: u32) -> Next {
        let registration = self.cloud.begin_registration(&id)?;
        let vm = registration.vm();
        let failure = match self.api.post_node(vm).await {
            Ok(Posted::Ours { node_uid }) => match registration.joined().await {
                Ok(()) => {
                    return Some((
                        Duration::ZERO,
                        Duty::Heartbeat {
                            vm: id,
                            node_uid: Some(node_uid),
                        },
                    ));
                }
                Err(error) => chain(&error),
            },
            Ok(Posted::Foreign { provider_id }) => format!("a node of this name belongs to {provider_id}"),
            Err(error) => chain(&error),
        };
        tracing::warn!(node = vm.node_name(), vm = %id, failure, "the node was not registered");
        Some((
            pause(tries),
            Duty::Register {
                vm: id,
                tries: tries.saturating_add(1),
            },
        ))
    }

    async fn heartbeat(&self, id: VmId, node_uid: Option<String>) -> Next {
        let vm = self.cloud.any_by_id(&id)?;
        match vm.phase(clock::now()) {
            Phase::Running => {}
            Phase::Creating | Phase::Stopped | Phase::Deleting => return None,
        }
        if let Err(error) = self.api.renew_lease(&vm, node_uid.as_deref()).await {
            tracing::warn!(node = vm.node_name(), error = %chain(&error), "the lease was not renewed");
            let wait = self.heartbeat.min(RETRY_FIRST.saturating_mul(4));
            return Some((wait, Duty::Heartbeat { vm: id, node_uid: None }));
        }
        Some((jittered(self.heartbeat), Duty::Heartbeat { vm: id, node_uid: None }))
    }

    /// Looks at the VM when it is due: one that was powered on again meanwhile was never missed.
    async fn mark(&self, node: String, provider_id: String, tries: u32) -> Next {
        let vm = id_in(&provider_id).and_then(|id| self.cloud.any_by_id(&id));
        let is_ready = vm.is_some_and(|vm| vm.phase(clock::now()) == Phase::Running);
        if let Err(error) = self.api.mark(&node, &provider_id, is_ready).await {
            tracing::warn!(node, error = %chain(&error), "the node was not marked");
            return Some((
                pause(tries),
                Duty::Mark {
                    node,
                    provider_id,
                    tries: tries.saturating_add(1),
                },
            ));
        }
        None
    }
}

/// What the VM's kubelet, or the process before this one, does next.
fn take_over(agenda: &mut Agenda<Duty>, vm: &Vm) {
    let now = clock::now();
    match vm.phase(now) {
        Phase::Creating | Phase::Running if vm.node_registered => {
            agenda.add(
                now,
                Duty::Heartbeat {
                    vm: vm.id.clone(),
                    node_uid: None,
                },
            );
        }
        Phase::Creating | Phase::Running => agenda.add(
            vm.joins_at,
            Duty::Register {
                vm: vm.id.clone(),
                tries: 0,
            },
        ),
        Phase::Stopped => lose(agenda, vm),
        Phase::Deleting => {}
    }
}

fn react(agenda: &mut Agenda<Duty>, happening: &Happening) {
    let vm = &happening.vm;
    match happening.event {
        Event::Booted => {
            if vm.node_registered {
                agenda.add(clock::now(), mark(vm));
            }
            take_over(agenda, vm);
        }
        Event::Stopped => lose(agenda, vm),
        // Nobody asked the driver for it, so nobody removes the node before it would be missed.
        Event::Removed if vm.deletion.is_some_and(|deletion| deletion.is_loss) => lose(agenda, vm),
        Event::Accepted | Event::Joined | Event::Deleting | Event::Removed => {}
    }
}

fn lose(agenda: &mut Agenda<Duty>, vm: &Vm) {
    if vm.node_registered {
        agenda.add(clock::after(clock::now(), NODE_GRACE), mark(vm));
    }
}

fn mark(vm: &Vm) -> Duty {
    Duty::Mark {
        node: vm.node_name(),
        provider_id: vm.provider_id(),
        tries: 0,
    }
}

/// Doubles with every failed try, up to a bound.
fn pause(tries: u32) -> Duration {
    jittered(RETRY_FIRST.saturating_mul(1 << tries.min(10)).min(RETRY_MAX))
}

/// Between 90 and 110 of 100, so that VMs that started together do not beat together for ever.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::random_range(0.9..1.1))
}

/// The error and what is behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(cause) = behind {
        text = format!("{text}: {cause}");
        behind = cause.source();
    }
    text
}
