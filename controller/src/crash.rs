//! Crash points: in test builds (feature `crash-points`) the process kills itself at a chosen one; else this is nothing.
//!
//! Each write and each driver call is two points: before it is sent, and after its answer came but before anybody heard
//! of it. `MILLWRIGHT_CRASH_AT=N` kills the process (SIGKILL, as a power cut) at the N-th point that it passes;
//! `MILLWRIGHT_CRASH_LOG=FILE` writes one line a point, so that a test learns how many there are.

use std::future::Future;

/// Runs one request between its two points.
pub async fn around<T>(what: &'static str, request: impl Future<Output = T>) -> T {
    point(what, "before");
    let answer = request.await;
    point(what, "after");
    answer
}

#[cfg(not(feature = "crash-points"))]
fn point(_what: &'static str, _when: &'static str) {}

#[cfg(feature = "crash-points")]
#[expect(clippy::disallowed_methods, reason = "for test builds only; no flag of the product")]
fn point(what: &'static str, when: &'static str) {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);
    static AT: LazyLock<Option<u64>> = LazyLock::new(|| {
        std::env::var("MILLWRIGHT_CRASH_AT")
            .ok()
            .and_then(|text| text.parse().ok())
    });
    static LOG: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MILLWRIGHT_CRASH_LOG").ok());

    let passed = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(path) = LOG.as_ref() {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = log.and_then(|mut log| writeln!(log, "{passed} {when} {what}")) {
            tracing::error!(%error, path, "the crash log cannot be written");
        }
    }
    if *AT == Some(passed) {
        tracing::warn!(passed, what, when, "crash point reached");
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}
