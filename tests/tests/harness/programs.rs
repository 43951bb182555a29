//! The harness itself: our programs are built, run, die and run again.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use millwright_tests::programs::programs;
use millwright_tests::service::{Recipe, Service, eventually};

fn counting_shell(dir: &std::path::Path) -> Service {
    Service::start(Recipe {
        name: "counter".to_owned(),
        program: "/bin/sh".into(),
        args: vec!["-c".to_owned(), "echo life; exec sleep 60".to_owned()],
        env: Vec::new(),
        log: dir.join("counter.log"),
    })
}

fn can_be_crashed(program: &std::path::Path) -> bool {
    let wanted = b"MILLWRIGHT_CRASH_AT";
    std::fs::read(program)
        .unwrap()
        .windows(wanted.len())
        .any(|bytes| bytes == wanted)
}

/// That a release has none is seen where the tests themselves are built as one.
#[tokio::test]
async fn only_a_debug_build_of_the_manager_has_crash_points() {
    let built = programs().await;
    assert_eq!(can_be_crashed(&built.manager), cfg!(debug_assertions));
    assert!(built.virtual_provider.is_file());
}

#[tokio::test]
async fn a_service_killed_and_restarted_keeps_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut service = counting_shell(dir.path());
    service.wait_for_log("life", Duration::from_secs(10)).await;
    let first = service.pid();
    service.kill();
    assert!(!service.is_running());
    service.restart();
    assert_ne!(service.pid(), first);
    let twice = async || {
        if service.log().matches("life").count() == 2 {
            Ok(())
        } else {
            Err(service.log())
        }
    };
    eventually("two lives", Duration::from_secs(10), &[&service], twice).await;
}

#[tokio::test]
#[should_panic(expected = "--- counter")]
async fn a_wait_in_vain_shows_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let service = counting_shell(dir.path());
    service.wait_for_log("never printed", Duration::from_millis(200)).await;
}
