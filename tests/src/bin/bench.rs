//! The benchmark: a control plane, the manager and the virtual provider as they are shipped, driven by
//! `tests/bench/measure.py`; its figures as a Markdown table beside those of the Go original. It decides nothing about
//! what is measured, and its own process is not in the figures.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use millwright_dev::apiserver::ControlPlane;
use millwright_dev::apiserver::binaries::workspace_root;
use millwright_tests::apiserver;
use millwright_tests::figures::{Figures, table};
use millwright_tests::fleet::{Manager, VirtualProvider};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Measures manager and virtual provider on a real API server.
#[derive(Parser)]
struct Args {
    /// up=N, roll, down, idle=SECONDS, in this order.
    #[arg(default_values = ["up=200", "idle=20", "down", "up=1000", "idle=30", "down"])]
    phases: Vec<String>,
    /// How long the simulated VM takes until it runs, and again until its node joins.
    #[arg(long, default_value = "1s")]
    delay: String,
    /// How many machines a rollout makes beyond those that are wanted, as a number or a percentage.
    #[arg(long, default_value = "20%")]
    surge: String,
    /// Show what each phase asked of the API server.
    #[arg(long)]
    verbose: bool,
    /// Further flags of the manager, for example --manager-flag=--log-format=json.
    #[arg(long)]
    manager_flag: Vec<String>,
    /// Further flags of the provider: with thousands of machines --provider-flag=--heartbeat=1h, or their heartbeats are what is measured.
    #[arg(long)]
    provider_flag: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let plane = apiserver::start_with_crds("the benchmark")
        .await
        .context("there is no API server")?;
    let objects = std::fs::read_to_string(workspace_root().join("tests/bench/objects.yaml"))?;
    let objects = objects.replace("maxSurge: 20%", &format!("maxSurge: {}", args.surge));
    let applied = plane.kubectl_with_input(&["apply", "-f", "-"], &objects).await?;
    ensure!(applied.success, "{}", applied.stderr);

    let plan = VirtualProvider::on(&plane)
        .await
        .flag("--create-delay", &args.delay)
        .flag("--join-delay", &args.delay);
    let flags = args.provider_flag.iter().filter_map(|flag| flag.split_once('='));
    let provider = flags.fold(plan, |plan, (name, value)| plan.flag(name, value)).start();
    provider.wait_until_it_listens().await;
    let plan = Manager::on(&plane, "default").await.driver(&provider.endpoint);
    let flags = args.manager_flag.iter().filter_map(|flag| flag.split_once('='));
    let manager = flags.fold(plan, |plan, (name, value)| plan.flag(name, value)).start();
    manager.wait_until_ready().await;

    let pids = [manager.service.pid(), provider.service.pid()];
    let figures = measure(&plane, pids, &args).await?;
    println!("{}", table(&figures));
    Ok(())
}

/// Runs measure.py and reads its line per phase as it comes.
async fn measure(plane: &ControlPlane, pids: [u32; 2], args: &Args) -> anyhow::Result<Vec<Figures>> {
    let [manager, provider] = pids;
    let mut python = Command::new("python3");
    python
        .arg(workspace_root().join("tests/bench/measure.py"))
        .args([plane.port().to_string(), format!("{manager},{provider}")])
        .args(&args.phases)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if args.verbose {
        python.env("V", "1");
    }
    let mut python = python.spawn().context("python3 cannot be run")?;
    let mut lines = BufReader::new(python.stdout.take().context("its output is piped")?).lines();
    let mut figures = Vec::new();
    while let Some(line) = lines.next_line().await? {
        eprintln!("{line}");
        ensure!(line != "TIMEOUT", "a phase did not end");
        if line.starts_with('{') {
            figures.push(serde_json::from_str(&line).with_context(|| line.clone())?);
        }
    }
    // Its watch threads do not end by themselves, so neither may we wait for ever.
    let status = tokio::time::timeout(Duration::from_secs(10), python.wait()).await??;
    ensure!(status.success(), "measure.py: {status}");
    Ok(figures)
}
