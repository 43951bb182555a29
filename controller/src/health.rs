//! Whether this process is alive and ready, as checks with names. Whoever knows a fact registers how to ask for it;
//! `admin.rs` only asks. Decides no more than "all hold".

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Answers whether something holds, and if not, why not, in words for an operator.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a process.
#[derive(Default)]
pub struct Health {
    live: Vec<(String, Check)>,
    ready: Vec<(String, Check)>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Health({} live, {} ready)", self.live.len(), self.ready.len())
    }
}

impl Health {
    /// Adds a check whose failure only a restart can heal.
    pub fn live(&mut self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.live.push((name.into(), Box::new(check)));
    }

    /// Adds a check whose failure means that work does not proceed, though it may again.
    pub fn ready(&mut self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.ready.push((name.into(), Box::new(check)));
    }

    /// Whether the process should go on living.
    pub fn liveness(&self) -> Report {
        Report::of(&self.live)
    }

    /// Whether the process does its work.
    pub fn readiness(&self) -> Report {
        Report::of(&self.ready)
    }
}

/// What all checks of one kind said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(Vec<(String, Result<(), String>)>);

impl Report {
    fn of(checks: &[(String, Check)]) -> Self {
        Self(checks.iter().map(|(name, check)| (name.clone(), check())).collect())
    }

    /// Whether every check holds.
    pub fn holds(&self) -> bool {
        self.0.iter().all(|(_, verdict)| verdict.is_ok())
    }
}

impl fmt::Display for Report {
    /// One line a check, as kube-apiserver writes them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.0 {
            match verdict {
                Ok(()) => writeln!(f, "[+]{name} ok")?,
                Err(why) => writeln!(f, "[-]{name} failed: {why}")?,
            }
        }
        Ok(())
    }
}

/// A loop that must come round again and again.
#[derive(Debug)]
pub struct Heartbeat {
    limit: Duration,
    last: Mutex<Instant>,
}

impl Heartbeat {
    /// A loop that hangs when it did not come round for `limit`. It counts from now.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            last: Mutex::new(Instant::now()),
        }
    }

    /// The loop came round.
    pub fn beat(&self) {
        *self.last.lock().expect("no holder of this lock panics") = Instant::now();
    }

    /// Whether the loop still goes round.
    pub fn check(&self) -> Result<(), String> {
        let silence = self.last.lock().expect("no holder of this lock panics").elapsed();
        if silence <= self.limit {
            Ok(())
        } else {
            Err(format!("no sign of life for {} s", silence.as_secs()))
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
