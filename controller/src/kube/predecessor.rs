//! Whether machine-controller-manager, the original, leads in the namespace: two controllers of the same objects would undo each
//! other's work, and ask for two VMs where one is wanted. Reads and waits; whether a Lease is held is `core::lease`'s to say.
//!
//! Before a process stands for the lead it waits until the original's Leases are free. While it leads it holds them itself, so that an
//! original that is started beside it stands by, as it would for a replica of its own. Where another holds one all the same, the process
//! ends. Without an election nobody looks. A Lease of the original's by which the process itself is elected (`--compatibility original`)
//! is the election's.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};
use millwright_core::lease::is_led;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::plain;
use super::leadership::Leadership;
use super::lease::{given_back, record_of, update};
use crate::env::Env;

/// The Leases of its two programs.
const LEASES: [&str; 2] = ["machine-controller", "machine-controller-manager"];
/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// Between two renewals: less than the 15 s for which the original bears the silence of a holder.
const RENEW: Duration = Duration::from_secs(10);
/// How long a Lease of its own is held without a renewal.
const HELD_FOR_SECONDS: i32 = 30;
/// What the holder is called where one of us holds its Lease, before the name of the process.
const OURS: &str = "millwright/";

/// The original, as far as its Leases tell.
#[derive(Debug)]
pub struct Predecessor {
    leases: Api<Lease>,
    /// The names of its Leases.
    names: Vec<&'static str>,
    env: Env,
    /// Each Lease as it was last seen, and since when it is so.
    seen: BTreeMap<&'static str, (LeaseSpec, Instant)>,
    /// The Leases that this process took or tried to take, each as it wrote it last; none while a write is under way, which may be cut
    /// short.
    written: BTreeMap<&'static str, Option<Lease>>,
}

impl Predecessor {
    /// That of the namespace of a process that is elected by this Lease.
    pub fn new(client: &Client, namespace: &str, elected_by: Option<&str>, env: &Env) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            names: LEASES.into_iter().filter(|name| Some(*name) != elected_by).collect(),
            env: env.clone(),
            seen: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    /// Waits until it leads no more, and calls `stands_by` at each look until then. Who cannot read its Leases could not lead either, so
    /// errors are waited for too.
    pub async fn ended(&mut self, stop: &CancellationToken, mut stands_by: impl FnMut()) {
        let ended = async {
            while let Some(reason) = self.in_the_way().await {
                stands_by();
                tracing::warn!("standing by: {reason}");
                tokio::time::sleep(LOOK).await;
            }
        };
        stop.run_until_cancelled(ended).await;
    }

    /// Holds its Leases while this process leads, until `stop`, and gives them back then. Returns earlier, with the reason, where the
    /// original holds one of them.
    pub async fn kept_out(
        mut self,
        process: &str,
        leadership: watch::Receiver<Leadership>,
        stop: &CancellationToken,
    ) -> Option<String> {
        let holder = format!("{OURS}{process}");
        let met = stop.run_until_cancelled(self.hold(&holder, leadership)).await;
        self.give_back(&holder).await;
        met
    }

    async fn hold(&mut self, holder: &str, mut leadership: watch::Receiver<Leadership>) -> String {
        let mut complaint = None;
        let leads = |now: &Leadership| matches!(now, Leadership::Leader { .. });
        loop {
            let has_ended = leadership.wait_for(leads).await.is_err();
            if has_ended {
                // And this process ends with it.
                return std::future::pending().await;
            }
            for name in self.names.clone() {
                match self.take(name, holder).await {
                    Ok(None) => complaint = None,
                    Ok(Some(reason)) => return reason,
                    Err(error) => {
                        let reason = plain(&error);
                        // Said once: an API server may be away for hours.
                        if complaint.as_ref() != Some(&reason) {
                            tracing::warn!(
                                "the Lease {name}, which keeps machine-controller-manager out, cannot be renewed: {reason}"
                            );
                            complaint = Some(reason);
                        }
                    }
                }
            }
            // After a lead that was lost and won again the Leases are looked at at once: the original may have taken them meanwhile.
            let lost = leadership.wait_for(|now| !leads(now));
            let _ = tokio::time::timeout(RENEW, lost).await;
        }
    }

    /// Takes or renews one. Gives a reason where another has it.
    async fn take(&mut self, name: &'static str, holder: &str) -> Result<Option<String>, kube::Error> {
        if let Some(lease) = self.written.insert(name, None).flatten() {
            let renewed = update(&self.leases, name, &self.claimed(lease, holder)).await;
            if !matches!(&renewed, Err(kube::Error::Api(status)) if status.is_conflict()) {
                return self.remember(name, renewed).map(|()| None);
            }
        }
        let Some(lease) = self.leases.get_opt(name).await? else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(name.to_owned());
            let lease = self.claimed(lease, holder);
            let made = self.leases.create(&PostParams::default(), &lease).await;
            return self.remember(name, made).map(|()| None);
        };
        if let Some(reason) = self.held(name, &lease) {
            return Ok(Some(reason));
        }
        let taken = update(&self.leases, name, &self.claimed(lease, holder)).await;
        self.remember(name, taken).map(|()| None)
    }

    /// What a write came to. Where somebody wrote first, the next look says who.
    fn remember(&mut self, name: &'static str, written: Result<Lease, kube::Error>) -> Result<(), kube::Error> {
        match written {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(()),
            Err(error) => Err(error),
            Ok(lease) => {
                self.written.insert(name, Some(lease));
                Ok(())
            }
        }
    }

    /// The Lease with this process as its holder.
    fn claimed(&self, mut lease: Lease, holder: &str) -> Lease {
        let now = MicroTime(self.env.wall());
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(holder) {
            spec.holder_identity = Some(holder.to_owned());
            spec.acquire_time = Some(now.clone());
        }
        spec.lease_duration_seconds = Some(HELD_FOR_SECONDS);
        spec.renew_time = Some(now);
        lease
    }

    /// So that the original need not wait for their end. What cannot be given back ends by itself.
    async fn give_back(&mut self, holder: &str) {
        for (name, written) in std::mem::take(&mut self.written) {
            if let Err(error) = self.release(name, written, holder).await {
                tracing::warn!("the Lease {name} could not be given back: {}", plain(&error));
            }
        }
    }

    async fn release(&self, name: &str, written: Option<Lease>, holder: &str) -> Result<(), kube::Error> {
        let lease = match written {
            Some(lease) => lease,
            // The end came in the middle of a write.
            None => match self.leases.get_opt(name).await? {
                Some(lease) if record_of(&lease).holder.as_deref() == Some(holder) => lease,
                Some(_) | None => return Ok(()),
            },
        };
        update(&self.leases, name, &given_back(lease, &self.env))
            .await
            .map(drop)
    }

    async fn in_the_way(&mut self) -> Option<String> {
        for name in self.names.clone() {
            let lease = match self.leases.get_opt(name).await {
                Ok(lease) => lease.unwrap_or_default(),
                Err(error) => return Some(format!("the Lease {name} cannot be read: {}", plain(&error))),
            };
            if let Some(reason) = self.held(name, &lease) {
                return Some(reason);
            }
        }
        None
    }

    /// That the original holds one, in words. What a replica of ours holds, it holds to keep the original out.
    fn held(&mut self, name: &'static str, lease: &Lease) -> Option<String> {
        let holder = record_of(lease).holder.unwrap_or_default();
        if !self.is_led(name, lease) || holder.starts_with(OURS) {
            return None;
        }
        Some(format!(
            "{holder} holds the Lease {name}, so machine-controller-manager, or a manager in its place, runs here; scale its deployment to 0"
        ))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::lease::tests::{Server, Ticking, settings};

    /// The process ends in the middle of a renewal: nobody knows whether it arrived.
    #[tokio::test]
    async fn a_lease_whose_renewal_was_cut_short_is_given_back_if_it_is_ours() {
        let server = Server::default();
        let mut original = Predecessor::new(&server.client(), "default", None, &settings("me", Ticking).env);
        let holder = format!("{OURS}me");
        for (held_by, left_with) in [(holder.as_str(), ""), ("mcm-0", "mcm-0")] {
            server.write(held_by, 0);
            original.written.insert(LEASES[0], None);
            original.give_back(&holder).await;
            assert_eq!(server.spec()["holderIdentity"], left_with);
        }
    }
}
