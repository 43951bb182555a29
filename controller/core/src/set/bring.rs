//! Parts of a set's template that Machines which exist take over without being replaced.
//!
//! Source: `spec/machineset.md` §5: nodeTemplate and the timeouts for Machines in use, the class's kind for all. Nothing
//! else of a template reaches a Machine that exists.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::template::meaningful;
use crate::api::{Machine, MachineSet, MachineSpec, Phase, keys, meta};
use crate::merge::replacing;

/// Parts of the template for one Machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Brought {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// What changes below `spec`, as a merge patch.
    pub spec: Map<String, Value>,
}

impl Brought {
    /// The body of a JSON merge patch.
    pub fn patch(&self) -> Value {
        json!({ "spec": self.spec })
    }
}

/// What to merge into a Machine of the set, if anything.
pub fn bring(set: &MachineSet, template: &MachineSpec, machine: &Arc<Machine>) -> Option<Brought> {
    // A plan asks this of every Machine of a set, and nearly always there is nothing to bring.
    if is_same(template, &machine.spec) {
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
    let machine = Arc::clone(machine);
    (!spec.is_empty()).then_some(Brought { machine, spec })
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
