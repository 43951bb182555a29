//! Whether machine-controller-manager, the original, leads in the namespace: two controllers of the same objects would undo each
//! other's work, and ask for two VMs where one is wanted. Reads and waits; whether a Lease is held is `core::lease`'s to say.
//!
//! Looked at before a process stands for the lead; without an election nobody looks.
//! Source: `spec/machine.md` §8.2, `spec/machineset.md` §11 (the names of its Leases).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use millwright_core::lease::is_led;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::plain;
use super::lease::record_of;
use crate::env::Env;

/// The Leases of its two programs.
const LEASES: [&str; 2] = ["machine-controller", "machine-controller-manager"];
/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// The original, as far as its Leases tell.
#[derive(Debug)]
pub struct Predecessor {
    leases: Api<Lease>,
    env: Env,
    /// Each Lease as it was last seen, and since when it is so.
    seen: BTreeMap<&'static str, (LeaseSpec, Instant)>,
}

impl Predecessor {
    /// That of a namespace.
    pub fn new(client: &Client, namespace: &str, env: &Env) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            env: env.clone(),
            seen: BTreeMap::new(),
        }
    }

    /// Waits until it leads no more. Who cannot read its Leases could not lead either, so errors are waited for too.
    pub async fn ended(mut self, stop: &CancellationToken) {
        let ended = async {
            while let Some(reason) = self.in_the_way().await {
                tracing::warn!("standing by: {reason}");
                tokio::time::sleep(LOOK).await;
            }
        };
        stop.run_until_cancelled(ended).await;
    }

    async fn in_the_way(&mut self) -> Option<String> {
        for name in LEASES {
            let lease = match self.leases.get_opt(name).await {
                Ok(lease) => lease.unwrap_or_default(),
                Err(error) => return Some(format!("the Lease {name} cannot be read: {}", plain(&error))),
            };
            if self.is_led(name, &lease) {
                let holder = record_of(&lease).holder.unwrap_or_default();
                return Some(format!(
                    "{holder} holds the Lease {name}, so machine-controller-manager runs here; scale its deployment to 0"
                ));
            }
        }
        None
    }

    fn is_led(&mut self, name: &'static str, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let renewed = spec
            .renew_time
            .as_ref()
            .map(|time| self.env.wall().duration_since(time.0));
        let now = Instant::now();
        let (seen, since) = self.seen.entry(name).or_insert_with(|| (spec.clone(), now));
        if *seen != spec {
            (*seen, *since) = (spec, now);
        }
        is_led(&record_of(lease), now - *since, renewed)
    }
}
