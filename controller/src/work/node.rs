//! Requests about Nodes that come before a Machine is given up, and after it: the live read, and the removal of every Node of its VM.
//!
//! Chooses nothing: whether a Node goes is said by the Machine's plan, and which Nodes are of its VM by `kin`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, keys, meta};
use millwright_core::ids::{Name, NodeName, Uid};
use millwright_core::kin;
use millwright_core::machine::node;

use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::{ReadError, WriteError};

/// A Machine is given up for what is so now: the watch may not have noticed yet that the target cluster is silent.
pub(super) async fn see_node(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    let live = match shared.write.read_node(name).await {
        Ok(live) => shared.wrote(live),
        Err(ReadError::Gone) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match node::keeps_from_failing(&live, machine, &shared.settings) {
        true => Err(StepError::Void),
        false => Ok(()),
    }
}

/// Deletes the Machine's Node, and all others of its VM.
pub(super) async fn remove_nodes(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    for node in shared.look(|world| kin::nodes_of(world, machine, name)) {
        remove_node(shared, machine, &node).await?;
    }
    Ok(())
}

/// Deletes a Node of the Machine's VM. The store may lag behind a node that joined at the last moment, so a Node that it does
/// not show is asked for by name.
async fn remove_node(shared: &Shared, machine: &Machine, name: &NodeName) -> Result<(), StepError> {
    let known = shared.look(|world| world.nodes.get(&Name::new(name.as_str())).cloned());
    let node = match known {
        Some(node) => node,
        None => match shared.write.read_node(name).await {
            Ok(node) => Arc::new(node),
            Err(ReadError::Gone) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
    };
    if !shared.look(|world| kin::goes_with(world, machine, &node)) {
        return Ok(());
    }
    let uid = Uid::new(node.metadata.uid.clone().unwrap_or_default());
    let left = if meta::is_deleting(&node.metadata) {
        Some(node)
    } else {
        ended(shared.write.delete_node(name, &uid).await)?.map(|left| shared.wrote(left))
    };
    if let Some(left) = left.filter(|left| meta::has_finalizer(&left.metadata, keys::NODE_FINALIZER)) {
        ended(shared.write.release_node(&left).await.map(Some))?;
    }
    shared.change(|world, uptime| world.ended::<Node>(&Name::new(name.as_str()), &uid, uptime));
    Ok(())
}

/// An object that is gone already is what a deletion wants.
fn ended<T>(result: Result<Option<T>, WriteError>) -> Result<Option<T>, WriteError> {
    match result {
        Err(WriteError::Gone) => Ok(None),
        other => other,
    }
}
