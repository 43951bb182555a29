//! The flags of the quick start.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use millwright::driver::Endpoint;
use millwright_core::api::lenient::GoDuration;

/// Millwright's quick start: a Kubernetes API in memory, the manager and a simulated cloud.
///
/// Applies the manifests of deploy/examples, shows machines come up, scales up, switches a VM off and shows it replaced, drains a node
/// whose pods have a budget,
/// rolls a changed template out, undoes that, scales down, and then stays, so that kubectl works beside it. Ctrl-C ends
/// every process.
///
/// The API is on loopback, without TLS: kubectl sends no token to such a server, and so every process of this host may do
/// everything in it. The manager and the simulated cloud show tokens, and may do what their roles say.
#[derive(Clone, Debug, Parser)]
#[command(name = "millwright-dev", version, max_term_width = 120)]
pub struct Args {
    /// End after the last step, with exit code 0, instead of staying
    #[arg(long)]
    pub once: bool,

    /// Use a real kube-apiserver with etcd, as processes of their own: with Go, or their binaries (see README)
    #[arg(long)]
    pub real: bool,

    /// Keep the state of the API and of the simulated cloud in this directory, and go on from it
    ///
    /// What the API answers is synced to disk first, so that a kill -9 does not lose it, and objects keep their uids and
    /// versions. History is not kept: a watch from before a restart is told 410 and lists again. The kubeconfig is kept in the
    /// directory too, so that its path stays the same; the port and the token in it are new after each start. Without this
    /// flag everything is in memory and gone at the end.
    #[arg(long, value_name = "DIR", conflicts_with = "real")]
    pub data: Option<PathBuf>,

    /// Use the provider that you have started there, instead of the simulated cloud: unix:///PATH or tcp://127.0.0.1:PORT
    ///
    /// Steps that need the simulated cloud's console are left out. A provider that does not call itself "virtual" needs
    /// --manifests; without them the quick start says how to write some, and stays.
    #[arg(long, value_name = "ENDPOINT", conflicts_with_all = ["create_delay", "join_delay"])]
    pub driver: Option<Endpoint>,

    /// Apply the YAML files of this directory instead of deploy/examples, and show their first MachineDeployment
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,

    /// Machines join no cluster: one is as it should be when its VM is there, in the phase Available
    #[arg(long, requires = "driver")]
    pub no_nodes: bool,

    /// Machines to begin and to end with; in between there are two more
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub replicas: u16,

    /// How long a simulated VM takes from accepted to running
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration)]
    pub create_delay: Duration,

    /// How long a running VM takes until its node registers
    #[arg(long, default_value = "700ms", value_name = "DURATION", value_parser = duration)]
    pub join_delay: Duration,

    /// How long each step may take before the quick start gives up; real VMs may need minutes [default: 60s, and twice the two
    /// delays]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    patience: Option<Duration>,
}

/// For each step, beside the delays of its VMs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Args {
    /// How long each step may take.
    pub fn patience(&self) -> Duration {
        self.patience_for(2)
    }

    /// How long a step may take in which so many machines come one after the other, as they do where a rollout has room for one.
    pub fn patience_for(&self, machines: u32) -> Duration {
        let delays = (self.create_delay + self.join_delay) * machines.max(2);
        self.patience.unwrap_or(PATIENCE + delays)
    }
}

/// The machines of the second step.
pub const MORE: u16 = 2;

fn duration(text: &str) -> Result<Duration, String> {
    let signed = GoDuration::from_text(text).get().map_err(|error| error.to_string())?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(args: &[&str]) -> String {
        let args = std::iter::once("millwright-dev").chain(args.iter().copied());
        Args::try_parse_from(args).unwrap_err().to_string()
    }

    #[test]
    fn patience_is_what_was_asked_for_and_by_default_has_room_for_the_delays() {
        let patience = |args: &[&str]| {
            let args = std::iter::once("millwright-dev").chain(args.iter().copied());
            Args::try_parse_from(args).unwrap().patience().as_secs()
        };
        assert_eq!(patience(&["--patience=8s"]), 8);
        assert_eq!(patience(&["--create-delay=100s", "--join-delay=20s"]), 300);
        let slow = Args::try_parse_from(["millwright-dev", "--create-delay=100s", "--join-delay=20s"]).unwrap();
        assert_eq!(slow.patience_for(5).as_secs(), 660);
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        assert!(refused(&["--real", "--data", "x"]).contains("cannot be used with"));
        assert!(refused(&["--driver", "unix:///x", "--join-delay", "2s"]).contains("cannot be used with"));
        assert!(refused(&["--no-nodes"]).contains("--driver"));
        assert!(refused(&["--driver", "x"]).contains("unix:///PATH"));
        assert!(refused(&["--patience=-1s"]).contains("negative"));
        assert!(refused(&["--replicas", "0"]).contains("1..=200"));
    }

    #[test]
    fn the_delays_have_defaults_beside_a_driver_of_ones_own() {
        let args = Args::try_parse_from(["millwright-dev", "--driver", "unix:///x"]).unwrap();
        assert_eq!(args.join_delay, Duration::from_millis(700));
    }
}
