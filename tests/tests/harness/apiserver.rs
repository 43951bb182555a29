//! The harness itself: control planes start, stand beside each other, and leave nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use millwright_tests::apiserver;

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        ..Default::default()
    }
}

#[tokio::test]
async fn control_planes_side_by_side_do_not_see_each_other() {
    let what = "control planes side by side do not see each other";
    let (one, two) = tokio::join!(apiserver::start(what), apiserver::start(what));
    let (Some(one), Some(two)) = (one, two) else { return };
    let here: Api<ConfigMap> = Api::default_namespaced(one.client().await.unwrap());
    let there: Api<ConfigMap> = Api::default_namespaced(two.client().await.unwrap());
    here.create(&PostParams::default(), &config_map("only-here"))
        .await
        .unwrap();
    assert!(here.get_opt("only-here").await.unwrap().is_some());
    assert!(there.get_opt("only-here").await.unwrap().is_none());
}

#[tokio::test]
async fn objects_survive_a_power_cut_of_the_api_server() {
    let Some(mut plane) = apiserver::start("objects survive a power cut of the API server").await else {
        return;
    };
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client().await.unwrap());
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let address = plane.url();
    plane.stop_apiserver();
    assert!(maps.get("kept").await.is_err(), "a stopped server does not answer");
    plane.restart_apiserver().await.unwrap();
    assert_eq!(plane.url(), address);
    maps.get("kept").await.unwrap();
}

#[tokio::test]
async fn kubectl_and_namespaces_work_and_the_directory_goes_with_the_control_plane() {
    let Some(plane) = apiserver::start("kubectl and namespaces work").await else {
        return;
    };
    let namespace = plane.create_namespace("harness").await.unwrap();
    assert!(namespace.starts_with("harness-"));
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: piped}\ndata: {a: b}\n";
    let applied = plane
        .kubectl_with_input(&["-n", &namespace, "apply", "-f", "-"], manifest)
        .await
        .unwrap();
    assert!(applied.success, "{}", applied.stderr);
    let shown = plane
        .kubectl(&[
            "-n",
            &namespace,
            "get",
            "configmap",
            "piped",
            "-o",
            "jsonpath={.data.a}",
        ])
        .await
        .unwrap();
    assert_eq!((shown.success, shown.stdout.as_str()), (true, "b"), "{}", shown.stderr);

    let (dir, pid) = (plane.dir().to_owned(), plane.apiserver_pid());
    drop(plane);
    assert!(!dir.exists(), "{} is left", dir.display());
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "kube-apiserver {pid} is left"
    );
}
