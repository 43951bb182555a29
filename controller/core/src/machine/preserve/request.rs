//! What is requested for a Machine: keep it or not, by the annotation of the Machine, of its Node, and of what the Node last said.
//!
//! MC-20. The Node's word wins over the Machine's. What it last said is remembered on
//! the Machine, so that a word that was taken back while no manager looked counts as taken back. Where the Node cannot be seen, or is gone,
//! nothing is taken for taken back. A value that nobody can read changes nothing, and is told. Writes nothing.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::api::{Machine, keys, meta};
use crate::machine::node;

/// A value of the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// From now on, in whatever phase.
    Now,
    /// While it is Failed.
    WhenFailed,
    /// While it is Failed; the set chose so.
    Auto,
    /// Not, and the set may not choose so.
    Never,
}

impl Value {
    fn read(text: &str) -> Option<Self> {
        match text {
            keys::PRESERVE_NOW => Some(Self::Now),
            keys::PRESERVE_WHEN_FAILED => Some(Self::WhenFailed),
            keys::PRESERVE_AUTO => Some(Self::Auto),
            keys::PRESERVE_FALSE => Some(Self::Never),
            _ => None,
        }
    }

    /// Whether a Failed Machine is to be kept.
    pub fn keeps_failed(self) -> bool {
        match self {
            Self::Now | Self::WhenFailed | Self::Auto => true,
            Self::Never => false,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now => keys::PRESERVE_NOW,
            Self::WhenFailed => keys::PRESERVE_WHEN_FAILED,
            Self::Auto => keys::PRESERVE_AUTO,
            Self::Never => keys::PRESERVE_FALSE,
        })
    }
}

/// Whose word it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The Machine.
    Machine,
    /// Its Node, now or when it was last seen.
    Node,
}

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The value; `None`: nothing is.
    pub value: Option<Value>,
    /// Whose it is.
    pub source: Source,
}

/// Who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(pub(super) Value, pub(super) Source);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match (self.0, self.1) {
            (Value::Auto, _) => return f.write_str("its set keeps it by autoPreserveFailedMachineMax"),
            (Value::Now | Value::WhenFailed | Value::Never, Source::Machine) => "the Machine",
            (Value::Now | Value::WhenFailed | Value::Never, Source::Node) => "its Node",
        };
        write!(f, "{who} is annotated {}={}", keys::PRESERVE, self.0)
    }
}

/// Why a preservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time is over.
    Expired,
    /// The Machine has not failed any more.
    Recovered,
    /// Nobody asks for it any more.
    TakenBack,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time is over",
            Self::Recovered => "the machine has recovered",
            Self::TakenBack => "nobody asks for it any more",
        })
    }
}

/// What is requested for a Machine whose Node is seen, or is gone, or cannot be seen. A Node that is left alone is not asked.
pub fn request(machine: &Machine, node: Option<&Node>) -> Request {
    let of_machine = Request {
        value: own(machine).and_then(Value::read),
        source: Source::Machine,
    };
    let of_node = |text: Option<&str>| Request {
        value: text.and_then(Value::read),
        source: Source::Node,
    };
    let last = last(machine);
    let node = node.filter(|node| !node::is_unmanaged(node));
    match node.map(said) {
        Some(Some(text)) if Value::read(text).is_some() => of_node(Some(text)),
        // Nothing was said, or it was taken back.
        Some(None) if last.is_some() => of_node(None),
        Some(None) => of_machine,
        // Nobody can read it, or nobody sees it: as before.
        Some(Some(_)) | None if of_machine.value.is_none() => of_node(last),
        Some(Some(_)) | None => of_machine,
    }
}

/// What the Machine's annotations become, because its Node said something else than it last did: the Node's word is remembered, and the
/// Machine's own goes. Empty: nothing changes.
pub fn remembered(machine: &Machine, node: &Node) -> BTreeMap<&'static str, Option<String>> {
    let (said, last) = (said(node), last(machine));
    let mut changes = BTreeMap::new();
    let is_heard = said.is_none_or(|text| Value::read(text).is_some());
    if !is_heard || (said.is_none() && last.is_none()) {
        return changes;
    }
    if said != last {
        changes.insert(keys::LAST_APPLIED_PRESERVE, said.map(str::to_owned));
    }
    if own(machine).is_some() {
        changes.insert(keys::PRESERVE, None);
    }
    changes
}

/// Both annotations of the Machine, to be removed. Empty: it has none.
pub fn forgotten(machine: &Machine) -> BTreeMap<&'static str, Option<String>> {
    let held = |key: &&'static str| meta::annotation(&machine.metadata, key).is_some();
    let all = [keys::PRESERVE, keys::LAST_APPLIED_PRESERVE].into_iter();
    all.filter(held).map(|key| (key, None)).collect()
}

/// Values that nobody can read, in words.
pub fn fault(machine: &Machine, node: Option<&Node>) -> Option<String> {
    let bad = |text: &&str| Value::read(text).is_none();
    let of_node = node.and_then(|node| Some((said(node).filter(bad)?, meta::name(&node.metadata))));
    let of_node = of_node.map(|(text, name)| format!("{text:?} on Node {name}"));
    let of_machine = own(machine).filter(bad).map(|text| format!("{text:?} on the Machine"));
    let all: Vec<String> = of_node.into_iter().chain(of_machine).collect();
    (!all.is_empty()).then(|| {
        let values = [Value::Now, Value::WhenFailed, Value::Never].map(|value| value.to_string());
        format!(
            "The value of {} cannot be read: {}. It is one of {}, and nothing changes until it is",
            keys::PRESERVE,
            all.join(", "),
            values.join(", ")
        )
    })
}

/// Whether a Failed Machine is kept for somebody who wants to look at it, or is about to be (MC-20).
pub fn keeps_failed(machine: &Machine, requested: Option<Value>, now: Timestamp) -> bool {
    match machine.preserved_until() {
        Some(until) => until > now,
        None => requested.is_some_and(Value::keeps_failed),
    }
}

/// What the Machine says itself.
fn own(machine: &Machine) -> Option<&str> {
    filled(meta::annotation(&machine.metadata, keys::PRESERVE))
}

/// What the Node last said.
fn last(machine: &Machine) -> Option<&str> {
    filled(meta::annotation(&machine.metadata, keys::LAST_APPLIED_PRESERVE))
}

/// What the Node says.
pub fn said(node: &Node) -> Option<&str> {
    filled(meta::annotation(&node.metadata, keys::PRESERVE))
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn machine(own: Option<&str>, last: Option<&str>) -> Machine {
        let mut annotations = Map::new();
        annotations.extend(own.map(|own| (keys::PRESERVE.to_owned(), json!(own))));
        annotations.extend(last.map(|last| (keys::LAST_APPLIED_PRESERVE.to_owned(), json!(last))));
        serde_json::from_value(json!({"metadata": {"name": "m", "annotations": annotations}, "spec": {}}))
            .expect("it is a Machine")
    }

    fn node(said: Option<&str>) -> Node {
        let annotations = said.map(|said| json!({ keys::PRESERVE: said }));
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).expect("it is a Node")
    }

    /// What is requested where the Machine, the Node and the memory of the Node say so; a Node `gone` is not there.
    fn requested(own: Option<&str>, said: Option<&str>, last: Option<&str>) -> (Option<Value>, Source) {
        let node = node(said);
        let node = (said != Some("gone")).then_some(&node);
        let request = request(&machine(own, last), node);
        (request.value, request.source)
    }

    #[test]
    fn the_nodes_word_wins_and_one_that_was_taken_back_is_no_word() {
        use Source::{Machine, Node};
        use Value::{Never, Now, WhenFailed};
        assert_eq!(requested(None, None, None), (None, Machine));
        assert_eq!(requested(Some("now"), None, None), (Some(Now), Machine));
        assert_eq!(requested(Some("now"), Some("false"), None), (Some(Never), Node));
        assert_eq!(
            requested(None, Some("when-failed"), Some("now")),
            (Some(WhenFailed), Node)
        );
        assert_eq!(requested(None, None, Some("now")), (None, Node), "it was taken back");
        assert_eq!(requested(None, Some(""), Some("now")), (None, Node), "empty is none");
        assert_eq!(requested(Some("now"), Some(""), Some("")), (Some(Now), Machine));
    }

    #[test]
    fn what_nobody_reads_or_sees_changes_nothing() {
        use Source::{Machine, Node};
        use Value::{Never, Now};
        assert_eq!(requested(Some("yes"), None, None), (None, Machine));
        assert_eq!(requested(None, Some("yes"), Some("now")), (Some(Now), Node));
        assert_eq!(requested(Some("now"), Some("yes"), None), (Some(Now), Machine));
        assert_eq!(requested(None, Some("gone"), Some("now")), (Some(Now), Node));
        assert_eq!(
            requested(Some("false"), Some("gone"), Some("now")),
            (Some(Never), Machine)
        );
        let (machine, node) = (machine(None, Some("now")), node(Some("yes")));
        assert!(remembered(&machine, &node).is_empty());
        let fault = fault(&machine, Some(&node)).expect("it cannot be read");
        assert!(
            fault.contains("\"yes\" on Node n") && !fault.contains("Machine."),
            "{fault}"
        );
    }

    #[test]
    fn the_nodes_word_is_remembered_and_the_machines_own_goes() {
        let changes = remembered(&machine(Some("now"), None), &node(Some("when-failed")));
        let wanted = [
            (keys::LAST_APPLIED_PRESERVE, Some("when-failed".to_owned())),
            (keys::PRESERVE, None),
        ];
        assert_eq!(changes, BTreeMap::from(wanted));
        assert!(remembered(&machine(None, Some("now")), &node(Some("now"))).is_empty());
        assert!(remembered(&machine(Some("now"), None), &node(None)).is_empty());
        let taken_back = remembered(&machine(None, Some("now")), &node(None));
        assert_eq!(taken_back, BTreeMap::from([(keys::LAST_APPLIED_PRESERVE, None)]));
    }
}
