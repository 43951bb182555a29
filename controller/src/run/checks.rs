//! What "alive" and "ready" mean for the manager: one check a fact, each able to fail.

use std::sync::Arc;

use tokio::sync::watch;

use super::watches::Views;
use crate::health::{Health, Heartbeat};
use crate::kube::leadership::Leadership;
use crate::work::shared::Shared;

/// The checks of a manager. A standby that knows that another leads is ready: it would take over.
///
/// The watch of the target cluster is told and does not count. By the conventions of Kubernetes readiness says whether
/// *this* process does its work, not whether what it depends on is up: an unready pod is taken out of services and holds up
/// the rollout of a newer one, and neither would bring the target cluster back. The control cluster is served without it.
pub(super) fn all(
    shared: &Arc<Shared>,
    views: &Views,
    leadership: watch::Receiver<Leadership>,
    election: Option<Arc<Heartbeat>>,
) -> Health {
    let mut health = Health::default();
    let dispatcher = Arc::clone(&shared.heartbeat);
    let is_working = leadership.clone();
    health.live("dispatcher", move || match *is_working.borrow() {
        Leadership::Leader { .. } => dispatcher.check(),
        Leadership::Unknown | Leadership::Follower => Ok(()),
    });
    if let Some(election) = election {
        health.live("leader-election", move || election.check());
    }
    for watch in &views.control {
        let watch = Arc::clone(watch);
        health.ready(format!("watch-{}", watch.resource()), move || watch.check());
    }
    if let Some(watch) = views.target.clone() {
        health.told(format!("watch-{}", watch.resource()), move || watch.check());
    }
    let drivers = shared.drivers.clone();
    health.ready("drivers", move || {
        let states = drivers.states();
        if states.iter().any(|state| state.is_ready()) {
            return Ok(());
        }
        let told: Vec<String> = states
            .iter()
            .map(|state| format!("{}: {}", state.endpoint, state.health))
            .collect();
        Err(if told.is_empty() {
            "no driver was found".to_owned()
        } else {
            told.join("; ")
        })
    });
    health.ready("leadership", move || match *leadership.borrow() {
        Leadership::Unknown => Err("the lease was not read yet".to_owned()),
        Leadership::Follower | Leadership::Leader { .. } => Ok(()),
    });
    health
}
