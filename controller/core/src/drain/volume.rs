//! Where volumes are attached, as the cluster's VolumeAttachments say; known only while a Node is drained whose pods have volumes.
//!
//! Says what is so; how long anybody waits for it is decided by `drain` and `machine::drain`. MC-25; pains 55, 56, 65:
//! the objects, not a driver's names, tell what is detached.

use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentStatus};

use crate::api::meta;
use crate::change::Change;
use crate::ids::{Name, NodeName, Uid, VolumeName};
use crate::store::{Store, Stored, Touched};

/// Which volumes are attached to which Node, as the VolumeAttachments tell.
#[derive(Debug, Default)]
pub struct Volumes {
    is_watched: bool,
    pub(crate) attachments: Store<VolumeAttachment>,
}

/// How attachments are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachedBy {
    /// By the Node's name.
    Node,
    /// By the PersistentVolume's name.
    Volume,
}

impl Volumes {
    /// They are watched from now on. Gives whether they were not before.
    pub fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// They are watched no longer, and nothing is known any more.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether they are watched.
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Whether they are known.
    pub fn is_known(&self) -> bool {
        self.is_watched && self.attachments.is_synced()
    }

    /// Attachments to a Node. Their names follow from volume and Node, so that one that is made again bears the same.
    pub fn on(&self, node: &NodeName) -> Vec<(Name, Uid)> {
        let found = self.attachments.find(AttachedBy::Node, node.as_str());
        found.map(|attachment| meta::identity(&attachment.metadata)).collect()
    }

    /// Volumes that are attached to a Node, by name; one that is no PersistentVolume, by its attachment's.
    pub fn attached_to(&self, node: &NodeName) -> Vec<String> {
        let found = self.attachments.find(AttachedBy::Node, node.as_str());
        found
            .map(|attachment| {
                let volume = attachment.spec.source.persistent_volume_name.clone();
                volume.unwrap_or_else(|| meta::name(&attachment.metadata).to_owned())
            })
            .collect()
    }

    /// Whether a volume is attached to the Node, or on its way to or from it.
    pub fn is_on(&self, volume: &VolumeName, node: &NodeName) -> bool {
        self.of(volume).any(|(at, _)| at == node.as_str())
    }

    /// Whether a volume has arrived at another Node.
    pub fn is_elsewhere(&self, volume: &VolumeName, node: &NodeName) -> bool {
        self.of(volume)
            .any(|(at, is_attached)| at != node.as_str() && is_attached)
    }

    fn of(&self, volume: &VolumeName) -> impl Iterator<Item = (&str, bool)> {
        let found = self.attachments.find(AttachedBy::Volume, volume.as_str());
        found.map(|attachment| {
            let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
            (attachment.spec.node_name.as_str(), is_attached)
        })
    }

    pub(crate) fn apply(&mut self, change: Change<VolumeAttachment>) -> Vec<Touched<VolumeAttachment>> {
        self.attachments.apply(change)
    }
}

impl Stored for VolumeAttachment {
    type Index = AttachedBy;
    fn indexed(&self) -> Vec<(AttachedBy, String)> {
        let volume = self.spec.source.persistent_volume_name.clone();
        let volume = volume.map(|volume| (AttachedBy::Volume, volume));
        let node = (AttachedBy::Node, self.spec.node_name.clone());
        volume.into_iter().chain([node]).collect()
    }

    fn shorten(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        self.status = self.status.take().map(|status| VolumeAttachmentStatus {
            attached: status.attached,
            ..VolumeAttachmentStatus::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn attachment(name: &str, source: Value) -> Change<VolumeAttachment> {
        let attachment = json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"attacher": "csi", "nodeName": "n", "source": source},
            "status": {"attached": true},
        });
        Change::Listed(serde_json::from_value(attachment).expect("it is a VolumeAttachment"))
    }

    /// A volume may be described in the attachment itself.
    /// Rows: W28.
    #[test]
    fn a_volume_that_is_no_persistent_volume_is_waited_for_by_its_attachments_name() {
        let mut volumes = Volumes::default();
        volumes.begin();
        let inline = json!({"inlineVolumeSpec": {"capacity": {"storage": "1Gi"}}});
        let listed = [
            Change::Restarted,
            attachment("csi-inline", inline),
            attachment("csi-nothing", json!({})),
            attachment("csi-named", json!({"persistentVolumeName": "pv"})),
            Change::Synced,
        ];
        for change in listed {
            drop(volumes.apply(change));
        }
        let node = NodeName::new("n");
        assert_eq!(volumes.attached_to(&node), ["csi-inline", "pv", "csi-nothing"]);
        assert_eq!(volumes.on(&node).len(), 3, "all are let go of when a drain is forced");
        assert!(!volumes.is_on(&VolumeName::new(""), &node));
    }
}
