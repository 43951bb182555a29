//! Machines whose creation an admission policy refuses: set and deployment say so in the policy's words, and no longer
//! once the policy is gone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_tests::laws::condition;
use millwright_tests::manifests;
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// Within which a refusal is told.
const TOLD: Duration = Duration::from_secs(20);
const WORDS: &str = "no machine is made on a Sunday, ask the platform team";

/// A policy and its binding that refuse every Machine of a namespace.
fn policy(namespace: &str) -> Value {
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    let machines = json!({
        "apiGroups": ["machine.sapcloud.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["machines"],
    });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": namespace },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "namespaceSelector": here, "resourceRules": [machines] },
                "validations": [{ "expression": "false", "message": WORDS }],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": namespace },
            "spec": { "policyName": namespace, "validationActions": ["Deny"] },
        },
    ] })
}

/// The API server learns of a policy by a watch of its own. Asked without making anything: of a Machine that is made and deleted in the
/// same moment the API server may lose our finalizer (kubernetes#77988).
async fn policy_holds(scene: &mut Scene) {
    scene
        .until("the policy holds", LIMIT, async |scene: &Scene| {
            let name = format!("{}-probe", scene.namespace);
            match scene.would_create(Kind::Machine, &manifests::machine(&name)).await {
                Ok(_) => Err("a Machine was let through".to_owned()),
                Err(error) if error.to_string().contains(WORDS) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
}

/// The refusal as the set and the deployment tell it.
async fn told(scene: &Scene) -> Result<[Option<Value>; 2], String> {
    let sets = scene.list(Kind::Set).await?;
    let deployments = scene.list(Kind::Deployment).await?;
    let set = sets.first().ok_or("no set")?;
    let deployment = deployments.first().ok_or("no deployment")?;
    let lists = [
        &set["status"]["machineSetCondition"],
        &set["status"]["conditions"],
        &deployment["status"]["conditions"],
    ];
    let [of_set, of_set_too, of_deployment] = lists.map(|list| condition(list, "ReplicaFailure").cloned());
    Ok([of_set.or(of_set_too), of_deployment])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_creations_are_told_on_set_and_deployment_in_the_policys_words_and_no_longer_after_it() {
    let Some(plane) = shared_plane("refused creations").await else {
        return;
    };
    let mut scene = Script::new("refuse").begin(&plane).await;
    let policy = policy(&scene.namespace).to_string();
    scene.kubectl(&["create", "-f", "-"], &policy).await;
    policy_holds(&mut scene).await;

    scene.deploy(2).await;
    scene
        .until("set and deployment tell the refusal", TOLD, async |scene: &Scene| {
            for said in told(scene).await? {
                let said = said.ok_or("no ReplicaFailure")?;
                let message = said["message"].as_str().unwrap_or_default();
                if said["status"] != "True" || !message.contains(WORDS) {
                    return Err(said.to_string());
                }
            }
            Ok(())
        })
        .await;
    assert!(scene.list(Kind::Machine).await.unwrap().is_empty(), "the policy held");

    scene.kubectl(&["delete", "-f", "-"], &policy).await;
    scene.settled_at(2, LIMIT).await;
    scene
        .until("nothing is told any more", LIMIT, async |scene: &Scene| {
            match told(scene).await? {
                [None, None] => Ok(()),
                // A condition may also stay and say that all is well again.
                said if said.iter().flatten().all(|condition| condition["status"] == "False") => Ok(()),
                said => Err(format!("{said:?}")),
            }
        })
        .await;
}
