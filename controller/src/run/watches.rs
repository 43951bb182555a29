//! Starts the watch of every kind that plans read. Decides what is cut off before it is kept, nothing else.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeStatus};
use millwright_core::api::{Machine, MachineClass, MachineDeployment, MachineSet};
use millwright_core::kinds::SecretMeta;
use millwright_core::world::Kind;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::kube::client::Cluster;
use crate::kube::watch::{Watch, WatchHealth};
use crate::work::shared::Shared;

/// Starts all watches; what they bring goes into the world.
pub(super) fn start(
    tasks: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    control: &Cluster,
    target: Option<&Cluster>,
    namespace: &str,
    stop: &CancellationToken,
) -> Vec<Arc<WatchHealth>> {
    let mut healths = vec![
        follow(tasks, shared, Watch::<Machine>::namespaced(control, namespace), stop),
        follow(tasks, shared, Watch::<MachineSet>::namespaced(control, namespace), stop),
        follow(
            tasks,
            shared,
            Watch::<MachineDeployment>::namespaced(control, namespace),
            stop,
        ),
        follow(
            tasks,
            shared,
            Watch::<MachineClass>::namespaced(control, namespace),
            stop,
        ),
        follow(tasks, shared, Watch::<SecretMeta>::namespaced(control, namespace), stop),
    ];
    if let Some(target) = target {
        healths.push(follow_nodes(tasks, shared, Watch::<Node>::everywhere(target), stop));
    }
    healths
}

fn follow<K>(
    tasks: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    watch: Watch<K>,
    stop: &CancellationToken,
) -> Arc<WatchHealth>
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
    let (health, sink) = (watch.health(), Arc::clone(shared));
    let stop = stop.clone();
    tasks.spawn(async move {
        watch
            .run(
                stop,
                |_| {},
                |change| sink.change(|world, uptime| world.observe(change, uptime)),
            )
            .await;
    });
    health
}

/// Nodes are large, and plans read little of them.
fn follow_nodes(
    tasks: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    watch: Watch<Node>,
    stop: &CancellationToken,
) -> Arc<WatchHealth> {
    let (health, sink) = (watch.health(), Arc::clone(shared));
    let stop = stop.clone();
    let prune = |node: &mut Node| {
        if let Some(status) = &mut node.status {
            let conditions = status.conditions.take();
            *status = NodeStatus {
                conditions,
                ..NodeStatus::default()
            };
        }
    };
    tasks.spawn(async move {
        watch
            .run(stop, prune, |change| {
                sink.change(|world, uptime| world.observe(change, uptime))
            })
            .await;
    });
    health
}
