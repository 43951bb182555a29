//! What Machines that ended while the target cluster was away may have left there: a Node, a bootstrap token.
//!
//! Chooses nothing: the Machine's plan has decided that it ends without them (`machine::delete`). They are removed when the cluster
//! is back; until then they are looked at again and again. What a process does not live to remove is a bootstrap token, which runs
//! out by itself, or the Node of a VM that is gone.

use std::sync::Arc;
use std::time::Duration;

use millwright_core::api::meta;
use millwright_core::ids::{NodeName, Uid};

use super::machine::remove_node;
use super::pass::Pass;
use super::shared::Shared;
use super::step::StepError;
use super::token;

/// How often it is looked whether the target cluster is back.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

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
    let own_name = NodeName::non_empty(machine.metadata.name.as_deref());
    for node in machine.node_label().into_iter().chain(own_name) {
        remove_node(shared, &machine, &node).await?;
    }
    token::remove(shared, &machine).await?;
    shared.quietly(|world| world.ledger.leftovers.remove(uid));
    let name = meta::name(&machine.metadata);
    tracing::info!(machine = name, "nothing is left of the machine in the target cluster");
    Ok(None)
}
