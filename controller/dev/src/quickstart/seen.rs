//! What is known of deployments, sets and machines, from three watches. Decides nothing.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use millwright_core::api::{Machine, MachineDeployment, MachineDeploymentStatus, MachineSet, Phase, meta};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::manifests::NAMESPACE;

/// The objects as last seen. Dropping it ends the watches.
pub struct Seen {
    deployments: Store<MachineDeployment>,
    sets: Store<MachineSet>,
    machines: Store<Machine>,
    changed: watch::Receiver<()>,
    _watches: JoinSet<()>,
}

impl Seen {
    /// Starts the watches; they try again for ever.
    pub fn begin(client: &Client) -> Self {
        let mut watches = JoinSet::new();
        let (tell, changed) = watch::channel(());
        let tell = Arc::new(tell);
        Self {
            deployments: follow(client, &mut watches, &tell),
            sets: follow(client, &mut watches, &tell),
            machines: follow(client, &mut watches, &tell),
            changed,
            _watches: watches,
        }
    }

    /// Returns when something is other than at the last call.
    pub async fn change(&mut self) {
        if self.changed.changed().await.is_err() {
            // The watches ended, which only a panic does; what is seen stays as it is.
            std::future::pending::<()>().await;
        }
    }

    /// By name.
    pub fn deployments(&self) -> Vec<Arc<MachineDeployment>> {
        sorted(&self.deployments, |deployment| {
            meta::name(&deployment.metadata).to_owned()
        })
    }

    /// By name.
    pub fn sets(&self) -> Vec<Arc<MachineSet>> {
        sorted(&self.sets, |set| meta::name(&set.metadata).to_owned())
    }

    /// The oldest first.
    pub fn machines(&self) -> Vec<Arc<Machine>> {
        let age = |machine: &Machine| {
            (
                meta::created(&machine.metadata),
                meta::name(&machine.metadata).to_owned(),
            )
        };
        sorted(&self.machines, age)
    }

    /// A Machine, if it is there.
    pub fn machine(&self, name: &str) -> Option<Arc<Machine>> {
        self.machines.get(&ObjectRef::new(name).within(NAMESPACE))
    }

    /// The name of a Machine's Node.
    pub fn node(&self, machine: &str) -> Option<String> {
        let node = self.machine(machine)?.node_label()?;
        Some(node.to_string())
    }

    /// What was last done to a Machine, in words.
    pub fn reason(&self, machine: &str) -> String {
        let operation = self
            .machine(machine)
            .and_then(|machine| machine.last_operation().cloned());
        operation
            .and_then(|operation| operation.description)
            .unwrap_or_default()
    }

    /// Machines in a phase.
    pub fn in_phase(&self, phase: &Phase) -> usize {
        self.machines()
            .iter()
            .filter(|machine| machine.phase() == phase)
            .count()
    }

    /// A number that deployments have in their statuses, summed.
    pub fn counted(&self, number: impl Fn(&MachineDeploymentStatus) -> i32) -> usize {
        let deployments = self.deployments();
        let statuses = deployments.iter().filter_map(|deployment| deployment.status.as_ref());
        statuses.filter_map(|status| usize::try_from(number(status)).ok()).sum()
    }
}

fn sorted<K, O: Ord>(store: &Store<K>, order: impl Fn(&K) -> O) -> Vec<Arc<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let mut objects = store.state();
    objects.sort_by_key(|object| order(object));
    objects
}

fn follow<K>(client: &Client, watches: &mut JoinSet<()>, tell: &Arc<watch::Sender<()>>) -> Store<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + k8s_openapi::serde::de::DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    let (reader, writer) = store();
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let events = watcher(api, watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let tell = Arc::clone(tell);
    watches.spawn(events.for_each(move |_| {
        tell.send_replace(());
        std::future::ready(())
    }));
    reader
}
