//! Writes to the children of a set or deployment: many at once, each for itself, each bound to what the plan saw.
//!
//! Chooses nothing. What the API server refuses is noted for that child alone, so that the next plan leaves it alone for a while; a
//! child that turns out to be gone leaves the store.

use std::future::Future;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use millwright_core::api::meta;
use millwright_core::api::pruned::Pruned;
use millwright_core::ids::{Name, Uid};
use millwright_core::owner;
use millwright_core::refusal::Refusal;
use millwright_core::world::Kind;
use serde_json::Value;

use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::WriteError;
use crate::kube::write::Own;

/// How many children are written at once: what an API server with two cores takes without queueing.
pub(super) const TOGETHER: usize = 32;

/// Does the same to all children, so many at once. All are tried; the first failure is told.
pub(super) async fn each<T, F>(all: Vec<T>, one: impl Fn(T) -> F) -> Result<(), StepError>
where
    F: Future<Output = Result<(), WriteError>>,
{
    let results: Vec<Result<(), WriteError>> = stream::iter(all).map(one).buffer_unordered(TOGETHER).collect().await;
    let failure = results.into_iter().find_map(Result::err);
    failure.map_or(Ok(()), |failure| Err(StepError::of_another(failure)))
}

/// Merges into one child in the version that the plan saw.
pub(super) async fn merge<C: Own + Kind>(shared: &Shared, child: &C, body: Value) -> Result<(), WriteError> {
    let (name, uid) = meta::identity(child.meta());
    let written = shared.write.merge(child, body).await;
    settled::<C, _>(shared, &name, &uid, written.map(|child| drop(shared.wrote(child))))
}

/// Merges into one child's status in the version that the plan saw.
pub(super) async fn merge_status<C: Own + Pruned + Kind>(
    shared: &Shared,
    child: &C,
    body: Value,
) -> Result<(), WriteError> {
    let (name, uid) = meta::identity(child.meta());
    let written = shared.write.merge_status(child, body).await;
    settled::<C, _>(shared, &name, &uid, written.map(|child| drop(shared.wrote(child))))
}

/// Deletes one child of that uid, in that version if one is given.
pub(super) async fn delete<C: Own + Kind>(
    shared: &Shared,
    name: &Name,
    uid: &Uid,
    version: Option<String>,
) -> Result<(), WriteError> {
    let version = version.or_else(|| bare_version::<C>(shared, name, uid));
    let left = shared.write.delete::<C>(name, uid, version).await;
    let left = left.map(|left| match left {
        Some(left) => drop(shared.wrote(left)),
        None => shared.change(|world, uptime| world.ended::<C>(name, uid, uptime)),
    });
    match settled::<C, _>(shared, name, uid, left) {
        // That is what a deletion wants.
        Err(WriteError::Gone) => Ok(()),
        other => other,
    }
}

/// Notes a deletion that was not answered.
pub(super) fn note_unanswered<T>(shared: &Shared, name: &Name, uid: &Uid, deleted: &Result<T, WriteError>) {
    if !matches!(deleted, Err(WriteError::Unreachable { .. })) {
        return;
    }
    let now = shared.env.now();
    shared.quietly(|world| world.condemn(name, uid, now));
}

/// The version of a child that bears no finalizer yet. The API server would end it even if its pass stored one in the same moment
/// (kubernetes#77988), and nobody would remove what was made for it; bound to the version, the deletion fails and is planned again.
fn bare_version<C: Own + Kind>(shared: &Shared, name: &Name, uid: &Uid) -> Option<String> {
    shared.quietly(|world| {
        let child = C::store(world).get(name)?;
        let is_bare = child.meta().finalizers.as_ref().is_none_or(Vec::is_empty);
        let is_it = meta::identity(child.meta()).1 == *uid;
        child.meta().resource_version.clone().filter(|_| is_bare && is_it)
    })
}

/// Notes what the outcome of a write says about the child.
fn settled<C: Kind, T>(
    shared: &Shared,
    name: &Name,
    uid: &Uid,
    written: Result<T, WriteError>,
) -> Result<T, WriteError> {
    let now = shared.env.now();
    match &written {
        Ok(_) => {
            shared.quietly(|world| drop(world.ledger.refusals.remove(uid)));
        }
        Err(WriteError::Gone) => shared.change(|world, uptime| world.ended::<C>(name, uid, uptime)),
        Err(error @ WriteError::Refused { .. }) => shared.quietly(|world| {
            world.note::<C>(name, uid, |ledger| {
                let refusal = Refusal::after(ledger.refusals.get(uid), error.to_string(), now);
                ledger.refusals.insert(uid.clone(), refusal);
            });
        }),
        Err(WriteError::Stale | WriteError::AlreadyExists | WriteError::Fenced | WriteError::Unreachable { .. }) => {}
    }
    written
}

/// Makes the owner the controller of its children: its reference stands before everybody else's, which stay.
pub(super) async fn adopt<O, C>(shared: &Shared, owner: &O, children: Vec<Arc<C>>) -> Result<(), StepError>
where
    O: Own,
    C: Own + Kind + Sync,
{
    // The decision was made on a cached owner: an adoption by one that is gone would orphan the child for good.
    let live = shared.write.read::<O>(&meta::identity(owner.meta()).0).await?;
    if live.meta().uid != owner.meta().uid || meta::is_deleting(live.meta()) {
        return Err(StepError::Void);
    }
    let one = |child: Arc<C>| async move { merge(shared, &*child, owner::adoption(child.meta(), owner)).await };
    each(children, one).await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Method;
    use millwright_core::api::{Machine, keys};
    use serde_json::json;

    use super::*;
    use crate::work::scripted::Scripted;

    /// The preconditions with which a Machine with those finalizers is deleted.
    async fn preconditions(finalizers: &[&str]) -> Value {
        let sent = Arc::new(Mutex::new(Value::Null));
        let heard = Arc::clone(&sent);
        let scripted = Scripted::new(move |_: &Method, _: &str, body: &Value| {
            *heard.lock().unwrap() = body["preconditions"].clone();
            (200, json!({ "kind": "Status", "status": "Success" }))
        });
        let metadata = json!({
            "name": "one", "namespace": "default", "uid": "1", "resourceVersion": "7", "finalizers": finalizers,
        });
        let machine: Machine = serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap();
        let _kept = scripted.shared.wrote(machine);
        delete::<Machine>(&scripted.shared, &Name::new("one"), &Uid::new("1"), None)
            .await
            .unwrap();
        sent.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_child_without_finalizer_is_deleted_in_the_version_that_has_none() {
        assert_eq!(preconditions(&[]).await, json!({ "uid": "1", "resourceVersion": "7" }));
        assert_eq!(preconditions(&[keys::FINALIZER]).await, json!({ "uid": "1" }));
    }
}
