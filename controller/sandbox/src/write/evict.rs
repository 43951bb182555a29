//! Eviction: a deletion of a pod that disruption budgets have a say in.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::kinds::Kind;
use crate::moment::Moment;
use crate::object;
use crate::protobuf::{self, Envelope};
use crate::request::Request;
use crate::select::Labels;
use crate::state::Api;
use crate::store::Key;
use crate::write::delete::{DeleteOptions, delete};
use crate::write::part::Part;
use crate::write::{Options, Unread, key_of, owners, text, unrecognized};

/// Answers POST to a pod's eviction.
pub fn answer(api: &mut Api, kind: &Arc<Kind>, request: &Request, moment: &Moment) -> Result<Answer, Failure> {
    let dry_run = Options::read(request, "CreateOptions", moment)?.dry_run;
    let eviction = eviction(request)?;
    if object::name(&eviction) != request.target.name {
        return Err(Failure::BadRequest(
            "name in URL does not match name in Eviction object".to_owned(),
        ));
    }
    let key = key_of(request);
    let pod = api.find(kind, &key)?;
    let mut options = DeleteOptions::of(eviction.get("deleteOptions").unwrap_or(&Value::Null))?;
    options.dry_run |= dry_run;
    if !is_free(&pod) {
        spend(api, &key, &pod, options.dry_run, moment)?;
    }
    options.check(kind, &pod)?;
    if !options.dry_run {
        let told = told(&pod, moment);
        if told != *pod {
            api.put(kind, key.clone(), told)?;
        }
        options.version = None;
    }
    delete(api, kind, &key, &options, moment)?;
    let done = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok(Answer::with(201, done))
}

fn eviction(request: &Request) -> Result<Value, Failure> {
    if request.content_type != protobuf::MEDIA {
        let read = text(request).map_err(|unread| match unread {
            Unread::Json(why) => Failure::BadRequest(why),
            other => other.refusal(Failure::BadRequest),
        });
        return read.map(|(eviction, _)| eviction);
    }
    Envelope::open(&request.body, "policy/v1", "Eviction")
        .and_then(|envelope| envelope.object())
        .map_err(|why| unrecognized("Eviction", request, &why))
}

/// The pod with the mark of what happens to it.
fn told(pod: &Value, moment: &Moment) -> Value {
    let mut out = pod.clone();
    let mut conditions = pod
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let reason = "EvictionByEvictionAPI";
    let is_told = |one: &Value| one["type"] == "DisruptionTarget" && one["status"] == "True" && one["reason"] == reason;
    if conditions.iter().any(is_told) {
        return out;
    }
    conditions.retain(|one| one["type"] != "DisruptionTarget");
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "Eviction API: evicting",
        "lastProbeTime": null, "lastTransitionTime": moment.seconds(),
    }));
    object::part(&mut out, "status")["conditions"] = Value::Array(conditions);
    out
}

/// Pods that serve nobody, or are leaving anyway, are nobody's business.
fn is_free(pod: &Value) -> bool {
    object::is_deleting(pod) || matches!(object::text(pod, "/status/phase"), "Pending" | "Succeeded" | "Failed")
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Takes one disruption from the budget of a pod, or refuses.
fn spend(api: &mut Api, key: &Key, pod: &Value, dry_run: bool, moment: &Moment) -> Result<(), Failure> {
    let budgets = api
        .kinds
        .named("policy/v1", "PodDisruptionBudget")
        .expect("the table of built-in kinds has it")
        .clone();
    let place = budgets.place();
    let covers = |budget: &Value| Labels::of(&budget["spec"]["selector"]).matches(pod);
    let mine = api
        .store
        .all(&place)
        .filter(|(at, budget)| at.namespace == key.namespace && covers(budget));
    let mut mine: Vec<(Key, Arc<Value>)> = mine.map(|(at, budget)| (at.clone(), budget)).collect();
    let Some((at, budget)) = mine.pop() else { return Ok(()) };
    if !mine.is_empty() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Failure::Internal(why.to_owned()));
    }
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let (healthy, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    let enough = match object::text(&budget, "/spec/unhealthyPodEvictionPolicy") {
        "AlwaysAllow" => true,
        _ => healthy >= desired && desired > 0,
    };
    if !is_ready(pod) && enough {
        return Ok(());
    }
    let refuse = |why: String, retry_after: Option<u64>| Err(Failure::Budget { why, retry_after });
    let name = &at.name;
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return refuse(
            format!("The disruption budget {name} is still being processed by the server."),
            Some(10),
        );
    }
    let left = number("/status/disruptionsAllowed");
    if left <= 0 && healthy <= desired {
        return refuse(
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"),
            None,
        );
    }
    if left <= 0 {
        return refuse(
            format!("The disruption budget {name} does not allow evicting pods currently"),
            None,
        );
    }
    if !dry_run {
        let spent = spent(&budget, left - 1, &key.name, moment);
        let by_server = Options {
            manager: "kube-apiserver".to_owned(),
            now: moment.now,
            ..Options::default()
        };
        let spent = owners::record(&budgets, Some(&budget), spent, Part::Status, &by_server);
        api.put(&budgets, at, spent)?;
    }
    Ok(())
}

/// The budget after one more disruption, which its controller will count again.
fn spent(budget: &Value, left: i64, pod: &str, moment: &Moment) -> Value {
    let mut out = budget.clone();
    let generation = budget.pointer("/metadata/generation").cloned().unwrap_or_default();
    let status = object::part(&mut out, "status");
    status["disruptionsAllowed"] = json!(left);
    object::part(status, "disruptedPods")[pod] = json!(moment.seconds());
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "lastTransitionTime": moment.seconds(), "observedGeneration": generation,
        });
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|one| one["type"] != "DisruptionAllowed");
        conditions.push(condition);
        status["conditions"] = Value::Array(conditions);
    }
    out
}
