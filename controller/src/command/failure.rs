//! Why a command ends without what was asked for, in words that say what to do, and its exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use jiff::SignedDuration;
use millwright_core::rollout;

use super::subject::BadSubject;
use crate::kube::trouble::Trouble;

/// Why a command ends.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The words cannot be understood.
    #[error(transparent)]
    Subject(#[from] BadSubject),
    /// No cluster is named anywhere.
    #[error("there is no kubeconfig: give --kubeconfig PATH, or set KUBECONFIG, or put one at ~/.kube/config")]
    NoKubeconfig,
    /// The file cannot be used.
    #[error("kubeconfig {}: {reason}", path.display())]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    Unusable(String),
    /// The kubeconfig has no such context.
    #[error("the kubeconfig has no context {wanted:?}; it has {}", listed(.there))]
    NoContext {
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: Vec<String>,
    },
    /// The kubeconfig says not which cluster.
    #[error("the kubeconfig has no current context: give --context; it has {}", listed(.0))]
    NoCurrentContext(Vec<String>),
    /// A request failed.
    #[error("{}", asked(.what, .server, .trouble))]
    Request {
        /// What was asked for: `machinedeployment "x" in namespace "y"`.
        what: String,
        /// Of whom.
        server: String,
        /// What came instead.
        trouble: Trouble,
    },
    /// The order makes no sense.
    #[error("machinedeployment {name:?}: {refusal}")]
    Refused {
        /// Of which deployment.
        name: String,
        /// Why.
        refusal: String,
    },
    /// The rollout will not get there.
    #[error("machinedeployment {name:?}: {reason}")]
    Rollout {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// Somebody changes the object all the time.
    #[error("machinedeployment {0:?} was changed by somebody else at every try: try again")]
    Contended(String),
    /// Whoever reads what we print has gone, as in `| head`.
    #[error("nobody reads the output any more")]
    ReaderGone,
    /// What we print cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
    /// No driver is named.
    #[error("no driver is named: say where it listens, as in --endpoint unix:///run/drivers/virtual.sock")]
    NoEndpoint,
    /// A file that does not say what a driver must be sent, or an answer that finds faults in it.
    #[error("{0}")]
    Manifest(String),
    /// A driver's call failed.
    #[error("{method}: {said}")]
    Driver {
        /// Which.
        method: &'static str,
        /// Code, reason and words.
        said: String,
        /// When the driver wants to be asked again.
        retry_after: Option<SignedDuration>,
    },
    /// A template that is no YAML.
    #[error("the template cannot be written as YAML: {0}")]
    Yaml(String),
}

impl Failure {
    /// A request that failed.
    pub fn request(what: &str, server: &str, trouble: Trouble) -> Self {
        Self::Request {
            what: what.to_owned(),
            server: server.to_owned(),
            trouble,
        }
    }

    /// An order that makes no sense; `hint` says how to get on.
    pub fn refused(name: &str, refusal: &rollout::Refusal, hint: Option<String>) -> Self {
        let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
        Self::Refused {
            name: name.to_owned(),
            refusal: format!("{refusal}{hint}"),
        }
    }

    /// Prints it and gives the exit code: 2 for words that cannot be understood, as of the parser, else 1.
    pub fn told(&self) -> ExitCode {
        match self {
            // The reader has seen enough, which is no failure of ours.
            Self::ReaderGone => return ExitCode::SUCCESS,
            other => eprintln!("error: {other}"),
        }
        match self {
            Self::Subject(_) | Self::NoEndpoint => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

fn asked(what: &str, server: &str, trouble: &Trouble) -> String {
    match trouble {
        Trouble::NotFound => format!("{what} not found"),
        Trouble::NoKind => format!(
            "the API server at {server} does not know the kinds of machine.sapcloud.io: install them with \
             `millwright crds | kubectl apply --server-side -f -`"
        ),
        Trouble::Forbidden(words) => format!("{what}: not allowed: {words}"),
        Trouble::Unauthorized => {
            format!("the API server at {server} does not accept the kubeconfig's credentials (HTTP 401): log in again")
        }
        Trouble::Stale => format!("{what} changed while it was read: try again"),
        Trouble::Refused(words) => format!("{what}: the API server refused: {words}"),
        Trouble::Unreadable => format!("{what}: the answer of {server} cannot be read: is that an API server?"),
        Trouble::Unreachable(words) => format!("the API server at {server} does not answer: {words}"),
    }
}
