//! A whole cluster runs workloads. The programs that it needs are built here, before the tests that share the processors with it and judge
//! how long something takes.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use millwright_tests::cluster::Cluster;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_cluster_makes_the_pods_of_a_deployment() {
    let Some(cluster) = Cluster::start("a whole cluster makes pods").await else {
        return;
    };
    let client = cluster.plane.client().await.unwrap();
    let labels = json!({ "app": "web" });
    let pod =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "web", "image": "web" }] } });
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": { "matchLabels": labels }, "template": pod },
    });
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let made = async || match pods.list(&ListParams::default()).await {
        Ok(pods) if pods.items.len() == 2 => Ok(()),
        Ok(pods) => Err(format!("{} pods", pods.items.len())),
        Err(error) => Err(error.to_string()),
    };
    cluster.eventually("two pods are made", LIMIT, made).await;
}
