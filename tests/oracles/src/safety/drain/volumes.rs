//! The volumes of pods that are drained: a VM is not asked to go while one is attached to its Node, before the detach deadline.
//!
//! The deadline counts from when the last pod left that must go. Pods that come to a cordoned Node later, from a scheduler that is
//! behind, do not move it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::APART;
use crate::event::Write;
use crate::object::{name, text, uid};
use crate::truth::Truth;

/// What is remembered of volumes.
pub(super) struct Volumes {
    timeout: SignedDuration,
    /// Since when they are attached, by the uid of the VolumeAttachment.
    since: BTreeMap<String, Timestamp>,
    /// Since when Nodes are without pods that must go, by uid.
    empty: BTreeMap<String, Timestamp>,
}

impl Volumes {
    pub(super) fn new(timeout: SignedDuration) -> Self {
        Self {
            timeout,
            since: BTreeMap::new(),
            empty: BTreeMap::new(),
        }
    }

    /// A VolumeAttachment was written.
    pub(super) fn wrote(&mut self, at: Timestamp, write: &Write) {
        match &write.after {
            Some(attachment) => {
                self.since.entry(uid(attachment).to_owned()).or_insert(at);
            }
            None => self
                .since
                .retain(|known, _| write.before.as_ref().is_none_or(|it| uid(it) != known)),
        }
    }

    /// A Node, or a pod on it, changed.
    pub(super) fn note(&mut self, at: Timestamp, node: &Value, is_empty: bool, is_cordoned: bool) {
        match is_empty {
            true => {
                self.empty.entry(uid(node).to_owned()).or_insert(at);
            }
            false if !is_cordoned => {
                self.empty.remove(uid(node));
            }
            false => {}
        }
    }

    /// Whether any volume is attached to a Node.
    pub(super) fn has_any(truth: &dyn Truth, node: &Value) -> bool {
        on(truth, node).next().is_some()
    }

    /// A driver is asked to remove the VM of a Node without pods that must go. Nobody may have seen yet what was attached after `seen`.
    pub(super) fn judge(&self, at: Timestamp, seen: Timestamp, node: &Value, truth: &dyn Truth) -> Result<(), String> {
        let empty = self.empty.get(uid(node));
        if empty.is_some_and(|since| *since + self.timeout <= at + APART) {
            return Ok(());
        }
        let mut attached =
            on(truth, node).filter(|attachment| self.since.get(uid(attachment)).is_none_or(|since| *since <= seen));
        match attached.next() {
            None => Ok(()),
            Some(attachment) => Err(format!(
                "its volume {} is attached to node {}, before the detach deadline",
                text(&attachment, "/spec/source/persistentVolumeName"),
                name(node)
            )),
        }
    }
}

/// The VolumeAttachments to a Node, also of what is being detached.
fn on(truth: &dyn Truth, node: &Value) -> impl Iterator<Item = Arc<Value>> {
    let named = name(node).to_owned();
    let all = truth.objects("volumeattachments").into_iter();
    all.filter(move |attachment| text(attachment, "/spec/nodeName") == named)
}
