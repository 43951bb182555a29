//! What happens in a run, as values: the trace, the oracles and the story are made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millwright_oracles::Outcome;
use millwright_provider_virtual::cloud::{Cloud, Event as CloudEvent, Vm};
use millwright_sandbox::api::Api;
use millwright_sandbox::request::Verb;
use millwright_sandbox::store::{Key, Place};
use serde_json::Value;

use crate::fault::Lags;
use crate::kinds;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The manager, in which of its lives.
    Manager(u32),
    /// Whoever uses the cluster.
    Human,
    /// The kubelet of some VM.
    Kubelet,
    /// kube-controller-manager's garbage collector.
    Collector,
    /// kube-controller-manager's node lifecycle controller.
    NodeController,
    /// Whoever makes pods again, and the scheduler that brings them to Nodes.
    Scheduler,
    /// kube-controller-manager's disruption controller.
    Disruption,
    /// kube-controller-manager's attach/detach controller, and the storage driver that it orders.
    VolumeController,
    /// The cluster autoscaler.
    Autoscaler,
    /// The API server, where a request changes more than what it names.
    Server,
}

/// One request that reached the API, or one write of a controller inside of it.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// Whose.
    pub actor: Actor,
    /// What.
    pub verb: Verb,
    /// On which kind.
    pub place: Place,
    /// On which object; without a name for collections.
    pub key: Key,
    /// `status` and the like; empty for the object itself.
    pub subresource: String,
    /// The object before, where the request changed one.
    pub before: Option<Arc<Value>>,
    /// The object after; absent where it went, or nothing changed.
    pub after: Option<Arc<Value>>,
    /// The HTTP code.
    pub code: u16,
    /// Digest of the request's body.
    pub body: u64,
    /// When it left its sender.
    pub sent: Duration,
    /// It bound itself to a uid.
    pub names_uid: bool,
    /// It bound itself to a resourceVersion, or was an apply.
    pub names_version: bool,
}

/// One call as it leaves a manager; it may be lost on its way.
#[derive(Clone, Debug)]
pub struct Departure {
    /// The caller's life.
    pub incarnation: u32,
    /// Name of the method.
    pub method: String,
    /// The Machine's uid, where the call is about one.
    pub uid: String,
    /// The epoch of leadership that it carries.
    pub epoch: Option<u64>,
}

/// One call that reached a driver and was answered.
#[derive(Clone, Debug)]
pub struct DriverCall {
    /// The caller's life.
    pub incarnation: u32,
    /// Name of the method.
    pub method: String,
    /// The Machine's uid, where the call is about one.
    pub uid: String,
    /// The gRPC code that the driver answered with; what the manager hears may be something else.
    pub code: i32,
}

/// As what the end of a run is judged, by how it came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// From an ordinary start (L1).
    Ordinary,
    /// Beside a class whose driver never comes (L4).
    Beside,
    /// After something outside of our objects was repaired (L7).
    Repaired,
    /// From a state that no manager made (L3).
    AnyState,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// The run begins.
    Begin {
        /// Whether managers elect a leader.
        elects: bool,
        /// As what its end is judged.
        regime: Regime,
        /// How old what managers act on may be.
        lags: Lags,
    },
    /// A request reached the API.
    Api(ApiRequest),
    /// A call left a manager for the driver.
    Leaves(Departure),
    /// A call reached the driver and was answered.
    Driver(DriverCall),
    /// A manager heard what came of a call.
    Heard {
        /// Its life.
        incarnation: u32,
        /// Name of the method.
        method: String,
        /// The Machine's uid, where the call is about one.
        uid: String,
        /// What it heard.
        outcome: Outcome,
    },
    /// A driver has shown a manager the last page of its VMs, and by its word these are all.
    Listed {
        /// The manager.
        incarnation: u32,
        /// The ids of the VMs.
        ids: BTreeSet<String>,
    },
    /// A VM changed.
    Cloud {
        /// How.
        event: CloudEvent,
        /// As it is now, or last was.
        vm: Arc<Vm>,
    },
    /// A manager began.
    Start {
        /// Its number.
        incarnation: u32,
    },
    /// A manager died, or ended in order.
    End {
        /// Its number.
        incarnation: u32,
        /// How.
        how: String,
    },
    /// The simulator did harm.
    Fault {
        /// Its name, as `F9`.
        name: &'static str,
        /// To what.
        about: String,
    },
    /// The cluster of the Nodes and tokens is out of everybody's reach.
    TargetAway,
    /// It is back.
    TargetBack,
    /// The driver speaks of a newer leader that there is not.
    FalseLeader,
    /// The wall clock of a manager was set.
    ClockSet,
    /// What the story needs beside.
    Note(String),
    /// Faults end here; from now on all must come right.
    Quiet,
    /// All has converged, every request has arrived and every watch has caught up: from now on nobody changes anything.
    Rest,
    /// What the human is about to do.
    UserAction {
        /// In words.
        text: String,
    },
}

/// Something that happened, and when.
#[derive(Clone, Debug)]
pub struct Event {
    /// Virtual time since the run began.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// The ground truth at the moment of an event: what is, whoever has seen it or not.
pub struct Truth<'a> {
    /// All objects.
    pub api: &'a Api,
    cloud: &'a Cloud,
    /// Creations that a driver is at work on, by the Machine's uid.
    pub creations: &'a BTreeMap<String, u32>,
    /// Virtual time since the run began.
    pub now: Duration,
}

impl<'a> Truth<'a> {
    /// The truth about this API and this cloud.
    pub fn new(api: &'a Api, cloud: &'a Cloud, creations: &'a BTreeMap<String, u32>, now: Duration) -> Self {
        Self {
            api,
            cloud,
            creations,
            now,
        }
    }

    /// Every VM that is, seen by lookups or not.
    pub fn vms(&self) -> Vec<Arc<Vm>> {
        self.cloud.everything()
    }

    /// All objects of a kind, by its plural.
    pub fn all(&self, plural: &str) -> impl Iterator<Item = Arc<Value>> + use<'a> {
        self.api.all(&kinds::place(plural)).map(|(_, object)| object)
    }

    /// An object of a kind, by its plural, where the simulator has its objects.
    pub fn named(&self, plural: &str, name: &str) -> Option<Arc<Value>> {
        let kind = kinds::kind(plural);
        self.api.stored(&kind.place(), &Key::new(kind.namespace, name))
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, as `S1`.
    pub property: &'static str,
    /// What was seen instead.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.text)
    }
}

/// Judges a run. Sees every event in its order and the truth right after it.
pub trait Oracle: Send {
    /// Judges one event.
    fn see(&mut self, event: &Event, truth: &Truth<'_>) -> Result<(), Violation>;

    /// Judges the end, when all must have come right.
    fn end(&mut self, truth: &Truth<'_>) -> Result<(), Violation> {
        let _ = truth;
        Ok(())
    }

    /// How often what it looks for could have gone wrong, by name: an oracle that never could judge proves nothing.
    fn antecedents(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager(number) => write!(f, "manager {number}"),
            Self::Human => f.write_str("human"),
            Self::Kubelet => f.write_str("kubelet"),
            Self::Collector => f.write_str("collector"),
            Self::NodeController => f.write_str("node controller"),
            Self::Scheduler => f.write_str("scheduler"),
            Self::Disruption => f.write_str("disruption controller"),
            Self::VolumeController => f.write_str("volume controller"),
            Self::Autoscaler => f.write_str("autoscaler"),
            Self::Server => f.write_str("API server"),
        }
    }
}

impl fmt::Display for ApiRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        write!(
            f,
            "{}: {:?} {}{slash}{} {} → {}",
            self.actor, self.verb, self.place.plural, self.subresource, self.key.name, self.code
        )?;
        let version = self.after.as_deref().map(millwright_sandbox::object::version);
        match (&self.before, version) {
            (Some(_), None) => f.write_str(", gone"),
            (_, Some(version)) => write!(f, ", version {version}"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} ", self.at.as_secs_f64())?;
        match &self.what {
            What::Api(request) => write!(f, "{request} #{:08x}", request.body >> 32),
            What::Begin { elects: true, .. } => f.write_str("begins; managers elect a leader"),
            What::Begin { elects: false, .. } => f.write_str("begins"),
            What::Leaves(call) => write!(f, "manager {}: {} {}", call.incarnation, call.method, call.uid),
            What::Driver(call) => write!(
                f,
                "manager {} → driver: {} {} → {:?}",
                call.incarnation,
                call.method,
                call.uid,
                tonic::Code::from_i32(call.code)
            ),
            What::Heard {
                incarnation,
                method,
                uid,
                outcome,
            } => write!(f, "manager {incarnation} heard of {method} {uid}: {outcome:?}"),
            What::Listed { incarnation, ids } => {
                write!(f, "manager {incarnation} has been shown all VMs: {}", ids.len())
            }
            What::Cloud { event, vm } => write!(f, "cloud: {} {} of {}", vm.id, event.word(), vm.owner.name),
            What::Start { incarnation } => write!(f, "manager {incarnation} starts"),
            What::End { incarnation, how } => write!(f, "manager {incarnation} ends: {how}"),
            What::Fault { name, about } => write!(f, "FAULT {name}: {about}"),
            What::TargetAway => f.write_str("the target cluster is away"),
            What::TargetBack => f.write_str("the target cluster is back"),
            What::FalseLeader => f.write_str("the driver speaks of a leader that there is not"),
            What::ClockSet => f.write_str("a wall clock is set"),
            What::Note(text) => f.write_str(text),
            What::Quiet => f.write_str("QUIET: faults end"),
            What::Rest => f.write_str("REST: nothing is to do"),
            What::UserAction { text } => write!(f, "human: {text}"),
        }
    }
}
