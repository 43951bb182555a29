//! The watch of every kind that plans read. Decides nothing.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, MachineClass, MachineDeployment, MachineSet};
use millwright_core::change::Change;
use millwright_core::kinds::SecretMeta;
use millwright_core::world::Kind;
use tokio::task::JoinSet;

use crate::env::Env;
use crate::kube::client::Cluster;
use crate::kube::watch::{Watch, WatchHealth};
use crate::work::shared::Shared;

/// All watches of one term, not running yet.
pub(super) struct Watches {
    machines: Watch<Machine>,
    sets: Watch<MachineSet>,
    deployments: Watch<MachineDeployment>,
    classes: Watch<MachineClass>,
    secrets: Watch<SecretMeta>,
    nodes: Option<Watch<Node>>,
}

impl Watches {
    pub(super) fn new(control: &Cluster, target: Option<&Cluster>, namespace: &str, env: &Env) -> Self {
        Self {
            machines: Watch::namespaced(control, namespace, env),
            sets: Watch::namespaced(control, namespace, env),
            deployments: Watch::namespaced(control, namespace, env),
            classes: Watch::namespaced(control, namespace, env),
            secrets: Watch::namespaced(control, namespace, env),
            nodes: target.map(|target| Watch::everywhere(target, env)),
        }
    }

    /// How each is doing.
    pub(super) fn views(&self) -> Views {
        Views {
            control: vec![
                self.machines.health(),
                self.sets.health(),
                self.deployments.health(),
                self.classes.health(),
                self.secrets.health(),
            ],
            target: self.nodes.as_ref().map(Watch::health),
        }
    }

    /// Starts all; what they bring goes into the world.
    pub(super) fn start(self, tasks: &mut JoinSet<()>, shared: &Arc<Shared>) {
        let Self {
            machines,
            sets,
            deployments,
            classes,
            secrets,
            nodes,
        } = self;
        follow(tasks, shared, machines);
        follow(tasks, shared, sets);
        follow(tasks, shared, deployments);
        follow(tasks, shared, classes);
        follow(tasks, shared, secrets);
        if let Some(nodes) = nodes {
            follow(tasks, shared, nodes);
        }
    }
}

/// What the watches have shown, by cluster: the control cluster is served while the target cannot be reached.
#[derive(Clone)]
pub(super) struct Views {
    /// Of the control cluster.
    pub(super) control: Vec<Arc<WatchHealth>>,
    /// Of the target cluster's Nodes, where there is one.
    pub(super) target: Option<Arc<WatchHealth>>,
}

impl Views {
    /// What any of them brought so far may be old.
    pub(super) fn doubt(&self) {
        self.control.iter().chain(&self.target).for_each(|view| view.doubt());
    }

    /// Waits for the lists of the control cluster.
    pub(super) async fn control_synced(&self) {
        for view in &self.control {
            view.synced().await;
        }
    }

    /// Waits for the lists of the target cluster, if there is one.
    pub(super) async fn target_synced(&self) {
        if let Some(view) = &self.target {
            view.synced().await;
        }
    }
}

fn follow<K>(tasks: &mut JoinSet<()>, shared: &Arc<Shared>, watch: Watch<K>)
where
    K: Kind
        + kube::Resource<DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (sink, stop) = (Arc::clone(shared), shared.stop.clone());
    tasks.spawn(async move {
        watch
            .run(stop, |change| {
                if matches!(change, Change::Restarted) {
                    sink.relisted.notify_one();
                }
                sink.change(|world, uptime| world.observe(change, uptime));
            })
            .await;
    });
}
