//! The composition root: cloud, clock, kubelets, console and driver in one process, and the order in which they end.

use millwright_provider_sdk::telemetry::{self, TelemetryError};
use millwright_provider_sdk::{ServeError, serve};
use tokio::{runtime, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    args::RunArgs,
    cloud::{Cloud, LedgerError},
    console::{self, ConsoleServeError},
    driver::VirtualDriver,
    kubelet::{KubeconfigError, Kubelets},
};

/// The machine is shared with everything that a test starts.
const WORKERS: usize = 2;
/// The name under which traces show the provider.
const SERVICE: &str = "millwright-provider-virtual";

/// Why the provider did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state file.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The target cluster's kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The export of traces.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The console's socket.
    #[error(transparent)]
    Console(#[from] ConsoleServeError),
    /// The driver's server.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The runtime that the provider is made for.
pub fn runtime() -> std::io::Result<runtime::Runtime> {
    runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
}

/// Serves until SIGTERM or SIGINT. Driver calls end first; what makes VMs live ends after them.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    // A process that embeds the provider has a log and traces of its own.
    let _telemetry = match telemetry::start(&args.serve, SERVICE, env!("CARGO_PKG_VERSION")) {
        Ok(telemetry) => Some(telemetry),
        Err(TelemetryError::AlreadySet) => None,
        Err(error) => return Err(error.into()),
    };
    let state = args.state_file();
    let cloud = Cloud::open(&state, args.list_lag)?;
    tracing::info!(state = %state.display(), vms = cloud.everything().len(), "the cloud is open");

    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if let Some(kubeconfig) = &args.target_kubeconfig {
        let kubelets = Kubelets::new(cloud.clone(), kubeconfig, args.heartbeat).await?;
        tasks.spawn(kubelets.run(stop.clone()));
    }
    if let Some(endpoint) = &args.console {
        tasks.spawn(console::serve(cloud.clone(), endpoint, stop.clone())?);
        tracing::info!(%endpoint, "the console listens");
    }
    let clockwork = cloud.clone();
    tasks.spawn(async move { clockwork.run_clockwork().await });

    let driver = VirtualDriver::new(cloud, args.delays(), args.list_lag);
    let served = serve(driver, args.serve.into()).await;
    stop.cancel();
    // Requests in flight are cut short: the next process finds out what became of them.
    tasks.shutdown().await;
    Ok(served?)
}
