//! Parts of a set's template that Machines which exist take over without being replaced.
//!
//! Source: `spec/machineset.md` §5: nodeTemplate and the timeouts for Machines in use, the class's kind for all; and the hash label of a
//! set that does not select by it yet (`spec/machinedeployment.md` §5.4). Nothing else of a template reaches a Machine that exists.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::template::meaningful;
use crate::api::{Machine, MachineSet, MachineSpec, Phase, keys, meta};
use crate::merge::replacing;
use crate::set::plan::is_exempt;

/// Parts of the template for one Machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Brought {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// What changes below `spec`, as a merge patch.
    pub spec: Map<String, Value>,
    /// The template's hash, if the Machine lacks it as a label.
    pub hash_label: Option<String>,
    /// It loses the label by which the original keeps one that it moves from being deleted, and which it may have left there.
    pub is_freed: bool,
}

impl Brought {
    /// The body of a JSON merge patch.
    pub fn patch(&self) -> Value {
        let mut body = Map::new();
        if !self.spec.is_empty() {
            body.insert("spec".to_owned(), json!(self.spec));
        }
        let mut labels = Map::new();
        let hash = self.hash_label.as_ref();
        labels.extend(hash.map(|hash| (keys::TEMPLATE_HASH.to_owned(), json!(hash))));
        labels.extend(self.is_freed.then(|| (keys::UPDATE_RESULT.to_owned(), Value::Null)));
        if !labels.is_empty() {
            body.insert("metadata".to_owned(), json!({ "labels": labels }));
        }
        Value::Object(body)
    }
}

/// Whether a set tells its Machines from those of its deployment's other sets.
pub fn selects_by_hash(set: &MachineSet) -> bool {
    let selector = set.spec.selector.as_ref();
    let labels = selector.and_then(|selector| selector.match_labels.as_ref());
    labels.is_some_and(|labels| labels.contains_key(keys::TEMPLATE_HASH))
}

/// The hash that a set's Machines get as a label before the set selects by it (`deployment::label`).
pub fn hash_to_bring(set: &MachineSet) -> Option<String> {
    let owner = meta::controller_of(&set.metadata).filter(|owner| owner.kind == "MachineDeployment");
    if owner.is_none() || selects_by_hash(set) {
        return None;
    }
    set.spec.template.labels().remove(keys::TEMPLATE_HASH)
}

/// What to merge into a Machine of the set, if anything. `hash` is what [`hash_to_bring`] says of the set.
pub fn bring(set: &MachineSet, template: &MachineSpec, hash: Option<&str>, machine: &Arc<Machine>) -> Option<Brought> {
    let has_hash = || meta::label(&machine.metadata, keys::TEMPLATE_HASH);
    let hash_label = hash.filter(|hash| has_hash() != Some(hash)).map(str::to_owned);
    // A plan asks this of every Machine of a set, and nearly always there is nothing to bring.
    let is_freed = is_exempt(machine);
    if hash_label.is_none() && !is_freed && is_same(template, &machine.spec) {
        return None;
    }
    let mut spec = Map::new();
    let kind = template.class.as_ref().and_then(|class| class.kind.as_deref());
    if kind != machine.spec.class.as_ref().and_then(|class| class.kind.as_deref()) {
        spec.insert("class".to_owned(), json!({ "kind": kind }));
    }
    if !matches!(machine.phase(), Phase::Failed | Phase::Terminating) && !meta::is_deleting(&machine.metadata) {
        let (wanted, has) = (carried(set, template), carried(set, &machine.spec));
        let told = wanted
            .iter()
            .filter(|(field, value)| differs(field, has.get(*field), value));
        spec.extend(told.map(|(field, value)| (field.clone(), replacing(has.get(field), value))));
    }
    let is_due = !spec.is_empty() || hash_label.is_some() || is_freed;
    is_due.then(|| Brought {
        machine: Arc::clone(machine),
        spec,
        hash_label,
        is_freed,
    })
}

/// Whether a field says something else. Go adds nulls and empty members to a nodeTemplate that the API server drops again.
fn differs(field: &str, has: Option<&Value>, wanted: &Value) -> bool {
    match field {
        "nodeTemplate" => meaningful(has.unwrap_or(&Value::Null)) != meaningful(wanted),
        _ => has != Some(wanted),
    }
}

/// Whether two specs agree in everything that could be carried over.
fn is_same(one: &MachineSpec, other: &MachineSpec) -> bool {
    let kind = |spec: &MachineSpec| spec.class.as_ref().and_then(|class| class.kind.clone());
    kind(one) == kind(other)
        && one.node_template == other.node_template
        && one.drain_timeout == other.drain_timeout
        && one.health_timeout == other.health_timeout
        && one.creation_timeout == other.creation_timeout
        && one.in_place_update_timeout == other.in_place_update_timeout
        && one.machine_preserve_timeout == other.machine_preserve_timeout
        && one.disable_health_timeout == other.disable_health_timeout
        && one.max_evict_retries == other.max_evict_retries
        && one.node_conditions == other.node_conditions
}

/// The fields that are carried over, each with its value or null. A nodeTemplate is replaced as a whole, because Machines
/// get theirs from nowhere else.
fn carried(set: &MachineSet, spec: &MachineSpec) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("nodeTemplate".to_owned(), json!(spec.node_template));
    fields.insert("drainTimeout".to_owned(), json!(spec.drain_timeout));
    fields.insert("healthTimeout".to_owned(), json!(spec.health_timeout));
    fields.insert("inPlaceUpdateTimeout".to_owned(), json!(spec.in_place_update_timeout));
    fields.insert(
        "machinePreserveTimeout".to_owned(),
        json!(spec.machine_preserve_timeout),
    );
    fields.insert("disableHealthTimeout".to_owned(), json!(spec.disable_health_timeout));
    fields.insert("maxEvictRetries".to_owned(), json!(spec.max_evict_retries));
    fields.insert("nodeConditions".to_owned(), json!(spec.node_conditions));
    // The annotation has put its own value there (§7.2), and the template's would put it back.
    if meta::annotation(&set.metadata, keys::EFFECTIVE_CREATION_TIMEOUT).is_none() {
        fields.insert("creationTimeout".to_owned(), json!(spec.creation_timeout));
    }
    fields
}
