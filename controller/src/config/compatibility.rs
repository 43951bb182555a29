//! `--compatibility original`: this manager in the place of gardener's machine-controller-manager, with that one's command line.
//!
//! Flags of its two programs that mean nothing here by themselves are taken all the same, hidden from the help. One of them is reason enough
//! to behave as the original does where the two differ, and the log says so.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, ValueEnum};
use millwright_core::api::lenient::IntOrPercent;
use millwright_core::settings::Settings;

use super::flags::ManagerFlags;
use crate::telemetry::{DEFAULT_FILTER, LogFormat};

/// Whose place this manager takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compatibility {
    /// gardener's machine-controller-manager.
    Original,
}

/// What is otherwise in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// `minReadySeconds` of MachineDeployments.
    MinReadySeconds,
    /// What keeps unhealthy Machines that may have a common cause.
    CommonFailures,
    /// The port of its second program.
    SecondPort,
    /// The form of log lines.
    LogLines,
    /// The Lease of the election.
    Lease,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::MinReadySeconds,
        Self::CommonFailures,
        Self::SecondPort,
        Self::LogLines,
        Self::Lease,
    ];

    /// What it is about, how it is otherwise, and how it is in the original's place.
    pub fn told(self) -> [&'static str; 3] {
        match self {
            Self::MinReadySeconds => [
                "`spec.minReadySeconds` of a MachineDeployment",
                "a Machine is available after it has been ready for so long",
                "stored, and not looked at: a Machine is available once it is ready. Gardener writes 500 into each",
            ],
            Self::CommonFailures => [
                "`--unhealthy-threshold`, `--unhealthy-zone-threshold`",
                "55%: unhealthy Machines are kept while so many have, or a zone has, a common cause",
                "no limit, unless the flag is given",
            ],
            Self::SecondPort => [
                "Port of metrics and health",
                "the one of `--metrics-addr`",
                "10259 beside 10258: both serve the same",
            ],
            Self::LogLines => [
                "`--log-format`",
                "text",
                "klog, as `I1127 10:15:00.123456       1 dispatch.rs:42] words field=\"value\"`, unless the flag is given",
            ],
            Self::Lease => [
                "`--leader-elect-lease-name`",
                "millwright; the leader also holds both Leases of the original, so that an original which is started stands by",
                "machine-controller-manager, which the original's role allows, unless the flag is given; the leader also holds machine-controller",
            ],
        }
    }
}

/// Our Lease, and the one of the original's that its manager is elected by.
const LEASES: [&str; 2] = ["millwright", "machine-controller-manager"];
/// The ports of its two programs.
const PORTS: [u16; 2] = [10258, 10259];
/// From which `--v` on it tells of each step.
const VERBOSE: i32 = 4;
/// What is logged then.
const VERBOSE_FILTER: &str = ",millwright=debug";
/// More than all Machines are never unhealthy.
const NO_THRESHOLD: &str = "101%";

/// Declares flags that only the original has, each with what takes its place.
macro_rules! original_flags {
    ($($(#[$arg:meta])* $field:ident: $type:ty => $name:literal, $instead:literal;)*) => {
        /// Flags that only the original has. What they say means nothing here, but for the first five.
        #[derive(Debug, Default, Args)]
        pub struct OriginalFlags {
            $(
                #[doc = $instead]
                #[arg(long = $name, hide = true)]
                $(#[$arg])*
                pub(super) $field: Option<$type>,
            )*
        }

        impl OriginalFlags {
            /// Those that were given, each with what takes its place.
            fn given(&self) -> Vec<(&'static str, &'static str)> {
                let all = [$((self.$field.is_some(), $name, $instead)),*];
                all.into_iter()
                    .filter(|(is_given, ..)| *is_given)
                    .map(|(_, name, instead)| (name, instead))
                    .collect()
            }
        }
    };
}

original_flags! {
    port: u16 => "port", "it is the port of --metrics-addr";
    address: IpAddr => "address", "it is the address of --metrics-addr";
    #[arg(short = 'v')]
    v: i32 => "v", "4 and more is --log-level info,millwright=debug";
    logging_format: LogFormat => "logging-format", "json is --log-format json";
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: String => "logtostderr", "logs always go to stderr";
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    alsologtostderr: String => "alsologtostderr", "logs always go to stderr";
    vmodule: String => "vmodule", "name modules in --log-level, as in --log-level info,millwright=debug";
    cloud_provider: String => "cloud-provider", "drivers are processes of their own, named by --driver or --driver-dir";
    controller_start_interval: String => "controller-start-interval", "it had no effect there either";
    kube_api_content_type: String => "kube-api-content-type", "it had no effect there either";
    min_resync_period: String => "min-resync-period", "everything is looked at again every ten minutes, without a request";
    statuscheck_timeout: String => "machine-safety-apiserver-statuscheck-timeout", "timeouts count only while both clusters can be seen";
    statuscheck_period: String => "machine-safety-apiserver-statuscheck-period", "timeouts count only while both clusters can be seen";
    overshooting_period: String => "machine-safety-overshooting-period", "a set is never larger than it may be";
    safety_up: String => "safety-up", "a set is never larger than it may be";
    safety_down: String => "safety-down", "a set is never larger than it may be";
    resource_lock: String => "leader-elect-resource-lock", "the lock is always a Lease";
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    profiling: String => "profiling", "use a profiler of the system, for example perf";
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    contention_profiling: String => "contention-profiling", "use a profiler of the system, for example perf";
}

impl ManagerFlags {
    /// Puts what the original's flags say into ours. Gives what is to be said of that.
    pub fn translate(&mut self) -> Vec<String> {
        let given = self.original.given();
        let mut told: Vec<String> = Vec::new();
        if let Some((first, _)) = given.first()
            && self.compatibility.is_none()
        {
            self.compatibility = Some(Compatibility::Original);
            told.push(format!(
                "--{first} is a flag of machine-controller-manager: --compatibility original is implied"
            ));
        }
        told.extend(
            given
                .iter()
                .map(|(name, instead)| format!("--{name} is machine-controller-manager's: {instead}")),
        );
        let Self { original, .. } = self;
        let ip = original.address.unwrap_or(self.metrics_addr.ip());
        let port = original.port.unwrap_or(self.metrics_addr.port());
        self.metrics_addr = SocketAddr::new(ip, port);
        if original.v.is_some_and(|v| v >= VERBOSE) && self.log_level == DEFAULT_FILTER {
            self.log_level.push_str(VERBOSE_FILTER);
        }
        // Its "text" is klog's.
        let json = original.logging_format.filter(|format| *format == LogFormat::Json);
        self.log_format = self.log_format.or(json);
        if self.differs(Difference::LogLines) {
            self.log_format.get_or_insert(LogFormat::Klog);
        }
        told
    }

    /// Whether the original's way holds. The argument names the row of the documented table, so that no switch is without one; all of
    /// them are switched together.
    fn differs(&self, _: Difference) -> bool {
        self.compatibility == Some(Compatibility::Original)
    }

    /// The threshold, where none was given.
    pub(super) fn threshold(&self, given: Option<&IntOrPercent>) -> IntOrPercent {
        let default = match self.differs(Difference::CommonFailures) {
            true => NO_THRESHOLD,
            false => Settings::UNHEALTHY_THRESHOLD,
        };
        given.cloned().unwrap_or_else(|| IntOrPercent::Text(default.to_owned()))
    }

    /// Whether `minReadySeconds` of MachineDeployments counts.
    pub(super) fn heeds_min_ready(&self) -> bool {
        !self.differs(Difference::MinReadySeconds)
    }

    /// The name of the Lease.
    pub(super) fn lease_name(&self) -> String {
        let [ours, originals] = LEASES;
        let default = match self.differs(Difference::Lease) {
            true => originals,
            false => ours,
        };
        let given = self.leader_elect_lease_name.clone();
        given.unwrap_or_else(|| default.to_owned())
    }

    /// Where metrics and health are served.
    pub(super) fn metrics_addrs(&self) -> Vec<SocketAddr> {
        let first = self.metrics_addr;
        let [one, other] = PORTS;
        let has_second = first.port() == one && self.differs(Difference::SecondPort);
        let second = has_second.then(|| SocketAddr::new(first.ip(), other));
        [first].into_iter().chain(second).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::config::{Cli, Command, Config};

    fn flags(words: &str) -> (ManagerFlags, Vec<String>) {
        let all = format!("millwright manager --cluster-id c --driver unix:///d.sock {words}");
        let cli = Cli::try_parse_from(all.split_whitespace()).unwrap_or_else(|error| panic!("{error}"));
        let Command::Manager(mut flags) = cli.command else {
            panic!("it is the manager's command line");
        };
        let told = flags.translate();
        (*flags, told)
    }

    fn config(words: &str) -> Config {
        flags(words).0.check().unwrap()
    }

    #[test]
    fn each_flag_of_the_original_is_taken() {
        let command = Cli::command();
        let manager = command.find_subcommand("manager").unwrap();
        for flag in ALL {
            let is_it = |argument: &clap::Arg| {
                let aliases = argument.get_all_aliases().unwrap_or_default();
                argument.get_long() == Some(flag) || aliases.contains(&flag)
            };
            assert!(manager.get_arguments().any(is_it), "--{flag}");
        }
    }

    /// As Gardener deploys it.
    #[test]
    fn a_command_line_of_the_original_is_understood_and_implies_its_ways() {
        let words = "--control-kubeconfig=inClusterConfig --machine-creation-timeout=20m --machine-drain-timeout=2h \
            --machine-health-timeout=10m --machine-safety-apiserver-statuscheck-timeout=30s \
            --machine-safety-apiserver-statuscheck-period=1m --machine-safety-orphan-vms-period=30m \
            --machine-safety-overshooting-period=1m --namespace=shoot --port=10258 --safety-up=2 --safety-down=1 \
            --target-kubeconfig=/var/run/kubeconfig -v=4 --profiling --logging-format=text";
        let (flags, told) = flags(words);
        assert!(told[0].contains("--compatibility original is implied"), "{told:?}");
        assert!(told.iter().any(|line| line.contains("--safety-up")), "{told:?}");
        assert_eq!(flags.log_format, Some(LogFormat::Klog));
        assert!(flags.log_level.ends_with("millwright=debug"), "{}", flags.log_level);
        let config = flags.check().unwrap();
        let ports: Vec<u16> = config.metrics_addrs.iter().map(SocketAddr::port).collect();
        assert_eq!(ports, PORTS);
        assert_eq!(
            config.settings.unhealthy_threshold,
            IntOrPercent::Text("101%".to_owned())
        );
        assert!(!config.settings.heeds_min_ready);
        let election = config.election.unwrap();
        assert_eq!(election.lease_name, "machine-controller-manager");
    }

    #[test]
    fn the_command_line_of_the_example_in_the_originals_place_is_understood() {
        let example = include_str!("../../../deploy/in-place/deployment.yaml");
        let example: serde_json::Value = serde_saphyr::from_str(example).unwrap();
        let args = example.pointer("/spec/template/spec/containers/0/args").unwrap();
        let args: Vec<String> = serde_json::from_value(args.clone()).unwrap();
        let drivers = std::env::temp_dir().display().to_string();
        let args = args.iter().map(|arg| {
            let arg = arg.replace("$(POD_NAMESPACE)", "shoot");
            arg.replace("/run/drivers", &drivers)
        });
        let words = ["millwright", "manager"].map(str::to_owned).into_iter().chain(args);
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let Command::Manager(mut flags) = cli.command else {
            panic!("it is the manager's command line");
        };
        flags.translate();
        let config = flags.check().unwrap();
        assert_eq!(config.namespace, "shoot");
        assert_eq!(config.metrics_addrs.len(), 2);
        assert_eq!(config.election.unwrap().lease_name, "machine-controller-manager");
    }

    #[test]
    fn without_it_nothing_differs_and_with_it_what_is_given_holds() {
        let ours = config("");
        assert_eq!(ours.settings.unhealthy_threshold, IntOrPercent::Text("55%".to_owned()));
        assert!(ours.settings.heeds_min_ready);
        assert_eq!(ours.metrics_addrs.len(), 1);
        assert_eq!(ours.election.unwrap().lease_name, "millwright");
        let (given, told) =
            flags("--compatibility original --unhealthy-threshold 40% --log-format json --metrics-addr 127.0.0.1:0");
        assert_eq!((given.log_format, told), (Some(LogFormat::Json), Vec::new()));
        let config = given.check().unwrap();
        assert_eq!(
            config.settings.unhealthy_threshold,
            IntOrPercent::Text("40%".to_owned())
        );
        assert_eq!(
            config.settings.unhealthy_zone_threshold,
            IntOrPercent::Text("101%".to_owned())
        );
        assert_eq!(config.metrics_addrs.len(), 1);
    }

    /// Every flag of the original's two programs.
    const ALL: [&str; 40] = [
        "namespace",
        "port",
        "address",
        "concurrent-syncs",
        "min-resync-period",
        "kube-api-qps",
        "kube-api-burst",
        "kube-api-content-type",
        "target-kubeconfig",
        "control-kubeconfig",
        "cloud-provider",
        "controller-start-interval",
        "machine-creation-timeout",
        "machine-health-timeout",
        "machine-drain-timeout",
        "machine-inplace-update-timeout",
        "machine-max-evict-retries",
        "machine-pv-detach-timeout",
        "machine-pv-reattach-timeout",
        "machine-preserve-timeout",
        "machine-safety-apiserver-statuscheck-timeout",
        "machine-safety-apiserver-statuscheck-period",
        "machine-safety-orphan-vms-period",
        "machine-safety-overshooting-period",
        "safety-up",
        "safety-down",
        "node-conditions",
        "bootstrap-token-auth-extra-groups",
        "resource-exhausted-retry",
        "autoscaler-scaledown-annotation-during-rollout",
        "profiling",
        "contention-profiling",
        "leader-elect",
        "leader-elect-lease-duration",
        "leader-elect-renew-deadline",
        "leader-elect-retry-period",
        "leader-elect-resource-lock",
        "v",
        "vmodule",
        "logging-format",
    ];
}
