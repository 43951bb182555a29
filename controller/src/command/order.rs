//! `rollout undo`, `pause`, `resume` and `restart`: an order that core finds sensible is written, guarded by what it was judged by.

use millwright_core::api::{MachineDeployment, MachineSet, meta};
use millwright_core::rollout::{self, Refusal, Revisions, order};

use super::failure::Failure;
use super::flags::{DryRun, Order, Reach};
use super::session::Session;
use super::status::full_name;
use super::{history, output};
use crate::env::{Outside as _, System};

/// A status is written every moment of a rollout, and each one makes what was read stale: it is read and judged again so often.
const TRIES: usize = 10;

/// Runs one of the commands.
pub async fn run(order: Order, name: &str, dry_run: DryRun, reach: &Reach, program: &str) -> Result<(), Failure> {
    let session = Session::open(reach).await?;
    for _ in 0..TRIES {
        let sets = match order {
            Order::Undo(_) => session.sets().await?,
            Order::Pause | Order::Resume | Order::Restart => Vec::new(),
        };
        // Last, so that little can come between it and the write that it guards.
        let deployment = session.deployment(name).await?;
        let revisions = Revisions::of(&deployment, &sets);
        let judged = judge(order, &deployment, &revisions);
        let judged =
            judged.map_err(|refusal| Failure::refused(name, &refusal, hint(&refusal, &deployment, program, reach)))?;
        let body = match judged {
            rollout::Order::Write(body) => body,
            rollout::Order::AlreadyThere(number) => {
                return output::line(&format!(
                    "{} skipped rollback (current template already matches revision {number})",
                    full_name(&deployment)
                ));
            }
        };
        let is_given = match dry_run {
            DryRun::Client => true,
            DryRun::None => session.merge(&deployment, body, false).await?.is_some(),
            DryRun::Server => session.merge(&deployment, body, true).await?.is_some(),
        };
        if is_given {
            return output::print(&done(order, &deployment, &sets, dry_run)?);
        }
    }
    Err(Failure::Contended(name.to_owned()))
}

fn judge(order: Order, deployment: &MachineDeployment, revisions: &Revisions<'_>) -> Result<rollout::Order, Refusal> {
    match order {
        Order::Undo(to) => order::undo(deployment, revisions, to),
        Order::Pause => order::pause(deployment),
        Order::Resume => order::resume(deployment),
        Order::Restart => order::restart(deployment, System.now()),
    }
}

/// What to type to get on.
fn hint(refusal: &Refusal, deployment: &MachineDeployment, program: &str, reach: &Reach) -> Option<String> {
    let command = |verb: &str| {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let namespace = reach.namespace.as_ref().map(|namespace| format!(" -n {namespace}"));
        format!("{program} rollout {verb} {name}{}", namespace.unwrap_or_default())
    };
    match refusal {
        Refusal::IsPaused => Some(command("resume")),
        Refusal::AlreadyRequested(_) => Some(format!("{} follows it", command("status"))),
        Refusal::AlreadyPaused
        | Refusal::NotPaused
        | Refusal::IsDeleting
        | Refusal::NoSuchRevision { .. }
        | Refusal::NoPrevious
        | Refusal::TooSoon => None,
    }
}

/// What is told of an order that was given: kubectl's words.
fn done(order: Order, deployment: &MachineDeployment, sets: &[MachineSet], dry_run: DryRun) -> Result<String, Failure> {
    let name = full_name(deployment);
    let to = match order {
        Order::Pause => return Ok(format!("{name} paused\n")),
        Order::Resume => return Ok(format!("{name} resumed\n")),
        Order::Restart => return Ok(format!("{name} restarted\n")),
        Order::Undo(to) => to,
    };
    let revisions = Revisions::of(deployment, sets);
    let target = order::target(&revisions, to);
    let target = target.map_err(|refusal| Failure::refused(meta::name(&deployment.metadata), &refusal, None))?;
    let number = target.number.unwrap_or(to);
    Ok(match dry_run {
        DryRun::None => format!("{name} rolled back to revision {number}\n"),
        DryRun::Server | DryRun::Client => {
            let how = match dry_run {
                DryRun::Client => "client dry run",
                DryRun::None | DryRun::Server => "server dry run",
            };
            let template = history::yaml(&target.template())?;
            format!("# {name} would be rolled back to revision {number} ({how}), whose template is:\n{template}")
        }
    })
}
