//! What a machine may cost the API server: at most 6 requests to create, 8 to delete, statuses of
//! sets and deployments included, events and leases not; and nothing at all while nothing happens.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use millwright_dev::apiserver::ControlPlane;
use millwright_dev::apiserver::binaries::workspace_root;
use millwright_tests::api_requests::ApiRequests;
use millwright_tests::apiserver;
use millwright_tests::fleet::{Manager, VirtualProvider};
use millwright_tests::service::eventually;
use serde_json::json;

/// Enough that what a whole deployment costs once does not hide what each machine costs.
const MACHINES: u64 = 40;
const LIMIT: Duration = Duration::from_secs(120);
const IDLE: Duration = Duration::from_secs(20);

struct Fleet {
    plane: ControlPlane,
    manager: Manager,
    provider: VirtualProvider,
    deployments: Api<DynamicObject>,
    machines: Api<DynamicObject>,
    /// Requests that this test made itself to scale and to look.
    own: AtomicU64,
}

fn ours(plane_client: &kube::Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", kind);
    Api::default_namespaced_with(plane_client.clone(), &ApiResource::from_gvk(&kind))
}

impl Fleet {
    async fn start(what: &str) -> Option<Self> {
        let plane = apiserver::start_with_crds(what).await?;
        let objects = std::fs::read_to_string(workspace_root().join("tests/bench/objects.yaml")).unwrap();
        let applied = plane.kubectl_with_input(&["apply", "-f", "-"], &objects).await.unwrap();
        assert!(applied.success, "{}", applied.stderr);
        let provider = VirtualProvider::on(&plane).await.start();
        provider.wait_until_it_listens().await;
        let manager = Manager::on(&plane, "default").await.driver(&provider.endpoint).start();
        manager.wait_until_ready().await;
        let client = plane.client().await.unwrap();
        let (deployments, machines) = (ours(&client, "MachineDeployment"), ours(&client, "Machine"));
        Some(Self {
            plane,
            manager,
            provider,
            deployments,
            machines,
            own: AtomicU64::new(0),
        })
    }

    /// The counters once the statuses have come to rest (what follows a scaling belongs to it), and how many of the
    /// requests were this test's own.
    async fn count(&self) -> (ApiRequests, u64) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let requests = ApiRequests::count(&self.plane.client().await.unwrap()).await.unwrap();
        (requests, self.own.load(Ordering::SeqCst))
    }

    async fn scale(&self, replicas: u64) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.own.fetch_add(1, Ordering::SeqCst);
        self.deployments
            .patch("md", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let arrived = async || {
            self.own.fetch_add(1, Ordering::SeqCst);
            let deployment = self.deployments.get("md").await.map_err(|error| error.to_string())?;
            let status = &deployment.data["status"];
            let count = |field: &str| status[field].as_u64().unwrap_or_default();
            match (count("replicas"), count("availableReplicas")) {
                (all, available) if all == replicas && available == replicas => Ok(()),
                other => Err(format!("replicas, available: {other:?}")),
            }
        };
        eventually(
            "scaled",
            LIMIT,
            &[&self.manager.service, &self.provider.service],
            arrived,
        )
        .await;
        let left = async || {
            self.own.fetch_add(1, Ordering::SeqCst);
            let machines = self
                .machines
                .list_metadata(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            if machines.items.len() as u64 == replicas {
                Ok(())
            } else {
                Err(format!("{} machines", machines.items.len()))
            }
        };
        eventually(
            "as many machines",
            LIMIT,
            &[&self.manager.service, &self.provider.service],
            left,
        )
        .await;
    }
}

/// What the manager asked between two counts.
fn asked((before, own_before): &(ApiRequests, u64), (after, own_after): &(ApiRequests, u64)) -> (u64, String) {
    let requests = after.since(before);
    let own = own_after - own_before;
    (
        requests.total() - own,
        format!("{requests}{own:>6} of them by this test"),
    )
}

/// Rows: W37, pains 102.
#[tokio::test]
async fn a_machine_costs_few_requests_and_rest_costs_none() {
    let Some(fleet) = Fleet::start("a machine costs few requests and rest costs none").await else {
        return;
    };
    let empty = fleet.count().await;
    fleet.scale(MACHINES).await;
    let full = fleet.count().await;
    tokio::time::sleep(IDLE).await;
    let rested = fleet.count().await;
    fleet.scale(0).await;
    let gone = fleet.count().await;

    let (creation, detail) = asked(&empty, &full);
    assert!(
        creation <= 6 * MACHINES,
        "creation of {MACHINES} machines: {creation}\n{detail}"
    );
    let (idle, detail) = asked(&full, &rested);
    assert_eq!(rested.0.since(&full.0).writes(), 0, "{IDLE:?} of rest:\n{detail}");
    assert!(idle <= 1, "{IDLE:?} of rest: {idle}\n{detail}");
    let (deletion, detail) = asked(&rested, &gone);
    assert!(
        deletion <= 8 * MACHINES,
        "deletion of {MACHINES} machines: {deletion}\n{detail}"
    );
}
