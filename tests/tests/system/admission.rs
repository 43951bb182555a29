//! Every spec of `tests/specs.yaml` on a real API server: refused at the door, or stored and told on the object; never the end of
//! the manager, never a change to machines; and once it is corrected, the object is served. What the original serves is admitted.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use millwright_core::merge;
use millwright_dev::apiserver::binaries::workspace_root;
use millwright_tests::apiserver;
use millwright_tests::laws::{self, condition};
use millwright_tests::scene::{Kind, Scene, shared_plane};
use millwright_tests::script::Script;
use serde::Deserialize;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);
/// Long enough for the manager to look at everything again after the last change.
const REST: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
struct Table {
    valid: BTreeMap<String, Value>,
    invalid: Vec<Row>,
    working: Vec<Working>,
}

#[derive(Clone, Deserialize)]
struct Row {
    what: String,
    kind: String,
    patch: Value,
    refused: Option<String>,
    told: String,
}

#[derive(Deserialize)]
struct Working {
    what: String,
    kind: String,
    patch: Value,
}

/// One row of the table as an object of a scene.
struct Case {
    row: Row,
    kind: Kind,
    name: String,
    valid: Value,
}

impl Case {
    fn invalid(&self) -> Value {
        let mut spec = self.valid.clone();
        merge::apply(&mut spec, &self.row.patch);
        spec
    }

    fn body(&self, spec: Value) -> Value {
        json!({ "metadata": { "name": self.name }, "spec": spec })
    }

    /// Whether the API server, by its own rule for what can be scaled, refuses every write of the object but of its status.
    fn has_no_number(&self) -> bool {
        self.invalid()["replicas"] == json!(-1)
    }

    /// What the object says of itself.
    fn said(&self, object: &Value) -> String {
        let status = &object["status"];
        let (conditions, type_, wanted) = match self.kind {
            Kind::Deployment => (&status["conditions"], "Progressing", "False"),
            Kind::Set => (&status["machineSetCondition"], "ReplicaFailure", "True"),
            Kind::Machine | Kind::Class => {
                let said = status["lastOperation"]["description"].as_str();
                return said.unwrap_or_default().to_owned();
            }
        };
        let told = condition(conditions, type_).filter(|told| {
            told["status"].as_str() == Some(wanted) && told["reason"].as_str() == Some("InvalidConfiguration")
        });
        told.and_then(|told| told["message"].as_str())
            .unwrap_or_default()
            .to_owned()
    }

    /// The uids of its machines that run.
    fn running(&self, machines: &[Value]) -> BTreeSet<String> {
        let prefix = format!("{}-", self.name);
        let is_its = |machine: &&Value| laws::name(machine) == self.name || laws::name(machine).starts_with(&prefix);
        let running = machines
            .iter()
            .filter(is_its)
            .filter(|machine| laws::phase(machine) == "Running");
        running.map(|machine| laws::uid(machine).to_owned()).collect()
    }
}

fn table() -> Table {
    let text = std::fs::read_to_string(workspace_root().join("tests/specs.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn kind(name: &str) -> Kind {
    match name {
        "MachineDeployment" => Kind::Deployment,
        "MachineSet" => Kind::Set,
        "Machine" => Kind::Machine,
        other => panic!("the table has a {other}"),
    }
}

fn cases(scene: &Scene) -> Vec<Case> {
    let Table { valid, invalid, .. } = table();
    let case = |(number, row): (usize, Row)| {
        let name = format!("{}-r{number:02}", scene.namespace);
        let named = |value: &Value| serde_json::from_str(&value.to_string().replace("NAME", &name)).unwrap();
        Case {
            kind: kind(&row.kind),
            valid: named(&valid[&row.kind]),
            row: Row {
                patch: named(&row.patch),
                told: row.told.replace("NAME", &name),
                ..row
            },
            name,
        }
    };
    invalid.into_iter().enumerate().map(case).collect()
}

/// Waits until each object says what is wrong with it.
async fn all_say_so(scene: &mut Scene, cases: &[Case]) {
    scene
        .until(
            "every object says what is wrong with it",
            LIMIT,
            async |scene: &Scene| {
                let mut silent = Vec::new();
                for case in cases {
                    let said = case.said(&scene.get(case.kind, &case.name).await);
                    if !said.contains(&case.row.told) {
                        silent.push(format!(
                            "{} ({}): {said:?} lacks {:?}",
                            case.row.what, case.name, case.row.told
                        ));
                    }
                }
                if silent.is_empty() {
                    Ok(())
                } else {
                    Err(silent.join("\n"))
                }
            },
        )
        .await;
}

/// Replaces each spec by the valid one, as an editor does, and waits until as many machines of each run.
async fn correct(scene: &mut Scene, cases: &[Case], replicas: usize) {
    for case in cases {
        let mut spec = case.valid.clone();
        if case.kind != Kind::Machine {
            spec["replicas"] = json!(replicas);
        }
        scene
            .until(
                &format!("{} is corrected", case.row.what),
                LIMIT,
                async |scene: &Scene| {
                    let api = scene.api(case.kind);
                    let mut object: DynamicObject = api.get(&case.name).await.map_err(|error| error.to_string())?;
                    object.data["spec"] = spec.clone();
                    let put = api.replace(&case.name, &PostParams::default(), &object).await;
                    put.map(drop).map_err(|error| error.to_string())
                },
            )
            .await;
    }
    scene
        .until("every corrected object is served", LIMIT, async |scene: &Scene| {
            let machines = scene.list(Kind::Machine).await?;
            let mut waiting = Vec::new();
            for case in cases {
                let wanted = if case.kind == Kind::Machine { 1 } else { replicas };
                let object = scene.get(case.kind, &case.name).await;
                let said = if case.kind == Kind::Machine {
                    String::new()
                } else {
                    case.said(&object)
                };
                let running = case.running(&machines).len();
                if running != wanted || !said.is_empty() {
                    waiting.push(format!("{}: {running} machines run, {said:?}", case.row.what));
                }
            }
            if waiting.is_empty() {
                Ok(())
            } else {
                Err(waiting.join("\n"))
            }
        })
        .await;
}

/// Rows: K1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_work_is_refused_or_told_and_makes_no_machine() {
    let what = "what can never work is refused or told";
    let Some(plane) = shared_plane(what).await else { return };
    let mut scene = Script::new("bad-new").begin(&plane).await;
    let manager = scene.manager.service.pid();
    let mut stored = Vec::new();
    for case in cases(&scene) {
        let answer = scene.try_create(case.kind, &case.body(case.invalid())).await;
        match (&case.row.refused, answer) {
            (Some(text), Err(error)) => {
                assert!(
                    error.to_string().contains(text),
                    "{}: {error} lacks {text:?}",
                    case.row.what
                );
            }
            (None, Ok(_)) => stored.push(case),
            (Some(_), Ok(_)) => panic!("{}: it was stored", case.row.what),
            (None, Err(error)) => panic!("{}: it was refused: {error}", case.row.what),
        }
    }
    all_say_so(&mut scene, &stored).await;
    tokio::time::sleep(REST).await;
    let owned = scene.list(Kind::Machine).await.unwrap().len();
    let asked = stored.iter().filter(|case| case.kind == Kind::Machine).count();
    assert_eq!(owned, asked, "only the Machines of the table are there");
    assert!(scene.list(Kind::Set).await.unwrap().len() <= stored.iter().filter(|case| case.kind == Kind::Set).count());
    assert_eq!(laws::vms_made(&scene.journal().await.unwrap()), 0, "no VM was made");
    correct(&mut scene, &stored, 1).await;
    assert!(scene.manager.service.is_running());
    assert_eq!(
        scene.manager.service.pid(),
        manager,
        "the manager is the one that began"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_original_serves_is_admitted_as_it_is() {
    let Some(plane) = shared_plane("what the original serves is admitted").await else {
        return;
    };
    let client = plane.client().await.unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let table = table();
    for row in &table.working {
        let resource = kind(&row.kind).resource();
        let mut spec = table.valid[&row.kind].clone();
        merge::apply(&mut spec, &row.patch);
        let object = DynamicObject::new("working", &resource).data(json!({ "spec": spec }));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let taken = api.create(&params, &object).await;
        let taken = taken.unwrap_or_else(|error| panic!("{}: {error}", row.what));
        assert_eq!(taken.data["spec"], spec, "{}", row.what);
    }
}

/// Our definitions as the original's are: without rules, without bounds of replicas and selectors, without a required template and
/// what is known of its labels.
fn without_rules(dir: &Path) -> PathBuf {
    apiserver::changed_crds(dir, "without-rules", |crd| {
        let version = &mut crd["spec"]["versions"][0];
        version["subresources"].as_object_mut().unwrap().remove("scale");
        if let Some(spec) = version.pointer_mut("/schema/openAPIV3Schema/properties/spec") {
            spec.as_object_mut().unwrap().remove("required");
            if let Some(metadata) = spec.pointer_mut("/properties/template/properties/metadata") {
                metadata.as_object_mut().unwrap().remove("properties");
            }
        }
        forget_rules(crd);
    })
}

fn forget_rules(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for rule in ["x-kubernetes-validations", "maxLength", "maxProperties"] {
                fields.remove(rule);
            }
            fields.values_mut().for_each(forget_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_rules),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn running(cases: &[Case], machines: &[Value]) -> Vec<BTreeSet<String>> {
    cases.iter().map(|case| case.running(machines)).collect()
}

/// A scene without our rules, and the sets and deployments of the table in it, each valid and with one machine that runs.
async fn before_the_rules(what: &str, prefix: &str) -> Option<(Scene, Vec<Case>)> {
    let plane = apiserver::start(what).await?;
    plane.install_crds(&without_rules(plane.dir())).await.unwrap();
    let mut scene = Script::new(prefix).begin(&Arc::new(plane)).await;
    let mut cases = cases(&scene);
    cases.retain(|case| case.kind != Kind::Machine);
    for case in &cases {
        scene.create(case.kind, &case.body(case.valid.clone())).await;
    }
    scene
        .until("one machine of each runs", LIMIT, async |scene: &Scene| {
            let running = running(&cases, &scene.list(Kind::Machine).await?);
            let all = running.iter().all(|uids| uids.len() == 1);
            if all { Ok(()) } else { Err(format!("{running:?}")) }
        })
        .await;
    Some((scene, cases))
}

/// Each object becomes invalid, and then our rules come.
async fn break_before_the_rules(scene: &mut Scene, cases: &[Case]) {
    for case in cases {
        scene
            .patch(case.kind, &case.name, json!({ "spec": case.row.patch }))
            .await;
    }
    scene.plane.install_crds(&apiserver::crds()).await.unwrap();
    all_say_so(scene, cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_from_before_the_rules_keep_their_machines_say_what_is_wrong_and_can_be_mended() {
    let what = "objects from before the rules keep their machines";
    let Some((mut scene, cases)) = before_the_rules(what, "bad-old").await else {
        return;
    };
    let manager = scene.manager.service.pid();
    let before = running(&cases, &scene.list(Kind::Machine).await.unwrap());
    break_before_the_rules(&mut scene, &cases).await;
    others_may_still_write(&scene, &cases).await;
    tokio::time::sleep(REST).await;
    let machines = scene.list(Kind::Machine).await.unwrap();
    assert_eq!(running(&cases, &machines), before, "every machine is the one that ran");
    assert_eq!(machines.len(), cases.len(), "and there are no others");
    correct(&mut scene, &cases, 2).await;
    let after = running(&cases, &scene.list(Kind::Machine).await.unwrap());
    let kept = before.iter().zip(&after).all(|(before, after)| before.is_subset(after));
    assert!(kept, "no machine was replaced on the way");
    assert!(scene.manager.service.is_running());
    assert_eq!(
        scene.manager.service.pid(),
        manager,
        "the manager is the one that began"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_from_before_the_rules_can_be_deleted_with_their_machines() {
    let what = "objects from before the rules can be deleted";
    let Some((mut scene, mut cases)) = before_the_rules(what, "bad-gone").await else {
        return;
    };
    break_before_the_rules(&mut scene, &cases).await;
    let (refused, gone): (Vec<Case>, Vec<Case>) = cases.drain(..).partition(Case::has_no_number);
    for case in &gone {
        scene.delete(case.kind, &case.name).await;
    }
    scene
        .until("all are gone", LIMIT, async |scene: &Scene| {
            let mut left: BTreeSet<String> = BTreeSet::new();
            for kind in [Kind::Deployment, Kind::Set, Kind::Machine] {
                left.extend(
                    scene
                        .list(kind)
                        .await?
                        .iter()
                        .map(|object| laws::name(object).to_owned()),
                );
            }
            left.retain(|name| !refused.iter().any(|case| name.starts_with(&case.name)));
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("left: {left:?}"))
            }
        })
        .await;
}

/// Whoever writes something else of a broken object is not held up by our rules. What the API server itself demands, numbers of
/// replicas and, where the spec is written, the deployment's template, it demands at every write, of everybody.
async fn others_may_still_write(scene: &Scene, cases: &[Case]) {
    let mark =
        json!({ "metadata": { "annotations": { "note": "mine" }, "labels": { "note": "mine" }, "finalizers": null } });
    let wish = json!({ "spec": { "autoPreserveFailedMachineMax": 1 } });
    for case in cases.iter().filter(|case| !case.has_no_number()) {
        let has_template = case.invalid().get("template").is_some();
        for body in [Some(&mark), Some(&wish).filter(|_| has_template)]
            .into_iter()
            .flatten()
        {
            let api = scene.api(case.kind);
            let written = api
                .patch(&case.name, &PatchParams::default(), &Patch::Merge(body))
                .await;
            assert!(written.is_ok(), "{}: {body}: {:?}", case.row.what, written.err());
        }
    }
}
