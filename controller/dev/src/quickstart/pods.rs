//! Two pods of an application, and the budget that protects them: what a drain is shown with.
//!
//! The API server here has no scheduler, no disruption controller and no kubelets that run pods, so their part is played: the pods are
//! bound to their node and ready from the start, end at once when they are evicted, and the budget's status says what is told to it.
//! Decides nothing about machines.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::manifests::NAMESPACE;

/// The application's name, and its budget's.
pub const APP: &str = "web";
/// How many of its pods are on the node. As many must stay ready, so that none may go until another one is ready elsewhere.
pub const COUNT: u32 = 2;

/// Binds the pods to a node, and makes their budget.
pub async fn place(client: &Client, node: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get_opt(node).await?;
    found.with_context(|| format!("there is no node {node} for pods"))?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    let budget = json!({
        "metadata": {"name": APP},
        "spec": {"minAvailable": COUNT, "selector": {"matchLabels": {"app": APP}}},
    });
    budgets
        .create(&PostParams::default(), &serde_json::from_value(budget)?)
        .await?;
    allow(client, 0).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for number in 0..COUNT {
        let name = format!("{APP}-{number}");
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": APP}},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": APP, "image": "nginx"}],
            },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready))
            .await?;
    }
    Ok(())
}

/// Lets so many pods go, as the disruption controller does when others became ready.
pub async fn allow(client: &Client, disruptions: u32) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    let status = json!({"status": {
        "observedGeneration": 1, "expectedPods": COUNT + 1, "desiredHealthy": COUNT,
        "currentHealthy": COUNT + disruptions, "disruptionsAllowed": disruptions,
    }});
    budgets
        .patch_status(APP, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// How many of the pods are left.
pub async fn left(client: &Client) -> anyhow::Result<u32> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().labels(&format!("app={APP}"));
    Ok(u32::try_from(pods.list(&ours).await?.items.len())?)
}

/// Removes the budget.
pub async fn clear(client: &Client) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    budgets.delete(APP, &DeleteParams::default()).await?;
    Ok(())
}
