//! `rollout history`.

use millwright_core::api::{MachineDeployment, MachineSet, keys};
use serde_json::{Value, json};

use crate::cluster::{Cluster, template};

/// A set of `workers` with a revision.
pub async fn set(
    cluster: &Cluster,
    owner: &MachineDeployment,
    name: &str,
    class: &str,
    annotations: Value,
) -> MachineSet {
    let mut template = template(class);
    template["metadata"]["labels"][keys::TEMPLATE_HASH] = json!(name);
    let owner = json!({ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "workers",
        "uid": owner.metadata.uid, "controller": true });
    let labels = json!({ "app": "shop", keys::TEMPLATE_HASH: name });
    cluster
        .store(json!({
            "metadata": { "name": name, "annotations": annotations, "labels": labels, "ownerReferences": [owner] },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": template },
            "status": { "availableReplicas": 1 },
        }))
        .await
}

/// `workers` at revision 2, which is of the class `large`; revision 1 is of `small`.
pub async fn with_two_revisions() -> Cluster {
    let cluster = Cluster::start().await;
    let owner = cluster.deployment().await;
    set(&cluster, &owner, "workers-1", "small", json!({ keys::REVISION: "1" })).await;
    let annotations = json!({ keys::REVISION: "2", keys::CHANGE_CAUSE: "more room" });
    set(&cluster, &owner, "workers-2", "large", annotations).await;
    cluster
}

#[tokio::test]
async fn the_revisions_are_a_table() {
    let cluster = with_two_revisions().await;
    let wanted = "\
machinedeployment.machine.sapcloud.io/workers
REVISION   CLASS   REPLICAS   CHANGE-CAUSE
1          small   1/1        <none>
2          large   1/1        more room
";
    assert_eq!(cluster.run("rollout history mcd/workers").await.well(), wanted);
    let wide = cluster.run("rollout history workers -o wide").await.well();
    let rows: Vec<Vec<&str>> = wide
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][..4], ["1", "<none>", "workers-1", "small"]);
    assert_eq!(rows[1][..5], ["2", "*", "<none>", "workers-2", "large"]);
}

#[tokio::test]
async fn the_template_of_a_revision_is_yaml() {
    let cluster = with_two_revisions().await;
    let wanted = "\
# machinedeployment.machine.sapcloud.io/workers, revision 1 (machineset workers-1)
metadata:
  labels:
    app: shop
spec:
  class:
    kind: MachineClass
    name: small
";
    assert_eq!(cluster.run("rollout history workers --revision 1").await.well(), wanted);
    let said = cluster.run("rollout history workers --revision=7").await.badly(1);
    assert_eq!(
        said,
        "error: machinedeployment \"workers\": there is no revision 7; there are 1, 2\n"
    );
}
