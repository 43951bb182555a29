//! The command line as it is typed. Checks the form of each flag alone; what they mean together is `config.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use millwright_core::api::lenient::{GoDuration, IntOrPercent, Rounding};
use millwright_core::settings::Settings;

use super::compatibility::{Compatibility, OriginalFlags};
use super::mark;
use crate::command::flags::{DriverFlags, RolloutFlags, TreeFlags, WhyFlags};
use crate::driver::NamedEndpoint;
use crate::telemetry::export::Collector;
use crate::telemetry::{DEFAULT_FILTER, LogFormat};

/// Machines for Kubernetes: keeps the VMs that MachineDeployments, MachineSets and Machines ask for, through drivers in
/// processes of their own.
#[derive(Debug, Parser)]
#[command(name = "millwright", version, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controller manager
    ///
    /// Every flag can also be set by an environment variable, which its help names.
    Manager(Box<ManagerFlags>),
    /// Print the CustomResourceDefinitions as YAML
    ///
    /// To install or update them: millwright crds | kubectl apply --server-side -f -
    Crds,
    /// Follow and steer the rollout of a MachineDeployment
    Rollout(RolloutFlags),
    /// Show MachineDeployments, their MachineSets and Machines as a tree
    ///
    /// What nobody controls stands below a line of its own.
    Tree(TreeFlags),
    /// Explain what the manager would do about an object now, and why it does nothing more; act on nothing
    ///
    /// Plans from the objects alone, as a manager that has nothing under way and whose drivers answer. What only the running manager
    /// knows, such as pauses between retries, stands in its log and in the conditions, which are shown too.
    Why(WhyFlags),
    /// Call a driver by hand, with the class and the Secrets of manifests
    ///
    /// Needs no cluster and no manager. VMs are made for the cluster id "by-hand", so that no manager takes them for its own.
    Driver(DriverFlags),
}

/// Flags of `millwright manager`.
#[derive(Debug, Args)]
pub struct ManagerFlags {
    /// Kubeconfig of the control cluster: our kinds, their Secrets, the leader's Lease. "inClusterConfig" is the pod's
    /// service account, which is also the default unless --target-kubeconfig names a file
    #[arg(
        long,
        visible_alias = "control-kubeconfig",
        env = "MILLWRIGHT_KUBECONFIG",
        value_name = "PATH"
    )]
    pub kubeconfig: Option<PathBuf>,

    /// Kubeconfig of the cluster that the nodes join; by default the control cluster. "none": there is no such cluster
    #[arg(long, env = "MILLWRIGHT_TARGET_KUBECONFIG", value_name = "PATH|none")]
    pub target_kubeconfig: Option<PathBuf>,

    /// The namespace of our kinds in the control cluster; no other is looked at
    #[arg(long, env = "MILLWRIGHT_NAMESPACE", default_value = "default", value_name = "NAME")]
    pub namespace: String,

    /// Marks this cluster's VMs at the provider. Two clusters of one provider account need two ids; it must never change
    #[arg(long, env = "MILLWRIGHT_CLUSTER_ID", value_name = "ID")]
    pub cluster_id: String,

    /// The namespace in which the machines were before their objects were restored into --namespace: VMs of this cluster that bear it and the
    /// name and the id of a Machine stay that Machine's. No manager may work in that namespace any more
    #[arg(long, env = "MILLWRIGHT_FORMER_NAMESPACE", value_name = "NAME")]
    pub former_namespace: Option<String>,

    /// A tag by which another controller marked this cluster's VMs, as kubernetes.io/cluster/NAME=1. A VM that bears all of these, and the name of
    /// a Machine, is taken over as that Machine's; one without a Machine is told and left. Repeat the flag for several, 16 at most
    #[arg(long, env = "MILLWRIGHT_LEGACY_MARK", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = mark)]
    pub legacy_mark: Vec<(String, String)>,

    /// Where a driver listens: unix:///PATH, tcp://127.0.0.1:PORT, or https://HOST:PORT with the three flags below. With NAME= no other driver is
    /// taken there. Repeat the flag for several drivers
    #[arg(
        long,
        env = "MILLWRIGHT_DRIVER",
        value_name = "[NAME=]ENDPOINT",
        value_delimiter = ','
    )]
    pub driver: Vec<NamedEndpoint>,

    /// Certificates, as PEM, of the authority that signs those of drivers at https:// endpoints. Read anew for each connection
    #[arg(long, env = "MILLWRIGHT_DRIVER_CA", value_name = "FILE")]
    pub driver_ca: Option<PathBuf>,

    /// The certificate that the manager shows to drivers at https:// endpoints, as PEM with its chain
    #[arg(long, env = "MILLWRIGHT_DRIVER_CERT", value_name = "FILE")]
    pub driver_cert: Option<PathBuf>,

    /// The key of --driver-cert, as PEM
    #[arg(long, env = "MILLWRIGHT_DRIVER_KEY", value_name = "FILE")]
    pub driver_key: Option<PathBuf>,

    /// Let this user's process be a driver behind a socket, beside root's and the manager's own. Repeat the flag for several users
    #[arg(long, env = "MILLWRIGHT_DRIVER_UID", value_name = "UID", value_delimiter = ',')]
    pub driver_uid: Vec<u32>,

    /// Take every *.sock in this directory for a driver, also those that come later
    #[arg(long, env = "MILLWRIGHT_DRIVER_DIR", value_name = "DIR")]
    pub driver_dir: Option<PathBuf>,

    /// How many objects are worked on at once
    #[arg(long, env = "MILLWRIGHT_CONCURRENT_SYNCS", default_value_t = 50, value_name = "N")]
    pub concurrent_syncs: u16,

    /// Most requests a second to each API server; 0: no limit of ours, the server shares itself out
    #[arg(long, env = "MILLWRIGHT_KUBE_API_QPS", default_value_t = 0.0, value_name = "RATE")]
    pub kube_api_qps: f64,

    /// Requests that may come at once before --kube-api-qps holds
    #[arg(long, env = "MILLWRIGHT_KUBE_API_BURST", default_value_t = 30, value_name = "N")]
    pub kube_api_burst: u32,

    /// Time in which a VM must have become a ready node, else its Machine is Failed. A Machine's creationTimeout wins
    #[arg(long, env = "MILLWRIGHT_MACHINE_CREATION_TIMEOUT", default_value = "20m", value_parser = duration, value_name = "DURATION")]
    pub machine_creation_timeout: Duration,

    /// Time for which a node may be unhealthy or gone, else its Machine is Failed and replaced. A Machine's healthTimeout wins
    #[arg(long, env = "MILLWRIGHT_MACHINE_HEALTH_TIMEOUT", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub machine_health_timeout: Duration,

    /// Time in which the agent on a node must have updated it in place, else its Machine is InPlaceUpdateFailed. A Machine's
    /// inPlaceUpdateTimeout wins
    #[arg(long, env = "MILLWRIGHT_MACHINE_INPLACE_UPDATE_TIMEOUT", default_value = "20m", value_parser = duration, value_name = "DURATION")]
    pub machine_inplace_update_timeout: Duration,

    /// How often the provider's VMs are listed, to find those that no Machine owns; 0: never
    #[arg(long, env = "MILLWRIGHT_MACHINE_SAFETY_ORPHAN_VMS_PERIOD", default_value = "15m", value_parser = duration, value_name = "DURATION")]
    pub machine_safety_orphan_vms_period: Duration,

    /// Least age of a VM that is deleted because no Machine owns it, and of a Node that is left of one
    #[arg(long, env = "MILLWRIGHT_ORPHAN_MIN_AGE", default_value = "20m", value_parser = duration, value_name = "DURATION")]
    pub orphan_min_age: Duration,

    /// Name VMs that no Machine owns in the log, in events and in metrics, and delete none
    #[arg(
        long, env = "MILLWRIGHT_ORPHAN_DRY_RUN", default_value_t = false, default_missing_value = "true",
        num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_name = "true|false"
    )]
    pub orphan_dry_run: bool,

    /// How many of the VMs of this cluster may have no Machine, as number or percent, of which two are the least; where there are more, none is deleted
    #[arg(long, env = "MILLWRIGHT_MAX_ORPHANS", default_value = Settings::MAX_ORPHANS, value_parser = bound, value_name = "N|PERCENT")]
    pub max_orphans: IntOrPercent,

    /// Time for which a preserved Machine is kept. A Machine's machinePreserveTimeout wins
    #[arg(long, env = "MILLWRIGHT_MACHINE_PRESERVE_TIMEOUT", default_value = "96h", value_parser = duration, value_name = "DURATION")]
    pub machine_preserve_timeout: Duration,

    /// How many unhealthy Machines of a MachineDeployment are replaced at once, as number or percent of its size; 0: none
    #[arg(long, env = "MILLWRIGHT_MAX_REPLACEMENTS", default_value = "1", value_parser = bound, value_name = "N|PERCENT")]
    pub max_replacements: IntOrPercent,

    /// So many unhealthy Machines of a MachineDeployment have a common cause and are kept: a number, or a percent of those that have joined, of which three are the least. 55% unless --compatibility says otherwise
    #[arg(long, env = "MILLWRIGHT_UNHEALTHY_THRESHOLD", value_parser = bound, value_name = "N|PERCENT")]
    pub unhealthy_threshold: Option<IntOrPercent>,

    /// The same for the Nodes of one zone that are not ready
    #[arg(long, env = "MILLWRIGHT_UNHEALTHY_ZONE_THRESHOLD", value_parser = bound, value_name = "N|PERCENT")]
    pub unhealthy_zone_threshold: Option<IntOrPercent>,

    /// Time in which the pods of a deleted Machine's node may go as their budgets allow, else they are deleted. A Machine's drainTimeout wins
    #[arg(long, env = "MILLWRIGHT_MACHINE_DRAIN_TIMEOUT", default_value = "2h", value_parser = duration, value_name = "DURATION")]
    pub machine_drain_timeout: Duration,

    /// The same as a number of evictions 20 s apart; the sooner end counts, but where a Machine gives its own drainTimeout. A Machine's maxEvictRetries wins
    #[arg(long, env = "MILLWRIGHT_MACHINE_MAX_EVICT_RETRIES", default_value_t = Settings::MAX_EVICT_RETRIES, value_parser = clap::value_parser!(i32).range(0..), value_name = "N")]
    pub machine_max_evict_retries: i32,

    /// Time for which volumes may stay attached to a node whose pods are gone, else its VM is removed all the same
    #[arg(long, env = "MILLWRIGHT_MACHINE_PV_DETACH_TIMEOUT", default_value = "2m", value_parser = duration, value_name = "DURATION")]
    pub machine_pv_detach_timeout: Duration,

    /// Time for which the volumes of an evicted pod may take to be attached to another node before the next pods with volumes are evicted
    #[arg(long, env = "MILLWRIGHT_MACHINE_PV_REATTACH_TIMEOUT", default_value = "90s", value_parser = duration, value_name = "DURATION")]
    pub machine_pv_reattach_timeout: Duration,

    /// Node conditions that make a node unhealthy when they are not False. A Machine's nodeConditions wins
    #[arg(long, env = "MILLWRIGHT_NODE_CONDITIONS", default_value = Settings::NODE_CONDITIONS, value_name = "NAMES")]
    pub node_conditions: String,

    /// Extra groups of bootstrap tokens, separated by commas, each beginning with system:bootstrappers:
    #[arg(
        long,
        env = "MILLWRIGHT_BOOTSTRAP_TOKEN_AUTH_EXTRA_GROUPS",
        default_value = "",
        value_name = "GROUPS"
    )]
    pub bootstrap_token_auth_extra_groups: String,

    /// Pause after a driver said that a resource is exhausted, unless the driver names one. 0 is 10m
    #[arg(long, env = "MILLWRIGHT_RESOURCE_EXHAUSTED_RETRY", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub resource_exhausted_retry: Duration,

    /// While a rollout runs, keep the autoscaler from taking nodes of the old template, by its annotation
    #[arg(
        long, env = "MILLWRIGHT_AUTOSCALER_SCALEDOWN_ANNOTATION_DURING_ROLLOUT", default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_name = "true|false"
    )]
    pub autoscaler_scaledown_annotation_during_rollout: bool,

    /// Act only while holding a Lease, so that several managers can stand by. Turn it off only where there is but one
    #[arg(
        long, env = "MILLWRIGHT_LEADER_ELECT", default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_name = "true|false"
    )]
    pub leader_elect: bool,

    /// Name of the Lease, in --namespace of the control cluster: millwright unless --compatibility says otherwise
    #[arg(long, env = "MILLWRIGHT_LEADER_ELECT_LEASE_NAME", value_name = "NAME")]
    pub leader_elect_lease_name: Option<String>,

    /// Silence of a leader after which another takes over
    #[arg(long, env = "MILLWRIGHT_LEADER_ELECT_LEASE_DURATION", default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_lease_duration: Duration,

    /// Time after its last renewal at which a leader stops by itself; shorter than the lease duration
    #[arg(long, env = "MILLWRIGHT_LEADER_ELECT_RENEW_DEADLINE", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Duration,

    /// Pause between two renewals, or two looks at another's Lease
    #[arg(long, env = "MILLWRIGHT_LEADER_ELECT_RETRY_PERIOD", default_value = "2s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_retry_period: Duration,

    /// Where /metrics, /livez, /readyz and /healthz are served. Port 0 takes a free one, which the log names
    #[arg(
        long,
        env = "MILLWRIGHT_METRICS_ADDR",
        default_value = "127.0.0.1:10258",
        value_name = "ADDR:PORT"
    )]
    pub metrics_addr: SocketAddr,

    /// Where traces go: the URL of an OpenTelemetry collector that takes OTLP over gRPC, such as http://localhost:4317; with
    /// https:// by TLS. Without it there are none. Needs a manager that was built with the feature otlp
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<Collector>,

    /// How log lines are written to stderr: text unless --compatibility says otherwise
    #[arg(long, env = "MILLWRIGHT_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// What is logged: a level, or directives as of RUST_LOG ("info,millwright=debug")
    #[arg(long, env = "MILLWRIGHT_LOG_LEVEL", default_value = DEFAULT_FILTER, hide_default_value = true, value_name = "FILTER")]
    pub log_level: String,

    /// Behave as another manager does, in the points that deploy/reference.md lists. A flag that only that one has implies it
    #[arg(long, env = "MILLWRIGHT_COMPATIBILITY", value_enum, value_name = "NAME")]
    pub compatibility: Option<Compatibility>,

    /// Flags of machine-controller-manager.
    #[command(flatten)]
    pub original: OriginalFlags,
}

/// A number, or a percentage such as 10%.
pub(crate) fn bound(text: &str) -> Result<IntOrPercent, String> {
    let bound = text
        .parse()
        .map_or_else(|_| IntOrPercent::Text(text.to_owned()), IntOrPercent::Int);
    match bound.resolve(100, Rounding::Up) {
        Ok(count) if count >= 0 => Ok(bound),
        Ok(_) => Err(format!("{text:?} is negative")),
        Err(error) => Err(error.to_string()),
    }
}

/// Go's duration text, as the original's flags take it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let signed = GoDuration::from_text(text).get().map_err(|error| error.to_string())?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative"))
}
