//! Objects as nobody should write them: a pool of valid objects, spoiled here and there, is read as a watch reads it and planned over.
//! Nothing panics, no status grows without end or holds a control character, and no field that we do not know is lost.
//!
//! `PROPTEST_CASES` says how many pools are tried and `PROPTEST_RNG_SEED` which ones; `.ci/run` sets both.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use millwright_core::api::{Machine, MachineClass, MachineSet, keys, meta};
use millwright_core::change::Change;
use millwright_core::class::{self, Fault, Readiness};
use millwright_core::driver::DriverInfo;
use millwright_core::explain::{self, Read};
use millwright_core::ids::Name;
use millwright_core::ledger::Calls;
use millwright_core::machine::DriverView;
use millwright_core::set::Asked;
use millwright_core::settings::Settings;
use millwright_core::sight::Sight;
use millwright_core::status::is_unseen;
use millwright_core::world::World;
use millwright_core::{circuit_breaker, deployment, machine, merge, narrate, provider_spec, set};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::dice::{Dice, now, tapes};
use crate::pool;

/// The longest status that is written. An API server stores 1.5 MiB of an object.
const LONGEST_STATUS: usize = 256 * 1024;

/// The field that is planted in objects: one that we do not know.
const UNKNOWN: &str = "ofAnotherVersion";

/// The conditions that the manager writes.
const OWN: [&str; 11] = [
    keys::CONDITION_AVAILABLE,
    keys::CONDITION_PROGRESSING,
    keys::CONDITION_REPLICA_FAILURE,
    keys::CONDITION_REPLACEMENTS_HELD,
    keys::CONDITION_RELEASED,
    keys::CONDITION_FROZEN,
    "Ready",
    "CredentialsAccepted",
    "CapacityAvailable",
    "CreationPermitted",
    "DeletionPermitted",
];

/// The objects of the pool as they are stored, by kind and name.
#[derive(Debug)]
struct Pool(Vec<(&'static str, &'static str, Value)>);

/// What is to be written.
#[derive(Default)]
struct Written {
    /// Patches of statuses, with whose they are.
    statuses: Vec<(&'static str, String, Value)>,
    /// Objects to be created.
    made: Vec<Value>,
}

impl Pool {
    fn spoiled(dice: &mut Dice) -> Self {
        let mut pool = Self(pool::all());
        for _ in 0..=dice.number(12) {
            let object = usize::from(dice.number(64)) % pool.0.len();
            spoil(&mut pool.0[object].2, dice);
        }
        pool
    }

    /// As `kube::readable` reads them: one that is not of its kind costs only itself.
    fn all<K: DeserializeOwned>(&self, kind: &str) -> Vec<K> {
        let raw = self.0.iter().filter(|(of, ..)| *of == kind);
        raw.filter_map(|(.., raw)| K::deserialize(raw).ok()).collect()
    }

    fn raw(&self, kind: &str, name: &str) -> &Value {
        let found = self.0.iter().find(|(of, named, _)| *of == kind && *named == name);
        &found.expect("names are not spoiled").2
    }

    fn world(&self) -> World {
        let read = Read {
            deployments: self.all("MachineDeployment"),
            sets: self.all("MachineSet"),
            machines: self.all("Machine"),
            classes: self.all("MachineClass").into_iter().filter(may_be_used).collect(),
            nodes: self.all("Node"),
            pods: Some((Name::new(pool::LEAVING), self.all("Pod"))),
        };
        let mut world = explain::world(read, now());
        for secret in self.all::<PartialObjectMeta<Secret>>("Secret") {
            world.observe(Change::Applied(secret), Duration::ZERO);
        }
        world
    }
}

impl Written {
    /// What the plans of everything in the world write.
    fn by_plans_of(world: &World) -> Self {
        let (settings, mut written) = (Settings::new("test"), Self::default());
        let asked = Asked {
            world,
            machine_exists: &|name| world.machines.get(&Name::new(name)).is_some(),
            can_check: &|_| false,
            sight: Sight::CLEAR,
            settings: &settings,
        };
        let set_exists = |name: &str| world.sets.get(&Name::new(name)).is_some();
        for deployment in world.deployments.iter() {
            let plan = deployment::look(&asked, deployment, &set_exists, set::plan, |seen| {
                deployment::plan(seen, now())
            });
            narrate::plan(&plan, now());
            for step in plan.steps {
                match step {
                    deployment::Step::Record(change) => {
                        written.status("MachineDeployment", meta::name(&deployment.metadata), change.patch());
                    }
                    deployment::Step::Create(new) => written.made.push(new.body()),
                    deployment::Step::Of(set, step) => written.by_set(&set, step),
                    _ => {}
                }
            }
        }
        for set in world.sets.iter() {
            let plan = set::look(&asked, set, |seen| set::plan(seen, now()));
            narrate::plan(&plan, now());
            plan.steps.into_iter().for_each(|step| written.by_set(set, step));
        }
        for machine in world.machines.iter() {
            written.by_machine(world, machine, &settings);
        }
        for class in world.classes.iter() {
            written.by_class(class);
        }
        for secret in world.secrets.iter() {
            class::plan_secret(&class::SecretObserved {
                secret: &secret.metadata,
                classes: 1,
                first_class: Some("small"),
                first_machine: None,
                reported: None,
                now: now(),
            });
        }
        written
    }

    fn status(&mut self, kind: &'static str, name: &str, patch: Value) {
        self.statuses.push((kind, name.to_owned(), patch));
    }

    fn by_set(&mut self, set: &MachineSet, step: set::Step) {
        match step {
            set::Step::Record(change) => self.status("MachineSet", meta::name(&set.metadata), change.patch()),
            set::Step::Create(batch) => self.made.extend(batch.iter().map(set::NewMachine::body)),
            set::Step::GiveUp(all) => {
                for given in all {
                    let name = meta::name(&given.machine.metadata);
                    self.status("Machine", name, given.failed.change.patch());
                }
            }
            _ => {}
        }
    }

    fn by_machine(&mut self, world: &World, machine: &Machine, settings: &Settings) {
        let name = machine.class_name().map(Name::new);
        let class = name.as_ref().and_then(|name| world.classes.get(name));
        let driver = class.and_then(|class| class.driver()).map(|name| DriverInfo {
            name,
            vendor_version: String::new(),
            capabilities: Default::default(),
            propagation_delay: Default::default(),
        });
        let asked = machine::view::Asked {
            world,
            driver: driver.as_ref().map_or(DriverView::Unnamed, DriverView::Ready),
            calls: &Calls::default(),
            sight: Sight::CLEAR,
            settings,
        };
        let plan = machine::look(asked, machine, |seen| machine::plan(seen, now()));
        narrate::plan(&plan, now());
        for step in plan.steps {
            if let machine::Step::Record(change) = step {
                self.status("Machine", meta::name(&machine.metadata), change.patch());
            }
        }
    }

    /// What may be found out about a class.
    fn by_class(&mut self, class: &MachineClass) {
        let spec = provider_spec::check(&class.spec.provider_spec).err().map(Fault::Spec);
        let unreadable = |key| Fault::SecretUnreadable(key, "it is away".to_owned());
        let secrets = class::secret_keys(class);
        let faults = spec.into_iter().chain(class::node_template_fault(class));
        let faults = faults.chain(secrets.first().cloned().map(unreadable));
        let faults = faults.chain([
            Fault::NoUserData(secrets),
            Fault::NoDriver,
            Fault::NoProvider([].into()),
        ]);
        for found in faults.map(Readiness::Faulty).chain([class::told_readiness(class)]) {
            let plan = class::plan(&class::Observed {
                class,
                machines: 1,
                first_machine: Some("m"),
                readiness: &found,
                found: &found,
                driver_is_here: false,
                circuits: circuit_breaker::Circuits::default(),
                is_being_checked: false,
                status_refused: None,
                reported: None,
                now: now(),
            });
            narrate::plan(&plan, now());
            for step in plan.steps {
                if let class::Step::Record(verdict) = step {
                    let patch = verdict.into_patch(class, now());
                    self.status("MachineClass", meta::name(&class.metadata), patch);
                }
            }
        }
    }
}

/// Whether a driver and a Secret can have the names in a class. Of another one no VM is asked for.
fn may_be_used(class: &MachineClass) -> bool {
    let names = class.secret_refs().flat_map(|secret| [&secret.name, &secret.namespace]);
    let mut names = names.chain([&class.spec.provider]).flatten();
    names.all(|name| name.len() <= 253 && !name.chars().any(char::is_control))
}

/// Writes something at some place of an object that does not belong there, or takes away what does.
fn spoil(object: &mut Value, dice: &mut Dice) {
    let mut places = Vec::new();
    collect(object, String::new(), &mut places);
    // An API server sees to these itself.
    let kept = ["/metadata", "/metadata/name", "/metadata/namespace", "/metadata/uid"];
    places.retain(|place| !kept.contains(&place.as_str()));
    let place = usize::from(dice.number(u16::MAX)) % places.len();
    let place = object.pointer_mut(&places[place]).expect("it was collected");
    let old = place.take();
    *place = match dice.number(8) {
        0..=2 => odd(dice),
        3 => text(&old, dice),
        4 => unknown(old),
        5 => json!([old]),
        6 => many(old),
        _ => Value::Null,
    };
}

/// The JSON pointers of all values below the root.
fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .map(|(n, value)| (n.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in below {
        collect(
            value,
            format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
            places,
        );
    }
    if !at.is_empty() {
        places.push(at);
    }
}

/// A value that makes no sense in most places.
fn odd(dice: &mut Dice) -> Value {
    let deep = |levels: usize| (0..levels).fold(json!("deep"), |inner, _| json!({ "a": [inner] }));
    dice.pick(&[
        json!(""),
        json!(true),
        json!(0),
        json!(-1),
        json!(3.5),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!({}),
        json!([]),
        json!("-1h"),
        json!("9999999999h"),
        json!("1e99h"),
        json!("0001-01-01T00:00:00Z"),
        json!("9999-12-31T23:59:59Z"),
        json!("-009999-01-01T00:00:00Z"),
        json!("2026-01-01T12:00:00.123456789+23:59"),
        json!("100500%"),
        json!("-5%"),
        json!("9999999999999999999999"),
        json!("1e400"),
        json!("-1Ei"),
        json!("a/b/c"),
        json!("Meditating"),
        json!("Unknown"),
        json!("False"),
        json!("CrashLoopBackOff"),
        json!("InPlaceUpdate"),
        json!("InPlaceUpdating"),
        deep(50),
    ])
}

/// A text that somebody could not resist to write.
fn text(old: &Value, dice: &mut Dice) -> Value {
    let old = old.as_str().unwrap_or_default();
    let huge = "a long text ".repeat(40_000);
    json!(match dice.number(5) {
        0 => huge,
        1 => format!("{old}\u{1b}[31m\r\nlevel=ERROR \u{0}\u{85}"),
        2 => format!("{huge}{old}"),
        3 => "ü".repeat(300),
        _ => format!(" {old}"),
    })
}

/// The same with a field that we do not know, at its top.
fn unknown(mut old: Value) -> Value {
    if let Some(fields) = old.as_object_mut() {
        fields.insert(UNKNOWN.to_owned(), json!({"kept": [1]}));
    }
    old
}

/// Much more of the same.
fn many(old: Value) -> Value {
    match old {
        Value::Array(entries) => Value::Array(entries.iter().cycle().take(entries.len() * 3_000).cloned().collect()),
        Value::Object(fields) => {
            let more = (0..3_000).map(|number| (format!("more{number}"), json!(number.to_string())));
            Value::Object(fields.into_iter().chain(more).collect())
        }
        other => json!([other.clone(), other]),
    }
}

/// What is wrong with a status that is to be written.
fn faults_of(kind: &str, patch: &Value, stored: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut status = patch["status"].clone();
    // Conditions of others are written back as they are.
    for conditions in ["conditions", "machineSetCondition"] {
        let all = status.get_mut(conditions).and_then(Value::as_array_mut);
        let is_own = |condition: &Value| kind == "Machine" || OWN.iter().any(|own| condition["type"] == *own);
        all.into_iter().for_each(|all| all.retain(is_own));
    }
    let bytes = status.to_string().len();
    if bytes > LONGEST_STATUS {
        let of = |(field, value): (&String, &Value)| format!("{field} {}", value.to_string().len());
        let parts: Vec<String> = status.as_object().into_iter().flatten().map(of).collect();
        faults.push(format!("{bytes} bytes: {}", parts.join(", ")));
    }
    let mut texts = Vec::new();
    controlled(&status, String::new(), &mut texts);
    faults.extend(texts.into_iter().map(|at| format!("control characters at {at}")));
    let mut after = stored.clone();
    merge::apply(&mut after, patch);
    let mut places = Vec::new();
    collect(stored, String::new(), &mut places);
    places.retain(|place| place.ends_with(UNKNOWN) && after.pointer(place).is_none());
    // Within lists the schemas keep nothing that they do not know.
    places.retain(|place| place.split('/').all(|key| key.parse::<usize>().is_err()));
    faults.extend(places.into_iter().map(|place| format!("{place} is lost")));
    faults
}

/// Where there are texts with control characters.
fn controlled(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.chars().any(is_unseen) => found.push(at),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| controlled(value, format!("{at}/{key}"), found)),
        Value::Array(entries) => entries
            .iter()
            .for_each(|value| controlled(value, format!("{at}/-"), found)),
        _ => {}
    }
}

/// What of its template is not in what is created, whether we know it or not.
fn lacks(made: &Value, owner: &Value) -> Option<String> {
    let nothing = Map::new();
    let template = owner["spec"]["template"]["spec"].as_object().unwrap_or(&nothing);
    let spec = match made["kind"].as_str() {
        Some("Machine") => &made["spec"],
        _ => &made["spec"]["template"]["spec"],
    };
    let lost = template.iter().find(|(field, value)| {
        let is_own = field.as_str() == "creationTimeout";
        !is_own && spec.get(field.as_str()) != Some(*value)
    });
    lost.map(|(field, value)| format!("{field} of the template is lost, {value}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_that_nobody_should_write_are_planned_over_and_what_is_written_is_sound(tape in tapes()) {
        let pool = Pool::spoiled(&mut Dice::new(tape));
        let written = Written::by_plans_of(&pool.world());
        for (kind, name, patch) in written.statuses {
            let faults = faults_of(kind, &patch, pool.raw(kind, &name));
            prop_assert!(faults.is_empty(), "{kind} {name}: {}", faults.join("\n"));
        }
        for made in written.made {
            let owner = &made["metadata"]["ownerReferences"][0];
            let (kind, name) = (owner["kind"].as_str().unwrap(), owner["name"].as_str().unwrap());
            let lost = lacks(&made, pool.raw(kind, name));
            prop_assert!(lost.is_none(), "{kind} {name}: {}", lost.unwrap());
        }
    }
}
