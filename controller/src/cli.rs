//! The command line: reads this process's arguments, starts what they ask for, and turns the end into an exit code.
//!
//! In the library, so that the quick start can be the manager in a process of its own without a second binary.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::command;
use crate::config::{Cli, Command, ManagerFlags};
use crate::run::{End, run};
use crate::telemetry::{self, LogFormat};

/// The binary's name as a plugin of kubectl, and how a plugin is called.
pub const PLUGIN: &str = "kubectl-machine";
/// How long threads of the runtime may take at the end.
const LAST_THREADS: Duration = Duration::from_secs(1);
const CALLED_AS_PLUGIN: &str = "kubectl machine";

/// The whole of the binary `millwright`.
pub fn main() -> ExitCode {
    let program = program(std::env::args_os().next().as_deref().map(Path::new));
    let matches = Cli::command().name(program).bin_name(program).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Manager(flags) => manager(*flags),
        Command::Crds => crds(),
        Command::Rollout(flags) => command::rollout(flags, program),
        Command::Tree(flags) => command::tree(flags),
        Command::Why(flags) => command::why(flags),
        Command::Driver(flags) => command::driver(flags),
    }
}

/// What a user types to call this program.
fn program(called: Option<&Path>) -> &'static str {
    match called.and_then(Path::file_stem) {
        Some(name) if name == PLUGIN => CALLED_AS_PLUGIN,
        Some(_) | None => "millwright",
    }
}

fn manager(mut flags: ManagerFlags) -> ExitCode {
    let told = flags.translate();
    // Until the end of this function: what it did last is exported, too.
    let _telemetry = match telemetry::init(
        flags.log_format.unwrap_or(LogFormat::Text),
        &flags.log_level,
        flags.otlp_endpoint.as_ref(),
    ) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("error: {:#}", anyhow::Error::new(error));
            return ExitCode::from(2);
        }
    };
    told.iter().for_each(|line| tracing::warn!("{line}"));
    let config = match flags.check() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    raise_file_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads())
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let end = runtime.block_on(run(config));
    // Work on threads of its own, as a credential plugin that hangs, is not waited for.
    runtime.shutdown_timeout(LAST_THREADS);
    match end {
        Ok(End::Asked) => ExitCode::SUCCESS,
        Ok(End::OriginalLeads) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As many threads as there are processors for this process, by a container's limit too. At least two, so that one long plan holds up neither
/// the Lease nor /readyz; at most eight, because plans are made one at a time under one lock, and only requests and answers are worked on
/// beside them.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}

/// Most open files that are asked for: each drained Node holds a connection. More would only slow programs that close all they might have.
const FILES: u64 = 65_536;

/// The soft limit of open files is 1,024 in many systems.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= FILES) {
        return;
    }
    let current = Some(limit.maximum.map_or(FILES, |most| most.min(FILES)));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, ..limit }) {
        tracing::warn!(%error, ?limit, "the limit of open files stays: many drains at once may exceed it");
    }
}

/// Prints the CRDs as `deploy/crds/` holds them.
fn crds() -> ExitCode {
    let mut text = String::new();
    for crd in millwright_core::api::crds::all() {
        match serde_saphyr::to_string(&crd) {
            Ok(crd) => text.extend(["---\n", crd.trim_end(), "\n"]),
            Err(error) => {
                eprintln!("error: a CRD cannot be written as YAML: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough, as in `millwright crds | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the CRDs cannot be written to stdout: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_the_plugins_name_is_called_as_kubectl_calls_it() {
        for (called, wanted) in [
            (Some("/usr/local/bin/kubectl-machine"), "kubectl machine"),
            (Some("kubectl-machine"), "kubectl machine"),
            (Some("./millwright"), "millwright"),
            (None, "millwright"),
        ] {
            assert_eq!(program(called.map(Path::new)), wanted);
        }
    }

    #[test]
    fn the_parser_is_sound() {
        Cli::command().debug_assert();
    }
}
