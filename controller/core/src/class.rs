//! A MachineClass and the Secrets it names: whether machines can be made of it, and the finalizers that keep both
//! alive while they are needed.
//!
//! Decides from what was observed; fetches no Secret and asks no driver (the shell's `Check` step does, and stores its
//! [`Readiness`]). CL-1 and CL-2; W4, W7, W44, W45.

use std::collections::BTreeSet;
use std::fmt;

pub use condition::{Verdict, is_found_good, open_breakers, told_readiness};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{CreationRequest, MachineClass, keys, meta};
use crate::circuit_breaker::{Account, Circuits};
use crate::driver::{Drivers, Violation};
use crate::ids::{DriverName, SecretKey};
use crate::plan::Bearing;
use crate::provider_spec::SpecError;
use crate::refusal::Refusal;
use crate::sight::later;

/// What is known of a class since it, its Secrets or its driver last changed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Readiness {
    /// Not looked at since.
    #[default]
    Unchecked,
    /// Machines can be made of it, as far as anybody could tell.
    Ready(Recipe),
    /// Machines cannot be made of it.
    Faulty(Fault),
}

/// What a Machine's plan needs to know of a good class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// SHA-256 of what a CreateMachine request is made of: tells a repeat from a changed wish.
    pub digest: String,
    /// The user data holds the bootstrap token's placeholder.
    pub needs_token: bool,
    /// What is remembered on a Machine whose VM is asked for.
    pub essentials: CreationRequest,
}

/// Why no machine can be made of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `provider` is absent, and there are these drivers.
    NoProvider(BTreeSet<DriverName>),
    /// `provider` is absent, and not all drivers have told their names yet: nobody knows whether there is only one.
    NoDriver,
    /// `providerSpec` cannot be sent to any driver.
    Spec(SpecError),
    /// `nodeTemplate` is there and incomplete; names what is missing.
    NodeTemplate(String),
    /// A Secret that the class names is not there.
    SecretMissing(SecretKey),
    /// No Secret of the class holds the key `userData`.
    NoUserData(Vec<SecretKey>),
    /// A Secret could not be read for another reason than absence.
    SecretUnreadable(SecretKey, String),
    /// The user data is over its limit before any placeholder is filled in.
    UserData(String),
    /// The driver found violations.
    Rejected(Vec<Violation>),
    /// What the class's condition says, where nobody has looked but whoever wrote it.
    Told {
        /// The condition's reason: another fault's label.
        reason: String,
        /// The condition's message.
        message: String,
    },
}

impl Fault {
    /// Whether a set should not even make Machine objects. A Secret may still arrive; a refused spec must be changed.
    pub fn refuses_machines(&self) -> bool {
        match self {
            Self::NoProvider(_) | Self::Spec(_) | Self::NodeTemplate(_) | Self::Rejected(_) | Self::UserData(_) => true,
            Self::NoDriver | Self::SecretMissing(_) | Self::NoUserData(_) | Self::SecretUnreadable(..) => false,
            Self::Told { reason, .. } => {
                !matches!(reason.as_str(), "SecretMissing" | "NoUserData" | "SecretUnreadable")
            }
        }
    }

    /// One word for events and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoProvider(_) => "NoProvider",
            Self::NoDriver => condition::DRIVER_NOT_CONNECTED,
            Self::Spec(_) => "InvalidProviderSpec",
            Self::NodeTemplate(_) => "InvalidNodeTemplate",
            Self::SecretMissing(_) => "SecretMissing",
            Self::NoUserData(_) => "NoUserData",
            Self::SecretUnreadable(..) => "SecretUnreadable",
            Self::UserData(_) => "InvalidUserData",
            Self::Rejected(_) => "ClassRejected",
            Self::Told { .. } => "Told",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProvider(drivers) => {
                let names: Vec<&str> = drivers.iter().map(DriverName::as_str).collect();
                write!(
                    f,
                    "field provider is empty, and there are several drivers: set it to one of {}",
                    names.join(", ")
                )
            }
            Self::NoDriver => f.write_str(
                "field provider is empty, and which drivers there are is not known: start the one that is not connected, or set the field",
            ),
            Self::Spec(error) => write!(f, "providerSpec: {error}"),
            Self::NodeTemplate(missing) => write!(f, "nodeTemplate lacks {missing}"),
            Self::SecretMissing(key) => write!(f, "Secret {key} does not exist"),
            Self::NoUserData(keys) if keys.is_empty() => f.write_str("it names no Secret with the key userData"),
            Self::NoUserData(keys) => {
                let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
                write!(f, "no key userData in Secret {}", names.join(" or "))
            }
            Self::SecretUnreadable(key, why) => write!(f, "Secret {key} cannot be read: {why}"),
            Self::UserData(why) => write!(f, "userData: {why}"),
            Self::Rejected(violations) => {
                f.write_str("its driver refuses it: ")?;
                let fatal = violations.iter().filter(|violation| violation.fatal);
                let texts: Vec<String> = fatal.map(|v| format!("{}: {}", v.field, v.description)).collect();
                f.write_str(&texts.join("; "))
            }
            Self::Told { message, .. } => f.write_str(message),
        }
    }
}

/// The driver of a class: the one that it names, else the only one that there is.
pub fn driver(class: &MachineClass, drivers: &Drivers) -> Result<DriverName, Fault> {
    let driver = class.driver().or_else(|| drivers.only().cloned());
    driver.ok_or_else(|| match drivers.names.len() {
        0 | 1 => Fault::NoDriver,
        _ => Fault::NoProvider(drivers.names.clone()),
    })
}

/// Secrets of a class in the order of merging: the second wins over the first.
pub fn secret_keys(class: &MachineClass) -> Vec<SecretKey> {
    let own = meta::namespace(&class.metadata);
    let named = class.secret_refs().filter_map(|reference| {
        let name = reference.name.clone().filter(|name| !name.is_empty())?;
        let namespace = reference.namespace.clone().filter(|namespace| !namespace.is_empty());
        Some(SecretKey {
            namespace: namespace.unwrap_or_else(|| own.to_owned()),
            name,
        })
    });
    named.collect()
}

/// What the provider counts the calls of a class of that driver against: the last Secret wins over the others. `None`: the class names no
/// Secret.
pub fn account(class: &MachineClass, driver: DriverName) -> Option<Account> {
    Some(Account(driver, secret_keys(class).pop()?))
}

/// What `nodeTemplate` lacks, if it is there: the autoscaler scales from zero by it (CL-1).
pub fn node_template_fault(class: &MachineClass) -> Option<Fault> {
    let template = class.spec.node_template.as_ref()?;
    let resources = ["cpu", "gpu", "memory"]
        .into_iter()
        .filter(|resource| !template.capacity.contains_key(*resource));
    let mut missing: Vec<String> = resources.map(|resource| format!("capacity.{resource}")).collect();
    let texts = [
        ("instanceType", &template.instance_type),
        ("region", &template.region),
        ("zone", &template.zone),
    ];
    missing.extend(
        texts
            .into_iter()
            .filter(|(_, text)| text.is_empty())
            .map(|(field, _)| field.to_owned()),
    );
    (!missing.is_empty()).then(|| Fault::NodeTemplate(missing.join(", ")))
}

/// All that a decision about one class may look at.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The class.
    pub class: &'a MachineClass,
    /// How many Machines name it.
    pub machines: usize,
    /// The first of these Machines, by name; for people.
    pub first_machine: Option<&'a str>,
    /// What is known of it.
    pub readiness: &'a Readiness,
    /// What was last found out of it, also where it is to be looked at again.
    pub found: &'a Readiness,
    /// Its driver can be asked now.
    pub driver_is_here: bool,
    /// What stops driver calls about its Machines.
    pub circuits: Circuits<'a>,
    /// A check of it is under way.
    pub is_being_checked: bool,
    /// The last write of its status, if the API server refused it: roles and CRDs that were made for the original know no status of classes.
    pub status_refused: Option<&'a Refusal>,
    /// What was last reported of its deletion.
    pub reported: Option<&'a InUse>,
    /// The time.
    pub now: Timestamp,
}

/// How long after a deletion was asked for a process that has reported nothing of it yet does so: a later one leaves it at what its
/// predecessor has reported.
const REPORTED_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// Whether it is news who keeps an object that is being deleted.
fn is_news(meta: &ObjectMeta, in_use: &InUse, reported: Option<&InUse>, now: Timestamp) -> bool {
    match reported {
        Some(reported) => reported != in_use,
        None => meta::deleting_since(meta).is_some_and(|since| now < later(since, REPORTED_WITHIN)),
    }
}

/// What to do for a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep the class while Machines need it: their deletion needs its providerSpec (W4).
    AddFinalizer,
    /// No Machine needs it.
    RemoveFinalizer,
    /// Begin to read its Secrets, check its spec, ask its driver; the outcome wakes whoever waits for it.
    Check,
    /// Say in its status whether machines can be made of it, and what stops its Machines' driver calls.
    Record(Verdict),
    /// Somebody deleted it, and it waits: say for whom.
    Report(InUse),
}

/// Who keeps an object that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The kind of those who need it.
    pub kind: &'static str,
    /// How many they are.
    pub users: usize,
    /// The first of them, by name.
    pub first: String,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, users, first } = self;
        match users {
            1 => write!(f, "Deletion waits until {kind} {first} no longer needs it"),
            users => write!(
                f,
                "Deletion waits until {kind} {first} and {} more no longer need it",
                users.saturating_sub(1)
            ),
        }
    }
}

impl crate::plan::Step for Step {
    fn bearing(&self) -> Bearing {
        match self {
            Self::AddFinalizer | Self::RemoveFinalizer => Bearing::Stops,
            Self::Check | Self::Record(_) | Self::Report(_) => Bearing::Independent,
        }
    }
}

/// Why a plan for a class or a Secret is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Display says what each means")]
pub enum Why {
    Needed,
    NotNeeded,
    InUse,
    Unchecked,
    BeingChecked,
    Settled,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Needed => "it is needed and does not carry our finalizer yet",
            Self::NotNeeded => "nobody needs it any more",
            Self::InUse => "it is being deleted and still needed",
            Self::Unchecked => "it has not been looked at since it, its Secrets or its driver changed",
            Self::BeingChecked => "it is being looked at",
            Self::Settled => "it is as it should be",
        })
    }
}

/// The plan of a class.
pub type Plan = crate::plan::Plan<Step, Why>;

/// Decides what a class needs.
pub fn plan(seen: &Observed<'_>) -> Plan {
    let guarded = meta::has_finalizer(&seen.class.metadata, keys::FINALIZER);
    let deleting = meta::is_deleting(&seen.class.metadata);
    let mut plan = Plan::rest(Why::Settled);
    // Told first: what follows may be refused, or end the class.
    if !deleting && seen.status_refused.is_none_or(|refusal| !refusal.holds(seen.now)) {
        let news = Verdict::news(seen.class, seen.found, seen.driver_is_here, seen.circuits);
        plan.steps.extend(news.map(Step::Record));
    }
    match (guarded, seen.first_machine.filter(|_| seen.machines > 0)) {
        (false, Some(_)) if !deleting => {
            plan.steps.push(Step::AddFinalizer);
            plan.why = Why::Needed;
        }
        (true, None) => {
            plan.steps.push(Step::RemoveFinalizer);
            plan.why = Why::NotNeeded;
        }
        (true, Some(first)) if deleting => {
            let in_use = InUse {
                kind: "Machine",
                users: seen.machines,
                first: first.to_owned(),
            };
            let is_news = is_news(&seen.class.metadata, &in_use, seen.reported, seen.now);
            plan.steps.extend(is_news.then_some(Step::Report(in_use)));
            plan.why = Why::InUse;
        }
        (false, _) | (true, Some(_)) => {}
    }
    let is_wanted = *seen.readiness == Readiness::Unchecked && !(deleting && seen.machines == 0);
    match (is_wanted, seen.is_being_checked) {
        (true, false) => {
            plan.steps.push(Step::Check);
            plan.why = Why::Unchecked;
        }
        (true, true) => plan.why = Why::BeingChecked,
        (false, _) => {}
    }
    plan
}

/// All that a decision about one Secret of the control namespace may look at.
#[derive(Clone, Copy, Debug)]
pub struct SecretObserved<'a> {
    /// The Secret.
    pub secret: &'a ObjectMeta,
    /// How many classes name it.
    pub classes: usize,
    /// The first of them, by name.
    pub first_class: Option<&'a str>,
    /// A Machine whose VM was asked for with it, where no class names it any more.
    pub first_machine: Option<&'a str>,
    /// What was last reported of its deletion.
    pub reported: Option<&'a InUse>,
    /// The time.
    pub now: Timestamp,
}

/// What to do for a Secret of the control namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretStep {
    /// A class names it.
    AddFinalizer,
    /// No class names it any more, and no VM was asked for with it.
    RemoveFinalizer,
    /// Somebody deleted it, and it waits: say for whom.
    Report(InUse),
}

impl crate::plan::Step for SecretStep {
    fn bearing(&self) -> Bearing {
        match self {
            Self::AddFinalizer | Self::RemoveFinalizer => Bearing::Stops,
            Self::Report(_) => Bearing::Independent,
        }
    }
}

/// The plan of a Secret.
pub type SecretPlan = crate::plan::Plan<SecretStep, Why>;

/// Decides what a Secret needs.
pub fn plan_secret(seen: &SecretObserved<'_>) -> SecretPlan {
    let guarded = meta::has_finalizer(seen.secret, keys::SECRET_FINALIZER);
    let deleting = meta::is_deleting(seen.secret);
    let class = seen.first_class.map(|first| ("MachineClass", seen.classes, first));
    let machine = seen.first_machine.map(|first| ("Machine", 1, first));
    match (guarded, class.filter(|_| seen.classes > 0).or(machine)) {
        (false, Some(_)) if !deleting => SecretPlan::act(vec![SecretStep::AddFinalizer], Why::Needed),
        (true, None) => SecretPlan::act(vec![SecretStep::RemoveFinalizer], Why::NotNeeded),
        (true, Some((kind, users, first))) if deleting => {
            let first = first.to_owned();
            let in_use = InUse { kind, users, first };
            let is_news = is_news(seen.secret, &in_use, seen.reported, seen.now);
            let report = is_news.then_some(SecretStep::Report(in_use));
            SecretPlan::act(report.into_iter().collect(), Why::InUse)
        }
        (false, _) | (true, Some(_)) => SecretPlan::rest(Why::Settled),
    }
}

mod condition;

#[cfg(test)]
mod tests;
