//! The flags. Decides the defaults; what they do is said where they are used.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use millwright_provider_sdk::{Endpoint, ServeArgs, parse_duration};

use crate::cloud::Delays;

/// Flags of the provider.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Kubeconfig of the cluster that VMs join as nodes. Without it they join none.
    #[arg(long, value_name = "PATH", env = "MILLWRIGHT_VIRTUAL_TARGET_KUBECONFIG")]
    pub target_kubeconfig: Option<PathBuf>,
    /// File that holds the cloud. Default: beside the socket, with the ending .redb.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// How long a VM takes from accepted to running.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub create_delay: Duration,
    /// How long a running VM takes until its node registers.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub join_delay: Duration,
    /// How long a VM takes to go after its deletion was accepted.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub delete_delay: Duration,
    /// How long lookups and lists do not show a new VM, as the API of a large cloud may not.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub list_lag: Duration,
    /// How often a node's Lease is renewed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub heartbeat: Duration,
    /// Where to serve the cloud's console: unix:///PATH. Without it there is none.
    #[arg(long, value_name = "ENDPOINT")]
    pub console: Option<Endpoint>,
    /// Flags of the server.
    #[command(flatten)]
    pub serve: ServeArgs,
}

impl RunArgs {
    /// Delays of VMs whose class sets none.
    pub(crate) fn delays(&self) -> Delays {
        Delays {
            create: self.create_delay,
            join: self.join_delay,
            delete: self.delete_delay,
        }
    }

    /// The state file: the one that was asked for, or one that belongs to the socket.
    pub(crate) fn state_file(&self) -> PathBuf {
        match (&self.state, &self.serve.listen) {
            (Some(state), _) => state.clone(),
            (None, Endpoint::Unix(socket)) => socket.with_extension("redb"),
            (None, _) => PathBuf::from("millwright-virtual.redb"),
        }
    }
}
