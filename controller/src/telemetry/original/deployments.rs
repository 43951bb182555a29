//! What stands in MachineDeployments.

use std::sync::Arc;

use millwright_core::api::lenient::IntOrPercent;
use millwright_core::api::machine_deployment::RollingUpdate;
use millwright_core::api::{MachineDeployment, MachineDeploymentSpec, MachineDeploymentStatus};

use super::{Label, Table, conditions, created, failed, labels};

/// The metrics of deployments.
pub(super) fn tables(deployments: &[Arc<MachineDeployment>]) -> Vec<Table> {
    let mut all = of_specs(deployments);
    all.extend(of_statuses(deployments));
    all
}

fn of_specs(deployments: &[Arc<MachineDeployment>]) -> Vec<Table> {
    let spec = |name, help, value: fn(&MachineDeploymentSpec) -> Option<f64>| {
        Table::of(name, help, deployments, move |deployment| {
            Some((labels(&deployment.metadata), value(&deployment.spec)?))
        })
    };
    vec![
        Table::count(
            "machine_deployment_items_total",
            "MachineDeployments in the namespace",
            deployments,
        ),
        Table::of(
            "machine_deployment_info",
            "Always 1; what the deployment is",
            deployments,
            |deployment| Some((info(deployment), 1.0)),
        ),
        spec("machine_deployment_info_spec_paused", "1 while paused", |spec| {
            Some(f64::from(u8::from(spec.paused)))
        }),
        spec("machine_deployment_info_spec_replicas", "Wanted Machines", |spec| {
            Some(f64::from(spec.replicas))
        }),
        spec(
            "machine_deployment_info_spec_min_ready_seconds",
            "minReadySeconds",
            |spec| Some(f64::from(spec.min_ready_seconds)),
        ),
        spec(
            "machine_deployment_info_spec_rolling_update_max_surge",
            "maxSurge; a percentage is 0",
            |spec| bound(spec, |rolling| rolling.max_surge.as_ref()),
        ),
        spec(
            "machine_deployment_info_spec_rolling_update_max_unavailable",
            "maxUnavailable; a percentage is 0",
            |spec| bound(spec, |rolling| rolling.max_unavailable.as_ref()),
        ),
        spec(
            "machine_deployment_info_spec_revision_history_limit",
            "revisionHistoryLimit",
            |spec| spec.revision_history_limit.map(f64::from),
        ),
        spec(
            "machine_deployment_info_spec_progress_deadline_seconds",
            "progressDeadlineSeconds",
            |spec| spec.progress_deadline_seconds.map(f64::from),
        ),
        spec(
            "machine_deployment_info_spec_rollback_to_revision",
            "Revision of an order to go back that is not carried out yet",
            |spec| spec.rollback_to.as_ref().map(|order| revision(order.revision)),
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "revisions are small")]
fn revision(number: i64) -> f64 {
    number as f64
}

fn of_statuses(deployments: &[Arc<MachineDeployment>]) -> Vec<Table> {
    let counter = |name, help, value: fn(&MachineDeploymentStatus) -> i32| {
        Table::of(name, help, deployments, move |deployment| {
            let status = deployment.status.as_ref()?;
            Some((labels(&deployment.metadata), f64::from(value(status))))
        })
    };
    vec![
        counter("machine_deployment_status_replicas", "Machines", |status| {
            status.replicas
        }),
        counter(
            "machine_deployment_status_ready_replicas",
            "Running Machines",
            |status| status.ready_replicas,
        ),
        counter(
            "machine_deployment_status_updated_replicas",
            "Machines of the newest template",
            |status| status.updated_replicas,
        ),
        counter(
            "machine_deployment_status_available_replicas",
            "Available Machines",
            |status| status.available_replicas,
        ),
        counter(
            "machine_deployment_status_unavailable_replicas",
            "Wanted Machines that are not available",
            |status| status.unavailable_replicas,
        ),
        counter(
            "machine_deployment_status_collision_count",
            "How often the name of a new set was taken",
            |status| status.collision_count.unwrap_or_default(),
        ),
        Table {
            name: "machine_deployment_status_condition",
            help: "Conditions of deployments: True 1, False 0, Unknown 2",
            rows: deployments.iter().flat_map(|deployment| told(deployment)).collect(),
        },
        Table {
            name: "machine_deployment_failed_machines",
            help: "Always 1; Machines whose last operation failed",
            rows: deployments.iter().flat_map(|deployment| ill(deployment)).collect(),
        },
    ]
}

fn info(deployment: &MachineDeployment) -> Vec<Label> {
    let strategy = deployment.spec.strategy.as_ref();
    let strategy = strategy
        .and_then(|strategy| strategy.type_.as_ref())
        .map(ToString::to_string);
    let mut all = labels(&deployment.metadata);
    all.push(created(&deployment.metadata));
    all.push(("spec_strategy_type", strategy.unwrap_or_default()));
    all
}

/// A bound of a rolling update as a plain number; none of another strategy.
fn bound(spec: &MachineDeploymentSpec, of: impl Fn(&RollingUpdate) -> Option<&IntOrPercent>) -> Option<f64> {
    let rolling = spec.strategy.as_ref()?.rolling_update.as_ref()?;
    Some(match of(rolling)? {
        IntOrPercent::Int(number) => f64::from(*number),
        IntOrPercent::Text(_) => 0.0,
    })
}

fn told(deployment: &MachineDeployment) -> Vec<(Vec<Label>, f64)> {
    let told = deployment.status.iter().flat_map(|status| &status.conditions);
    let told = told.map(|told| (told.type_.as_str(), told.status.as_str()));
    conditions(&deployment.metadata, told)
}

fn ill(deployment: &MachineDeployment) -> Vec<(Vec<Label>, f64)> {
    let told = deployment.status.iter().flat_map(|status| &status.failed_machines);
    failed(&deployment.metadata, told)
}
