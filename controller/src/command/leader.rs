//! Which manager works on a namespace, as its Lease tells: its settings, and whether it leads now.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use millwright_core::api::{keys, meta};

use super::failure::Failure;
use super::session::Session;
use super::{age, output};

/// A Lease that was not renewed for so long, and for twice its own duration, is nobody's: clocks differ.
const SILENT: SignedDuration = SignedDuration::from_mins(1);

/// The manager that leads, or that led last.
pub struct Leader {
    namespace: String,
    lease: Option<Lease>,
}

impl Leader {
    /// Reads the newest Lease in which a manager told its settings.
    pub async fn of(session: &Session) -> Result<Self, Failure> {
        let leases: Vec<Lease> = session.list().await?;
        let renewed = |lease: &Lease| lease.spec.as_ref()?.renew_time.as_ref().map(|at| at.0);
        let told = leases.into_iter().filter(|lease| settings(lease).is_some());
        Ok(Self {
            namespace: session.namespace.clone(),
            lease: told.max_by_key(renewed),
        })
    }

    /// Its settings, as it told them.
    pub fn settings(&self) -> Option<&str> {
        self.lease.as_ref().and_then(settings)
    }

    /// Says so beside what a command prints, where nobody leads.
    pub fn note_absence(&self, now: Timestamp) {
        if let Some(why) = self.absence(now) {
            let namespace = &self.namespace;
            output::note(&format!(
                "no manager leads in namespace {namespace:?}, so nothing changes until one does: {why}"
            ));
        }
    }

    fn absence(&self, now: Timestamp) -> Option<String> {
        let Some(lease) = &self.lease else {
            return Some("no Lease there tells the settings of a manager".to_owned());
        };
        let name = meta::name(&lease.metadata);
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
            return Some(format!("the last one gave its Lease {name} back"));
        };
        let duration = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let limit = SILENT.max(SignedDuration::from_secs(2 * i64::from(duration)));
        match spec.and_then(|spec| silence(spec, now)) {
            Some(silence) if silence < limit => None,
            Some(silence) => Some(format!(
                "{holder} renewed the Lease {name} {} ago, for the last time",
                age::text(silence)
            )),
            None => Some(format!("the Lease {name} of {holder} was never renewed")),
        }
    }
}

fn settings(lease: &Lease) -> Option<&str> {
    meta::annotation(&lease.metadata, keys::MANAGER_SETTINGS)
}

/// How long ago the Lease was renewed.
fn silence(spec: &LeaseSpec, now: Timestamp) -> Option<SignedDuration> {
    spec.renew_time.as_ref().map(|at| now.duration_since(at.0))
}
