//! Whether machine-controller-manager, the original, leads in the namespace: two controllers of the same objects would undo each
//! other's work, and ask for two VMs where one is wanted. Decides only whether to wait; writes nothing.
//!
//! Looked at before a process stands for the lead; without an election nobody looks. Source: `spec/machine.md` §8.2, `spec/machineset.md` §11 (the names of its Leases).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::error::plain;
use crate::env::Env;

/// The Leases of its two programs.
const LEASES: [&str; 2] = ["machine-controller", "machine-controller-manager"];
/// Its default, where a Lease does not say how long it holds.
const HOLDS: SignedDuration = SignedDuration::from_secs(15);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// The original, as far as its Leases tell.
#[derive(Clone, Debug)]
pub struct Predecessor {
    leases: Api<Lease>,
    env: Env,
}

impl Predecessor {
    /// That of a namespace.
    pub fn new(client: &Client, namespace: &str, env: &Env) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            env: env.clone(),
        }
    }

    /// Waits until it leads no more. Who cannot read its Leases could not lead either, so errors are waited for too.
    pub async fn ended(&self, stop: &CancellationToken) {
        let ended = async {
            while let Some(reason) = in_the_way(&self.leases, self.env.wall()).await {
                tracing::warn!("standing by: {reason}");
                tokio::time::sleep(LOOK).await;
            }
        };
        stop.run_until_cancelled(ended).await;
    }
}

async fn in_the_way(leases: &Api<Lease>, now: Timestamp) -> Option<String> {
    for name in LEASES {
        match leases.get_opt(name).await {
            Ok(lease) => {
                if let Some(holder) = lease.as_ref().and_then(|lease| holder(lease, now)) {
                    return Some(format!(
                        "{holder} holds the Lease {name}, so machine-controller-manager runs here; scale its deployment to 0"
                    ));
                }
            }
            Err(error) => return Some(format!("the Lease {name} cannot be read: {}", plain(&error))),
        }
    }
    None
}

/// Who holds a Lease, by the time of its last renewal.
fn holder(lease: &Lease, now: Timestamp) -> Option<&str> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let seconds = spec.lease_duration_seconds.map(i64::from);
    let holds = seconds.map_or(HOLDS, SignedDuration::from_secs);
    let renewed = spec.renew_time.as_ref()?.0;
    (now.duration_since(renewed) < holds).then_some(holder)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_counts_while_it_is_renewed() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let lease = |holder: &str| -> Lease {
            let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"});
            serde_json::from_value(json!({ "spec": spec })).unwrap()
        };
        assert_eq!(holder(&lease("pod-1"), at("2026-01-01T00:00:14Z")), Some("pod-1"));
        assert_eq!(holder(&lease("pod-1"), at("2026-01-01T00:00:15Z")), None);
        assert_eq!(holder(&lease(""), at("2026-01-01T00:00:01Z")), None);
        assert_eq!(holder(&Lease::default(), at("2026-01-01T00:00:01Z")), None);
    }
}
