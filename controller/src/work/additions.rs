//! Stores what the API server dropped while CRDs without our fields were installed (`millwright_core::api::pruned`). Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use millwright_core::api::pruned::Pruned;
use millwright_core::api::{Machine, MachineDeployment, MachineSet};
use millwright_core::ids::Name;
use millwright_core::world::Kind;

use super::children::{self, TOGETHER};
use super::shared::Shared;
use crate::kube::definitions;
use crate::kube::error::WriteError;
use crate::kube::write::Own;

/// How often an object is tried that changes all the time.
const TRIES: usize = 5;
/// After this time the watch has shown the version that was in the way.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks after the cluster's CRDs.
pub async fn watch_over(shared: Arc<Shared>, client: Client) {
    definitions::watch_over(client, &shared.relisted, || store_again(&shared)).await;
}

/// Writes our fields of all objects again, and lets classes be looked at, whose statuses may not have been taken at all.
async fn store_again(shared: &Shared) {
    all::<Machine>(shared).await;
    all::<MachineSet>(shared).await;
    all::<MachineDeployment>(shared).await;
    shared.change(|world, uptime| world.look_at_classes(uptime));
}

async fn all<K: Own + Pruned + Kind + Sync>(shared: &Shared) {
    let names: Vec<Name> = shared.quietly(|world| K::store(world).iter().map(|object| object.key()).collect());
    let one = async |name: Name| {
        let mut stored = store::<K>(shared, &name).await;
        for _ in 1..TRIES {
            if !matches!(stored, Err(WriteError::Stale)) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            stored = store::<K>(shared, &name).await;
        }
        if let Err(error) = stored {
            tracing::warn!(kind = %K::kind(&()), %name, %error, "fields that the API server had dropped are not stored");
        }
    };
    let all = stream::iter(names).map(one).buffer_unordered(TOGETHER);
    all.collect::<()>().await;
}

async fn store<K: Own + Pruned + Kind + Sync>(shared: &Shared, name: &Name) -> Result<(), WriteError> {
    let object = shared.quietly(|world| K::store(world).get(name).cloned());
    let Some((object, additions)) = object.and_then(|object| Some((Arc::clone(&object), object.additions()?))) else {
        return Ok(());
    };
    children::merge_status(shared, &*object, additions).await
}
