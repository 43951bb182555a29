//! Who controls a child: the reference that says so, and what becomes of it when a child is adopted or released.
//!
//! One place for both kinds of owners, sets and deployments. Decides nothing about whom to adopt (`set::claim`,
//! `deployment::plan`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use serde_json::{Value, json};

use crate::api::{API_VERSION, MachineDeployment, MachineSet, keys, meta};
use crate::ids::Uid;

/// A kind that controls others.
pub trait Owner {
    /// The reference that makes it a child's controller. It must stand first in the list: the autoscaler reads index 0.
    fn reference(&self) -> OwnerReference;
}

impl Owner for MachineSet {
    fn reference(&self) -> OwnerReference {
        reference("MachineSet", &self.metadata)
    }
}

impl Owner for MachineDeployment {
    fn reference(&self) -> OwnerReference {
        reference("MachineDeployment", &self.metadata)
    }
}

fn reference(kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: kind.to_owned(),
        name: meta::name(owner).to_owned(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The body of a JSON merge patch that adopts a child: our reference first, everybody else's as they were.
pub fn adoption(child: &ObjectMeta, owner: &impl Owner) -> Value {
    let others = child.owner_references.iter().flatten().cloned();
    let owners: Vec<OwnerReference> = std::iter::once(owner.reference()).chain(others).collect();
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
