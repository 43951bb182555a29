//! What is to be seen of preservations: of Machines, and of their Nodes.

use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, keys, meta};
use millwright_core::machine::node;
use millwright_core::machine::node_patch::taint_text;

use crate::stage::Stage;

const WISHES: [&str; 2] = [keys::PRESERVE, keys::LAST_APPLIED_PRESERVE];
const OF_NODE: [&str; 3] = [
    keys::PRESERVE,
    keys::SCALE_DOWN_DISABLED,
    keys::SCALE_DOWN_DISABLED_BY_US,
];

impl Stage {
    /// A line for each Machine and each Node.
    pub fn show_preserved(&self) -> String {
        let machines = self.etcd.machines.values().map(machine);
        let nodes = self.etcd.nodes.values().map(node_line);
        let all: Vec<String> = machines.chain(nodes).collect();
        all.join("\n")
    }
}

fn short(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

fn machine(machine: &Machine) -> String {
    let mut said = vec![machine.phase().to_string()];
    said.extend(machine.preserved_until().map(|until| format!("until {until:.0}")));
    said.extend(machine.preserve_drained().map(|at| format!("drained at {at:.0}")));
    said.extend(WISHES.iter().filter_map(|key| {
        let value = meta::annotation(&machine.metadata, key)?;
        Some(format!("{}={value}", short(key)))
    }));
    format!("= Machine {}: {}", meta::name(&machine.metadata), said.join(", "))
}

fn node_line(found: &Node) -> String {
    let mut said: Vec<String> = node::taints(found).iter().map(taint_text).collect();
    said.extend(OF_NODE.iter().filter_map(|key| {
        let value = meta::annotation(&found.metadata, key)?;
        Some(format!("{}={value}", short(key)))
    }));
    let told = node::conditions(found)
        .iter()
        .filter(|told| told.type_ == keys::NODE_PRESERVED);
    said.extend(told.map(|told| {
        let (reason, message) = (told.reason.as_deref(), told.message.as_deref());
        format!(
            "Preserved={} {} {}",
            told.status,
            reason.unwrap_or_default(),
            message.unwrap_or_default()
        )
    }));
    format!("= Node {}: {}", meta::name(&found.metadata), said.join(", "))
}
