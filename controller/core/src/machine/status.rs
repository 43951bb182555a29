//! What a plan writes into a Machine's status: the words, and whether they are there already.
//!
//! Decides nothing about when; phases, types and the suffix markers are the original's (MC-21, MC-27), so
//! that dashboards, the autoscaler and a rolled-back original read them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition};
use serde_json::{Value, json};

use super::observed::Observed;
use super::step::{Plan, Step, Why};
use crate::api::lenient::Word;
use crate::api::{CreationRequest, Machine, OperationReason, OperationState, OperationType, Phase};
use crate::driver::Vm;
use crate::merge::{given, replacing};
use crate::status::{LONGEST_TEXT, LONGEST_WORD, plain};

/// The whole of what one status write says. What it does not name stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// The phase from now on.
    pub phase: Phase,
    /// When that phase began.
    pub since: Timestamp,
    /// What the last operation was about.
    pub operation: OperationType,
    /// How it stands.
    pub state: OperationState,
    /// For people; a deletion's ends with the original's marker.
    pub description: String,
    /// Why the operation stands so, where a later decision depends on it.
    pub reason: Option<OperationReason>,
    /// The driver's code, in the original's spelling.
    pub error_code: Option<String>,
    /// When this was decided.
    pub at: Timestamp,
    /// The Node's conditions, whole, if they are to be copied.
    pub conditions: Option<Vec<NodeCondition>>,
    /// The VM's addresses, whole; only without a target cluster.
    pub addresses: Option<Vec<NodeAddress>>,
    /// The driver's breadcrumb.
    pub last_known_state: Option<String>,
    /// What the VM is asked for with, if it is to be stored.
    pub creation_request: Option<CreationRequest>,
    /// The record that is stored now: a merge patch must take its fields away by name.
    replaces: Option<CreationRequest>,
}

impl StatusChange {
    /// A write that keeps the phase.
    pub fn told(
        machine: &Machine,
        operation: OperationType,
        state: OperationState,
        text: String,
        now: Timestamp,
    ) -> Self {
        Self {
            phase: machine.phase().clone(),
            since: machine.phase_since().unwrap_or(now),
            operation,
            state,
            description: plain(&text, LONGEST_TEXT),
            reason: None,
            error_code: None,
            at: now,
            conditions: None,
            addresses: None,
            last_known_state: None,
            creation_request: None,
            replaces: machine.creation_request().cloned(),
        }
    }

    /// What the status says already, for more to be added. `None`: it says nothing yet.
    pub fn same(machine: &Machine, now: Timestamp) -> Option<Self> {
        let mut change = Self::again(machine, now)?;
        change.since = machine.phase_since().unwrap_or(now);
        Some(change)
    }

    /// What the status says already, with a phase that begins now. `None`: it says nothing yet.
    pub fn again(machine: &Machine, now: Timestamp) -> Option<Self> {
        let said = machine.last_operation()?;
        let text = said.description.clone().unwrap_or_default();
        let (operation, state) = (machine.operation_type()?, machine.operation_state()?);
        let mut change = Self::told(machine, operation, state, text, now);
        change.since = now;
        change.reason = machine.operation_reason();
        change.error_code = said.error_code.as_deref().map(|code| plain(code, LONGEST_WORD));
        Some(change)
    }

    /// The plan that writes it.
    pub fn act(self, why: Why) -> Plan {
        Plan::act(vec![Step::Record(Box::new(self))], why)
    }

    /// The plan that writes it, if the status does not say all of it already.
    pub fn plan(self, machine: &Machine, why: Why) -> Plan {
        let steps = (!self.is_told(machine)).then(|| Step::Record(Box::new(self)));
        Plan::act(steps.into_iter().collect(), why)
    }

    /// Enters a phase, now, unless the Machine is in it already.
    pub fn entering(mut self, phase: Phase) -> Self {
        if self.phase != phase {
            self.since = self.at;
        }
        self.phase = phase;
        self
    }

    /// Enters a phase that goes on counting from when the present one began.
    pub fn carrying(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// For a special reason.
    pub fn because(mut self, reason: OperationReason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// With a driver's code.
    pub fn with_code(mut self, word: &str) -> Self {
        self.error_code = Some(word.to_owned());
        self
    }

    /// Keeps the stored description, if it was written for the same operation, reason and code and ends with the same mark. Many Machines
    /// wait for the same thing, and none of them is written again only because the provider's words have changed.
    pub fn keeping_words(mut self, machine: &Machine, mark: &str) -> Self {
        let said = machine.last_operation().cloned().unwrap_or_default();
        let is_same = machine.operation_type() == Some(self.operation)
            && machine.operation_reason() == self.reason
            && said.error_code == self.error_code;
        let words = said.description.filter(|words| is_same && words.ends_with(mark));
        self.description = words.map_or(self.description, |words| plain(&words, LONGEST_TEXT));
        self
    }

    /// With the record of what the VM is asked for with.
    pub fn with_request(mut self, essentials: &CreationRequest) -> Self {
        self.creation_request = Some(essentials.clone());
        self
    }

    /// With the breadcrumb of a VM or a failure.
    pub fn with_crumb(mut self, crumb: Option<&String>) -> Self {
        self.last_known_state = crumb.filter(|crumb| !crumb.is_empty()).cloned();
        self
    }

    /// With the Node's conditions.
    pub fn with_conditions(mut self, conditions: &[NodeCondition]) -> Self {
        self.conditions = Some(conditions.to_vec());
        self
    }

    /// With the VM's addresses, sorted and once each.
    pub fn with_addresses(mut self, vm: &Vm) -> Self {
        let mut pairs: Vec<(String, String)> = vm
            .addresses
            .iter()
            .map(|address| (address.kind.to_owned(), address.address.clone()))
            .collect();
        if let Some(node) = &vm.node_name {
            pairs.push(("Hostname".to_owned(), node.as_str().to_owned()));
        }
        pairs.sort();
        pairs.dedup();
        self.addresses = Some(
            pairs
                .into_iter()
                .map(|(type_, address)| NodeAddress { type_, address })
                .collect(),
        );
        self
    }

    /// Whether the Machine's status says all of this already, times aside.
    pub fn is_told(&self, machine: &Machine) -> bool {
        let Some(status) = &machine.status else { return false };
        let Some(operation) = &status.last_operation else {
            return false;
        };
        *machine.phase() == self.phase
            && operation.description.as_deref() == Some(self.description.as_str())
            && operation.error_code.as_deref().unwrap_or("") == self.error_code.as_deref().unwrap_or("")
            && machine.operation_reason() == self.reason
            && machine.operation_state() == Some(self.state)
            && machine.operation_type() == Some(self.operation)
            && self.conditions.is_none()
            && self.addresses.is_none()
            && self
                .creation_request
                .as_ref()
                .is_none_or(|request| machine.creation_request() == Some(request))
            && self
                .last_known_state
                .as_ref()
                .is_none_or(|crumb| status.last_known_state.as_ref() == Some(crumb))
    }

    /// The body of a JSON merge patch of `/status`.
    pub fn patch(&self) -> Value {
        // Who is being deleted is not preserved (MC-20).
        let preserved = (self.phase == Phase::Terminating).then_some(Value::Null);
        let current = given([
            ("phase", Some(json!(self.phase.as_str()))),
            ("timeoutActive", Some(json!(self.phase == Phase::Pending))),
            ("lastUpdateTime", Some(json!(seconds(self.since)))),
            ("preserveExpiryTime", preserved.clone()),
            ("preserveDrainedTime", preserved),
        ]);
        let operation = json!({
            "description": self.description,
            "errorCode": self.error_code,
            "lastUpdateTime": seconds(self.at),
            "reason": self.reason.map_or("", Word::as_str),
            "state": self.state.to_string(),
            "type": self.operation.to_string(),
        });
        let request = self.creation_request.as_ref();
        let request = request.map(|request| replacing(Some(&json!(self.replaces)), &json!(request)));
        let status = given([
            ("currentStatus", Some(Value::Object(current))),
            ("lastOperation", Some(operation)),
            ("conditions", self.conditions.as_ref().map(|all| json!(all))),
            ("addresses", self.addresses.as_ref().map(|all| json!(all))),
            (
                "lastKnownState",
                self.last_known_state.as_ref().map(|crumb| json!(crumb)),
            ),
            ("creationRequest", request),
        ]);
        json!({ "status": status })
    }
}

/// What is stored of a preservation. Both times are written, whatever they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Until when.
    pub until: Option<Timestamp>,
    /// When the pods were gone.
    pub drained: Option<Timestamp>,
}

impl Keeping {
    /// What is stored.
    pub fn of(machine: &Machine) -> Self {
        Self {
            until: machine.preserved_until(),
            drained: machine.preserve_drained(),
        }
    }

    /// The body of a JSON merge patch of `/status`.
    pub fn patch(&self) -> Value {
        let current = json!({
            "preserveExpiryTime": self.until.map(seconds),
            "preserveDrainedTime": self.drained.map(seconds),
        });
        json!({ "status": { "currentStatus": current } })
    }
}

/// Stores a breadcrumb of the driver that the Machine does not carry yet: it wants to see it again at its next call.
pub(super) fn crumb_due(seen: &Observed<'_>, now: Timestamp) -> Option<Plan> {
    let crumb = seen.calls.crumb.as_ref()?;
    if self::crumb(seen.machine).as_ref() == Some(crumb) {
        return None;
    }
    let change = StatusChange::same(seen.machine, now)?.with_crumb(Some(crumb));
    Some(change.act(Why::CrumbChanged))
}

/// The stored breadcrumb.
pub(super) fn crumb(machine: &Machine) -> Option<String> {
    machine
        .status
        .as_ref()
        .and_then(|status| status.last_known_state.clone())
}

/// RFC 3339 in whole seconds, as `metav1.Time` is written.
fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}
