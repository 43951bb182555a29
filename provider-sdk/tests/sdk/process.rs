//! `serve` as the whole of a process: its log, and the signals that end it. The process is this test binary, started again.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Script, Scripted, create};
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use millwright_provider_sdk::{ServeOptions, serve};
use rustix::process::{Pid, Signal, kill_process};

const SOCKET: &str = "MILLWRIGHT_TEST_SOCKET";

/// What the process does that the other test starts; nothing where nobody asks for it.
#[tokio::test]
async fn child() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let driver = Scripted {
        script: Script::Take(Duration::from_secs(60)),
        ..Scripted::default()
    };
    let served = serve(driver, ServeOptions::new(socket.parse().unwrap())).await;
    eprintln!("end: {}", served.unwrap_err());
}

#[tokio::test]
async fn a_process_without_any_set_up_has_a_log_and_a_second_signal_ends_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}", dir.path().join("d.sock").display());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::child", "--nocapture"])
        .env(SOCKET, &socket)
        .env_remove("RUST_LOG")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let mut client = loop {
        match DriverServiceClient::connect(socket.clone()).await {
            Ok(client) => break client,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let hanging = tokio::spawn(async move { client.create_machine(create(1)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    kill_process(pid, Signal::TERM).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!hanging.is_finished(), "the first signal waits for the work");
    let asked = Instant::now();
    kill_process(pid, Signal::TERM).unwrap();
    let output = tokio::task::spawn_blocking(|| child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    hanging.await.unwrap().unwrap_err();
    let log = String::from_utf8(output.stderr).unwrap();
    for line in [
        "serving",
        "SIGTERM: stopping",
        "end: stopped at once by a second signal",
    ] {
        assert!(log.contains(line), "{line} is not in the log: {log}");
    }
}
