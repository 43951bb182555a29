//! A whole cluster: beside a real API server the real controllers of Deployments, StatefulSets, DaemonSets, budgets and volumes,
//! the real scheduler, and kwok, which plays the kubelet's part in the life of pods and a CSI driver's in the attaching of volumes.
//!
//! Nodes are none of its affairs: a scene's simulated cloud registers them and keeps their Leases. It is no shared control
//! plane, because its controllers would act upon the nodes of other scenes. It may not know any kind of ours.

use std::sync::Arc;
use std::time::Duration;

use millwright_dev::apiserver::binaries::{self, Controllers, workspace_root};
use millwright_dev::apiserver::{ControlPlane, FindError};

use crate::requirement;
use crate::service::{Recipe, Service, log_in};
use crate::{apiserver, service};

/// How long kwok's kubelets take to end a pod, and its CSI driver to detach a volume (`tests/kubernetes/kwok/stages.yaml`).
pub const ENDING: Duration = Duration::from_secs(2);

/// What the controller manager runs: all that a workload, its budget and its volumes need, and what a cluster does about
/// nodes that are new, lost or gone.
const CONTROLLERS: [&str; 11] = [
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "disruption-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "garbage-collector-controller",
];

/// A cluster without nodes. Dropping it ends its processes, the API server with the last scene on it.
#[derive(Debug)]
pub struct Cluster {
    pub plane: Arc<ControlPlane>,
    controllers: Service,
    scheduler: Service,
    kwok: Service,
}

impl Cluster {
    /// Starts one with our CRDs, or gives `None` after saying that `what` is skipped because this machine lacks the programs
    /// and cannot build them.
    ///
    /// # Panics
    /// Something does not start, or is missing where it is demanded.
    pub async fn start(what: &str) -> Option<Self> {
        let programs = programs(what).await?;
        let plane = Arc::new(apiserver::start_with_crds(what).await?);
        let controllers = format!("--controllers={}", CONTROLLERS.join(","));
        Some(Self {
            controllers: of_kubernetes(&plane, &programs.kube_controller_manager, vec![controllers]),
            scheduler: of_kubernetes(&plane, &programs.kube_scheduler, Vec::new()),
            kwok: kwok(&plane, &programs),
            plane,
        })
    }

    /// Asks until the answer is `Ok`; see [`service::eventually`].
    ///
    /// # Panics
    /// There is no `Ok` within `limit`: with the ends of the cluster's logs.
    pub async fn eventually<T>(&self, what: &str, limit: Duration, probe: impl AsyncFnMut() -> Result<T, String>) -> T {
        let services = [&self.controllers, &self.scheduler, &self.kwok];
        service::eventually(what, limit, &services, probe).await
    }
}

/// The programs; building them takes minutes, which no other test has to wait for.
async fn programs(what: &str) -> Option<Controllers> {
    let found = tokio::task::spawn_blocking(binaries::find_controllers).await;
    match found.expect("looking for programs does not panic") {
        Ok(programs) => Some(programs),
        Err(error @ FindError::NoGo { .. }) => {
            requirement::skip(what, error);
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// A program of Kubernetes: alone, so without an election; reached by nobody, so without a port. Its requests are not rationed:
/// that would slow the cluster down, and a test measures what the manager costs it.
fn of_kubernetes(plane: &ControlPlane, program: &std::path::Path, more: Vec<String>) -> Service {
    let own = [
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
    ];
    start(plane, program, own.into_iter().chain(more).collect())
}

/// Minds the pods of all nodes; a lease of 0 s says that the nodes' own Leases are somebody else's.
fn kwok(plane: &ControlPlane, programs: &Controllers) -> Service {
    let stages = workspace_root().join("tests/kubernetes/kwok/stages.yaml");
    let args = [
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        format!("--config={}", stages.display()),
        "--manage-all-nodes".to_owned(),
        "--node-lease-duration-seconds=0".to_owned(),
    ];
    start(plane, &programs.kwok, args.into())
}

fn start(plane: &ControlPlane, program: &std::path::Path, args: Vec<String>) -> Service {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Service::start(Recipe {
        program: program.to_owned(),
        args,
        // Where kwok looks for more stages, and Kubernetes for other kubeconfigs.
        env: vec![("HOME".to_owned(), plane.dir().display().to_string())],
        log: log_in(plane.dir(), &name),
        name,
    })
}
