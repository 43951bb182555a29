//! Metrics under the names that dashboards and alerts of the original know, with their labels and values.
//!
//! What stands in objects and queues is read from the world at each scrape, so a series ends with its object (W30); what happened is counted
//! when it does. There are as many series as objects: a few for each Machine, set and deployment. Decides nothing.
//! `tests/original-metrics.txt` has them all.
//! Left out: what the original registers and never feeds (`mcm_reflector_*`), and its requests to API servers (`rest_client_*`), for which
//! there is `millwright_api_request_seconds`.

mod deployments;
mod happened;
mod machines;
mod queues;
mod sets;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright_core::api::{ClassRef, Machine, MachineDeployment, MachineSet, MachineSummary, meta};
use millwright_core::world::World;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

pub use self::happened::{Happened, Moment};
pub use self::queues::Queues;
use super::count::Count;
use super::process;

/// A label and its value.
type Label = (&'static str, String);

/// One metric with all its series.
struct Table {
    name: &'static str,
    help: &'static str,
    rows: Vec<(Vec<Label>, f64)>,
}

impl Table {
    /// One row for each object, or none.
    fn of<K>(
        name: &'static str,
        help: &'static str,
        objects: &[Arc<K>],
        row: impl Fn(&K) -> Option<(Vec<Label>, f64)>,
    ) -> Self {
        let rows = objects.iter().filter_map(|object| row(object)).collect();
        Self { name, help, rows }
    }

    /// How many objects there are.
    fn count<K>(name: &'static str, help: &'static str, objects: &[Arc<K>]) -> Self {
        let rows = vec![(Vec::new(), number(objects.len()))];
        Self { name, help, rows }
    }
}

/// Name and namespace of an object.
fn labels(metadata: &ObjectMeta) -> Vec<Label> {
    vec![
        ("name", meta::name(metadata).to_owned()),
        ("namespace", meta::namespace(metadata).to_owned()),
    ]
}

/// When an object was made, in seconds since the Unix epoch.
fn created(metadata: &ObjectMeta) -> Label {
    let at = meta::created(metadata).map(|at| at.as_second().to_string());
    ("createdAt", at.unwrap_or_default())
}

/// What a class reference says, under these names.
fn class(of: Option<&ClassRef>, [group, kind, name]: [&'static str; 3]) -> [Label; 3] {
    let part = |part: fn(&ClassRef) -> &Option<String>| of.and_then(|class| part(class).clone()).unwrap_or_default();
    [
        (group, part(|class| &class.api_group)),
        (kind, part(|class| &class.kind)),
        (name, part(|class| &class.name)),
    ]
}

/// A row for each condition, by type and status.
fn conditions<'a>(metadata: &ObjectMeta, told: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(Vec<Label>, f64)> {
    let row = |(type_, value): (&str, &str)| {
        let mut all = labels(metadata);
        all.push(("condition", type_.to_owned()));
        (all, status(value))
    };
    told.map(row).collect()
}

/// A row for each Machine of a set or deployment whose last operation failed.
fn failed<'a>(metadata: &ObjectMeta, told: impl Iterator<Item = &'a MachineSummary>) -> Vec<(Vec<Label>, f64)> {
    let row = |summary: &MachineSummary| {
        let last = summary.last_operation.as_ref();
        let state = last.and_then(|last| last.state.as_ref()).map(ToString::to_string);
        let operation = last.and_then(|last| last.type_.as_ref()).map(ToString::to_string);
        let told = [
            ("failed_machine_name", summary.name.clone()),
            ("failed_machine_provider_id", summary.provider_id.clone()),
            ("failed_machine_owner_ref", summary.owner_ref.clone()),
            ("failed_machine_last_operation_state", state),
            ("failed_machine_last_operation_machine_operation_type", operation),
        ];
        let told = told.map(|(key, value)| (key, value.unwrap_or_default()));
        (labels(metadata).into_iter().chain(told).collect(), 1.0)
    };
    told.map(row).collect()
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A condition's status, as the original numbers it.
fn status(text: &str) -> f64 {
    match text {
        "True" => 1.0,
        "False" => 0.0,
        _ => 2.0,
    }
}

/// The objects at one instant.
#[derive(Default)]
pub struct Snapshot {
    machines: Vec<Arc<Machine>>,
    sets: Vec<Arc<MachineSet>>,
    deployments: Vec<Arc<MachineDeployment>>,
    queues: BTreeMap<&'static str, queues::Load>,
    is_blind: bool,
}

impl Snapshot {
    /// Of the world: it costs a pointer for each object, and what is made of it is made outside of its lock. Blind: a cluster cannot be seen.
    pub fn of(world: &World, uptime: Duration, is_blind: bool) -> Self {
        Self {
            machines: world.machines.iter().cloned().collect(),
            sets: world.sets.iter().cloned().collect(),
            deployments: world.deployments.iter().cloned().collect(),
            queues: queues::loads(&world.queue, uptime),
            is_blind,
        }
    }

    fn tables(&self) -> impl Iterator<Item = Table> {
        let machines = machines::tables(&self.machines);
        let sets = sets::tables(&self.sets);
        let frozen = Table {
            name: "machine_controller_frozen",
            help: "1 while the control or the target cluster cannot be seen, so that timeouts do not run",
            rows: vec![(Vec::new(), f64::from(u8::from(self.is_blind)))],
        };
        machines
            .into_iter()
            .chain(sets)
            .chain(deployments::tables(&self.deployments))
            .chain(queues::tables(&self.queues))
            .chain([frozen])
    }
}

/// Gives the objects as they are now; none in a process that does not lead.
pub type Look = Box<dyn Fn() -> Option<Snapshot> + Send + Sync>;

/// The metrics.
#[derive(Clone, Default)]
pub struct Original {
    look: Arc<Mutex<Option<Look>>>,
    /// What happened.
    pub happened: Happened,
    /// What went through the queue.
    pub queues: Queues,
}

impl fmt::Debug for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Original")
    }
}

impl Original {
    /// From where the objects are taken from now on.
    pub fn look_at(&self, look: Look) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
    }

    /// What is to be rendered.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::Files));
        let ours = registry.sub_registry_with_prefix("mcm");
        self.happened.register(ours);
        self.queues.register(ours);
        ours.register(
            "misc_scrape_failure_total",
            "Scrapes that failed: always 0, because all that is shown is in memory",
            scrape_failures(),
        );
        ours.register_collector(Box::new(self.clone()));
        registry
    }
}

/// The original's two programs count these.
fn scrape_failures() -> Family<[(&'static str, &'static str); 2], Count> {
    let failures = Family::default();
    for (kind, binary) in [
        ("Machine-count", "machine-controller-manager-provider"),
        ("Machineset-count", "machine-controller-manager"),
        ("Machinedeployment-count", "machine-controller-manager"),
    ] {
        drop(failures.get_or_create(&[("kind", kind), ("binary", binary)]));
    }
    failures
}

/// A label's value without what no name of Kubernetes has: a field of an object may have a megabyte.
fn cut(text: &str) -> &str {
    const LONGEST: usize = 253;
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text)
}

impl Collector for Original {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = look.as_ref().and_then(|look| look()).unwrap_or_default();
        drop(look);
        for table in snapshot.tables() {
            let mut metric = encoder.encode_descriptor(table.name, table.help, None, MetricType::Gauge)?;
            for (labels, value) in &table.rows {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(key, text)| (*key, cut(text))).collect();
                match labels.is_empty() {
                    true => metric.encode_gauge(value)?,
                    false => metric.encode_family(&labels)?.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
