//! The queue of keys, told as the original's work queues.
//!
//! There is one queue here; each kind of key has the name of the original's queue that does its work. Series: one for each of these names.

use std::collections::BTreeMap;
use std::time::Duration;

use millwright_core::queue::Queue;
use millwright_core::wake::Key;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Table, number};
use crate::telemetry::Buckets;
use crate::telemetry::count::Count;

/// Seconds; the original's.
const BUCKETS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1.0, 10.0];

/// What [`queue_of`] gives, so that a queue without work is told as an empty one.
const NAMES: [&str; 6] = [
    "machine",
    "machineset",
    "machinedeployment",
    "machineclass",
    "secret",
    "machinesafetyorphanvms",
];

fn queue_of(key: &Key) -> &'static str {
    match key {
        // Those that are deleted, too, for which the original has `machinetermination`.
        Key::Machine(_) => "machine",
        Key::Set(_) => "machineset",
        Key::Deployment(_) => "machinedeployment",
        Key::Class(_) => "machineclass",
        Key::Secret(_) => "secret",
        // What is left of Machines is the work of that queue.
        Key::Leftover(_) => "machinesafetyorphanvms",
    }
}

/// What is in a queue at one instant.
#[derive(Default)]
pub(super) struct Load {
    waiting: usize,
    under_way: Duration,
    longest: Duration,
}

/// Of each queue.
pub(super) fn loads(queue: &Queue<Key>, now: Duration) -> BTreeMap<&'static str, Load> {
    let mut loads: BTreeMap<_, _> = NAMES.map(|name| (name, Load::default())).into();
    for key in queue.due(now) {
        loads.entry(queue_of(key)).or_default().waiting += 1;
    }
    for (key, took) in queue.under_way(now) {
        let load = loads.entry(queue_of(key)).or_default();
        load.under_way += took;
        load.longest = load.longest.max(took);
    }
    loads
}

/// The metrics of what is in the queues.
pub(super) fn tables(loads: &BTreeMap<&'static str, Load>) -> [Table; 3] {
    let table = |name, help, value: fn(&Load) -> f64| {
        let row = |(queue, load): (&&str, &Load)| (vec![("name", (*queue).to_owned())], value(load));
        let rows = loads.iter().map(row).collect();
        Table { name, help, rows }
    };
    [
        table("workqueue_depth", "Keys that wait for a worker", |load| {
            number(load.waiting)
        }),
        table(
            "workqueue_unfinished_work_seconds",
            "For how long workers have had the keys that they have now, in sum",
            |load| load.under_way.as_secs_f64(),
        ),
        table(
            "workqueue_longest_running_processor_seconds",
            "For how long a worker has had the key that one has had for longest",
            |load| load.longest.as_secs_f64(),
        ),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

/// What went through the queues. Clones share the numbers.
#[derive(Clone)]
pub struct Queues {
    adds: Family<Name, Count>,
    waited: Family<Name, Histogram, Buckets>,
    worked: Family<Name, Histogram, Buckets>,
    retries: Family<Name, Count>,
}

impl Default for Queues {
    fn default() -> Self {
        let queues = Self {
            adds: Family::default(),
            waited: Family::new_with_constructor(Buckets(&BUCKETS)),
            worked: Family::new_with_constructor(Buckets(&BUCKETS)),
            retries: Family::default(),
        };
        for name in NAMES.map(|name| Name { name }) {
            drop(queues.adds.get_or_create(&name));
            drop(queues.waited.get_or_create(&name));
            drop(queues.worked.get_or_create(&name));
            drop(queues.retries.get_or_create(&name));
        }
        queues
    }
}

impl Queues {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register(
            "workqueue_adds_total",
            "Keys that became due, counted when a worker takes them",
            self.adds.clone(),
        );
        to.register(
            "workqueue_queue_duration_seconds",
            "How long keys that were due waited for a worker",
            self.waited.clone(),
        );
        to.register(
            "workqueue_work_duration_seconds",
            "How long passes over a key took",
            self.worked.clone(),
        );
        to.register(
            "workqueue_retries_total",
            "Passes after which the key backs off",
            self.retries.clone(),
        );
    }

    /// A worker took a key that had been due for so long.
    pub fn taken(&self, key: &Key, waited: Duration) {
        let name = Name { name: queue_of(key) };
        self.adds.get_or_create(&name).inc();
        self.waited.get_or_create(&name).observe(waited.as_secs_f64());
    }

    /// A pass over a key took so long.
    pub fn worked(&self, key: &Key, took: Duration, backs_off: bool) {
        let name = Name { name: queue_of(key) };
        self.worked.get_or_create(&name).observe(took.as_secs_f64());
        if backs_off {
            self.retries.get_or_create(&name).inc();
        }
    }
}
