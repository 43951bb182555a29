//! Parts of a set's template that Machines which exist take over without being replaced.
//!
//! MS-6: nodeTemplate and the timeouts for Machines in use, the class's kind for all; and the hash label of a
//! set that does not select by it yet (MD-4). Nothing else of a template reaches a Machine that exists.
//!
//! Of the values below spec the one that was written last holds: a change of the template reaches all Machines, and what a person writes
//! on one of them afterwards stays there until the template says another thing of that field. An annotation of the Machine holds what the
//! template said last. Where there is none, as on Machines of another version, what the template says holds.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::template::meaningful;
use crate::api::{Machine, MachineSet, MachineSpec, Phase, keys, meta};
use crate::merge::{filled, given, replacing};
use crate::set::facts::is_exempt;

/// Parts of the template for one Machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Brought {
    /// The Machine as the plan saw it.
    pub machine: Arc<Machine>,
    /// What changes below `spec`, as a merge patch.
    pub spec: Map<String, Value>,
    /// The template's hash, if the Machine lacks it as a label.
    pub hash_label: Option<String>,
    /// What the template says of single values, if the Machine is to remember it.
    pub values: Option<String>,
    /// It loses the label by which the original keeps one that it moves from being deleted, and which it may have left there.
    pub is_freed: bool,
}

impl Brought {
    /// The body of a JSON merge patch.
    pub fn patch(&self) -> Value {
        let labels = given([
            (keys::TEMPLATE_HASH, self.hash_label.as_ref().map(|hash| json!(hash))),
            (keys::UPDATE_RESULT, self.is_freed.then_some(Value::Null)),
        ]);
        let annotations = self.values.as_ref();
        let annotations = annotations.map(|values| json!({ keys::TEMPLATE_VALUES: values }));
        let metadata = given([("labels", filled(labels)), ("annotations", annotations)]);
        Value::Object(given([
            ("spec", filled(self.spec.clone())),
            ("metadata", filled(metadata)),
        ]))
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
    if kind(template) != kind(&machine.spec) {
        spec.insert("class".to_owned(), json!({ "kind": kind(template) }));
    }
    let is_ending = *machine.phase() == Phase::Failed || meta::is_deleting(&machine.metadata);
    let has_own_timeout = meta::annotation(&set.metadata, keys::EFFECTIVE_CREATION_TIMEOUT).is_some();
    let carried = CARRIED.iter().filter(|field| {
        let reaches = !is_ending || field.steers_end;
        // The annotation has put its own value there (MC-8), and the template's would put it back.
        reaches && !(has_own_timeout && field.name == "creationTimeout")
    });
    let mut values = None;
    for field in carried.filter(|field| !(field.is_same)(template, &machine.spec)) {
        let (wanted, has) = ((field.value)(template), (field.value)(&machine.spec));
        // Go adds nulls and empty members to a nodeTemplate that the API server drops again.
        if meaningful(&wanted) != meaningful(&has) && !is_own(field, machine, &wanted) {
            spec.insert(field.name.to_owned(), replacing(Some(&has), &wanted));
            values = field.yields.then(|| values_of(template)).or(values);
        }
    }
    let is_due = !spec.is_empty() || hash_label.is_some() || is_freed;
    is_due.then(|| Brought {
        machine: Arc::clone(machine),
        spec,
        hash_label,
        values,
        is_freed,
    })
}

/// Whether the Machine's value was written on it after the template said what it still says.
fn is_own(field: &Field, machine: &Machine, wanted: &Value) -> bool {
    let told = meta::annotation(&machine.metadata, keys::TEMPLATE_VALUES);
    let told = told.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    field.yields
        && told.map_or(wanted.is_null(), |told| {
            told.get(field.name).unwrap_or(&Value::Null) == wanted
        })
}

/// What a template says of single values, for the annotation of its Machines.
pub fn values_of(template: &MachineSpec) -> String {
    let named = CARRIED
        .iter()
        .filter(|field| field.yields)
        .map(|field| (field.name, (field.value)(template)));
    let named: Map<String, Value> = named
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    json!(named).to_string()
}

fn kind(spec: &MachineSpec) -> Option<&str> {
    spec.class.as_ref()?.kind.as_deref()
}

/// Whether two specs agree in everything that is carried over.
pub fn is_same(one: &MachineSpec, other: &MachineSpec) -> bool {
    kind(one) == kind(other) && CARRIED.iter().all(|field| (field.is_same)(one, other))
}

/// A field that is carried over, with its value or null.
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// It reaches Machines that failed or leave, too: how their drain ends depends on it.
    pub steers_end: bool,
    /// A value that a person wrote on the Machine stays. A nodeTemplate is replaced as a whole.
    yields: bool,
    value: fn(&MachineSpec) -> Value,
    is_same: fn(&MachineSpec, &MachineSpec) -> bool,
}

macro_rules! field {
    ($name:literal, $field:ident, $steers_end:literal) => {
        Field {
            name: $name,
            steers_end: $steers_end,
            yields: true,
            value: |spec| json!(spec.$field),
            is_same: |one, other| one.$field == other.$field,
        }
    };
}

/// All that a Machine which exists takes over from its template, but for the class's kind.
pub const CARRIED: [Field; 9] = [
    Field {
        yields: false,
        ..field!("nodeTemplate", node_template, false)
    },
    field!("drainTimeout", drain_timeout, true),
    field!("maxEvictRetries", max_evict_retries, true),
    field!("healthTimeout", health_timeout, false),
    field!("creationTimeout", creation_timeout, false),
    field!("inPlaceUpdateTimeout", in_place_update_timeout, false),
    field!("machinePreserveTimeout", machine_preserve_timeout, false),
    field!("disableHealthTimeout", disable_health_timeout, false),
    field!("nodeConditions", node_conditions, false),
];
