//! Crash points: in debug builds the process kills itself at a chosen one; in release builds this is nothing.
//!
//! Each write and each driver call is two points: before it is sent, and after its answer came but before anybody heard
//! of it. A point is named by its kind and by how many of that kind the process has passed: `before status#3`. (Numbered
//! across all kinds, a rare kind would be missed whenever two lives come in another order.) `MILLWRIGHT_CRASH_AT=POINT`
//! kills the process there (SIGKILL, as a power cut); `MILLWRIGHT_CRASH_LOG=FILE` writes one line a point, so that a test
//! learns which there are.

use std::future::Future;

/// Runs one request between its two points.
pub async fn around<T>(what: &'static str, request: impl Future<Output = T>) -> T {
    point(what, "before");
    let answer = request.await;
    point(what, "after");
    answer
}

#[cfg(not(debug_assertions))]
fn point(_what: &'static str, _when: &'static str) {}

#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "for debug builds only; no flag of the product")]
fn point(what: &'static str, when: &'static str) {
    use std::collections::BTreeMap;
    use std::io::Write as _;
    use std::sync::{LazyLock, Mutex, PoisonError};

    static PASSED: Mutex<BTreeMap<(&str, &str), u64>> = Mutex::new(BTreeMap::new());
    static AT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MILLWRIGHT_CRASH_AT").ok());
    static LOG: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MILLWRIGHT_CRASH_LOG").ok());

    // Held until the line is written: the log has the order in which points were passed.
    let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let count = passed.entry((when, what)).or_default();
    *count += 1;
    let point = format!("{when} {what}#{count}");
    if let Some(path) = LOG.as_ref() {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = log.and_then(|mut log| writeln!(log, "{point}")) {
            tracing::error!(%error, path, "the crash log cannot be written");
        }
    }
    if AT.as_ref() == Some(&point) {
        tracing::warn!(point, "crash point reached");
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}
