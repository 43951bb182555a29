//! Mistakes at the cloud: how VMs are ordered, and how those are swept away that belong to nobody.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millwright_provider_virtual::cloud::{Cloud, Delays, Launch};
use millwright_sandbox::object;

use super::Mutant;
use crate::event::{Departure, What};
use crate::life::CLUSTER;
use crate::process::Process;
use crate::world::World;
use crate::world::hooks::Hooks;

pub(super) const ALL: [Mutant; 2] = [
    Mutant {
        name: "orders-by-lookup",
        rows: "5, 6, 7, 8, 10",
        what: "a VM is ordered without a token where a lookup shows none",
        property: "S1",
        workload: "create",
        faults: &["F35", "F31x6", "F1r"],
        rests: false,
        hooks: || Hooks {
            second_order: orders_by_lookup,
            ..Hooks::default()
        },
    },
    Mutant {
        name: "sweeps-at-sight",
        rows: "19, 20, 32, 33",
        what: "VMs that a list of machines from before lacks are removed at once",
        property: "S3",
        workload: "machine",
        faults: &[],
        rests: false,
        hooks: || Hooks {
            beside: sweeps_at_sight,
            elects: Some(false),
            ..Hooks::default()
        },
    },
];

/// The VM of a machine is there, but no lookup shows it yet: another is ordered.
fn orders_by_lookup(cloud: &Cloud, uid: &str) -> Option<Launch> {
    if cloud.find_by_uid("local", CLUSTER, uid).is_some() {
        return None;
    }
    let vms = cloud.everything();
    let first = vms.iter().find(|vm| vm.owner.uid == uid)?;
    Some(Launch {
        token: format!("{uid}/{}", vms.len()),
        owner: first.owner.clone(),
        machine_class: first.machine_class.clone(),
        spec_digest: first.spec_digest.clone(),
        tags: first.tags.clone(),
        region: first.region.clone(),
        zone: first.zone.clone(),
        instance_type: first.instance_type.clone(),
        delays: Delays {
            create: Duration::from_secs(1),
            join: Duration::from_secs(1),
            delete: first.delete_delay,
        },
    })
}

/// Between two rounds of the sweep, and between its two lists.
const ROUND: Duration = Duration::from_secs(5);
const LISTS: Duration = Duration::from_secs(1);

fn sweeps_at_sight(world: Arc<World>, process: Arc<Process>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        loop {
            let machines: BTreeSet<String> = world.look(|truth| {
                let machines = truth.all("machines");
                machines.map(|machine| object::uid(&machine).to_owned()).collect()
            });
            tokio::time::sleep(LISTS).await;
            for vm in world.cloud.list("local", CLUSTER, None, usize::MAX) {
                if machines.contains(&vm.owner.uid) {
                    continue;
                }
                world.tell(What::Leaves(Departure {
                    incarnation: process.incarnation,
                    method: "DeleteMachine".to_owned(),
                    uid: vm.owner.uid.clone(),
                    epoch: None,
                }));
                // It may be gone by itself.
                world.cloud.terminate(&vm.id).await.ok();
            }
            tokio::time::sleep(ROUND).await;
        }
    })
}
