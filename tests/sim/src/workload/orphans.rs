//! VMs at the cloud that nobody's Machine owns: some for the manager to take away, and some for it to leave alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millwright_provider_virtual::cloud::{Delays, Launch, Owner};

use super::body::ZONE;
use crate::event::What;
use crate::life::{CLUSTER, NAMESPACE};
use crate::world::World;

/// No kubelet comes from these.
const NEVER: Duration = Duration::from_secs(10_000_000);

/// Cluster, namespace and name of each. The first two are orphans; the last one has lost a tag.
const ALL: [(&str, &str, &str); 5] = [
    (CLUSTER, NAMESPACE, "orphan-a"),
    (CLUSTER, NAMESPACE, "orphan-b"),
    ("another", NAMESPACE, "foreign-a"),
    (CLUSTER, "elsewhere", "foreign-b"),
    (CLUSTER, NAMESPACE, ""),
];

/// Makes them.
pub async fn make(world: &Arc<World>) {
    let text = "makes VMs of no machine at the cloud".to_owned();
    world.tell(What::UserAction { text });
    for (number, (cluster, namespace, name)) in ALL.into_iter().enumerate() {
        let uid = format!("00000000-0000-4000-b000-{number:012}");
        let launch = Launch {
            token: uid.clone(),
            owner: Owner {
                cluster: cluster.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid,
            },
            machine_class: "small".to_owned(),
            spec_digest: String::new(),
            tags: BTreeMap::new(),
            region: "local".to_owned(),
            zone: ZONE.to_owned(),
            instance_type: "small".to_owned(),
            delays: Delays {
                create: Duration::from_secs(1),
                join: NEVER,
                delete: Duration::from_secs(world.pick("orphan-lingers", &[0, 20])),
            },
        };
        if let Err(error) = world.cloud.run_vm(launch).await {
            world.broken("workload", format!("the cloud makes no VM: {error}"));
        }
    }
    // What the cloud did is seen with the next thing that happens, and is to be seen now.
    world.tell(What::Note("the VMs are there".to_owned()));
}
