//! Starts the watch of every kind that plans read. Decides nothing.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
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
    let env = &shared.env;
    let mut healths = vec![
        follow(
            tasks,
            shared,
            Watch::<Machine>::namespaced(control, namespace, env),
            stop,
        ),
        follow(
            tasks,
            shared,
            Watch::<MachineSet>::namespaced(control, namespace, env),
            stop,
        ),
        follow(
            tasks,
            shared,
            Watch::<MachineDeployment>::namespaced(control, namespace, env),
            stop,
        ),
        follow(
            tasks,
            shared,
            Watch::<MachineClass>::namespaced(control, namespace, env),
            stop,
        ),
        follow(
            tasks,
            shared,
            Watch::<SecretMeta>::namespaced(control, namespace, env),
            stop,
        ),
    ];
    if let Some(target) = target {
        healths.push(follow(tasks, shared, Watch::<Node>::everywhere(target, env), stop));
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
            .run(stop, |change| {
                sink.change(|world, uptime| world.observe(change, uptime));
            })
            .await;
    });
    health
}
