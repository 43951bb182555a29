//! What the operator says: flags and environment become one checked value.
//!
//! Decides defaults and refuses what cannot work, each time naming the flag, what is wrong and what to do. With
//! `env.rs` the only place that reads the environment. Flags that mean what they mean in
//! machine-controller-manager have its names and defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use millwright_core::lease::{BadTerms, Terms};
use millwright_core::settings::Settings;

use crate::driver::{Endpoint, Endpoints, NamedEndpoint, TlsFiles};
use crate::kube::access::Access;
use crate::kube::budget::Budget;

pub mod compatibility;
mod flags;

pub(crate) use flags::duration;
pub use flags::{Cli, Command, ManagerFlags};

/// The word that stands for the pod's service account where a path is expected.
const IN_CLUSTER: &str = "inClusterConfig";
/// The word that stands for "no cluster for nodes" in `--target-kubeconfig`.
const NO_TARGET: &str = "none";
/// What the API server demands of a bootstrap token's extra groups; others it ignores without a word.
const GROUP_PREFIX: &str = "system:bootstrappers:";

/// The checked configuration of `millwright manager`.
#[derive(Clone, Debug)]
pub struct Config {
    /// How to reach the cluster with our kinds.
    pub control: Access,
    /// The cluster with the nodes.
    pub target: TargetCluster,
    /// The one namespace of our kinds.
    pub namespace: String,
    /// What decisions may read.
    pub settings: Settings,
    /// Where drivers are.
    pub drivers: Endpoints,
    /// Users who may be drivers behind sockets, beside root and the manager's own.
    pub driver_uids: Vec<u32>,
    /// By which files drivers over TLS are known.
    pub driver_tls: Option<TlsFiles>,
    /// Keys that are worked on at once.
    pub workers: usize,
    /// Requests a second to each API server; zero for no limit of ours.
    pub kube_api_qps: f64,
    /// Requests that may come at once before the limit holds.
    pub kube_api_burst: u32,
    /// Extra groups of the users that bootstrap tokens stand for.
    pub bootstrap_groups: Vec<String>,
    /// The election; `None`: this process is told that it is the only one.
    pub election: Option<Election>,
    /// Where `/metrics`, `/livez` and `/readyz` are served.
    pub metrics_addrs: Vec<SocketAddr>,
}

impl Config {
    /// The client-side rate limit, one for each client.
    pub fn budget(&self) -> Option<Budget> {
        Budget::new(self.kube_api_qps, self.kube_api_burst)
    }
}

/// The cluster with the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetCluster {
    /// The control cluster is also the target.
    SameAsControl,
    /// Another cluster.
    Other(Access),
    /// There is none: machines join nothing.
    None,
}

/// How leaders are elected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Name of the Lease in the control namespace.
    pub lease_name: String,
    /// This process in the Lease.
    pub identity: String,
    /// The times.
    pub terms: Terms,
}

/// What is wrong with the flags.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Two clusters with one id would delete each other's VMs.
    #[error(
        "--cluster-id {0:?}: write 1 to 63 characters of a-z, 0-9 and -. It marks this cluster's VMs at the provider and must never change"
    )]
    ClusterId(String),
    /// The contract has room for so many.
    #[error("--legacy-mark is given {0} times: 16 at most, each with a key of its own")]
    LegacyMarks(usize),
    /// Nothing was moved.
    #[error(
        "--former-namespace {0:?}: that is --namespace itself; name the namespace from which the objects were restored, or leave the flag out"
    )]
    SameNamespace(String),
    /// No driver could do any work.
    #[error("no driver: give --driver unix:///PATH (repeatable) or --driver-dir DIR")]
    NoDriver,
    /// Both sides must show who they are, because calls carry credentials.
    #[error("--driver {0}: give --driver-ca, --driver-cert and --driver-key, too")]
    NoTlsFiles(Endpoint),
    /// One without the others proves nothing.
    #[error("--driver-ca, --driver-cert and --driver-key are needed together: {} is missing", .0.join(" and "))]
    TlsFiles(Vec<&'static str>),
    /// Which of the two is meant cannot be told.
    #[error("--driver and --driver-dir are both given: use one of them")]
    TwoKindsOfDriver,
    /// The flag is one path of a directory.
    #[error("--driver-dir {}: {reason}", path.display())]
    DriverDir {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No namespace can have that name.
    #[error(
        "--{flag} {text:?}: not a name that Kubernetes takes (a-z, 0-9 and -, at most 63 characters, no - at the ends)"
    )]
    Name {
        /// The flag.
        flag: &'static str,
        /// What was given.
        text: String,
    },
    /// The API server would ignore the group, and nodes would lack its permissions.
    #[error("--bootstrap-token-auth-extra-groups {0:?}: each group must begin with {GROUP_PREFIX}")]
    Group(String),
    /// Two could lead, or nobody could.
    #[error("--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period: {0}")]
    Election(BadTerms),
    /// No work would be done.
    #[error("--concurrent-syncs 0: at least one worker is needed")]
    NoWorkers,
    /// Not a rate.
    #[error("--kube-api-qps {0}: write a number of requests a second, or 0 for no limit")]
    Rate(f64),
}

impl ManagerFlags {
    /// Checks everything that can be checked without asking anybody.
    pub fn check(self) -> Result<Config, ConfigError> {
        let (control, target) = self.clusters();
        let election = if self.leader_elect {
            Some(self.election()?)
        } else {
            None
        };
        let drivers = self.drivers()?;
        let driver_tls = tls_files([&self.driver_ca, &self.driver_cert, &self.driver_key])?;
        if let (None, Some(endpoint)) = (&driver_tls, over_tls(&drivers)) {
            return Err(ConfigError::NoTlsFiles(endpoint));
        }
        let bootstrap_groups = groups(&self.bootstrap_token_auth_extra_groups)?;
        if self.concurrent_syncs == 0 {
            return Err(ConfigError::NoWorkers);
        }
        if !self.kube_api_qps.is_finite() || self.kube_api_qps < 0.0 {
            return Err(ConfigError::Rate(self.kube_api_qps));
        }
        if !is_cluster_id(&self.cluster_id) {
            return Err(ConfigError::ClusterId(self.cluster_id));
        }
        let legacy_marks = legacy_marks(&self.legacy_mark)?;
        let metrics_addrs = self.metrics_addrs();
        let unhealthy_threshold = self.threshold(self.unhealthy_threshold.as_ref());
        let unhealthy_zone_threshold = self.threshold(self.unhealthy_zone_threshold.as_ref());
        let heeds_min_ready = self.heeds_min_ready();
        let mut settings = Settings::new(self.cluster_id);
        settings.legacy_marks = legacy_marks;
        let former = self.former_namespace.map(|name| dns_label("former-namespace", name));
        settings.former_namespace = former.transpose()?;
        if settings.former_namespace.as_ref() == Some(&self.namespace) {
            return Err(ConfigError::SameNamespace(self.namespace));
        }
        settings.has_target = target != TargetCluster::None;
        settings.creation_timeout =
            SignedDuration::try_from(self.machine_creation_timeout).unwrap_or(SignedDuration::MAX);
        settings.health_timeout = SignedDuration::try_from(self.machine_health_timeout).unwrap_or(SignedDuration::MAX);
        settings.in_place_update_timeout =
            SignedDuration::try_from(self.machine_inplace_update_timeout).unwrap_or(SignedDuration::MAX);
        settings.preserve_timeout =
            SignedDuration::try_from(self.machine_preserve_timeout).unwrap_or(SignedDuration::MAX);
        settings.max_replacements = self.max_replacements;
        settings.unhealthy_threshold = unhealthy_threshold;
        settings.unhealthy_zone_threshold = unhealthy_zone_threshold;
        settings.heeds_min_ready = heeds_min_ready;
        settings.orphan_period =
            SignedDuration::try_from(self.machine_safety_orphan_vms_period).unwrap_or(SignedDuration::MAX);
        settings.orphan_min_age = SignedDuration::try_from(self.orphan_min_age).unwrap_or(SignedDuration::MAX);
        settings.orphan_dry_run = self.orphan_dry_run;
        settings.max_orphans = self.max_orphans;
        settings.drain_timeout = SignedDuration::try_from(self.machine_drain_timeout).unwrap_or(SignedDuration::MAX);
        settings.max_evict_retries = self.machine_max_evict_retries;
        settings.detach_timeout =
            SignedDuration::try_from(self.machine_pv_detach_timeout).unwrap_or(SignedDuration::MAX);
        settings.reattach_timeout =
            SignedDuration::try_from(self.machine_pv_reattach_timeout).unwrap_or(SignedDuration::MAX);
        // Zero means the default, as in the original.
        if !self.resource_exhausted_retry.is_zero() {
            settings.resource_exhausted_retry =
                SignedDuration::try_from(self.resource_exhausted_retry).unwrap_or(SignedDuration::MAX);
        }
        settings.annotates_old_nodes = self.autoscaler_scaledown_annotation_during_rollout;
        settings.node_conditions = words(&self.node_conditions);
        Ok(Config {
            control,
            target,
            namespace: dns_label("namespace", self.namespace)?,
            settings,
            drivers,
            driver_uids: self.driver_uid.clone(),
            driver_tls,
            workers: usize::from(self.concurrent_syncs),
            kube_api_qps: self.kube_api_qps,
            kube_api_burst: self.kube_api_burst,
            bootstrap_groups,
            election,
            metrics_addrs,
        })
    }

    /// As in the original: a target alone is both, except that "no target" leaves the control cluster
    /// to the pod's own.
    fn clusters(&self) -> (Access, TargetCluster) {
        let target = self
            .target_kubeconfig
            .as_deref()
            .filter(|path| !path.as_os_str().is_empty());
        let control = self.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty());
        match (control, target) {
            (None, None) => (Access::InCluster, TargetCluster::SameAsControl),
            (None, Some(path)) if path == Path::new(NO_TARGET) => (Access::InCluster, TargetCluster::None),
            (Some(path), Some(target)) if target == Path::new(NO_TARGET) => (access(path), TargetCluster::None),
            (Some(path), None) | (None, Some(path)) => (access(path), TargetCluster::SameAsControl),
            (Some(path), Some(target)) if path == target => (access(path), TargetCluster::SameAsControl),
            (Some(path), Some(target)) => (access(path), TargetCluster::Other(access(target))),
        }
    }

    fn drivers(&self) -> Result<Endpoints, ConfigError> {
        match (self.driver.as_slice(), &self.driver_dir) {
            ([], None) => Err(ConfigError::NoDriver),
            ([], Some(path)) => directory(path),
            (endpoints, None) => Ok(Endpoints::Listed(distinct(endpoints))),
            (_, Some(_)) => Err(ConfigError::TwoKindsOfDriver),
        }
    }

    fn election(&self) -> Result<Election, ConfigError> {
        let terms = Terms {
            duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        terms.check().map_err(ConfigError::Election)?;
        let lease_name = dns_label("leader-elect-lease-name", self.lease_name())?;
        Ok(Election {
            lease_name,
            identity: identity(),
            terms,
        })
    }
}

fn access(path: &Path) -> Access {
    if path == Path::new(IN_CLUSTER) {
        Access::InCluster
    } else {
        Access::File(path.to_owned())
    }
}

/// The directory must be there at the start; a mistyped path would otherwise be a manager that waits for ever.
fn directory(path: &Path) -> Result<Endpoints, ConfigError> {
    let wrong = |reason: String| ConfigError::DriverDir {
        path: path.to_owned(),
        reason,
    };
    let found = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !found.is_dir() {
        return Err(wrong("not a directory".to_owned()));
    }
    Ok(Endpoints::Directory(path.to_owned()))
}

/// The files for TLS with drivers, all or none.
pub(crate) fn tls_files(given: [&Option<PathBuf>; 3]) -> Result<Option<TlsFiles>, ConfigError> {
    match given {
        [None, None, None] => Ok(None),
        [Some(ca), Some(cert), Some(key)] => Ok(Some(TlsFiles {
            ca: ca.clone(),
            cert: cert.clone(),
            key: key.clone(),
        })),
        some => {
            let flags = ["--driver-ca", "--driver-cert", "--driver-key"];
            let missing = flags.into_iter().zip(some).filter(|(_, path)| path.is_none());
            Err(ConfigError::TlsFiles(missing.map(|(flag, _)| flag).collect()))
        }
    }
}

/// The first driver that is reached over TLS.
fn over_tls(drivers: &Endpoints) -> Option<Endpoint> {
    let Endpoints::Listed(listed) = drivers else {
        return None;
    };
    let mut endpoints = listed.iter().map(|named| &named.endpoint);
    endpoints
        .find(|endpoint| matches!(endpoint, Endpoint::Tls { .. }))
        .cloned()
}

/// The same socket twice would be two drivers of one name.
fn distinct(endpoints: &[NamedEndpoint]) -> Vec<NamedEndpoint> {
    let mut distinct: Vec<NamedEndpoint> = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        if distinct.iter().all(|known| known.endpoint != endpoint.endpoint) {
            distinct.push(endpoint.clone());
        }
    }
    distinct
}

fn words(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn groups(text: &str) -> Result<Vec<String>, ConfigError> {
    let groups = words(text);
    match groups.iter().find(|group| !is_bootstrap_group(group)) {
        Some(wrong) => Err(ConfigError::Group(wrong.clone())),
        None => Ok(groups),
    }
}

/// Colons may come again; the last character may be none.
fn is_bootstrap_group(group: &str) -> bool {
    let rest = group.strip_prefix(GROUP_PREFIX).unwrap_or_default();
    let is_last = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.bytes().all(|byte| byte == b':' || is_label_byte(byte)) && rest.bytes().last().is_some_and(is_last)
}

/// A tag and its value.
pub(crate) fn mark(text: &str) -> Result<(String, String), String> {
    const LONGEST: usize = 256;
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && key.len() <= LONGEST && value.len() <= LONGEST => {
            Ok((key.to_owned(), value.to_owned()))
        }
        Some(_) => Err(format!(
            "write KEY=VALUE, each of at most {LONGEST} bytes, and not without a key"
        )),
        None => Err("write KEY=VALUE; the value may be empty".to_owned()),
    }
}

/// The contract has room for 16 marks.
fn legacy_marks(given: &[(String, String)]) -> Result<BTreeMap<String, String>, ConfigError> {
    let marks: BTreeMap<_, _> = given.iter().cloned().collect();
    match marks.len() == given.len() && marks.len() <= 16 {
        true => Ok(marks),
        false => Err(ConfigError::LegacyMarks(given.len())),
    }
}

/// As every tag of a VM may hold it (SPEC.md, GEN-38).
pub(crate) fn is_cluster_id(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(is_label_byte)
}

fn dns_label(flag: &'static str, text: String) -> Result<String, ConfigError> {
    if is_label(&text) && text.len() <= 63 {
        Ok(text)
    } else {
        Err(ConfigError::Name { flag, text })
    }
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_label_byte) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

/// Host and a random part: a pod that was restarted on the same host is another candidate, since what its predecessor
/// began may still be under way.
fn identity() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let host = if host.is_empty() { "unknown-host" } else { &host };
    format!("{host}_{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests;
