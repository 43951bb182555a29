//! What a deployment passes on to the set of its template without a rollout.
//!
//! MD-5: annotations but those that are the deployment's own, nodeTemplate and configuration,
//! `minReadySeconds`, `autoPreserveFailedMachineMax`; and `deletePolicy`, which the deployment has as an annotation. Old sets get, beside
//! their numbers, what steers the end of their Machines. Decides nothing about numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::budget::Bounds;
use super::change::SetChange;
use super::history;
use crate::api::template::Scope;
use crate::api::{MachineDeployment, MachineSet, keys, meta};
use crate::merge::replacing_fields;
use crate::set::{self, bring::CARRIED};

/// The parts of the template and the numbers that the set does not have yet.
pub fn passed(deployment: &MachineDeployment, set: &Arc<MachineSet>) -> SetChange {
    let (wanted, has) = (&deployment.spec, &set.spec);
    let differs = |wanted: i32, has: i32| (wanted != has).then_some(wanted);
    let template_spec = match has.template.semantically_equal(&wanted.template, Scope::Whole) {
        true => Map::new(),
        false => replacing_fields(&has.template.spec_json(), &wanted.template.spec_json()),
    };
    SetChange {
        template_spec,
        min_ready_seconds: differs(wanted.min_ready_seconds, has.min_ready_seconds),
        auto_preserve_failed_machine_max: differs(
            wanted.auto_preserve_failed_machine_max,
            has.auto_preserve_failed_machine_max,
        ),
        delete_policy: policy_change(deployment, set),
        ..SetChange::none(set)
    }
}

/// What a set of another template gets: how long the drain of its Machines may take must be changeable while it runs.
pub fn passed_to_old(deployment: &MachineDeployment, set: &Arc<MachineSet>) -> SetChange {
    let (wanted, has) = (deployment.spec.template.spec_json(), set.spec.template.spec_json());
    let due = CARRIED.iter().filter(|field| field.steers_end);
    let due = due.map(|field| (field.name, wanted.get(field.name).cloned().unwrap_or(Value::Null)));
    let due = due.filter(|(name, value)| has.get(*name).unwrap_or(&Value::Null) != value);
    SetChange {
        template_spec: due.map(|(name, value)| (name.to_owned(), value)).collect(),
        ..SetChange::none(set)
    }
}

fn policy_change(deployment: &MachineDeployment, set: &MachineSet) -> Option<Value> {
    let wanted = deployment.delete_policy();
    (wanted != set.spec.delete_policy).then(|| json!(wanted))
}

/// What the original tells scaling from rolling by.
fn sizes(deployment: &MachineDeployment) -> BTreeMap<String, String> {
    let wanted = deployment.spec.replicas;
    let surge = Bounds::of(deployment.spec.strategy.as_ref(), wanted).surge;
    BTreeMap::from([
        (keys::DESIRED_REPLICAS.to_owned(), wanted.to_string()),
        (keys::MAX_REPLICAS.to_owned(), wanted.saturating_add(surge).to_string()),
    ])
}

/// The annotations of a new set.
pub fn of_new(deployment: &MachineDeployment, revision: i64) -> BTreeMap<String, String> {
    let mut all = annotations(deployment);
    all.extend(sizes(deployment));
    all.insert(keys::REVISION.to_owned(), revision.to_string());
    all
}

/// The annotations that a set lacks or has too many: that of the present template, whose revision is given, has all that is passed on; of others
/// those in use the sizes, when their number changes.
pub fn changes(
    deployment: &MachineDeployment,
    set: &MachineSet,
    revision: Option<i64>,
    is_sized: bool,
) -> BTreeMap<String, Option<String>> {
    let mut wanted = BTreeMap::new();
    if let Some(revision) = revision {
        wanted.extend(annotations(deployment));
        wanted.extend(history::annotations(set, revision));
    }
    if is_sized {
        wanted.extend(sizes(deployment));
    }
    let differs = |(key, value): &(String, String)| meta::annotation(&set.metadata, key) != Some(value.as_str());
    let missing = wanted
        .into_iter()
        .filter(differs)
        .map(|(key, value)| (key, Some(value)));
    let lost = revision.into_iter().flat_map(|_| lost(deployment, set));
    missing.chain(lost).collect()
}

/// By how much D fell since the sets in use were told of it.
pub fn fallen(deployment: &MachineDeployment, sets: &[&set::Observed<'_>]) -> i64 {
    let told = sets.iter().filter(|member| member.set.spec.replicas > 0);
    let told = told.filter_map(|member| meta::annotation(&member.set.metadata, keys::DESIRED_REPLICAS));
    let most = told.filter_map(|text| text.parse::<i64>().ok()).max();
    most.map_or(0, |most| (most - i64::from(deployment.spec.replicas)).max(0))
}

/// Whether an annotation of a deployment is its sets', too (MD-5).
pub fn is_passed(key: &str) -> bool {
    !keys::NOT_COPIED_TO_SETS.contains(&key)
}

/// Annotations of the deployment that its set carries too, and the list of them, by which one that the deployment lost is taken off.
fn annotations(deployment: &MachineDeployment) -> BTreeMap<String, String> {
    let all = deployment.metadata.annotations.clone().unwrap_or_default();
    let mut passed: BTreeMap<String, String> = all.into_iter().filter(|(key, _)| is_passed(key)).collect();
    let keys: Vec<&str> = passed.keys().map(String::as_str).collect();
    if !keys.is_empty() {
        passed.insert(keys::PASSED_ANNOTATIONS.to_owned(), keys.join(","));
    }
    passed
}

/// Annotations that the set got from its deployment, which has lost them since.
fn lost(deployment: &MachineDeployment, set: &MachineSet) -> BTreeMap<String, Option<String>> {
    let list = meta::annotation(&set.metadata, keys::PASSED_ANNOTATIONS).unwrap_or_default();
    let wanted = annotations(deployment);
    let passed = list.split(',').chain([keys::PASSED_ANNOTATIONS]);
    let lost = passed.filter(|key| !wanted.contains_key(*key) && meta::annotation(&set.metadata, key).is_some());
    lost.map(|key| (key.to_owned(), None)).collect()
}
