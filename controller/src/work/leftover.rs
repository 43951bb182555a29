//! What Machines may have left in the target cluster that ended while it was away, or vanished in spite of our finalizer: a Node, a
//! bootstrap token.
//!
//! Chooses nothing: the Machine's plan has decided that it ends without them (`machine::delete`), or the store has seen it vanish
//! (`wake`). They are removed when the cluster is there; until then they are looked at again and again. What a process does not live to remove, the next one finds by the bootstrap
//! token, which tells whose it was. Of a Machine that needed no token, a Node that joined unseen stays.

use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use millwright_core::api::{Machine, meta};
use millwright_core::ids::{NodeName, Uid};

use tokio::task::JoinSet;

use super::node::remove_nodes;
use super::pass::Pass;
use super::shared::Shared;
use super::step::StepError;
use super::token;
use crate::kube::error::ReadError;

/// How often it is looked whether the target cluster is back.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long the end of a Machine waits for a target cluster that does not answer. A cluster that is there answers in milliseconds.
const TRY_FOR: Duration = Duration::from_secs(2);
/// The pause between two tries in that time: a single answer that is lost does not mean that the cluster is away.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The search for what other processes have left. It is over when it has succeeded once: from then on this one knows of all.
#[derive(Default)]
pub(super) struct Search {
    under_way: JoinSet<bool>,
    is_over: bool,
}

impl Search {
    /// Begins it, if it is not over and the target cluster can be seen.
    pub(super) fn look(&mut self, shared: &Arc<Shared>) {
        while let Some(ended) = self.under_way.try_join_next() {
            self.is_over |= matches!(ended, Ok(true));
        }
        let can_be_seen = shared.settings.has_target && shared.sight(None).target_since.is_some();
        if self.is_over || !can_be_seen || !self.under_way.is_empty() {
            return;
        }
        let shared = Arc::clone(shared);
        self.under_way.spawn(async move {
            let found = find(&shared).await;
            if let Err(error) = &found {
                tracing::warn!(%error, "what Machines that are gone left in the target cluster could not be searched for; it is tried again");
            }
            found.is_ok()
        });
    }
}

/// Remembers every Machine that is gone and whose token is there, and removes the token of one that has joined: a request of a process
/// before this one may have made it again late, and its Machine looks for it no more. One that cannot be removed holds up no other.
async fn find(shared: &Shared) -> Result<(), StepError> {
    let mut failure = None;
    for machine in token::owners(shared).await? {
        let name = meta::name(&machine.metadata);
        match stage(shared, &machine).await? {
            Stage::MayJoin => {}
            Stage::Joined => {
                let removed = token::remove(shared, &machine).await;
                failure = failure.or(removed.err());
            }
            Stage::Gone => {
                tracing::info!(
                    machine = name,
                    "the machine is gone, and its bootstrap token is there: what it left is removed"
                );
                shared.change(|world, uptime| world.leaves_behind(Arc::new(machine), uptime));
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Whether a Machine still needs its token.
enum Stage {
    MayJoin,
    Joined,
    Gone,
}

impl Stage {
    fn of(machine: &Machine) -> Self {
        match machine.has_joined() {
            true => Self::Joined,
            false => Self::MayJoin,
        }
    }
}

/// The API server is asked before a Machine is held for gone.
async fn stage(shared: &Shared, machine: &Machine) -> Result<Stage, ReadError> {
    let (name, uid) = meta::identity(&machine.metadata);
    let is_it = |known: &Machine| meta::identity(&known.metadata).1 == uid;
    let known = shared.look(|world| world.machines.get(&name).filter(|known| is_it(known)).cloned());
    if let Some(known) = known {
        return Ok(Stage::of(&known));
    }
    match shared.write.read::<Machine>(&name).await {
        Ok(live) if is_it(&live) => Ok(Stage::of(&live)),
        Ok(_) | Err(ReadError::Gone) => Ok(Stage::Gone),
        Err(error) => Err(error),
    }
}

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
        remove_nodes(shared, machine, &node).await?;
    }
    token::remove(shared, machine).await
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::work::scripted::{Answer, Scripted, failure};

    fn token(place: &str, uid: &str) -> Value {
        let annotations = json!({"machine.sapcloud.io/machine": place, "machine.sapcloud.io/machine-uid": uid});
        json!({"metadata": {"name": format!("bootstrap-token-{uid}"), "annotations": annotations}})
    }

    fn answer(_: &Method, path: &str, _: &Value) -> Answer {
        let tokens = [
            token("test/default/gone", "gone"),
            token("test/default/there", "there"),
            token("test/default/joined", "joined"),
            token("test/default/anew", "before"),
            token("other/default/gone", "of-another-cluster"),
            token("test/elsewhere/gone", "of-another-namespace"),
            json!({"metadata": {"name": "bootstrap-token-by-hand"}}),
        ];
        let machine = |name: &str, uid: &str| {
            let metadata = json!({"name": name, "namespace": "default", "uid": uid, "resourceVersion": "1"});
            json!({"metadata": metadata, "spec": {"class": {"kind": "MachineClass", "name": "small"}}})
        };
        match path.rsplit_once('/') {
            Some((_, "secrets")) => (200, json!({"metadata": {}, "items": tokens})),
            Some((_, "there")) => (200, machine("there", "there")),
            Some((_, "joined")) => {
                let mut joined = machine("joined", "joined");
                joined["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
                (200, joined)
            }
            Some((_, name)) if name.starts_with("bootstrap-token-") => (200, own_token(name)),
            Some((_, "anew")) => (200, machine("anew", "after")),
            _ => failure(404, "NotFound"),
        }
    }

    /// The token of the Machine that joined, under its own name.
    fn own_token(name: &str) -> Value {
        let metadata = json!({"name": name, "uid": "7", "annotations": {"machine.sapcloud.io/machine-uid": "joined"}});
        json!({"metadata": metadata})
    }

    fn remembered(scripted: &Scripted) -> Vec<String> {
        let uids = |world: &millwright_core::world::World| world.ledger.leftovers.keys().map(Uid::to_string).collect();
        scripted.shared.look(uids)
    }

    #[tokio::test]
    async fn a_token_tells_of_a_machine_that_is_gone_and_of_none_that_is_there_or_is_another_managers() {
        let scripted = Scripted::new(answer);
        find(&scripted.shared).await.unwrap();
        assert_eq!(remembered(&scripted), ["before", "gone"]);
        let removed: Vec<_> = scripted.heard("kube-system/secrets/");
        assert_eq!(
            removed.len(),
            2,
            "one token is read and removed, of the machine that has joined: {removed:?}"
        );
    }

    #[tokio::test]
    async fn a_machine_that_cannot_be_read_is_not_held_for_gone() {
        let scripted = Scripted::new(
            |method: &Method, path: &str, body: &Value| match path.ends_with("/secrets") {
                true => answer(method, path, body),
                false => failure(403, "Forbidden"),
            },
        );
        find(&scripted.shared).await.unwrap_err();
        assert_eq!(remembered(&scripted), [""; 0]);
    }
}
