//! The record of a run: who did what, and when it took effect. Decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// One event at the instant at which it took effect.
#[derive(Clone, Debug)]
pub struct Event {
    /// The API server's time.
    pub at: Timestamp,
    /// What happened.
    pub act: Act,
}

/// Who did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The manager's n-th incarnation, or the n-th of several managers.
    Manager(u32),
    /// A user, or a tool of theirs.
    Human,
    /// The cluster's own controllers: garbage collection, node lifecycle.
    Cluster,
    /// A kubelet.
    Kubelet,
    /// The cloud by itself.
    Cloud,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Act {
    /// A write took effect, or was refused.
    Write(Write),
    /// A list was answered.
    List { by: By, resource: String },
    /// A driver call left the manager.
    Call(Call),
    /// A manager heard what came of a driver call.
    Heard(Heard),
    /// A driver has shown a manager all VMs, by its own word: the ids of those.
    Listed { by: By, ids: BTreeSet<String> },
    /// The VM of that id, which has just come to be, is another cluster's or another manager's by its tags.
    Foreign { id: String },
    /// The cloud changed.
    Vm { by: By, change: VmChange },
    /// Text or bytes went where people or programs read them: a log, a metric, an event, a status, a driver call of a class.
    Said { by: By, place: String, text: String },
    /// An incarnation of the manager began.
    Started(By),
    /// It was killed.
    Crashed(By),
    /// The cluster of the Nodes and tokens is out of reach from now on.
    TargetAway,
    /// It is back.
    TargetBack,
    /// Somebody set the wall clock of a manager.
    ClockSet,
    /// Everything has converged and nothing will change until `Unrest`.
    Rest,
    /// Somebody is about to change something.
    Unrest,
}

/// The verbs of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Update,
    Patch,
    Delete,
}

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    pub by: By,
    /// When the request left its sender.
    pub sent: Timestamp,
    pub verb: Verb,
    /// Plural of the kind.
    pub resource: String,
    /// "status", "scale", "eviction" or nothing.
    pub subresource: String,
    /// Nothing for what did not exist.
    pub before: Option<Arc<Value>>,
    /// Nothing for what exists no more.
    pub after: Option<Arc<Value>>,
    /// The request bound itself to a uid.
    pub names_uid: bool,
    /// The request bound itself to a resourceVersion, or was an apply.
    pub names_version: bool,
    /// Whether the server took it; the objects are the same before and after where it did not.
    pub accepted: bool,
}

impl Write {
    /// The object that it is about, as it is after it if there is one.
    pub fn object(&self) -> Option<&Arc<Value>> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// What a driver is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    CreateMachine,
    DeleteMachine,
    /// What changes nothing.
    Other,
}

/// One driver call as it leaves the manager.
#[derive(Clone, Debug)]
pub struct Call {
    pub by: By,
    pub method: Method,
    /// The Machine's uid; nothing for calls about no machine.
    pub uid: String,
    /// The leader's epoch that it carries.
    pub epoch: Option<u64>,
}

/// What a manager heard of a driver call. An answer that it did not wait for it has not heard.
#[derive(Clone, Debug)]
pub struct Heard {
    pub by: By,
    pub method: Method,
    /// The Machine's uid; nothing for calls about no machine.
    pub uid: String,
    pub outcome: Outcome,
}

/// What came of a driver call, as far as it says when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It failed for what may be over at any moment, and did not say when.
    Transient,
    /// It failed, and said after which time to try again.
    Later(SignedDuration),
    /// The account is called too fast, and all its calls are to pause so long.
    Throttled(SignedDuration),
    /// It failed for another reason.
    Refused,
}

/// What became of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmChange {
    /// The order was accepted: from now on it costs money.
    Accepted { uid: String, id: String },
    /// Its removal was accepted.
    Leaving { uid: String, id: String },
    /// Nothing is left of it.
    Gone { uid: String, id: String },
}
