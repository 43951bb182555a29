//! The volumes of pods that are drained: a VM is not asked to go while one is attached to its Node, before the detach deadline.
//!
//! The deadline counts from when the last pod left that must go. Pods that come to a cordoned Node later, from a scheduler that is
//! behind, do not move it. A volume counts that the process could know of: its Node names it among the attached, or did when the Machine
//! was being deleted already and the process was there, so that it saw the volume and goes on to watch its VolumeAttachment.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::APART;
use crate::event::{By, Call, Write};
use crate::object::{name, text, time, uid};
use crate::truth::Truth;

/// What is remembered of volumes.
pub(super) struct Volumes {
    timeout: SignedDuration,
    /// Since when they are attached, by the uid of the VolumeAttachment.
    since: BTreeMap<String, Timestamp>,
    /// When their Nodes last named them among the attached, by the uid of the VolumeAttachment.
    told: BTreeMap<String, Timestamp>,
    /// Since when processes are there, or lead anew: then they begin with nothing, too.
    started: BTreeMap<By, Timestamp>,
    /// Under which epoch of leadership they last called a driver.
    epochs: BTreeMap<By, u64>,
    /// Since when Nodes are without pods that must go, by uid.
    empty: BTreeMap<String, Timestamp>,
}

impl Volumes {
    pub(super) fn new(timeout: SignedDuration) -> Self {
        Self {
            timeout,
            since: BTreeMap::new(),
            told: BTreeMap::new(),
            started: BTreeMap::new(),
            epochs: BTreeMap::new(),
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

    /// A process began.
    pub(super) fn started(&mut self, at: Timestamp, by: By) {
        self.started.insert(by, at);
    }

    /// A process called a driver.
    pub(super) fn called(&mut self, at: Timestamp, call: &Call) {
        if let Some(epoch) = call.epoch
            && self.epochs.insert(call.by, epoch) != Some(epoch)
        {
            self.started.insert(call.by, at);
        }
    }

    /// A Node has changed, which named what was attached until now.
    pub(super) fn told(&mut self, at: Timestamp, before: &Value, truth: &dyn Truth) {
        let told = on(truth, before).filter(|attachment| names(before, attachment));
        self.told
            .extend(told.map(|attachment| (uid(&attachment).to_owned(), at)));
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

    /// A driver is asked to remove the VM of a Node without pods that must go. Nobody may have seen yet what was attached within `lag`.
    pub(super) fn judge(
        &self,
        (at, by): (Timestamp, By),
        lag: SignedDuration,
        (machine, node): (&Value, &Value),
        truth: &dyn Truth,
    ) -> Result<(), String> {
        let since = time(machine, "/metadata/deletionTimestamp").max(self.started.get(&by).copied());
        let is_known = |attachment: &Arc<Value>| {
            let told = self.told.get(uid(attachment));
            let was_told = told.is_some_and(|told| since.is_none_or(|since| since + lag <= *told));
            names(node, attachment) || was_told
        };
        let seen = at - lag;
        let empty = self.empty.get(uid(node));
        if empty.is_some_and(|since| *since + self.timeout <= at + APART) {
            return Ok(());
        }
        let is_seen = |attachment: &Arc<Value>| self.since.get(uid(attachment)).is_none_or(|since| *since <= seen);
        let mut attached = on(truth, node).filter(|attachment| is_known(attachment) && is_seen(attachment));
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

/// Whether a Node names a volume among the attached.
fn names(node: &Value, attachment: &Value) -> bool {
    let volume = text(attachment, "/spec/source/persistentVolumeName");
    let attached = node.pointer("/status/volumesAttached").and_then(Value::as_array);
    let mut attached = attached.into_iter().flatten();
    attached.any(|told| text(told, "/name").ends_with(&format!("^{volume}")))
}
