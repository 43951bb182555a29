//! Who controls a child: the reference that says so, and what becomes of it when a child is adopted or released.
//!
//! One place for both kinds of owners, sets and deployments. Decides nothing about whom to adopt (`set::claim`,
//! `deployment::plan`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::{Value, json};

use crate::api::{keys, meta};
use crate::ids::Uid;

/// The reference that makes an owner the controller of a child. It must stand first in the list: the autoscaler reads index 0.
pub fn reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    let metadata = owner.meta();
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: meta::name(metadata).to_owned(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The body of a JSON merge patch that adopts a child: our reference first, everybody else's as they were.
pub fn adoption(child: &ObjectMeta, owner: &impl Resource<DynamicType = ()>) -> Value {
    let others = child.owner_references.iter().flatten().cloned();
    let owners: Vec<OwnerReference> = std::iter::once(reference(owner)).chain(others).collect();
    match meta::annotation(child, keys::RELEASED_BY) {
        Some(_) => json!({ "metadata": { "ownerReferences": owners, "annotations": { keys::RELEASED_BY: null } } }),
        None => json!({ "metadata": { "ownerReferences": owners } }),
    }
}

/// The references of a child after its release: all but ours.
pub fn released(child: &ObjectMeta, owner: Option<&Uid>) -> Vec<OwnerReference> {
    let others = child.owner_references.iter().flatten();
    others
        .filter(|reference| owner.is_none_or(|owner| reference.uid != owner.as_str()))
        .cloned()
        .collect()
}

/// Whether the owner is deleted and its children are to stay (`kubectl delete --cascade=orphan`). The garbage collector takes the owner's
/// references from them; no controller deletes them.
pub fn orphans_children(owner: &ObjectMeta) -> bool {
    meta::is_deleting(owner) && meta::has_finalizer(owner, keys::ORPHAN_FINALIZER)
}

/// Whether the child names this owner as its controller.
pub fn controls(owner: &ObjectMeta, child: &ObjectMeta) -> bool {
    let own = meta::uid(owner);
    own.is_some() && meta::controller_uid(child) == own
}
