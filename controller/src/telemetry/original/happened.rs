//! What happened to Machines, and how long it took.
//!
//! Labels are the deployment's name, the instance type and the zone of the Machine's node template, never the Machine's name: their
//! number is that of pools. A Machine of no deployment is not measured, as in the original.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use millwright_core::api::{Machine, meta};
use millwright_core::machine::step::{Step, Why};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Label of Machines: the deployment.
const DEPLOYMENT: &str = "name";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Seconds; clouds answer between a tenth of a second and ten minutes.
const BUCKETS: [f64; 9] = [0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0];

/// Something that happened to a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Its VM was made, so long after the Machine.
    Created(SignedDuration),
    /// Its VM was initialised, so long after the Machine was made.
    Initialized(SignedDuration),
    /// Its node joined, so long after the Machine was made.
    Joined(SignedDuration),
    /// Its node did not join in time.
    NotJoined,
    /// Its node was drained, so long after the deletion.
    Drained(SignedDuration),
    /// Nothing is left of its VM, so long after the deletion.
    Deleted(SignedDuration),
    /// It was given up because its node was unhealthy.
    Stale,
}

impl Moment {
    /// What a step is, once it has taken effect.
    pub fn of(machine: &Machine, step: &Step, why: &Why, now: Timestamp) -> Option<Self> {
        let Step::Record(_) = step else { return None };
        let old = now.duration_since(meta::created(&machine.metadata)?);
        match why {
            Why::Joined => Some(Self::Joined(old)),
            Why::JoinTimedOut => Some(Self::NotJoined),
            Why::HealthTimedOut => Some(Self::Stale),
            Why::Drained => Some(Self::Drained(
                now.duration_since(meta::deleting_since(&machine.metadata)?),
            )),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    namespace: String,
    machine_deployment: String,
    instance_type: String,
    zone: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deployment {
    namespace: String,
    machine_deployment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    provider: String,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedOperation {
    provider: String,
    operation: &'static str,
    error_code: String,
}

type Last = Gauge<f64, AtomicU64>;

#[derive(Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// The numbers. Clones share them.
#[derive(Clone)]
pub struct Happened {
    create: Family<Pool, Last>,
    initialize: Family<Pool, Last>,
    join: Family<Pool, Last>,
    delete: Family<Pool, Last>,
    drain: Family<Deployment, Last>,
    failed_join: Family<Pool, Gauge>,
    stale: Counter,
    calls: Family<Operation, Histogram, Seconds>,
    failed_calls: Family<FailedOperation, Counter>,
}

impl Default for Happened {
    fn default() -> Self {
        Self {
            create: Family::default(),
            initialize: Family::default(),
            join: Family::default(),
            delete: Family::default(),
            drain: Family::default(),
            failed_join: Family::default(),
            stale: Counter::default(),
            calls: Family::new_with_constructor(Seconds),
            failed_calls: Family::default(),
        }
    }
}

impl Happened {
    pub(super) fn register(&self, to: &mut Registry) {
        let last = [
            (
                "machine_create",
                "Seconds from the last Machine to its VM",
                &self.create,
            ),
            (
                "machine_initialize",
                "Seconds from the last Machine to the end of its initialisation",
                &self.initialize,
            ),
            ("machine_join", "Seconds from the last Machine to its Node", &self.join),
            (
                "machine_delete",
                "Seconds from the last deletion to the end of the VM",
                &self.delete,
            ),
        ];
        for (name, help, family) in last {
            to.register(format!("{name}_duration_seconds"), help, family.clone());
        }
        to.register(
            "machine_drain_duration_seconds",
            "Seconds from the last deletion to the end of its drain",
            self.drain.clone(),
        );
        // No counter by type, because OpenMetrics would add `_total` to the name.
        to.register(
            "machine_num_failed_join",
            "Machines whose node did not join in time",
            self.failed_join.clone(),
        );
        to.register(
            "machine_stale_machines",
            "Machines that were given up because their node was unhealthy",
            self.stale.clone(),
        );
        to.register(
            "cloud_api_driver_request_duration_seconds",
            "Calls to a driver",
            self.calls.clone(),
        );
        to.register(
            "cloud_api_driver_requests_failed",
            "Calls to a driver that failed, by gRPC's code",
            self.failed_calls.clone(),
        );
    }

    /// Something happened to a Machine.
    pub fn note(&self, machine: &Machine, moment: Moment) {
        if moment == Moment::Stale {
            self.stale.inc();
        }
        let Some(pool) = pool(machine) else { return };
        let set = |family: &Family<Pool, Last>, took: SignedDuration| {
            family.get_or_create(&pool).set(took.as_secs_f64().round());
        };
        match moment {
            Moment::Created(took) => set(&self.create, took),
            Moment::Initialized(took) => set(&self.initialize, took),
            Moment::Joined(took) => set(&self.join, took),
            Moment::Deleted(took) => set(&self.delete, took),
            Moment::Drained(took) => {
                let of = Deployment {
                    namespace: pool.namespace.clone(),
                    machine_deployment: pool.machine_deployment.clone(),
                };
                self.drain.get_or_create(&of).set(took.as_secs_f64().round());
            }
            Moment::NotJoined => drop(self.failed_join.get_or_create(&pool).inc()),
            Moment::Stale => {}
        }
    }

    /// A call to a driver ended.
    pub fn driver_call(&self, provider: &str, method: &'static str, code: &str, took: Duration) {
        let (provider, is_ok, operation) = (provider.to_owned(), code == "OK", operation(method));
        if !is_ok {
            let failed = FailedOperation {
                provider: provider.clone(),
                operation,
                error_code: code.to_owned(),
            };
            self.failed_calls.get_or_create(&failed).inc();
        }
        let of = Operation { provider, operation };
        self.calls.get_or_create(&of).observe(took.as_secs_f64());
    }
}

/// The original's word for a method of the Driver API.
fn operation(method: &'static str) -> &'static str {
    match method {
        "CreateMachine" => "create_machine",
        "InitializeMachine" => "initialize_machine",
        "DeleteMachine" => "delete_machine",
        "GetMachineStatus" => "get_machine_status",
        "ListMachines" => "list_machines",
        other => other,
    }
}

fn pool(machine: &Machine) -> Option<Pool> {
    let labels = machine.metadata.labels.as_ref()?;
    let template = machine.spec.node_template.as_ref().map(|template| template.labels());
    let template = template.unwrap_or_default();
    let of_node = |key: &str| template.get(key).cloned().unwrap_or_default();
    Some(Pool {
        namespace: meta::namespace(&machine.metadata).to_owned(),
        machine_deployment: labels.get(DEPLOYMENT)?.clone(),
        instance_type: of_node(INSTANCE_TYPE),
        zone: of_node(ZONE),
    })
}
