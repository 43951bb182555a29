//! Shows the oracles what happened, in their words. The one place that knows the simulator's record and theirs.
//!
//! Judges nothing by itself. What the simulator does not record (logs, metrics) the oracles do not see.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use millwright_oracles as oracles;
use millwright_oracles::settings::Settings;
use millwright_oracles::{Act, By, Call, Heard, Method, Panel, VmChange, Write};
use millwright_provider_virtual::cloud::{Event as CloudEvent, Vm};
use millwright_sandbox::request::Verb;
use millwright_sandbox::store::Place;
use serde_json::Value;

use crate::clock::{DAWN, after};
use crate::event::{Actor, ApiRequest, Departure, Event, Oracle, Regime, Truth, Violation, What};
use crate::fault::{self, Lags};
use crate::kinds;
use crate::life::{CLUSTER, CREATION_TIMEOUT, DETACH_TIMEOUT, DRAIN_TIMEOUT, NAMESPACE, ORPHAN_MIN_AGE, ORPHAN_PERIOD};
use crate::workload::body::{CANARY, FORSAKEN, NEVER};

/// A panel of all oracles, as one oracle of the simulator's.
#[derive(Default)]
pub struct Judge {
    /// Sits from the run's first event on.
    panel: Option<Panel>,
    /// Which life last asked for a creation or deletion, by the Machine's uid.
    creator: BTreeMap<String, u32>,
    remover: BTreeMap<String, u32>,
    /// VMs whose removal was told.
    leaving: BTreeSet<String>,
}

impl Judge {
    /// A judge of one run.
    pub fn boxed() -> Vec<Box<dyn Oracle>> {
        vec![Box::new(Self::default())]
    }

    fn acts(&mut self, what: &What, truth: &Truth<'_>) -> Vec<Act> {
        match what {
            What::Api(request) => of_request(request, truth).into_iter().collect(),
            What::Leaves(call) => vec![Act::Call(self.call(call))],
            What::Heard {
                incarnation,
                method,
                uid,
                outcome,
            } => vec![Act::Heard(Heard {
                by: By::Manager(*incarnation),
                method: method_of(method),
                uid: uid.clone(),
                outcome: *outcome,
            })],
            What::Listed { incarnation, ids } => {
                let (by, ids) = (By::Manager(*incarnation), ids.clone());
                vec![Act::Listed { by, ids }]
            }
            What::Cloud { event, vm } => self.changes(*event, vm),
            What::Start { incarnation } => vec![Act::Started(By::Manager(*incarnation))],
            What::End { incarnation, how } => match how.as_str() {
                "crash" => vec![Act::Crashed(By::Manager(*incarnation))],
                // An orderly end is no act of its own.
                _ => Vec::new(),
            },
            What::TargetAway => vec![Act::TargetAway],
            What::TargetBack => vec![Act::TargetBack],
            What::ClockSet => vec![Act::ClockSet],
            What::Rest => vec![Act::Rest],
            What::UserAction { .. } => vec![Act::Unrest],
            // What a call came to is seen by what it changed.
            What::Begin { .. }
            | What::FalseLeader
            | What::Driver(_)
            | What::Fault { .. }
            | What::Note(_)
            | What::Quiet => Vec::new(),
        }
    }

    fn call(&mut self, call: &Departure) -> Call {
        let method = method_of(&call.method);
        let asked = match method {
            Method::CreateMachine => Some(&mut self.creator),
            Method::DeleteMachine => Some(&mut self.remover),
            Method::Other => None,
        };
        if let Some(asked) = asked {
            asked.insert(call.uid.clone(), call.incarnation);
        }
        Call {
            by: By::Manager(call.incarnation),
            method,
            uid: call.uid.clone(),
            epoch: call.epoch,
        }
    }

    /// A VM goes by a manager's will if any manager ever asked for that, else by the cloud's or its console's.
    fn changes(&mut self, event: CloudEvent, vm: &Vm) -> Vec<Act> {
        let (uid, id) = (vm.owner.uid.clone(), vm.id.to_string());
        let by = |asked: &BTreeMap<String, u32>| asked.get(&uid).map_or(By::Cloud, |life| By::Manager(*life));
        let (maker, remover) = (by(&self.creator), by(&self.remover));
        let change = |by, change| Act::Vm { by, change };
        match event {
            CloudEvent::Accepted => {
                let foreign = (!is_ours(vm)).then(|| Act::Foreign { id: id.clone() });
                let accepted = change(maker, VmChange::Accepted { uid, id });
                std::iter::once(accepted).chain(foreign).collect()
            }
            CloudEvent::Deleting | CloudEvent::Removed => {
                let mut acts = Vec::new();
                // What goes at once leaves and is gone in one step.
                if self.leaving.insert(id.clone()) {
                    let (uid, id) = (uid.clone(), id.clone());
                    acts.push(change(remover, VmChange::Leaving { uid, id }));
                }
                if event == CloudEvent::Removed {
                    acts.push(change(remover, VmChange::Gone { uid, id }));
                }
                acts
            }
            CloudEvent::Booted | CloudEvent::Joined | CloudEvent::Stopped => Vec::new(),
        }
    }
}

impl Oracle for Judge {
    fn see(&mut self, event: &Event, truth: &Truth<'_>) -> Result<(), Violation> {
        if let What::Begin { elects, regime, lags } = event.what {
            self.panel = Some(Panel::new(&settings(elects, regime, lags)));
        }
        let acts = self.acts(&event.what, truth);
        let Some(panel) = &mut self.panel else {
            return Err(Violation {
                property: "simulator",
                text: "something happened before the run began".to_owned(),
            });
        };
        let at = after(DAWN, event.at);
        for act in acts {
            panel
                .see(&oracles::Event { at, act }, &Seen::of(truth))
                .map_err(broken)?;
        }
        Ok(())
    }

    fn end(&mut self, truth: &Truth<'_>) -> Result<(), Violation> {
        match &mut self.panel {
            Some(panel) => panel.end(&Seen::of(truth)).map_err(broken),
            None => Ok(()),
        }
    }

    fn antecedents(&self) -> Vec<(&'static str, u64)> {
        let hits = self.panel.as_ref().map(Panel::hits);
        hits.into_iter().flatten().collect()
    }
}

fn settings(elects: bool, regime: Regime, lags: Lags) -> Settings {
    let signed = |lag: Duration| SignedDuration::try_from(lag).unwrap_or(SignedDuration::MAX);
    Settings {
        max_lag: signed(lags.view),
        read_lag: signed(lags.read),
        creation_timeout: CREATION_TIMEOUT,
        drain_timeout: DRAIN_TIMEOUT,
        detach_timeout: DETACH_TIMEOUT,
        orphan_min_age: ORPHAN_MIN_AGE,
        orphan_apart: ORPHAN_PERIOD * 3 / 4,
        target_may_be_away: lags.has_outages,
        writes_may_be_refused: lags.has_refusals,
        lookups_may_lie: lags.has_false_lookups,
        judges_set_clocks: lags.has_set_clocks || !fault::PENDING.contains(&"F59"),
        elects,
        broken_classes: broken_in(regime),
        beside: regime == Regime::Beside,
        any_state: regime == Regime::AnyState,
        repaired: regime == Regime::Repaired,
        canaries: vec![CANARY.to_owned()],
        ..Settings::default()
    }
}

fn method_of(name: &str) -> Method {
    match name {
        "CreateMachine" => Method::CreateMachine,
        "DeleteMachine" => Method::DeleteMachine,
        _ => Method::Other,
    }
}

/// Whether a VM is this cluster's and this namespace's, and tells of which Machine.
fn is_ours(vm: &Vm) -> bool {
    let owner = &vm.owner;
    owner.cluster == CLUSTER && owner.namespace == NAMESPACE && !owner.name.is_empty()
}

fn broken(violation: oracles::Violation) -> Violation {
    Violation {
        property: violation.property,
        text: violation.what,
    }
}

fn of_request(request: &ApiRequest, truth: &Truth<'_>) -> Option<Act> {
    let (by, resource) = (by(request.actor), request.place.plural.clone());
    let verb = match request.verb {
        // Each process that leads looks once for what others have left in the target cluster: another list than that of its watch.
        Verb::List if request.key.namespace == "kube-system" => {
            let resource = format!("{resource} of kube-system");
            return Some(Act::List { by, resource });
        }
        Verb::List => return Some(Act::List { by, resource }),
        Verb::Get | Verb::Watch | Verb::Other => return None,
        Verb::Create => oracles::Verb::Create,
        Verb::Update => oracles::Verb::Update,
        Verb::Patch => oracles::Verb::Patch,
        Verb::Delete | Verb::DeleteCollection => oracles::Verb::Delete,
    };
    let (mut before, mut after_) = (request.before.clone(), request.after.clone());
    // A write that changed nothing is told with the object as it stands; what could not be made does not.
    if before.is_none() && after_.is_none() && verb != oracles::Verb::Create {
        before = truth.api.stored(&request.place, &request.key);
        after_.clone_from(&before);
    }
    Some(Act::Write(Write {
        by,
        sent: after(DAWN, request.sent),
        verb,
        resource,
        subresource: request.subresource.clone(),
        before,
        after: after_,
        names_uid: request.names_uid,
        names_version: request.names_version,
        accepted: (200..300).contains(&request.code),
    }))
}

fn by(actor: Actor) -> By {
    match actor {
        Actor::Manager(life) => By::Manager(life),
        Actor::Human | Actor::Autoscaler => By::Human,
        Actor::Kubelet => By::Kubelet,
        Actor::Collector
        | Actor::NodeController
        | Actor::Scheduler
        | Actor::Disruption
        | Actor::VolumeController
        | Actor::Server => By::Cluster,
    }
}

fn broken_classes() -> BTreeSet<String> {
    [FORSAKEN.to_owned(), NEVER.to_owned()].into()
}

/// Classes whose machines come to nothing in such a run.
fn broken_in(regime: Regime) -> BTreeSet<String> {
    match regime {
        Regime::Beside => broken_classes(),
        Regime::Ordinary | Regime::Repaired | Regime::AnyState => [NEVER.to_owned()].into(),
    }
}

/// What a run came to, to be compared with others.
pub fn ending(truth: &Truth<'_>, regime: Regime) -> oracles::Ending {
    oracles::Ending::of(&Seen::of(truth), &broken_in(regime))
}

/// Whether all is as the human wants it and nothing is going; what is otherwise is told.
pub fn settled(truth: &Truth<'_>) -> Result<(), String> {
    settled_by(truth).0
}

/// The same, and the kinds of objects from which it was seen. It hangs on them and on the VMs.
pub fn settled_by(truth: &Truth<'_>) -> (Result<(), String>, BTreeSet<Place>) {
    let seen = Seen::of(truth);
    let settled = oracles::wanted::settled(&seen, &broken_classes());
    (settled, seen.kinds.into_inner())
}

/// Whether a Machine's phase began in the future.
pub fn is_ahead(truth: &Truth<'_>) -> bool {
    let now = after(DAWN, truth.now);
    let since = |machine: &Value| -> Option<Timestamp> {
        let since = machine.pointer("/status/currentStatus/lastUpdateTime")?;
        since.as_str()?.parse().ok()
    };
    let mut machines = truth.all("machines");
    machines.any(|machine| since(&machine).is_some_and(|since| since > now))
}

/// Whether a set keeps names free for creations that may still arrive.
pub fn awaits_creations(truth: &Truth<'_>) -> bool {
    let number = |set: &Value, field: &str| set.pointer(field).and_then(Value::as_i64).unwrap_or(0);
    let mut sets = truth.all("machinesets");
    sets.any(|set| number(&set, "/status/settledMachineNumber") < number(&set, "/status/nextMachineNumber"))
}

/// Whether a Machine's record lacks what reaches the VM, because the driver could not check the class when the VM was made: the next listing
/// of VMs tells it, and it is written then.
pub fn awaits_records(truth: &Truth<'_>) -> bool {
    let mut machines = truth.all("machines");
    machines.any(|machine| {
        let record = machine.pointer("/status/creationRequest");
        record.is_some_and(|record| record.get("inventoryKey").is_none())
    })
}

/// When the last bootstrap token will have expired; the beginning where there is none.
pub fn last_expiry(truth: &Truth<'_>) -> Duration {
    let tokens = truth.all("secrets");
    let expiry = tokens.filter_map(|secret| expiration(&secret)).max().unwrap_or(DAWN);
    Duration::try_from(expiry.duration_since(DAWN)).unwrap_or_default()
}

/// When the last preservation will be over; the beginning where there is none.
pub fn last_preservation(truth: &Truth<'_>) -> Duration {
    let ends = truth.all("machines").filter_map(|machine| {
        let text = machine.pointer("/status/currentStatus/preserveExpiryTime")?.as_str()?;
        text.parse::<Timestamp>().ok()
    });
    let end = ends.max().unwrap_or(DAWN);
    Duration::try_from(end.duration_since(DAWN)).unwrap_or_default()
}

/// When a bootstrap token expires, as its Secret says. Other Secrets say nothing of the kind.
pub fn expiration(secret: &Value) -> Option<Timestamp> {
    let text = secret.pointer("/data/expiration")?.as_str()?;
    String::from_utf8(STANDARD.decode(text).ok()?).ok()?.parse().ok()
}

/// The truth, as oracles ask for it, and for which kinds they asked.
pub struct Seen<'a, 'b> {
    truth: &'a Truth<'b>,
    kinds: RefCell<BTreeSet<Place>>,
}

impl<'a, 'b> Seen<'a, 'b> {
    /// This truth.
    pub fn of(truth: &'a Truth<'b>) -> Self {
        let kinds = RefCell::default();
        Self { truth, kinds }
    }
}

impl oracles::Truth for Seen<'_, '_> {
    fn now(&self) -> Timestamp {
        after(DAWN, self.truth.now)
    }

    fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let place = kinds::place(resource);
        let objects = self.truth.api.all(&place).map(|(_, object)| object).collect();
        self.kinds.borrow_mut().insert(place);
        objects
    }

    fn vms(&self) -> Vec<oracles::Vm> {
        let vms = self.truth.vms();
        vms.iter()
            .filter(|vm| is_ours(vm))
            .map(|vm| oracles::Vm {
                uid: vm.owner.uid.clone(),
                id: vm.id.to_string(),
                provider_id: vm.provider_id(),
                leaving: vm.deletion.is_some(),
                runs: vm.stopped_at.is_none(),
            })
            .collect()
    }

    fn may_appear(&self, uid: &str) -> bool {
        self.truth.creations.contains_key(uid)
    }
}
