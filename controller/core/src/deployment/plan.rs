//! Which set a deployment has, how large it is, and what is passed on to it.
//!
//! Source: `spec/machinedeployment.md` §4, §5, §10 (one active set), §14. Without rollouts the rule of size is simple:
//! the set whose template the deployment has is scaled to `spec.replicas`; while none has it, the newest set in use is. Others in
//! use are emptied once that one has all.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::names::{set_name, template_hash};
use super::observed::{Observed, Plan, Step, Why};
use super::status;
use crate::api::lenient::Rounding;
use crate::api::template::Scope;
use crate::api::{API_VERSION, MachineDeployment, MachineSet, keys, meta};
use crate::ids::{Name, Uid};
use crate::merge::replacing;
use crate::selector::Matcher;

/// Changes of the counts within this time become one status write.
const STATUS_PACE: SignedDuration = SignedDuration::from_millis(250);

/// Decides what a deployment needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let deployment = seen.deployment;
    if meta::is_deleting(&deployment.metadata) {
        return leave(seen, now);
    }
    if let Some(fault) = fault(deployment) {
        let problem = status::Problem {
            reason: "InvalidConfiguration",
            message: fault.clone(),
        };
        let mut steps = Vec::new();
        let wake = record(seen, &owned(seen), None, Some(problem), now, &mut steps);
        return Plan {
            steps,
            wake,
            why: Why::Invalid(fault),
        };
    }
    let mut steps = Vec::new();
    if !meta::has_finalizer(&deployment.metadata, keys::FINALIZER) {
        steps.push(Step::AddFinalizer);
    }
    let claims = claims(seen);
    if !claims.is_empty() {
        steps.extend(claims);
        return Plan {
            steps,
            wake: None,
            why: Why::Claiming,
        };
    }
    let sets = owned(seen);
    let current = current_set(deployment, &sets);
    let (why, problem) = match current {
        Some(set) => (serve(seen, set, &sets, true, &mut steps), None),
        None => match newest_in_use(&sets) {
            Some(set) => {
                serve(seen, set, &sets, false, &mut steps);
                let message = format!(
                    "The template differs from that of MachineSet {}; this version does not roll out changes, machines keep the old template",
                    meta::name(&set.metadata)
                );
                (
                    Why::TemplateChanged,
                    Some(status::Problem {
                        reason: "TemplateChangeNotRolledOut",
                        message,
                    }),
                )
            }
            None => (create(seen, &sets, &mut steps), None),
        },
    };
    let why = if deployment.spec.paused && why == Why::Settled {
        Why::Paused
    } else {
        why
    };
    let wake = record(seen, &sets, current.map(Arc::as_ref), problem, now, &mut steps);
    Plan { steps, wake, why }
}

/// Deletion: sets first, the finalizer last.
fn leave(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if !meta::has_finalizer(&seen.deployment.metadata, keys::FINALIZER) {
        return Plan {
            steps: Vec::new(),
            wake: None,
            why: Why::Empty,
        };
    }
    let sets = owned(seen);
    if sets.is_empty() {
        return Plan {
            steps: vec![Step::RemoveFinalizer],
            wake: None,
            why: Why::Empty,
        };
    }
    let staying = sets.iter().filter(|set| !meta::is_deleting(&set.metadata));
    let leaving: Vec<(Name, Uid)> = staying.map(|set| meta::identity(&set.metadata)).collect();
    let mut steps = Vec::new();
    if !leaving.is_empty() {
        steps.push(Step::Delete(leaving));
    }
    let wake = record(seen, &sets, None, None, now, &mut steps);
    Plan {
        steps,
        wake,
        why: Why::Emptying,
    }
}

/// What could never work (`spec/api.md` §8), in words. A strategy is not judged: nothing here depends on it.
fn fault(deployment: &MachineDeployment) -> Option<String> {
    let spec = &deployment.spec;
    let Some(selector) = &spec.selector else {
        return Some("spec.selector is missing: it must select the template's labels".to_owned());
    };
    if spec.replicas < 0 {
        return Some(format!("spec.replicas is {}: it must not be negative", spec.replicas));
    }
    let matcher = match Matcher::new(selector) {
        Ok(matcher) => matcher,
        Err(error) => return Some(format!("spec.selector {error}")),
    };
    if matcher.selects_all() {
        return Some("spec.selector is empty: it would select every machine".to_owned());
    }
    if !matcher.matches(&spec.template.labels()) {
        return Some("spec.selector does not match spec.template.metadata.labels".to_owned());
    }
    let named = spec.template.class().is_some_and(|class| class.is_named());
    (!named).then(|| "spec.template.spec.class must have a kind and a name".to_owned())
}

/// Sets that the deployment controls, oldest first.
fn owned(seen: &Observed<'_>) -> Vec<Arc<MachineSet>> {
    let own = meta::uid(&seen.deployment.metadata);
    let mut sets: Vec<Arc<MachineSet>> = seen
        .sets
        .iter()
        .filter(|set| own.is_some() && meta::controller_uid(&set.metadata) == own)
        .cloned()
        .collect();
    sets.sort_by_key(|set| (meta::created(&set.metadata), meta::name(&set.metadata).to_owned()));
    sets
}

/// What to adopt and release (`spec/machinedeployment.md` §4): by the sets' own labels.
fn claims(seen: &Observed<'_>) -> Vec<Step> {
    let Some(Ok(selector)) = seen.deployment.spec.selector.as_ref().map(Matcher::new) else {
        return Vec::new();
    };
    let own = meta::uid(&seen.deployment.metadata);
    let claim = |set: &Arc<MachineSet>| {
        let (name, uid) = meta::identity(&set.metadata);
        let matches = selector.selects(&set.metadata);
        match meta::controller_uid(&set.metadata) {
            Some(owner) => (Some(owner) == own && !matches).then_some(Step::Release(name, uid)),
            None => (matches && !meta::is_deleting(&set.metadata)).then_some(Step::Adopt(name, uid)),
        }
    };
    seen.sets.iter().filter_map(claim).collect()
}

/// The oldest set that has the deployment's template.
fn current_set<'a>(deployment: &MachineDeployment, sets: &'a [Arc<MachineSet>]) -> Option<&'a Arc<MachineSet>> {
    let template = &deployment.spec.template;
    sets.iter()
        .find(|set| !meta::is_deleting(&set.metadata) && set.spec.template.semantically_equal(template, Scope::Rollout))
}

/// The set that stands in while none has the template: the newest that has or wants Machines, else the newest.
fn newest_in_use(sets: &[Arc<MachineSet>]) -> Option<&Arc<MachineSet>> {
    let mut staying = sets.iter().rev().filter(|set| !meta::is_deleting(&set.metadata));
    let used = staying.clone().find(|set| set.spec.replicas > 0);
    used.or_else(|| staying.next())
}

/// Scales a set and passes on to it what needs no rollout (`spec/machinedeployment.md` §5.2).
fn serve(seen: &Observed<'_>, set: &MachineSet, sets: &[Arc<MachineSet>], current: bool, steps: &mut Vec<Step>) -> Why {
    let deployment = seen.deployment;
    let wanted = deployment.spec.replicas;
    let mut spec = Map::new();
    if set.spec.replicas != wanted {
        spec.insert("replicas".to_owned(), json!(wanted));
    }
    let mut annotations = sizes(deployment);
    if current {
        annotations.extend(passed_annotations(deployment));
        annotations.insert(keys::REVISION.to_owned(), revision(set, sets).to_string());
        spec.extend(passed_spec(deployment, set));
    }
    let told = |(key, value): &(String, String)| meta::annotation(&set.metadata, key) != Some(value.as_str());
    let annotations: Map<String, Value> = annotations
        .into_iter()
        .filter(told)
        .map(|(key, value)| (key, json!(value)))
        .collect();

    let why = match (set.spec.replicas != wanted, spec.is_empty() && annotations.is_empty()) {
        (true, _) => Why::Scaling {
            from: set.spec.replicas,
            to: wanted,
        },
        (false, false) => Why::Passing,
        (false, true) => Why::Settled,
    };
    let mut body = Map::new();
    if !annotations.is_empty() {
        body.insert("metadata".to_owned(), json!({ "annotations": annotations }));
    }
    if !spec.is_empty() {
        body.insert("spec".to_owned(), Value::Object(spec));
    }
    if !body.is_empty() {
        steps.push(Step::Change(Name::new(meta::name(&set.metadata)), Value::Object(body)));
    }
    let why = if why == Why::Settled {
        empty_others(seen, set, sets, steps).unwrap_or(why)
    } else {
        why
    };
    let number = revision(set, sets);
    if current && meta::annotation(&deployment.metadata, keys::REVISION) != Some(number.to_string().as_str()) {
        steps.push(Step::Number(number));
    }
    why
}

/// Another set in use, by a creation that arrived late or a rollout that another controller began, makes the deployment larger
/// than it is wanted (S4). It is emptied once the set that serves has all that is wanted.
fn empty_others(seen: &Observed<'_>, set: &MachineSet, sets: &[Arc<MachineSet>], steps: &mut Vec<Step>) -> Option<Why> {
    let available = set.status.as_ref().map_or(0, |status| status.available_replicas);
    if seen.deployment.spec.paused || available < seen.deployment.spec.replicas {
        return None;
    }
    let is_surplus = |other: &&Arc<MachineSet>| {
        other.metadata.uid != set.metadata.uid && !meta::is_deleting(&other.metadata) && other.spec.replicas > 0
    };
    let surplus: Vec<&Arc<MachineSet>> = sets.iter().filter(is_surplus).collect();
    let from = surplus.first()?.spec.replicas;
    let emptied = |other: &Arc<MachineSet>| {
        let name = Name::new(meta::name(&other.metadata));
        Step::Change(name, json!({ "spec": { "replicas": 0 } }))
    };
    steps.extend(surplus.into_iter().map(emptied));
    Some(Why::Scaling { from, to: 0 })
}

/// Parts of the template and numbers that a set takes over without a rollout.
fn passed_spec(deployment: &MachineDeployment, set: &MachineSet) -> Map<String, Value> {
    let mut spec = Map::new();
    if set.spec.min_ready_seconds != deployment.spec.min_ready_seconds {
        spec.insert("minReadySeconds".to_owned(), json!(deployment.spec.min_ready_seconds));
    }
    if set.spec.auto_preserve_failed_machine_max != deployment.spec.auto_preserve_failed_machine_max {
        spec.insert(
            "autoPreserveFailedMachineMax".to_owned(),
            json!(deployment.spec.auto_preserve_failed_machine_max),
        );
    }
    if !set
        .spec
        .template
        .semantically_equal(&deployment.spec.template, Scope::Whole)
    {
        let (old, new) = (set.spec.template.spec_json(), deployment.spec.template.spec_json());
        let gone = old
            .keys()
            .filter(|field| !new.contains_key(*field))
            .map(|field| (field.clone(), Value::Null));
        let mut fields: Map<String, Value> = gone.collect();
        fields.extend(
            new.iter()
                .map(|(field, value)| (field.clone(), replacing(old.get(field), value))),
        );
        spec.insert("template".to_owned(), json!({ "spec": fields }));
    }
    spec
}

/// What the deployment last told a set of its size; the original tells scaling from rolling by it.
fn sizes(deployment: &MachineDeployment) -> Map2 {
    let wanted = deployment.spec.replicas;
    let surge = deployment
        .spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = surge
        .and_then(|bounds| bounds.max_surge.as_ref()?.resolve(wanted, Rounding::Up).ok())
        .unwrap_or(0);
    Map2::from([
        (keys::DESIRED_REPLICAS.to_owned(), wanted.to_string()),
        (keys::MAX_REPLICAS.to_owned(), wanted.saturating_add(surge).to_string()),
    ])
}

type Map2 = std::collections::BTreeMap<String, String>;

/// Annotations of the deployment that its set carries too (`spec/api.md` §9.2, end).
fn passed_annotations(deployment: &MachineDeployment) -> Map2 {
    let all = deployment.metadata.annotations.clone().unwrap_or_default();
    all.into_iter()
        .filter(|(key, _)| !keys::NOT_COPIED_TO_SETS.contains(&key.as_str()))
        .collect()
}

/// One more than the highest revision of the other sets, unless the set's own is higher already.
fn revision(set: &MachineSet, sets: &[Arc<MachineSet>]) -> i64 {
    let of =
        |set: &MachineSet| meta::annotation(&set.metadata, keys::REVISION).and_then(|text| text.parse::<i64>().ok());
    let others = sets
        .iter()
        .filter(|other| other.metadata.uid != set.metadata.uid)
        .filter_map(|other| of(other))
        .max();
    of(set).unwrap_or(0).max(others.unwrap_or(0).saturating_add(1))
}

/// The deployment's first set, named by its template.
fn create(seen: &Observed<'_>, sets: &[Arc<MachineSet>], steps: &mut Vec<Step>) -> Why {
    // A set that is going still bears its name and its Machines; the new one waits for its end.
    if !sets.is_empty() {
        return Why::NameTaken;
    }
    let deployment = seen.deployment;
    let taken = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count)
        .unwrap_or(0);
    // Another owner's set may bear the name: then the next one is tried, which names itself as deterministically.
    let hash = (taken..taken.saturating_add(32)).map(|count| template_hash(&deployment.spec.template, count));
    let mut hash = hash.filter(|hash| !(seen.exists)(&set_name(meta::name(&deployment.metadata), *hash)));
    let Some(hash) = hash.next() else { return Why::NameTaken };
    steps.push(Step::Create(body(deployment, hash)));
    Why::NoSet
}

fn body(deployment: &MachineDeployment, hash: u32) -> Value {
    let hash_text = hash.to_string();
    let template = deployment.spec.template.with_label(keys::TEMPLATE_HASH, &hash_text);
    let mut selector = json!(deployment.spec.selector);
    if let Some(fields) = selector.as_object_mut() {
        let labels = fields.entry("matchLabels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(keys::TEMPLATE_HASH.to_owned(), json!(hash_text));
        }
    }
    let mut annotations = passed_annotations(deployment);
    annotations.extend(sizes(deployment));
    annotations.insert(keys::REVISION.to_owned(), "1".to_owned());
    json!({
        "apiVersion": API_VERSION,
        "kind": "MachineSet",
        "metadata": {
            "name": set_name(meta::name(&deployment.metadata), hash),
            "namespace": deployment.metadata.namespace,
            "labels": template.labels(),
            "annotations": annotations,
            "finalizers": [keys::FINALIZER],
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": deployment.spec.replicas,
            "selector": selector,
            "template": template,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "autoPreserveFailedMachineMax": deployment.spec.auto_preserve_failed_machine_max,
        },
    })
}

/// The deployment as the controller of a set. It must stand first in the list: the autoscaler reads index 0.
pub fn owner_reference(deployment: &MachineDeployment) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "MachineDeployment",
        "name": deployment.metadata.name,
        "uid": deployment.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Adds the status write, if one is due. Returns when it will be, if it has to wait.
fn record(
    seen: &Observed<'_>,
    sets: &[Arc<MachineSet>],
    current: Option<&MachineSet>,
    problem: Option<status::Problem>,
    now: Timestamp,
    steps: &mut Vec<Step>,
) -> Option<Timestamp> {
    let patch = status::compute(seen.deployment, sets, current, problem, now)?;
    match seen.status_written.map(|at| at + STATUS_PACE).filter(|due| *due > now) {
        Some(due) => Some(due),
        None => {
            steps.push(Step::Record(patch));
            None
        }
    }
}
