//! Which set a deployment has, how large it is, and what is passed on to it.
//!
//! Source: `spec/machinedeployment.md` §4, §5, §10 (one active set), §14. Without rollouts the rule of size is simple:
//! the set whose template the deployment has is scaled to `spec.replicas`; while none has it, the newest set in use is. Others in
//! use are emptied once that one has all.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::change::{NewSet, SetChange};
use super::names::{set_name, template_hash};
use super::observed::{Observed, Plan, Step, Why};
use super::status;
use crate::api::lenient::Rounding;
use crate::api::template::Scope;
use crate::api::{MachineDeployment, MachineSet, keys, meta, validity};
use crate::ids::{Name, Uid};
use crate::merge::replacing;
use crate::owner::{self, Owner as _};
use crate::selector::Matcher;
use crate::sight::later;

/// Changes of the counts within this time become one status write.
const STATUS_PACE: SignedDuration = SignedDuration::from_millis(250);

/// Decides what a deployment needs.
pub fn plan(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let deployment = seen.deployment;
    if meta::is_deleting(&deployment.metadata) {
        return leave(seen, now);
    }
    if let Some(fault) = validity::deployment_fault(deployment) {
        let problem = status::Problem {
            reason: "InvalidConfiguration",
            message: fault.clone(),
        };
        return Plan::rest(Why::Invalid(fault)).told(seen, &owned(seen), None, Some(problem), now);
    }
    let mut plan = Plan::rest(Why::Claiming);
    if !meta::has_finalizer(&deployment.metadata, keys::FINALIZER) {
        plan.steps.push(Step::AddFinalizer);
    }
    let claims = claims(seen);
    if !claims.is_empty() {
        plan.steps.extend(claims);
        return plan;
    }
    let sets = owned(seen);
    let current = current_set(deployment, &sets);
    let mut problem = None;
    plan.why = match (current, newest_in_use(&sets)) {
        (Some(set), _) => serve(seen, set, &sets, true, &mut plan.steps),
        (None, Some(set)) => {
            serve(seen, set, &sets, false, &mut plan.steps);
            problem = Some(not_rolled_out(set));
            Why::TemplateChanged
        }
        (None, None) => {
            problem = create_problem(seen);
            create(seen, &sets, now, &mut plan)
        }
    };
    if deployment.spec.paused && plan.why == Why::Settled {
        plan.why = Why::Paused;
    }
    plan.told(seen, &sets, current.map(Arc::as_ref), problem, now)
}

fn not_rolled_out(set: &MachineSet) -> status::Problem {
    status::Problem {
        reason: "TemplateChangeNotRolledOut",
        message: format!(
            "The template differs from that of MachineSet {}; this version does not roll out changes, machines keep the old template",
            meta::name(&set.metadata)
        ),
    }
}

/// Deletion: sets first, the finalizer last.
fn leave(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if !meta::has_finalizer(&seen.deployment.metadata, keys::FINALIZER) {
        return Plan::rest(Why::Empty);
    }
    let sets = owned(seen);
    if sets.is_empty() {
        return Plan::act(vec![Step::RemoveFinalizer], Why::Empty);
    }
    let staying = sets.iter().filter(|set| !meta::is_deleting(&set.metadata));
    let leaving: Vec<(Name, Uid)> = staying.map(|set| meta::identity(&set.metadata)).collect();
    let mut plan = Plan::rest(Why::Emptying);
    if !leaving.is_empty() {
        plan.steps.push(Step::Delete(leaving));
    }
    plan.told(seen, &sets, None, None, now)
}

/// Sets that the deployment controls, oldest first.
fn owned(seen: &Observed<'_>) -> Vec<Arc<MachineSet>> {
    let is_own = |set: &&Arc<MachineSet>| owner::controls(&seen.deployment.metadata, &set.metadata);
    let mut sets: Vec<Arc<MachineSet>> = seen.sets.iter().filter(is_own).cloned().collect();
    sets.sort_by_key(|set| (meta::created(&set.metadata), meta::name(&set.metadata).to_owned()));
    sets
}

/// What to adopt and release (`spec/machinedeployment.md` §4): by the sets' own labels.
fn claims(seen: &Observed<'_>) -> Vec<Step> {
    let Some(Ok(selector)) = seen.deployment.spec.selector.as_ref().map(Matcher::new) else {
        return Vec::new();
    };
    let (mut adopts, mut releases) = (Vec::new(), Vec::new());
    for set in seen.sets {
        let matches = selector.selects(&set.metadata);
        let is_own = owner::controls(&seen.deployment.metadata, &set.metadata);
        let is_free = meta::controller_uid(&set.metadata).is_none() && !meta::is_deleting(&set.metadata);
        if is_own && !matches {
            releases.push(Arc::clone(set));
        } else if is_free && matches {
            adopts.push(Arc::clone(set));
        }
    }
    let mut steps = Vec::new();
    if !adopts.is_empty() {
        steps.push(Step::Adopt(adopts));
    }
    if !releases.is_empty() {
        steps.push(Step::Release(releases));
    }
    steps
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
fn serve(
    seen: &Observed<'_>,
    set: &Arc<MachineSet>,
    sets: &[Arc<MachineSet>],
    current: bool,
    steps: &mut Vec<Step>,
) -> Why {
    let deployment = seen.deployment;
    let wanted = deployment.spec.replicas;
    let number = revision(set, sets);
    let mut change = match current {
        true => passed(deployment, set),
        false => SetChange::none(set),
    };
    change.replicas = (set.spec.replicas != wanted).then_some(wanted);
    change.annotations = sizes(deployment);
    if current {
        change.annotations.extend(passed_annotations(deployment));
        change.annotations.insert(keys::REVISION.to_owned(), number.to_string());
    }
    change
        .annotations
        .retain(|key, value| meta::annotation(&set.metadata, key) != Some(value.as_str()));
    let why = match (change.replicas, change.is_empty()) {
        (Some(to), _) => Why::Scaling {
            from: set.spec.replicas,
            to,
        },
        (None, false) => Why::Passing,
        (None, true) => empty_others(seen, set, sets, steps).unwrap_or(Why::Settled),
    };
    if !change.is_empty() {
        steps.push(Step::Change(Box::new(change)));
    }
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
        let replicas = Some(0);
        Step::Change(Box::new(SetChange {
            replicas,
            ..SetChange::none(other)
        }))
    };
    steps.extend(surplus.into_iter().map(emptied));
    Some(Why::Scaling { from, to: 0 })
}

/// Parts of the template and numbers that a set takes over without a rollout.
fn passed(deployment: &MachineDeployment, set: &Arc<MachineSet>) -> SetChange {
    let (wanted, has) = (&deployment.spec, &set.spec);
    let differs = |wanted: i32, has: i32| (wanted != has).then_some(wanted);
    let template_spec = match has.template.semantically_equal(&wanted.template, Scope::Whole) {
        true => Map::new(),
        false => spec_change(&has.template.spec_json(), &wanted.template.spec_json()),
    };
    SetChange {
        template_spec,
        min_ready_seconds: differs(wanted.min_ready_seconds, has.min_ready_seconds),
        auto_preserve_failed_machine_max: differs(
            wanted.auto_preserve_failed_machine_max,
            has.auto_preserve_failed_machine_max,
        ),
        ..SetChange::none(set)
    }
}

fn spec_change(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let gone = old.keys().filter(|field| !new.contains_key(*field));
    let mut fields: Map<String, Value> = gone.map(|field| (field.clone(), Value::Null)).collect();
    let kept = new
        .iter()
        .map(|(field, value)| (field.clone(), replacing(old.get(field), value)));
    fields.extend(kept);
    fields
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
fn create(seen: &Observed<'_>, sets: &[Arc<MachineSet>], now: Timestamp, plan: &mut Plan) -> Why {
    // A set that is going still bears its name and its Machines; the new one waits for its end.
    if !sets.is_empty() {
        return Why::NameTaken;
    }
    if let Some(refusal) = seen.notes.create_refused.as_ref().filter(|refusal| refusal.holds(now)) {
        plan.wake = Some(refusal.retry_at);
        return Why::CoolingOff;
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
    plan.steps.push(Step::Create(Box::new(new_set(deployment, hash))));
    Why::NoSet
}

/// The last creation of the set was refused.
fn create_problem(seen: &Observed<'_>) -> Option<status::Problem> {
    seen.notes.create_refused.as_ref().map(|refusal| status::Problem {
        reason: keys::REASON_SET_CREATE_FAILED,
        message: refusal.message.clone(),
    })
}

fn new_set(deployment: &MachineDeployment, hash: u32) -> NewSet {
    let hash_text = hash.to_string();
    let mut selector = deployment.spec.selector.clone().unwrap_or_default();
    let labels = selector.match_labels.get_or_insert_default();
    labels.insert(keys::TEMPLATE_HASH.to_owned(), hash_text.clone());
    let mut annotations = passed_annotations(deployment);
    annotations.extend(sizes(deployment));
    annotations.insert(keys::REVISION.to_owned(), "1".to_owned());
    NewSet {
        name: Name::new(set_name(meta::name(&deployment.metadata), hash)),
        namespace: deployment.metadata.namespace.clone(),
        annotations,
        owner: deployment.reference(),
        replicas: deployment.spec.replicas,
        selector,
        template: deployment.spec.template.with_label(keys::TEMPLATE_HASH, &hash_text),
        min_ready_seconds: deployment.spec.min_ready_seconds,
        auto_preserve_failed_machine_max: deployment.spec.auto_preserve_failed_machine_max,
    }
}

impl Plan {
    /// Adds the status write, if one is due, or the time when it will be. It comes first where it tells a failure, because the
    /// step that failed may fail again.
    fn told(
        mut self,
        seen: &Observed<'_>,
        sets: &[Arc<MachineSet>],
        current: Option<&MachineSet>,
        problem: Option<status::Problem>,
        now: Timestamp,
    ) -> Self {
        let is_failure = problem.is_some();
        let Some(patch) = status::compute(seen.deployment, sets, current, problem, now) else {
            return self;
        };
        let due = seen.notes.status_written.map(|at| later(at, STATUS_PACE));
        if let Some(due) = due.filter(|due| *due > now) {
            return self.or_at(Some(due), now);
        }
        let place = if is_failure { 0 } else { self.steps.len() };
        self.steps.insert(place, Step::Record(patch));
        self
    }
}
