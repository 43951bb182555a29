//! What Machines that ended while the target cluster was away may have left there: a Node, a bootstrap token.
//!
//! Chooses nothing: the Machine's plan has decided that it ends without them (`machine::delete`). They are removed when the cluster
//! is back; until then they are looked at again and again. What a process does not live to remove is a bootstrap token, which runs
//! out by itself, or the Node of a VM that is gone.

use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use millwright_core::api::{Machine, meta};
use millwright_core::ids::{NodeName, Uid};

use super::machine::remove_node;
use super::pass::Pass;
use super::shared::Shared;
use super::step::StepError;
use super::token;

/// How often it is looked whether the target cluster is back.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long the end of a Machine waits for a target cluster that does not answer. A cluster that is there answers in milliseconds.
const TRY_FOR: Duration = Duration::from_secs(2);
/// The pause between two tries in that time: a single answer that is lost does not mean that the cluster is away.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Ends a Machine's part in a target cluster whose Nodes are not seen. It may be their watch alone that is silent, so what the Machine
/// left is removed now if that can be done; else it is remembered. Where other Machines wait already, nobody tries: a cluster that
/// is away would cost each of them the wait.
pub(super) async fn leave(shared: &Arc<Shared>, machine: &Arc<Machine>) {
    let is_known_away = shared.look(|world| !world.ledger.leftovers.is_empty());
    let backoff = ConstantBuilder::new().with_delay(TRY_AGAIN).without_max_times();
    let cleared = (|| clear(shared, machine)).retry(backoff);
    if !is_known_away && matches!(tokio::time::timeout(TRY_FOR, cleared).await, Ok(Ok(()))) {
        return;
    }
    let left = Arc::clone(machine);
    shared.change(|world, uptime| world.leaves_behind(left, uptime));
}

/// One pass over what a Machine has left.
pub(super) async fn pass(shared: &Arc<Shared>, uid: &Uid) -> Pass {
    if !shared.look(|world| world.ledger.leftovers.contains_key(uid)) {
        return Pass::gone();
    }
    let done = remove(shared, uid).await;
    Pass::ended("leftover", uid.as_str(), "TargetAway".to_owned(), done)
}

async fn remove(shared: &Shared, uid: &Uid) -> Result<Option<Duration>, StepError> {
    let Some(machine) = shared.look(|world| world.ledger.leftovers.get(uid).cloned()) else {
        return Ok(None);
    };
    if shared.sight(None).target_since.is_none() {
        return Ok(Some(shared.env.uptime() + LOOK_AGAIN));
    }
    clear(shared, &machine).await?;
    shared.quietly(|world| world.ledger.leftovers.remove(uid));
    let name = meta::name(&machine.metadata);
    tracing::info!(machine = name, "nothing is left of the machine in the target cluster");
    Ok(None)
}

/// Removes the Node and the token of a Machine.
async fn clear(shared: &Shared, machine: &Machine) -> Result<(), StepError> {
    let own_name = NodeName::non_empty(machine.metadata.name.as_deref());
    for node in machine.node_label().into_iter().chain(own_name) {
        remove_node(shared, machine, &node).await?;
    }
    token::remove(shared, machine).await
}
