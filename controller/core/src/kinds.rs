//! The kinds that are watched, as the store sees them: under what each is to be found. Decides nothing else.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;

use crate::api::{Machine, MachineClass, MachineDeployment, MachineSet, Phase, keys, meta, pruned};
use crate::class;
use crate::machine::{node, virtual_capacity};
use crate::status::{LONGEST_WORD, plain};
use crate::store::{NoIndex, Store, Stored};

/// A Secret as it is watched: that it is there and changed, not what it holds.
pub type SecretMeta = PartialObjectMeta<Secret>;

/// What children of owners are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnedBy {
    /// Uid of the controller; the empty text for those that have none.
    Controller,
    /// Its own uid: the way from a child to its owner.
    Uid,
    /// Name of the MachineClass.
    Class,
    /// Name of the Node.
    Node,
    /// The VM's id.
    ProviderId,
    /// All VMs among which its own is (`CreationRequest::inventory`).
    Inventory,
    /// How the Machine is, where that is judged: for counting.
    Health,
}

/// How a Machine or a Node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Well,
    /// Its Node is unhealthy or gone.
    Ill,
}

impl Health {
    /// As indexes name it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Ill => "ill",
        }
    }

    /// The health of a Machine that has joined; without a target cluster, of one that is Available.
    pub fn of(machine: &Machine) -> Option<Self> {
        match machine.phase() {
            Phase::Running | Phase::Available => Some(Self::Well),
            Phase::Unknown => Some(Self::Ill),
            // One that is preserved is set aside: it would hold up the others for as long.
            Phase::Failed if machine.preserved_until().is_some() => None,
            Phase::Failed if machine.is_given_up() => Some(Self::Ill),
            _ => None,
        }
    }
}

/// The conditions of a Node, as many as a Machine's status has room for. The kubelet's condition `Ready` is always kept.
fn bounded(mut conditions: Vec<NodeCondition>) -> Vec<NodeCondition> {
    const MOST: usize = 80;
    const LONGEST_MESSAGE: usize = 1024;
    let beyond = conditions.split_off(conditions.len().min(MOST));
    conditions.extend(beyond.into_iter().find(|condition| condition.type_ == keys::NODE_READY));
    for condition in &mut conditions {
        condition.message = condition.message.as_deref().map(|text| plain(text, LONGEST_MESSAGE));
        condition.reason = condition.reason.as_deref().map(|word| plain(word, LONGEST_WORD));
        condition.type_ = plain(&condition.type_, LONGEST_WORD);
        condition.status = plain(&condition.status, LONGEST_WORD);
    }
    conditions
}

/// The zone of a Node, by its label.
pub fn zone(node: &Node) -> Option<&str> {
    meta::label(&node.metadata, keys::ZONE).filter(|zone| !zone.is_empty())
}

/// Where Nodes of a zone that are so stand in the index.
pub fn in_zone(zone: &str, health: Health) -> String {
    format!("{zone}/{}", health.text())
}

/// What Nodes are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeBy {
    /// The VM's id.
    ProviderId,
    /// [`in_zone`]: for counting.
    Zone,
    /// The empty text, where somebody has deleted it.
    Leaving,
}

/// What classes are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassBy {
    /// `namespace/name` of a Secret that it names.
    Secret,
    /// The driver that it names; the empty text where it names none.
    Driver,
}

fn controller(meta: &ObjectMeta) -> (OwnedBy, String) {
    let owner = meta::controller_of(meta).map(|owner| owner.uid.clone());
    (OwnedBy::Controller, owner.unwrap_or_default())
}

fn own_uid(meta: &ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}

impl<K: Stored<Index = OwnedBy>> Store<K> {
    /// Those that an object controls, by name.
    pub fn children(&self, owner: &ObjectMeta) -> impl Iterator<Item = &Arc<K>> + use<'_, K> {
        self.find(OwnedBy::Controller, owner.uid.as_deref().unwrap_or_default())
    }

    /// The one that controls an object, if it is seen.
    pub fn controller(&self, child: &ObjectMeta) -> Option<&Arc<K>> {
        let owner = meta::controller_uid(child)?;
        self.find(OwnedBy::Uid, owner.as_str()).next()
    }
}

impl Stored for Machine {
    type Index = OwnedBy;
    fn inherit(&mut self, before: &Self) {
        pruned::inherit_machine(self, before);
    }
    fn completes(&self, known: &Self) -> bool {
        self.status != known.status
    }
    fn indexed(&self) -> Vec<(OwnedBy, String)> {
        let mut places = vec![controller(&self.metadata)];
        places.extend(self.class_name().map(|class| (OwnedBy::Class, class.to_owned())));
        places.extend(meta::label(&self.metadata, keys::NODE).map(|node| (OwnedBy::Node, node.to_owned())));
        places.extend(
            self.provider_id()
                .map(|id| (OwnedBy::ProviderId, id.as_str().to_owned())),
        );
        places.extend(
            self.creation_request()
                .map(|request| (OwnedBy::Inventory, request.inventory())),
        );
        places.extend(Health::of(self).map(|health| (OwnedBy::Health, health.text().to_owned())));
        places
    }
}

impl Stored for MachineSet {
    type Index = OwnedBy;
    fn inherit(&mut self, before: &Self) {
        pruned::inherit_set(self, before);
    }
    fn completes(&self, known: &Self) -> bool {
        self.status != known.status
    }
    fn indexed(&self) -> Vec<(OwnedBy, String)> {
        let class = self.spec.template.class().and_then(|class| class.name);
        let mut places = vec![controller(&self.metadata), (OwnedBy::Uid, own_uid(&self.metadata))];
        places.extend(class.map(|class| (OwnedBy::Class, class)));
        places
    }
}

impl Stored for MachineDeployment {
    type Index = OwnedBy;
    fn inherit(&mut self, before: &Self) {
        pruned::inherit_deployment(self, before);
    }
    fn completes(&self, known: &Self) -> bool {
        self.status != known.status
    }
    fn indexed(&self) -> Vec<(OwnedBy, String)> {
        vec![(OwnedBy::Uid, own_uid(&self.metadata))]
    }
}

impl Stored for MachineClass {
    type Index = ClassBy;
    fn indexed(&self) -> Vec<(ClassBy, String)> {
        let mut places: Vec<_> = class::secret_keys(self)
            .into_iter()
            .map(|key| (ClassBy::Secret, key.to_string()))
            .collect();
        places.dedup();
        places.push((ClassBy::Driver, self.spec.provider.clone().unwrap_or_default()));
        places
    }
}

impl Stored for SecretMeta {
    type Index = NoIndex;
    fn indexed(&self) -> Vec<(NoIndex, String)> {
        Vec::new()
    }
}

impl Stored for Node {
    type Index = NodeBy;
    /// Of what is reported of it, plans read the conditions, the volumes and the capacity that the kubelet does not count itself. The
    /// conditions are copied into the status of its Machine, so they are bounded here.
    fn shorten(&mut self) {
        self.metadata.managed_fields = None;
        if let Some(status) = &mut self.status {
            let conditions = status.conditions.take().map(bounded);
            let volumes_attached = status.volumes_attached.take();
            let mut capacity = status.capacity.take();
            if let Some(capacity) = &mut capacity {
                capacity.retain(|resource, _| virtual_capacity::is_extended(resource));
            }
            *status = NodeStatus {
                capacity: capacity.filter(|capacity| !capacity.is_empty()),
                conditions,
                volumes_attached,
                ..NodeStatus::default()
            };
        }
    }
    fn indexed(&self) -> Vec<(NodeBy, String)> {
        let ready = node::ready(self);
        let health = ready.map(|ready| match ready.status.as_str() {
            "True" => Health::Well,
            _ => Health::Ill,
        });
        let place = zone(self).zip(health).map(|(zone, health)| in_zone(zone, health));
        let place = place.map(|place| (NodeBy::Zone, place));
        let leaving = meta::is_deleting(&self.metadata).then(|| (NodeBy::Leaving, String::new()));
        let id = node::provider_id(self).map(|id| (NodeBy::ProviderId, id.to_owned()));
        [id, place, leaving].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::change::Change;
    use crate::ids::Name;
    use crate::world::World;

    fn node(version: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "1", "resourceVersion": version, "managedFields": [{"manager": "kubelet"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": [{"sizeBytes": 1}],
                "capacity": {"cpu": "4", "hugepages-2Mi": "0", "example.com/slots": "3"}},
        }))
        .unwrap()
    }

    #[test]
    fn however_many_conditions_a_node_has_its_kubelets_word_is_kept() {
        let of = |type_: String| NodeCondition {
            type_,
            status: "True".to_owned(),
            message: Some("no\n".repeat(1000)),
            ..NodeCondition::default()
        };
        let all = (0..3000)
            .map(|number| of(format!("Problem{number}")))
            .chain([of(keys::NODE_READY.to_owned())]);
        let kept = bounded(all.collect());
        assert!(json!(kept).to_string().len() < 128 * 1024);
        assert_eq!(kept.last().map(|last| last.type_.as_str()), Some(keys::NODE_READY));
    }

    #[test]
    fn what_no_plan_reads_is_kept_neither_from_a_watch_nor_from_a_write() {
        let mut world = World::default();
        for way in ["watch", "write"] {
            match way {
                "watch" => world.observe(Change::Applied(node("5")), Duration::ZERO),
                _ => drop(world.wrote(node("6"), Duration::ZERO)),
            }
            let kept = world.nodes.get(&Name::new("n")).unwrap();
            assert_eq!(kept.metadata.managed_fields, None, "{way}");
            let status = kept.status.as_ref().unwrap();
            assert_eq!(status.conditions.as_ref().map(Vec::len), Some(1), "{way}");
            assert_eq!(status.images, None, "{way}");
            let capacity = status.capacity.as_ref().unwrap();
            assert_eq!(capacity.keys().collect::<Vec<_>>(), ["example.com/slots"], "{way}");
        }
    }
}
