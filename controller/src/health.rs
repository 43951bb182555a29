//! Whether this process is alive and ready, as checks with names. Whoever knows a fact registers how to ask for it;
//! `admin.rs` only asks. Decides no more than "all hold".

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// Answers whether something holds, and if not, why not, in words for an operator.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a process. They can be replaced as a whole while it is served.
#[derive(Default)]
pub struct Health(Mutex<Checks>);

#[derive(Default)]
struct Checks {
    live: Vec<(String, Check)>,
    ready: Vec<(String, Check)>,
    told: Vec<(String, Check)>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.locked();
        write!(f, "Health({} live, {} ready)", checks.live.len(), checks.ready.len())
    }
}

impl Health {
    /// Adds a check whose failure only a restart can heal.
    pub fn live(&mut self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.own().live.push((name.into(), Box::new(check)));
    }

    /// Adds a check whose failure means that work does not proceed, though it may again.
    pub fn ready(&mut self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.own().ready.push((name.into(), Box::new(check)));
    }

    /// Adds a check that is told with readiness and does not count: work proceeds without it, if not all of it.
    pub fn told(&mut self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.own().told.push((name.into(), Box::new(check)));
    }

    /// From now on these checks hold in place of the old ones.
    pub fn replace(&self, by: Self) {
        let by = by.0.into_inner().expect("no holder of this lock panics");
        *self.locked() = by;
    }

    /// Whether the process should go on living.
    pub fn liveness(&self) -> Report {
        Report::of(&self.locked().live, &[])
    }

    /// Whether the process does its work.
    pub fn readiness(&self) -> Report {
        let checks = self.locked();
        Report::of(&checks.ready, &checks.told)
    }

    fn own(&mut self) -> &mut Checks {
        self.0.get_mut().expect("no holder of this lock panics")
    }

    fn locked(&self) -> MutexGuard<'_, Checks> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// What all checks of one kind said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(Vec<Line>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    name: String,
    verdict: Result<(), String>,
    counts: bool,
}

impl Report {
    fn of(counted: &[(String, Check)], told: &[(String, Check)]) -> Self {
        let line = |(name, check): &(String, Check), counts| Line {
            name: name.clone(),
            verdict: check(),
            counts,
        };
        let counted = counted.iter().map(|check| line(check, true));
        let told = told.iter().map(|check| line(check, false));
        Self(counted.chain(told).collect())
    }

    /// Whether every check holds that counts.
    pub fn holds(&self) -> bool {
        self.0.iter().all(|line| !line.counts || line.verdict.is_ok())
    }
}

impl fmt::Display for Report {
    /// One line a check, as kube-apiserver writes them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { name, verdict, counts } in &self.0 {
            match (verdict, counts) {
                (Ok(()), _) => writeln!(f, "[+]{name} ok")?,
                (Err(why), true) => writeln!(f, "[-]{name} failed: {why}")?,
                (Err(why), false) => writeln!(f, "[!]{name} failed, which does not count: {why}")?,
            }
        }
        Ok(())
    }
}

/// A loop that must come round again and again, once it has begun.
#[derive(Debug)]
pub struct Heartbeat {
    limit: Duration,
    last: Mutex<Option<Instant>>,
}

impl Heartbeat {
    /// A loop that hangs when it did not come round for `limit`. It counts from its first beat: what the loop waits for
    /// before it begins is no hang of the loop.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            last: Mutex::default(),
        }
    }

    /// The loop begins or came round.
    pub fn beat(&self) {
        *self.last.lock().expect("no holder of this lock panics") = Some(Instant::now());
    }

    /// Whether the loop still goes round.
    pub fn check(&self) -> Result<(), String> {
        let last = *self.last.lock().expect("no holder of this lock panics");
        match last.map(|last| last.elapsed()) {
            Some(silence) if silence > self.limit => Err(format!("no sign of life for {} s", silence.as_secs())),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failing_check_fails_the_report_and_says_why() {
        let mut health = Health::default();
        health.ready("watch machines", || Ok(()));
        health.ready("drivers", || Err("none of 1 has answered".to_owned()));

        let report = health.readiness();

        assert!(!report.holds());
        assert_eq!(
            report.to_string(),
            "[+]watch machines ok\n[-]drivers failed: none of 1 has answered\n"
        );
        assert!(health.liveness().holds(), "readiness is no question of life");
    }

    #[test]
    fn a_check_that_does_not_count_is_told_and_fails_nothing() {
        let mut health = Health::default();
        health.ready("watch-machines", || Ok(()));
        health.told("watch-nodes", || Err("failing for 40 s".to_owned()));

        let report = health.readiness();

        assert!(report.holds());
        assert_eq!(
            report.to_string(),
            "[+]watch-machines ok\n[!]watch-nodes failed, which does not count: failing for 40 s\n"
        );
    }

    #[test]
    fn checks_can_be_replaced_while_others_ask() {
        let served = std::sync::Arc::new(Health::default());
        let mut next = Health::default();
        next.ready("drivers", || Err("none".to_owned()));
        assert!(served.readiness().holds());
        served.replace(next);
        assert!(!served.readiness().holds());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_has_not_begun_does_not_hang() {
        let heartbeat = Heartbeat::new(Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(heartbeat.check(), Ok(()));
        heartbeat.beat();
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(heartbeat.check().is_err());
    }

    /// Rows: W48.
    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stops_is_noticed_and_one_that_goes_on_is_not() {
        let heartbeat = Heartbeat::new(Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(20)).await;
        heartbeat.beat();
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(heartbeat.check(), Ok(()));

        tokio::time::advance(Duration::from_secs(20)).await;

        assert!(heartbeat.check().unwrap_err().contains("40 s"));
    }
}
