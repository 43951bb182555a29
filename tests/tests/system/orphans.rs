//! VMs that no Machine owns, made by hand at the real provider: those of this cluster go, all others stay.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use millwright_proto::v1;
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, Sight, shared_plane};
use millwright_tests::script::Script;
use prost_types::value::Kind as Field;
use serde_json::json;
use tonic::transport::Endpoint;

const LIMIT: Duration = Duration::from_secs(90);
/// The cluster id of every scene's manager.
const CLUSTER: &str = "local";

/// Looks follow each other in seconds, and what is seconds old is old.
fn script(prefix: &str) -> Script {
    Script::new(prefix)
        .manager("--machine-safety-orphan-vms-period", "2s")
        .manager("--orphan-min-age", "4s")
}

/// Makes a VM past the manager, tagged as the VM of a Machine that there is not. Gives its id.
async fn by_hand(scene: &Scene, cluster: &str, namespace: &str, name: &str) -> String {
    let endpoint = Endpoint::from_shared(scene.provider.endpoint.clone()).unwrap();
    let mut driver = DriverServiceClient::new(endpoint.connect().await.unwrap());
    let field = |name: &str, value: &str| {
        let kind = Some(Field::StringValue(value.to_owned()));
        (name.to_owned(), prost_types::Value { kind })
    };
    let fields = [("instanceType", "small"), ("region", "local"), ("zone", "local-a")];
    let provider_spec = Some(prost_types::Struct {
        fields: fields.map(|(name, value)| field(name, value)).into(),
    });
    let request = v1::CreateMachineRequest {
        key: Some(v1::MachineKey {
            cluster_id: cluster.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uuid::Uuid::new_v4().to_string(),
        }),
        machine_class: Some(v1::MachineClass {
            name: manifests::CLASS.to_owned(),
            namespace: namespace.to_owned(),
            provider: "virtual".to_owned(),
            provider_spec,
            ..Default::default()
        }),
        user_data: b"#cloud-config".to_vec(),
        tags: BTreeMap::from([("made".to_owned(), "by-hand".to_owned())]),
        spec_digest: "0".repeat(64),
        ..Default::default()
    };
    let made = driver.create_machine(request).await.unwrap().into_inner();
    made.machine.unwrap().provider_id
}

fn ids(sight: &Sight) -> Vec<&str> {
    let mut ids: Vec<&str> = sight.vms.iter().map(|vm| vm.provider_id.as_str()).collect();
    ids.sort_unstable();
    ids
}

/// How many listings came to this so far.
async fn listings(scene: &Scene, result: &str) -> Result<u64, String> {
    let (_, text) = scene.manager.get("/metrics").await.map_err(|error| error.to_string())?;
    let series = format!("millwright_vm_listings_total{{driver=\"virtual\",result=\"{result}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or("0").trim().parse().map_err(|_| text.clone())
}

/// Waits for so many more listings of this kind.
async fn listed_again(scene: &mut Scene, result: &str, more: u64) {
    let before = listings(scene, result).await.unwrap();
    let what = format!("{more} more listings are {result}");
    let probe = async |scene: &Scene| match listings(scene, result).await? {
        now if now >= before + more => Ok(()),
        now => Err(format!("{now} are, {before} were")),
    };
    scene.until(&what, LIMIT, probe).await;
}

/// Waits until an event of the class with this reason names the VM.
async fn told(scene: &mut Scene, reason: &str, vm: &str) {
    let what = format!("event {reason} names {vm}");
    let probe = async |scene: &Scene| {
        let events = scene.events_about(manifests::CLASS).await?;
        let is_told = events.iter().any(|(told, text)| told == reason && text.contains(vm));
        if is_told { Ok(()) } else { Err(format!("{events:?}")) }
    };
    scene.until(&what, LIMIT, probe).await;
}

/// What the node lifecycle controller does with a Node whose VM is gone.
async fn misses(scene: &Scene, node: &str) {
    let status = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null,
    }]}});
    let nodes = Api::<Node>::all(scene.client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Strategic(&status));
    nodes.patch_status(node, &params, &patch).await.unwrap();
}

/// Rows: W6, pains 22, 29, 33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vms_made_by_hand_go_and_those_of_machines_and_of_other_clusters_stay() {
    let Some(plane) = shared_plane("VMs of no Machine go").await else {
        return;
    };
    let mut scene = script("orphans").begin(&plane).await;
    scene.deploy(3).await;
    let before = scene.settled_at(3, LIMIT).await;
    let namespace = scene.namespace.clone();
    let name = |name: &str| format!("{namespace}-{name}");
    let lost = [
        by_hand(&scene, CLUSTER, &namespace, &name("lost-1")).await,
        by_hand(&scene, CLUSTER, &namespace, &name("lost-2")).await,
    ];
    let foreign = [
        by_hand(&scene, "another", &namespace, &name("foreign-1")).await,
        by_hand(&scene, CLUSTER, "elsewhere", &name("foreign-2")).await,
    ];
    let names = ["lost-1", "lost-2", "foreign-1", "foreign-2"].map(name);
    let probe = async |scene: &Scene| {
        let nodes = scene.look().await?.nodes;
        let has = |name: &String| nodes.iter().any(|node| node["metadata"]["name"] == *name.as_str());
        if names.iter().all(has) {
            Ok(())
        } else {
            Err(format!("{} nodes", nodes.len()))
        }
    };
    scene.until("their nodes join", LIMIT, probe).await;
    let wanted: Vec<String> = {
        let stay = ids(&before).into_iter().map(str::to_owned);
        let mut all: Vec<String> = stay.chain(foreign.clone()).collect();
        all.sort_unstable();
        all
    };
    let probe = async |scene: &Scene| {
        let sight = scene.look().await?;
        if ids(&sight) == wanted {
            Ok(())
        } else {
            Err(format!("{:?}", ids(&sight)))
        }
    };
    scene.until("only VMs of no Machine are gone", LIMIT, probe).await;
    for vm in &lost {
        told(&mut scene, "OrphanDeleted", vm).await;
    }
    let gone = [name("lost-1"), name("lost-2")];
    for node in &gone {
        misses(&scene, node).await;
    }
    let probe = async |scene: &Scene| {
        let sight = scene.look().await?;
        let mut nodes = sight
            .nodes
            .iter()
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default());
        match nodes.find(|node| gone.iter().any(|gone| gone == node)) {
            None => Ok(()),
            Some(node) => Err(format!("Node {node} is left")),
        }
    };
    scene.until("the Nodes of VMs that are gone go", LIMIT, probe).await;
    listed_again(&mut scene, "complete", 3).await;
    let after = scene.look().await.unwrap();
    assert_eq!(ids(&after), wanted);
    assert_eq!(
        (after.machines.len(), after.nodes.len()),
        (3, 5),
        "three, and two of VMs of others"
    );
    for vm in &foreign {
        let events = scene.events_about(manifests::CLASS).await.unwrap();
        assert!(!events.iter().any(|(_, text)| text.contains(vm)), "{events:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_with_a_zone_that_cannot_be_asked_deletes_nothing() {
    let Some(plane) = shared_plane("incomplete listings delete nothing").await else {
        return;
    };
    let mut scene = script("orphans-gap").begin(&plane).await;
    let faults = |faults: serde_json::Value| json!({ "providerSpec": { "faults": faults } });
    let gap = faults(json!([{ "call": "ListMachines", "unreachable": ["local-b"] }]));
    scene.class_from_the_start(gap).await;
    scene.manager.wait_until_ready().await;
    let namespace = scene.namespace.clone();
    let vm = by_hand(&scene, CLUSTER, &namespace, &format!("{namespace}-lost")).await;
    listed_again(&mut scene, "unreachable", 4).await;
    assert_eq!(ids(&scene.look().await.unwrap()), [vm.as_str()]);
    scene.patch(Kind::Class, manifests::CLASS, faults(json!([]))).await;
    told(&mut scene, "OrphanDeleted", &vm).await;
    assert_eq!(ids(&scene.look().await.unwrap()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_names_vms_of_no_machine_and_deletes_none() {
    let Some(plane) = shared_plane("a dry run names VMs of no Machine").await else {
        return;
    };
    let script = script("orphans-dry").env("MILLWRIGHT_ORPHAN_DRY_RUN", "true");
    let mut scene = script.begin(&plane).await;
    let namespace = scene.namespace.clone();
    let vm = by_hand(&scene, CLUSTER, &namespace, &format!("{namespace}-lost")).await;
    told(&mut scene, "OrphanFound", &vm).await;
    listed_again(&mut scene, "complete", 3).await;
    assert_eq!(ids(&scene.look().await.unwrap()), [vm.as_str()]);
    let (_, metrics) = scene.manager.get("/metrics").await.unwrap();
    assert!(
        metrics.contains(r#"millwright_vms{driver="virtual",state="orphan"} 1"#),
        "{metrics}"
    );
}
