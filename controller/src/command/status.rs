//! `rollout status`: a line for each change until the rollout is complete or will not be.
//!
//! What a state means is core's; here is when it is read, and for how long. A watch brings the states. One that breaks is opened again
//! where it ended, and what it missed comes with it.

use std::pin::pin;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, watch_object};
use millwright_core::api::{MachineDeployment, keys, meta};
use millwright_core::rollout::standing::{self, Fault, Standing, Unsteady};

use super::failure::Failure;
use super::flags::{Reach, StatusFlags};
use super::leader::Leader;
use super::output;
use super::session::Session;
use crate::env::{Outside as _, System};
use crate::kube::bare::Bare;
use crate::kube::trouble::Trouble;

/// The first pause before a broken watch is opened again, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(flags: &StatusFlags, reach: &Reach) -> Result<(), Failure> {
    let name = flags.target.name()?;
    let session = Session::open(reach).await?;
    // Read first: what a watch would take for a passing trouble, as a kind that is not installed, ends the command here.
    let read = session.deployment(&name).await?;
    let mut told = Told::new(&read, &name, flags.revision);
    if told.look(&read)? {
        return Ok(());
    }
    // An account that may not read Leases follows a rollout all the same.
    if let Ok(leader) = Leader::of(&session).await {
        leader.note_absence(System.now());
    }
    if !flags.watch {
        return Ok(());
    }
    let states = Box::pin(watch_object(session.api::<Bare<MachineDeployment>>(), &name));
    let follow = follow(&mut told, states, &session);
    if flags.timeout.is_zero() {
        return follow.await;
    }
    match tokio::time::timeout(flags.timeout, follow).await {
        Ok(ended) => ended,
        Err(_) => Err(told.timed_out(flags.timeout)),
    }
}

/// Looks at every state until one is the last.
async fn follow(
    told: &mut Told,
    states: impl Stream<Item = watcher::Result<Option<Bare<MachineDeployment>>>>,
    session: &Session,
) -> Result<(), Failure> {
    let (mut states, mut backoff) = (pin!(states), pauses());
    while let Some(next) = states.next().await {
        match next {
            Ok(Some(Bare(deployment))) => {
                backoff = pauses();
                if told.look(&deployment)? {
                    return Ok(());
                }
            }
            Ok(None) => return Err(told.failed("it was deleted")),
            Err(error) => {
                let trouble = Trouble::from(&error);
                if !trouble.may_pass() {
                    return Err(session.failure(&told.name, trouble));
                }
                told.broken(&trouble);
                tokio::time::sleep(backoff.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
    }
    Err(told.failed("the watch has ended"))
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(SHORTEST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .without_max_times()
        .with_jitter()
        .build()
}

/// What was told so far.
struct Told {
    name: String,
    uid: Option<String>,
    revision: Option<i64>,
    line: String,
    /// What Progressing says, for the end by a timeout.
    progressing: Option<String>,
    trouble: Option<Trouble>,
}

impl Told {
    fn new(read: &MachineDeployment, name: &str, revision: i64) -> Self {
        Self {
            name: name.to_owned(),
            uid: read.metadata.uid.clone(),
            revision: (revision > 0).then_some(revision),
            line: String::new(),
            progressing: None,
            trouble: None,
        }
    }

    /// Tells a state, if it says anything new. True: it is the last one.
    fn look(&mut self, deployment: &MachineDeployment) -> Result<bool, Failure> {
        self.trouble = None;
        if deployment.metadata.uid != self.uid {
            return Err(self.failed("it was deleted, and another one has its name now"));
        }
        self.progressing = progressing(deployment);
        let line = match standing::standing(deployment, self.revision) {
            Standing::Complete => {
                output::line(&complete(&self.name))?;
                return Ok(true);
            }
            Standing::Failed(fault) => return Err(self.failed(&reason(&fault))),
            Standing::Unsteady(missing) => waiting(&self.name, &missing, &standing::obstacles(deployment)),
        };
        if line != self.line {
            output::line(&line)?;
            self.line = line;
        }
        Ok(false)
    }

    /// Tells a trouble once. That the server has forgotten where a watch was is nothing to tell.
    fn broken(&mut self, trouble: &Trouble) {
        if let Trouble::Unreachable(words) = trouble
            && self.trouble.as_ref() != Some(trouble)
        {
            output::note(&format!("the API server does not answer ({words}), trying again"));
            self.trouble = Some(trouble.clone());
        }
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::Rollout {
            name: self.name.clone(),
            reason: reason.to_owned(),
        }
    }

    fn timed_out(&self, after: Duration) -> Failure {
        let progressing = self
            .progressing
            .as_deref()
            .unwrap_or("there is no condition Progressing");
        self.failed(&format!("not complete after {after:?}: {progressing}"))
    }
}

/// The line that says that it is done: kubectl's, which scripts look for.
fn complete(name: &str) -> String {
    format!("machinedeployment {name:?} successfully rolled out")
}

/// The line that says what is waited for.
fn waiting(name: &str, missing: &Unsteady, obstacles: &[String]) -> String {
    let obstacles = match obstacles {
        [] => String::new(),
        some => format!(" ({})", some.join("; ")),
    };
    format!("Waiting for machinedeployment {name:?} rollout to finish: {missing}...{obstacles}")
}

fn reason(fault: &Fault) -> String {
    match fault {
        Fault::NoProgress { .. } => format!("the rollout has failed: {fault}"),
        Fault::Deleting | Fault::OtherRevision { .. } => fault.to_string(),
    }
}

/// What the condition Progressing says.
fn progressing(deployment: &MachineDeployment) -> Option<String> {
    let condition = deployment.status.as_ref()?.condition(keys::CONDITION_PROGRESSING)?;
    let message = condition.message.clone().filter(|text| !text.is_empty());
    message.or_else(|| condition.reason.clone())
}

/// `machinedeployment.machine.sapcloud.io/NAME`, as kubectl names what it has done something to.
pub fn full_name(deployment: &MachineDeployment) -> String {
    let name = meta::name(&deployment.metadata);
    format!("machinedeployment.{}/{name}", millwright_core::api::GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_and_what_stands_in_the_way_is_one_line() {
        let missing = Unsteady::Updating { updated: 1, wanted: 3 };
        assert_eq!(
            waiting("workers", &missing, &[]),
            "Waiting for machinedeployment \"workers\" rollout to finish: 1 out of 3 new machines have been made..."
        );
        let obstacles = ["the deployment is paused".to_owned(), "no quota".to_owned()];
        assert_eq!(
            waiting("workers", &missing, &obstacles),
            "Waiting for machinedeployment \"workers\" rollout to finish: 1 out of 3 new machines have been made... \
             (the deployment is paused; no quota)"
        );
    }

    #[test]
    fn the_last_line_is_the_one_that_scripts_know_from_kubectl() {
        assert_eq!(
            complete("workers"),
            "machinedeployment \"workers\" successfully rolled out"
        );
    }
}
