//! The words of the commands for people. Checks the form of each alone.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::failure::Failure;
use super::subject;
use crate::config::{duration, is_cluster_id, mark};
use crate::driver::Endpoint;

/// Where help lists the flags of [`Reach`], apart from what the command is about.
const CLUSTER: &str = "Which cluster";

/// Which cluster and namespace.
#[derive(Clone, Debug, Default, Args)]
pub struct Reach {
    /// Kubeconfig; by default that of KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "PATH", help_heading = CLUSTER)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; by default the current one
    #[arg(long, global = true, value_name = "NAME", help_heading = CLUSTER)]
    pub context: Option<String>,

    /// Namespace; by default the context's
    #[arg(short, long, global = true, value_name = "NAME", help_heading = CLUSTER)]
    pub namespace: Option<String>,
}

/// Which deployment.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// NAME, machinedeployment/NAME or mcd/NAME
    #[arg(required = true, num_args = 1..=2, value_name = "MACHINEDEPLOYMENT")]
    words: Vec<String>,
}

impl Target {
    /// The name that was meant.
    pub fn name(&self) -> Result<String, Failure> {
        Ok(subject::name(&self.words)?)
    }
}

/// Flags of `rollout`.
#[derive(Debug, Args)]
pub struct RolloutFlags {
    /// Which cluster.
    #[command(flatten)]
    pub reach: Reach,
    /// What about it.
    #[command(subcommand)]
    pub command: RolloutCommand,
}

/// What about a rollout.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Tell how the rollout stands, a line for each change, until it is complete
    ///
    /// Ends with exit code 0 when every machine is of the present template and available, and none of an earlier template is left;
    /// with 1 when the controller has given up, when --timeout has passed, or when the MachineDeployment cannot be read.
    Status(StatusFlags),
    /// Show the revisions that one can go back to
    History(HistoryFlags),
    /// Go back to the template of an earlier revision
    Undo(UndoFlags),
    /// Halt: templates that change from now on are not rolled out, and a rollout under way stands still
    Pause(Target),
    /// Go on after a pause
    Resume(Target),
    /// Replace every machine, in the way that the strategy says
    ///
    /// Writes the time into the template's annotation machine.sapcloud.io/restartedAt, which makes it another template.
    Restart(Target),
}

/// Flags of `rollout status`.
#[derive(Debug, Args)]
pub struct StatusFlags {
    /// Which.
    #[command(flatten)]
    pub target: Target,

    /// Follow the rollout to its end; with false, tell how it stands now
    #[arg(
        short, long, default_value_t = true, default_missing_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "true|false"
    )]
    pub watch: bool,

    /// How long to follow it; 0s for as long as it takes
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,

    /// Fail unless this is the revision that runs; 0 for whichever
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..), value_name = "N")]
    pub revision: i64,
}

/// Flags of `rollout history`.
#[derive(Debug, Args)]
pub struct HistoryFlags {
    /// Which.
    #[command(flatten)]
    pub target: Target,

    /// Show the template of this revision, as YAML
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), value_name = "N")]
    pub revision: Option<i64>,

    /// More columns
    #[arg(short, long, value_enum, value_name = "FORMAT", conflicts_with = "revision")]
    pub output: Option<Format>,
}

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// With all columns.
    Wide,
}

/// Flags of `rollout undo`.
#[derive(Debug, Args)]
pub struct UndoFlags {
    /// Which.
    #[command(flatten)]
    pub target: Target,

    /// The revision to go back to; 0 is the one before the present
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..), value_name = "N")]
    pub to_revision: i64,

    /// Change nothing, and show the template that would come back; without a value it is server
    #[arg(
        long, value_enum, default_value_t = DryRun::None, default_missing_value = "server", num_args = 0..=1,
        require_equals = true, value_name = "none|server|client"
    )]
    pub dry_run: DryRun,
}

/// Whether an order is only tried, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// It is carried out.
    None,
    /// The API server checks it and stores nothing.
    Server,
    /// It is judged here by what was read, and not sent.
    Client,
}

/// Flags of `tree`.
#[derive(Debug, Args)]
pub struct TreeFlags {
    /// Which cluster.
    #[command(flatten)]
    pub reach: Reach,

    /// NAME, machinedeployment/NAME or mcd/NAME; by default all
    #[arg(num_args = 0..=2, value_name = "MACHINEDEPLOYMENT")]
    pub words: Vec<String>,

    /// All namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "words"])]
    pub all_namespaces: bool,
}

/// Flags of `why`.
#[derive(Debug, Args)]
pub struct WhyFlags {
    /// Which cluster.
    #[command(flatten)]
    pub reach: Reach,

    /// KIND/NAME, of a machinedeployment, machineset, machine or machineclass, or their short names
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub words: Vec<String>,

    /// Kubeconfig of the cluster that the nodes join; by default the same cluster
    #[arg(long, value_name = "PATH", help_heading = CLUSTER)]
    pub target_kubeconfig: Option<PathBuf>,
}

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Back to a revision; 0 for the previous.
    Undo(i64),
    /// No rollout moves.
    Pause,
    /// Rollouts move.
    Resume,
    /// All machines anew.
    Restart,
}

/// Where help lists the flags of [`DriverReach`], apart from what the call is about.
const CALL: &str = "Every call";

/// Flags of `driver`.
#[derive(Debug, Args)]
pub struct DriverFlags {
    /// Which driver, with what.
    #[command(flatten)]
    pub reach: DriverReach,
    /// Which call.
    #[command(subcommand)]
    pub command: DriverCommand,
}

/// Which driver, and what every call to it sends.
#[derive(Debug, Args)]
pub struct DriverReach {
    /// Where the driver listens: unix:///PATH, tcp://127.0.0.1:PORT, or https://HOST:PORT with the three flags below
    #[arg(long, global = true, env = "MILLWRIGHT_DRIVER", value_name = "ENDPOINT", help_heading = CALL)]
    pub endpoint: Option<Endpoint>,

    /// Certificates, as PEM, of the authority that signs the driver's
    #[arg(long, global = true, env = "MILLWRIGHT_DRIVER_CA", value_name = "FILE", help_heading = CALL)]
    pub driver_ca: Option<PathBuf>,

    /// The certificate that is shown to the driver, as PEM with its chain
    #[arg(long, global = true, env = "MILLWRIGHT_DRIVER_CERT", value_name = "FILE", help_heading = CALL)]
    pub driver_cert: Option<PathBuf>,

    /// The key of --driver-cert, as PEM
    #[arg(long, global = true, env = "MILLWRIGHT_DRIVER_KEY", value_name = "FILE", help_heading = CALL)]
    pub driver_key: Option<PathBuf>,

    /// A tag by which another controller marked the cluster's VMs: as --legacy-mark of the manager
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = mark, help_heading = CALL)]
    pub legacy_mark: Vec<(String, String)>,

    /// Let this user's process be the driver behind a socket, beside root's and one's own
    #[arg(long, global = true, value_name = "UID", help_heading = CALL)]
    pub driver_uid: Vec<u32>,

    /// Manifests with the MachineClass and its Secrets, as YAML or JSON: files, folders, or - for the standard input. Repeat the flag for several
    #[arg(short, long, global = true, value_name = "FILE", help_heading = CALL)]
    pub filename: Vec<PathBuf>,

    /// Which MachineClass, where the files have several
    #[arg(long, global = true, value_name = "NAME", help_heading = CALL)]
    pub class: Option<String>,

    /// Whose VMs. With a manager's own --cluster-id its VMs are seen, and can be deleted
    #[arg(long, global = true, default_value = "by-hand", value_parser = cluster_id, value_name = "ID", help_heading = CALL)]
    pub cluster_id: String,

    /// How long to wait for an answer
    #[arg(long, global = true, default_value = "2m", value_parser = duration, value_name = "DURATION", help_heading = CALL)]
    pub timeout: Duration,

    /// How to print the answer
    #[arg(short, long, global = true, value_enum, default_value = "table", value_name = "FORMAT", help_heading = CALL)]
    pub output: Shape,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For people
    Table,
    /// The answer's message as JSON, a line each
    Json,
    /// The answer's message as YAML
    Yaml,
}

/// Which machine.
#[derive(Debug, Args)]
pub struct Machine {
    /// The machine's name
    #[arg(value_parser = subject::machine)]
    pub name: String,

    /// The machine's uid, by which its VM is known; by default one made of cluster id, namespace and name
    #[arg(long, value_parser = uid, value_name = "UID")]
    pub uid: Option<String>,
}

/// A cluster id that drivers take.
fn cluster_id(text: &str) -> Result<String, String> {
    match is_cluster_id(text) {
        true => Ok(text.to_owned()),
        false => Err("a cluster id has 1 to 63 characters of a-z, 0-9 and -".to_owned()),
    }
}

/// A uid that drivers take. Empty: that of a VM that bears none.
fn uid(text: &str) -> Result<String, String> {
    let is_digit = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    match text.is_empty() || text.len() == 36 && text.bytes().enumerate().all(is_digit) {
        true => Ok(text.to_owned()),
        false => Err("a uid is a UUID, as 0b5c3f1e-6f0a-4c57-9d3e-2f6f3d1c9a01".to_owned()),
    }
}

/// What is deleted, and how far.
#[derive(Debug, Args)]
pub struct Deletion {
    /// Which.
    #[command(flatten)]
    pub machine: Machine,

    /// The VM's id, as a hint
    #[arg(long, default_value = "", value_name = "ID")]
    pub provider_id: String,

    /// Ask again until nothing is left; with false, once
    #[arg(
        long, default_value_t = true, default_missing_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "true|false"
    )]
    pub wait: bool,
}

/// A call of the Driver API.
#[derive(Debug, Subcommand)]
pub enum DriverCommand {
    /// Who the driver is and what it can do (GetDriverInfo)
    Info,
    /// Check a class (ValidateMachineClass); exit code 1 where no machine can be made of it
    Validate {
        /// Let the driver ask its provider, too
        #[arg(long)]
        live: bool,
    },
    /// JSON Schema of the providerSpec, the keys that the Secret needs, and examples (GetMachineClassSchema)
    Schema,
    /// What a node of a class would offer (GetNodeTemplate)
    Template,
    /// Make a VM, or find the one that is there (CreateMachine)
    Create {
        /// Which.
        #[command(flatten)]
        machine: Machine,

        /// Boot configuration; by default the key userData of the class's Secret
        #[arg(long, value_name = "FILE")]
        user_data: Option<PathBuf>,
    },
    /// Show the VM of a machine (GetMachineStatus)
    Status {
        /// Which.
        #[command(flatten)]
        machine: Machine,

        /// The VM's id, as a hint
        #[arg(long, default_value = "", value_name = "ID")]
        provider_id: String,
    },
    /// Remove a machine's VM and all that was made for it (DeleteMachine)
    Delete(Deletion),
    /// List the VMs that the class's credentials and place reach (ListMachines)
    List,
    /// Print the VMs, then each change of one, until interrupted (WatchMachines)
    Watch,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::config::Cli;

    /// What a driver would refuse is refused before it is sent (SPEC.md, GEN-38).
    #[test]
    fn a_call_of_a_driver_names_a_machine_that_a_driver_takes() {
        let parse = |words: &str| Cli::try_parse_from(format!("millwright driver {words}").split(' '));
        for call in ["create", "status", "delete"] {
            let refused = parse(&format!("{call} BAD_name")).unwrap_err().to_string();
            assert!(
                refused.contains("\"BAD_name\" is not a name that Kubernetes takes"),
                "{refused}"
            );
            assert!(parse(&format!("{call} m-1.a")).is_ok());
            let refused = parse(&format!("{call} m --uid abc")).unwrap_err().to_string();
            assert!(refused.contains("a uid is a UUID"), "{refused}");
            assert!(parse(&format!("{call} m --uid 0B5c3f1e-6f0a-4c57-9d3e-2f6f3d1c9a01")).is_ok());
        }
        assert!(parse("delete m --uid= --provider-id p:///1").is_ok(), "DEL-7");
        let refused = parse("list --cluster-id My_Cluster").unwrap_err().to_string();
        assert!(refused.contains("a cluster id has 1 to 63 characters"), "{refused}");
    }
}
