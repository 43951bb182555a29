//! What cannot work says what, where and what to do.

use std::time::Duration;

use crate::cluster::{Cluster, NOBODY, command, run};

#[tokio::test]
async fn words_that_name_no_deployment_are_refused_before_anybody_is_asked() {
    for (words, told) in [
        ("deployment/workers", "\"deployment\" is no kind that has rollouts"),
        ("mcd/Workers", "\"Workers\" is not a name that Kubernetes takes"),
        ("machinedeployment", "the name is missing"),
    ] {
        for verb in ["status", "history", "undo", "pause", "resume", "restart"] {
            let said = run(&mut command(&format!("rollout {verb} {words}"))).await.badly(2);
            assert!(said.contains(told), "{verb}: {said}");
        }
        let said = run(&mut command(&format!("tree {words}"))).await.badly(2);
        assert!(said.contains(told), "tree: {said}");
    }
    for words in [
        "status a --timeout soon",
        "status a --revision=-1",
        "history a --revision 0",
        "undo a --to-revision x",
    ] {
        let said = run(&mut command(&format!("rollout {words}"))).await.badly(2);
        assert!(said.contains("invalid value"), "{words}: {said}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let cluster = Cluster::start().await;
    for words in [
        "rollout status x",
        "rollout history x",
        "rollout undo x",
        "rollout pause x",
        "tree x",
    ] {
        let said = cluster.run(words).await.badly(1);
        assert_eq!(
            said, "error: machinedeployment \"x\" in namespace \"default\" not found\n",
            "{words}"
        );
    }
}

#[tokio::test]
async fn without_our_kinds_it_is_said_how_to_install_them() {
    let cluster = Cluster::bare().await;
    for words in ["rollout status x", "rollout resume x", "tree", "tree -A"] {
        let said = cluster.run(words).await.badly(1);
        assert!(
            said.contains("does not know the kinds of machine.sapcloud.io"),
            "{words}: {said}"
        );
        assert!(said.contains("millwright crds | kubectl apply"), "{words}: {said}");
    }
}

#[tokio::test]
async fn who_may_not_is_told_so() {
    let cluster = Cluster::start().await;
    let nobody = cluster.file("nobody", &cluster.server.kubeconfig(NOBODY).unwrap());
    for words in ["rollout status x", "rollout history x", "tree"] {
        let said = run(command(words).args(["--kubeconfig", &nobody])).await.badly(1);
        assert!(said.contains("not allowed") && said.contains(NOBODY), "{words}: {said}");
    }
    let text = std::fs::read_to_string(cluster.kubeconfig())
        .unwrap()
        .replace("t0ken", "wrong");
    let wrong = cluster.file("wrong", &text);
    let said = run(command("tree").args(["--kubeconfig", &wrong])).await.badly(1);
    assert!(
        said.contains("does not accept the kubeconfig's credentials (HTTP 401)"),
        "{said}"
    );
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_or_wrong_is_told_without_what_stands_in_it() {
    let cluster = Cluster::start().await;
    let said = run(&mut command("tree")).await.badly(1);
    assert!(
        said.contains("there is no kubeconfig: give --kubeconfig PATH"),
        "{said}"
    );
    let said = run(&mut command("tree --kubeconfig /nowhere/config")).await.badly(1);
    assert!(said.contains("kubeconfig /nowhere/config: No such file"), "{said}");
    let broken = cluster.file("broken", "apiVersion: v1\nusers: [{name: a, user: {token: s3cret}}\n");
    let said = run(command("tree").args(["--kubeconfig", &broken])).await.badly(1);
    assert!(said.contains("no kubeconfig") && !said.contains("s3cret"), "{said}");
    let said = cluster.run("tree --context elsewhere").await.badly(1);
    assert!(
        said.contains("the kubeconfig has no context \"elsewhere\"; it has "),
        "{said}"
    );
}

#[tokio::test]
async fn a_server_that_is_away_is_named() {
    let cluster = Cluster::start().await;
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let away = cluster.file("away", &text.replace(&cluster.server.url(), "http://127.0.0.1:1"));
    let asked = tokio::time::Instant::now();
    for words in ["rollout status x", "rollout restart x", "tree"] {
        let said = run(command(words).args(["--kubeconfig", &away])).await.badly(1);
        assert!(
            said.contains("the API server at http://127.0.0.1:1 does not answer: Connection refused"),
            "{words}: {said}"
        );
    }
    assert!(asked.elapsed() < Duration::from_secs(20));
}
