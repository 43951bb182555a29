//! The quick start: decides what is shown, in which order, and when it counts as failed. It may not do anything that a
//! user could not do: it applies manifests, patches replicas, template and `rollbackTo`, switches a VM off, deletes a machine, and watches like anybody else.
//!
//! | module | decides |
//! |---|---|
//! | `args` | the flags |
//! | `plane` | which API server: the `sandbox`, or a real one |
//! | `programs` | the processes and where their files are |
//! | `driver` | what a user's own provider calls itself |
//! | `manifests` | what is applied |
//! | `seen` | what is known of the objects, from watches |
//! | `tree` | how that looks: rows of cells, and what changed between two looks |
//! | `screen` | where rows go: a block redrawn in place, or plain lines |
//! | `port` | what the manager says over HTTP |
//! | `pods` | pods on a node that is drained, and their budget |
//! | `demo` | the steps, each with its deadline |
//! | `rest` | after the steps: stay, show, start again what died |

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

mod args;
mod demo;
mod driver;
mod manifests;
mod plane;
mod pods;
mod port;
mod programs;
mod rest;
mod sandbox;
mod screen;
mod seen;
mod tree;

use self::args::Args;
use self::demo::Demo;
use self::manifests::{EXAMPLE_DRIVER, Manifests};
use self::programs::Programs;
use self::screen::Screen;

/// What the manager is called when it is started.
pub const MANAGER: &str = "millwright";
/// What the provider is called when it is started.
pub const PROVIDER: &str = "millwright-provider-virtual";

/// For a build of the API server that was begun: its thread cannot be stopped, only left behind.
const LAST_BREATH: Duration = Duration::from_millis(200);

/// How the quick start came to its end.
enum End {
    /// Everything was shown.
    Done,
    /// A signal, after everything was shown.
    Left,
    /// A signal, before.
    Interrupted,
}

/// The whole of the quick start.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let end = runtime.block_on(until_signal(&args));
    runtime.shutdown_timeout(LAST_BREATH);
    match end {
        Ok(End::Done | End::Left) => ExitCode::SUCCESS,
        Ok(End::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the show; at a signal or an error, everything that was started is ended in order.
async fn until_signal(args: &Args) -> anyhow::Result<End> {
    let mut screen = Screen::open();
    let mut programs = None;
    let mut shown = false;
    let ended = tokio::select! {
        ended = show(args, &mut screen, &mut programs, &mut shown) => ended.map(|()| End::Done),
        () = asked_to_end() => Ok(if shown { End::Left } else { End::Interrupted }),
    };
    screen.leave_tree();
    if let Some(programs) = programs {
        if !matches!(ended, Ok(End::Done)) {
            // Where nobody reads any more there is nobody to tell.
            screen.say("stopping").ok();
        }
        let logs = programs.logs().display().to_string();
        let stopped = programs.stop().await;
        return match ended.and_then(|end| stopped.map(|()| end)) {
            Ok(end) => {
                screen
                    .say(&format!("every process has ended; their logs stay in {logs}"))
                    .ok();
                Ok(end)
            }
            Err(error) => Err(error.context(format!(
                "the quick start failed; the logs of all processes are in {logs}"
            ))),
        };
    }
    ended
}

async fn show(args: &Args, screen: &mut Screen, slot: &mut Option<Programs>, shown: &mut bool) -> anyhow::Result<()> {
    // What is wrong with the flags is said before anything is started.
    let manifests = what_to_show(args, screen).await?;
    screen.say(&starting(args))?;
    let programs = slot.insert(Programs::start_api_server(args).await?);
    screen.say(&format!("API server ready at {}", programs.plane().url()))?;
    screen.say(&format!("  kubeconfig  {}", programs.plane().kubeconfig().display()))?;
    screen.say(&format!("  logs        {}", programs.logs().display()))?;
    let client = programs.plane().client().await?;
    manifests::install(&client).await?;
    programs.start_provider(args).await?;
    programs.start_manager(args)?;
    let mut demo = Demo::new(client, screen, programs, args);
    demo.ready().await?;
    if let Some(manifests) = &manifests {
        demo.run(manifests).await?;
    }
    *shown = true;
    if args.once {
        Ok(())
    } else {
        demo.stay(manifests.as_ref()).await
    }
}

fn starting(args: &Args) -> String {
    match &args.data {
        _ if args.real => "starting kube-apiserver and etcd".to_owned(),
        Some(data) => format!(
            "starting a Kubernetes API in this process, its state in {}",
            data.display()
        ),
        None => "starting a Kubernetes API in the memory of this process".to_owned(),
    }
}

/// What is applied: nothing, if the user has a provider but no manifests for it.
async fn what_to_show(args: &Args, screen: &mut Screen) -> anyhow::Result<Option<Manifests>> {
    let name = match &args.driver {
        Some(endpoint) => {
            let name = driver::name(endpoint).await?;
            screen.say(&format!("the driver at {endpoint} calls itself {name}"))?;
            name
        }
        None => EXAMPLE_DRIVER.to_owned(),
    };
    match &args.manifests {
        Some(dir) => Ok(Some(Manifests::of(dir, &name, args.replicas)?)),
        None if name == EXAMPLE_DRIVER => Ok(Some(Manifests::examples(args.replicas)?)),
        None if args.once => anyhow::bail!(
            "the examples are for the driver \"{EXAMPLE_DRIVER}\", and this one is \"{name}\": name a directory with a MachineClass \
             (`provider: {name}`), its Secret and a MachineDeployment by --manifests DIR; deploy/examples shows the form"
        ),
        None => {
            let how = rest::how_to_write_manifests(&name);
            screen.print(&how)?;
            Ok(None)
        }
    }
}

/// Ctrl-C, a polite kill, or the end of the terminal.
async fn asked_to_end() {
    let caught = async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        anyhow::Ok(())
    };
    if let Err(error) = caught
        .await
        .context("signals cannot be caught; end this by closing its processes")
    {
        eprintln!("error: {error:#}");
        std::future::pending::<()>().await;
    }
}
