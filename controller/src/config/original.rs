//! Flags of gardener's machine-controller-manager that this manager does not have: what takes the place of each, for whoever brings a
//! command line along. Decides nothing: a flag that is not ours is an error either way.
//!
//! Source: `spec/machine.md` §8.3, `spec/machineset.md` §11.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flag and what to do instead.
const REPLACED: &[(&str, &str)] = &[
    ("port", "give address and port as --metrics-addr ADDRESS:PORT"),
    ("address", "give address and port as --metrics-addr ADDRESS:PORT"),
    ("v", "say --log-level debug for more, --log-level warn for less"),
    (
        "vmodule",
        "name modules in --log-level, as in --log-level info,millwright=debug",
    ),
    ("logging-format", "say --log-format json or text"),
    ("logtostderr", "leave it out: logs always go to stderr"),
    ("alsologtostderr", "leave it out: logs always go to stderr"),
    (
        "cloud-provider",
        "leave it out: drivers are processes of their own, named by --driver or --driver-dir",
    ),
    (
        "controller-start-interval",
        "leave it out: it had no effect there either",
    ),
    ("kube-api-content-type", "leave it out: it had no effect there either"),
    (
        "min-resync-period",
        "leave it out: everything is looked at again every ten minutes, without a request",
    ),
    (
        "machine-safety-apiserver-statuscheck-timeout",
        "leave it out: timeouts count only while both clusters can be seen",
    ),
    (
        "machine-safety-apiserver-statuscheck-period",
        "leave it out: timeouts count only while both clusters can be seen",
    ),
    (
        "machine-safety-overshooting-period",
        "leave it out: a set is never larger than it may be, and one that is found so makes no more machines",
    ),
    (
        "safety-up",
        "leave it out: a set is never larger than it may be, and one that is found so makes no more machines",
    ),
    (
        "safety-down",
        "leave it out: a set is never larger than it may be, and one that is found so makes no more machines",
    ),
    ("leader-elect-resource-lock", "leave it out: the lock is always a Lease"),
    (
        "profiling",
        "leave it out: use a profiler of the system, for example perf",
    ),
];

/// Adds to the error of a flag that only the original has what takes its place.
pub fn advise(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let Some(advice) = advice(argument) else { return error };
    let told = format!("this flag of machine-controller-manager has no meaning here; {advice}");
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![told.into()]));
    error
}

fn advice(argument: &str) -> Option<&'static str> {
    let name = argument.trim_start_matches('-');
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let of = |wanted: &str| {
        REPLACED
            .iter()
            .find(|(flag, _)| *flag == wanted)
            .map(|(_, advice)| *advice)
    };
    match name {
        "contention-profiling" => of("profiling"),
        name => of(name),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::config::Cli;

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

    fn is_ours(flag: &str) -> bool {
        let command = Cli::command();
        let manager = command.find_subcommand("manager").unwrap();
        let is_it = |argument: &clap::Arg| {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            argument.get_long() == Some(flag) || aliases.contains(&flag)
        };
        manager.get_arguments().any(is_it)
    }

    #[test]
    fn each_flag_of_the_original_is_ours_or_told_what_takes_its_place() {
        for flag in ALL {
            let told = advice(&format!("--{flag}=x")).is_some();
            assert_ne!(is_ours(flag), told, "--{flag}");
        }
    }

    #[test]
    fn the_error_of_a_flag_that_is_not_ours_says_what_to_do() {
        let error = Cli::command()
            .try_get_matches_from(["millwright", "manager", "--min-resync-period=12h"])
            .unwrap_err();
        let told = advise(error).to_string();
        assert!(
            told.contains("--min-resync-period") && told.contains("every ten minutes"),
            "{told}"
        );
        let other = Cli::command()
            .try_get_matches_from(["millwright", "manager", "--nmespace=x"])
            .unwrap_err();
        assert!(advise(other).to_string().contains("--namespace"));
    }
}
