//! The server with its state on disk.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use millwright_sandbox::api::Api as Value;
use millwright_sandbox::http::disk::{Disk, DiskError};
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Running, Server};
use serde_json::json;

async fn server(file: &Path) -> Running {
    let now = System.moment().now;
    let (disk, api) = Disk::open(file, now).unwrap();
    let api = api.unwrap_or_else(|| Value::new(now));
    let options = Options {
        disk: Some(disk),
        ..Options::new(api, Users::default().with("admin", "t0ken"))
    };
    Server::start(options).await.unwrap()
}

async fn maps(server: &Running) -> Api<ConfigMap> {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig("admin").unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Api::namespaced(Client::try_from(config.unwrap()).unwrap(), "default")
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": "b" } })).unwrap()
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart_under_the_same_uid_and_version() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api.redb");
    let first = server(&file).await;
    let maps_then = maps(&first).await;
    let kept = maps_then.create(&PostParams::default(), &map("kept")).await.unwrap();
    maps_then.create(&PostParams::default(), &map("gone")).await.unwrap();
    maps_then.delete("gone", &DeleteParams::default()).await.unwrap();
    let then = first.with(|api| api.version());
    first.stop().await.unwrap();

    let second = server(&file).await;
    let maps_now = maps(&second).await;
    let listed = maps_now.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items, std::slice::from_ref(&kept));
    assert_eq!(listed.metadata.resource_version, Some(then.to_string()));
    // Nobody can go on from before: what happened is not kept, only what is.
    let old = maps_now
        .watch(&WatchParams::default(), &kept.resource_version().unwrap())
        .await;
    let mut old = Box::pin(old.unwrap());
    let event = futures::TryStreamExt::try_next(&mut old).await.unwrap().unwrap();
    let kube::api::WatchEvent::Error(status) = event else {
        panic!("not refused: {event:?}")
    };
    assert_eq!(status.code, 410);
    let next = maps_now.create(&PostParams::default(), &map("next")).await.unwrap();
    assert_eq!(next.resource_version(), Some((then + 1).to_string()));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_in_use_and_one_that_is_none_of_ours_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("api.redb");
    let first = server(&file).await;
    let now = System.moment().now;
    let locked = Disk::open(&file, now).err().unwrap();
    assert!(matches!(locked, DiskError::Locked(_)), "{locked}");
    first.stop().await.unwrap();
    std::fs::write(&file, "not a database").unwrap();
    let foreign = Disk::open(&file, now).err().unwrap();
    assert!(matches!(foreign, DiskError::Open { .. }), "{foreign}");
}
