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
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::telemetry::Buckets;
use crate::telemetry::count::Count;

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
struct Service {
    provider: String,
    service: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedOperation {
    provider: String,
    operation: &'static str,
    error_code: String,
}

type Last = Gauge<f64, AtomicU64>;

/// The numbers. Clones share them.
#[derive(Clone)]
pub struct Happened {
    create: Family<Pool, Last>,
    initialize: Family<Pool, Last>,
    join: Family<Pool, Last>,
    delete: Family<Pool, Last>,
    drain: Family<Deployment, Last>,
    failed_join: Family<Pool, Count>,
    stale: Count,
    calls: Family<Operation, Histogram, Buckets>,
    failed_calls: Family<FailedOperation, Count>,
    requests: Family<Service, Count>,
    failed_requests: Family<Service, Count>,
    request_seconds: Family<Service, Histogram, Buckets>,
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
            stale: Count::default(),
            calls: Family::new_with_constructor(Buckets(&BUCKETS)),
            failed_calls: Family::default(),
            requests: Family::default(),
            failed_requests: Family::default(),
            request_seconds: Family::new_with_constructor(Buckets(&BUCKETS)),
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
        to.register(
            "machine_num_failed_join",
            "Machines whose node did not join in time",
            self.failed_join.clone(),
        );
        to.register(
            "machine_stale_machines_total",
            "Machines that were given up because their node was unhealthy",
            self.stale.clone(),
        );
        self.register_calls(to);
    }

    fn register_calls(&self, to: &mut Registry) {
        to.register(
            "cloud_api_driver_request_duration_seconds",
            "Calls to a driver that succeeded",
            self.calls.clone(),
        );
        to.register(
            "cloud_api_driver_requests_failed_total",
            "Calls to a driver that failed, by gRPC's code",
            self.failed_calls.clone(),
        );
        to.register(
            "cloud_api_requests_total",
            "Calls to a driver, each as one request, because what it asks of its provider is not seen here; service is the operation",
            self.requests.clone(),
        );
        to.register(
            "cloud_api_requests_failed_total",
            "Those of cloud_api_requests_total that failed",
            self.failed_requests.clone(),
        );
        to.register(
            "cloud_api_api_request_duration_seconds",
            "Those of cloud_api_requests_total that succeeded",
            self.request_seconds.clone(),
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
            Moment::NotJoined => self.failed_join.get_or_create(&pool).inc(),
            Moment::Stale => {}
        }
    }

    /// A call to a driver ended. What failed has no duration, as in the original.
    pub fn driver_call(&self, provider: &str, method: &'static str, code: &str, took: Duration) {
        let (provider, operation) = (provider.to_owned(), operation(method));
        let request = Service {
            provider: provider.clone(),
            service: operation,
        };
        self.requests.get_or_create(&request).inc();
        if code == "OK" {
            self.request_seconds.get_or_create(&request).observe(took.as_secs_f64());
            let call = Operation { provider, operation };
            self.calls.get_or_create(&call).observe(took.as_secs_f64());
            return;
        }
        self.failed_requests.get_or_create(&request).inc();
        let error_code = code.to_owned();
        let call = FailedOperation {
            provider,
            operation,
            error_code,
        };
        self.failed_calls.get_or_create(&call).inc();
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
