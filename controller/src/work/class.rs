//! Observe and execute for MachineClasses and the Secrets they name.
//!
//! `check` is the one place that finds out whether machines can be made of a class; what that means is decided in
//! `millwright_core::class`. A check reads Secrets and asks a driver, so it runs as a task of its own: no worker waits for it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use millwright_core::api::{CreationRequest, Machine, MachineClass, keys, meta};
use millwright_core::class::{self, Fault, InUse, Observed, Readiness, Recipe, SecretObserved, SecretStep, Step, Why};
use millwright_core::driver::Capability;
use millwright_core::ids::{DriverName, Name};
use millwright_core::kinds::{ClassBy, OwnedBy, SecretMeta};
use millwright_core::provider_spec;
use millwright_core::queue::Urgency;
use millwright_core::sight::later;
use millwright_core::user_data;
use millwright_core::wake::Key;
use millwright_core::world::{Kind, World};

use super::pass::{Planned, Reconciler, Run};
use super::shared::Shared;
use super::step::StepError;
use super::vm::secrets_of;
use crate::driver::{ClassSecrets, DriverClass, DriverState, Scope, SecretError};
use crate::kube::error::WriteError;
use crate::kube::events::Severity;

/// A fault that may heal without any event of ours is looked at again after this time.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

/// MachineClasses.
pub(super) struct Classes;

impl Reconciler for Classes {
    const KIND: &'static str = "class";
    type Object = MachineClass;
    type Step = Step;
    type Why = Why;
    type Carry = ();

    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>> {
        let class = world.classes.get(name)?;
        let mut users = world.machines.find(OwnedBy::Class, name.as_str());
        let seen = Observed {
            class,
            machines: world.machines.count(OwnedBy::Class, name.as_str()),
            first_machine: users.next().map(|machine| meta::name(&machine.metadata)),
            // What may heal by itself is looked at again at every wake: `LOOK_AGAIN` is one, and an event in between may be too.
            readiness: match world.ledger.readiness(name) {
                Readiness::Faulty(fault) if may_heal(fault) => &Readiness::Unchecked,
                Readiness::Ready(_) if world.ledger.is_unheard(name, now) => &Readiness::Unchecked,
                known => known,
            },
            found: world.ledger.readiness(name),
            driver_is_here: world
                .ledger
                .driver_of(class)
                .is_some_and(|driver| shared.is_here(&driver)),
            circuits: world.ledger.breakers.circuits(name),
            is_being_checked: world.ledger.is_being_checked(name),
            status_refused: world.ledger.status_refused(name),
            reported: world.ledger.reports.get(&meta::identity(&class.metadata).1),
            now,
        };
        let plan = (shared.env.planners.class)(&seen);
        let broken = shared.env.planners.broken(|laws| (laws.class)(&seen, &plan));
        Some(Planned {
            object: Arc::clone(class),
            plan,
            broken,
        })
    }

    async fn step(shared: &Arc<Shared>, run: &mut Run<Self>, step: Step, _: &Why) -> Result<(), StepError> {
        let class = &mut run.object;
        match step {
            Step::AddFinalizer => *class = shared.wrote(shared.write.add_finalizer(&**class, keys::FINALIZER).await?),
            Step::RemoveFinalizer => {
                let left = shared.write.remove_finalizer(&**class, keys::FINALIZER).await?;
                if let Some(left) = shared.released(left) {
                    *class = left;
                }
            }
            Step::Check => begin_check(shared, meta::identity(&class.metadata).0),
            Step::Record(verdict) => {
                let patch = verdict.into_patch(class, shared.env.now());
                let written = shared.write.merge_status(&**class, patch).await;
                *class = recorded(shared, class, written)?;
            }
            Step::Report(in_use) => tell_deletion_waits(shared, class, in_use),
        }
        Ok(())
    }
}

/// Takes the answer to a write of a class's status. Where the API server takes none, it is told once, and the class works all the same.
fn recorded(
    shared: &Shared,
    class: &Arc<MachineClass>,
    written: Result<MachineClass, WriteError>,
) -> Result<Arc<MachineClass>, StepError> {
    let (name, now) = (meta::identity(&class.metadata).0, shared.env.now());
    let reason = match written {
        Ok(written) => {
            shared.quietly(|world| world.ledger.takes_status(&name));
            return Ok(shared.wrote(written));
        }
        Err(WriteError::Refused { reason }) => reason,
        Err(error) => return Err(StepError::of_another(error)),
    };
    if shared.quietly(|world| world.ledger.refuses_status(&name, reason.clone(), now)) {
        tracing::warn!(class = %name, reason, "the status of the class cannot be written: its events and its Machines tell of it instead");
    }
    Ok(Arc::clone(class))
}

/// Tells who keeps an object that somebody deleted, and notes that it was told: the next plan tells only of a change.
fn tell_deletion_waits<K>(shared: &Shared, object: &Arc<K>, in_use: InUse)
where
    K: Kind + kube::Resource<DynamicType = ()>,
{
    let text = in_use.to_string();
    shared
        .events
        .publish(&**object, Severity::Warning, "DeletionBlocked", &text);
    let (name, uid) = meta::identity(object.meta());
    shared.quietly(|world| {
        world.note::<K>(&name, &uid, |ledger| {
            ledger.reports.insert(uid.clone(), in_use);
        });
    });
}

/// Starts a check; its outcome wakes whoever waits for the class. What it finds out holds for what was there when it began.
fn begin_check(shared: &Arc<Shared>, name: Name) {
    // The class of the pass may be older than what the stamp stands for, and its recipe would be believed.
    let begun = shared.quietly(|world| {
        let class = Arc::clone(world.classes.get(&name)?);
        Some((class, world.ledger.begins_check(&name)))
    });
    let Some((class, stamp)) = begun else { return };
    let task = Arc::clone(shared);
    shared.calls.spawn(async move {
        let known = task.look(|world| world.ledger.reached(&class).cloned());
        let mut heard = Heard {
            driver: None,
            essentials: known.unwrap_or_else(|| CreationRequest::of(&class, None)),
            is_incomplete: false,
        };
        let checked = AssertUnwindSafe(check(&task, &class, &mut heard)).catch_unwind().await;
        let readiness = match checked {
            Ok(Ok(recipe)) => Readiness::Ready(recipe),
            // A driver that has not come yet is no fault of the class: its condition says what it waits for.
            Ok(Err(fault @ Fault::NoDriver)) => Readiness::Faulty(fault),
            Ok(Err(fault)) => {
                let found = Readiness::Faulty(fault.clone());
                // A fault that stays is found again and again for as long as it may heal, and is told once.
                if task.look(|world| *world.ledger.readiness(&name) != found) {
                    report(&task, &class, &fault);
                }
                found
            }
            Err(_) => {
                tracing::error!(class = %name, "the check of the class panicked; it is tried again");
                Readiness::Unchecked
            }
        };
        let again = match &readiness {
            Readiness::Ready(_) => heard.is_incomplete,
            Readiness::Faulty(fault) => may_heal(fault),
            Readiness::Unchecked => true,
        };
        let ask_again = heard
            .is_incomplete
            .then(|| later(task.env.now(), LOOK_AGAIN.try_into().unwrap_or(SignedDuration::MAX)));
        let driver = heard.driver.clone();
        let is_another = task.change(|world, uptime| {
            world.ledger.note_reached(&name, heard.essentials, ask_again);
            let known = world.classes.get(&name);
            let is_another = known.is_some_and(|class| world.ledger.note_driver(class, heard.driver));
            world.judged(&name, stamp, readiness, uptime);
            if again {
                world
                    .queue
                    .push(Key::Class(name), uptime + LOOK_AGAIN, Urgency::Routine);
            }
            is_another
        });
        if let Some(driver) = driver.filter(|_| is_another) {
            tell_driver(&task, &class, &driver);
        }
    });
}

fn may_heal(fault: &Fault) -> bool {
    match fault {
        // A Secret of another namespace is not watched, and an endpoint that never told its driver's name is forgotten after a while.
        Fault::SecretMissing(_) | Fault::SecretUnreadable(..) | Fault::NoUserData(_) | Fault::NoDriver => true,
        Fault::NoProvider(_)
        | Fault::Spec(_)
        | Fault::NodeTemplate(_)
        | Fault::UserData(_)
        | Fault::Rejected(_)
        | Fault::Told { .. } => false,
    }
}

fn report(shared: &Shared, class: &MachineClass, fault: &Fault) {
    tracing::warn!(class = meta::name(&class.metadata), %fault, "no machine can be made of the class");
    shared
        .events
        .publish(class, Severity::Warning, fault.label(), &fault.to_string());
}

/// Tells that a class which names no driver has one, unless its condition says so.
fn tell_driver(shared: &Shared, class: &MachineClass, driver: &DriverName) {
    if class.driver().is_some() || class::is_found_good(class) {
        return;
    }
    let text = format!("Field provider is empty: the class has the only driver that is connected, {driver}");
    tracing::info!(class = meta::name(&class.metadata), %driver, "{text}");
    shared.events.publish(class, Severity::Normal, "OnlyDriver", &text);
}

/// What is found out about a class beside its faults.
struct Heard {
    /// The driver that it names, or the only one there is.
    driver: Option<DriverName>,
    /// What reaches its VMs. Where nobody knows its driver, this stays what it was.
    essentials: CreationRequest,
    /// The driver was asked, and gave no answer.
    is_incomplete: bool,
}

/// Whether machines can be made of the class.
async fn check(shared: &Shared, class: &MachineClass, heard: &mut Heard) -> Result<Recipe, Fault> {
    let provider = class::driver(class, &shared.drivers.known())?;
    heard.driver = Some(provider.clone());
    if heard.essentials.driver().as_ref() != Some(&provider) {
        heard.essentials = CreationRequest::of(class, None).by(&provider);
    }
    provider_spec::check(&class.spec.provider_spec).map_err(Fault::Spec)?;
    if let Some(fault) = class::node_template_fault(class) {
        return Err(fault);
    }
    let secrets = secrets(shared, class).await?;
    let template = secrets
        .user_data
        .as_ref()
        .ok_or_else(|| Fault::NoUserData(class::secret_keys(class)))?;
    user_data::fill(template, None, "").map_err(|error| Fault::UserData(error.to_string()))?;
    validate(shared, class, &provider, &secrets, heard).await?;
    Ok(Recipe {
        digest: provider_spec::digest(
            meta::name(&class.metadata),
            &provider,
            &class.spec.provider_spec,
            template,
        ),
        needs_token: user_data::needs_token(template),
        essentials: heard.essentials.clone(),
    })
}

async fn secrets(shared: &Shared, class: &MachineClass) -> Result<ClassSecrets, Fault> {
    let found = secrets_of(shared, &class::secret_keys(class)).await;
    found.map_err(|error| match error {
        SecretError::Missing(key) => Fault::SecretMissing(key),
        SecretError::Forbidden(ref key) => Fault::SecretUnreadable(key.clone(), error.to_string()),
        SecretError::Unreachable { ref key, .. } => Fault::SecretUnreadable(key.clone(), error.to_string()),
        SecretError::TooLarge { .. } => Fault::UserData(error.to_string()),
    })
}

/// Asks the driver, where it is there and can tell, also how it calls the VMs that the class reaches. One that is away is asked when it
/// comes: that doubts the class.
async fn validate(
    shared: &Shared,
    class: &MachineClass,
    provider: &DriverName,
    secrets: &ClassSecrets,
    heard: &mut Heard,
) -> Result<(), Fault> {
    let DriverState::Ready(driver) = shared.drivers.get(provider) else {
        return Ok(());
    };
    if !driver.info().capabilities.contains(&Capability::ValidateMachineClass) {
        return Ok(());
    }
    let name = meta::name(&class.metadata);
    let wire = DriverClass::new(
        meta::namespace(&class.metadata),
        name,
        provider,
        &class.spec.provider_spec,
    )
    .and_then(|wire| wire.at(&serde_json::Value::Null, &shared.settings.legacy_marks))
    .map_err(Fault::Spec)?;
    let scope = Scope {
        cluster_id: shared.settings.cluster_id.clone(),
        class: wire.with_object(class),
        secrets: Arc::clone(&secrets.data),
    };
    match driver.validate_machine_class(&scope, false).await {
        Ok(report) => {
            let essentials = CreationRequest::of(class, report.inventory_key.as_deref()).by(provider);
            heard.essentials = essentials.at(report.locator);
            for warning in report.violations.iter().filter(|violation| !violation.fatal) {
                shared.events.publish(
                    class,
                    Severity::Warning,
                    &warning.reason,
                    &format!("{}: {}", warning.field, warning.description),
                );
            }
            let fatal = report.violations.iter().any(|violation| violation.fatal);
            if fatal {
                Err(Fault::Rejected(report.violations))
            } else {
                Ok(())
            }
        }
        // A check that could not be made refuses nothing: CreateMachine tells.
        Err(failure) => {
            heard.is_incomplete = true;
            tracing::warn!(class = name, driver = %provider, message = %failure.message, "the driver could not check the class");
            Ok(())
        }
    }
}

/// A Machine whose VM was asked for with the Secret.
fn made_with<'a>(world: &'a World, secret: &str) -> Option<&'a str> {
    let is_of = |machine: &&Arc<Machine>| {
        let request = machine.creation_request();
        request.is_some_and(|request| request.secret_keys().iter().any(|key| key.to_string() == secret))
    };
    let found = world.machines.iter().find(is_of)?;
    Some(meta::name(&found.metadata))
}

/// Secrets of the control namespace, by their metadata.
pub(super) struct Secrets;

impl Reconciler for Secrets {
    const KIND: &'static str = "secret";
    type Object = SecretMeta;
    type Step = SecretStep;
    type Why = Why;
    type Carry = ();

    fn plan(shared: &Shared, world: &World, name: &Name, now: Timestamp) -> Option<Planned<Self>> {
        let secret = world.secrets.get(name)?;
        let place = format!("{}/{}", meta::namespace(&secret.metadata), name);
        let mut users = world.classes.find(ClassBy::Secret, &place);
        let first_class = users.next().map(|class| meta::name(&class.metadata));
        let is_guarded = meta::has_finalizer(&secret.metadata, keys::SECRET_FINALIZER);
        let seen = SecretObserved {
            secret: &secret.metadata,
            classes: world.classes.count(ClassBy::Secret, &place),
            first_class,
            first_machine: (is_guarded && first_class.is_none())
                .then(|| made_with(world, &place))
                .flatten(),
            reported: world.ledger.reports.get(&meta::identity(&secret.metadata).1),
            now,
        };
        let plan = (shared.env.planners.secret)(&seen);
        let broken = shared.env.planners.broken(|laws| (laws.secret)(&seen, &plan));
        Some(Planned {
            object: Arc::clone(secret),
            plan,
            broken,
        })
    }

    async fn step(shared: &Arc<Shared>, run: &mut Run<Self>, step: SecretStep, _: &Why) -> Result<(), StepError> {
        let secret = &mut run.object;
        match step {
            SecretStep::AddFinalizer => *secret = shared.wrote(shared.write.guard_secret(secret).await?),
            SecretStep::RemoveFinalizer => *secret = shared.wrote(shared.write.release_secret(secret).await?),
            SecretStep::Report(in_use) => tell_deletion_waits(shared, secret, in_use),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millwright_core::api::Machine;
    use millwright_core::change::Change;
    use serde_json::json;

    use super::*;
    use crate::work::pass::pass;
    use crate::work::scripted::{Scripted, failure};

    /// The original's CRD of classes has no status subresource: there is no path to write one to, and the answer is the one for an object
    /// that is gone.
    #[tokio::test]
    async fn a_class_whose_crd_takes_no_status_is_guarded_all_the_same_and_its_status_is_not_tried_at_every_pass() {
        let class =
            json!({ "metadata": { "name": "small", "namespace": "default", "uid": "c", "resourceVersion": "1" } });
        let stored = class.clone();
        let scripted = Scripted::new(move |_, path, _| match path.ends_with("/status") {
            true => failure(404, "NotFound"),
            false => (200, stored.clone()),
        });
        let machine = json!({
            "metadata": { "name": "m-1", "namespace": "default", "uid": "m", "resourceVersion": "1" },
            "spec": { "class": { "kind": "MachineClass", "name": "small" } },
        });
        let (class, machine): (MachineClass, Machine) = (
            serde_json::from_value(class).unwrap(),
            serde_json::from_value(machine).unwrap(),
        );
        let name = Name::new("small");
        scripted.shared.change(|world, _| {
            world.observe(Change::Applied(class), Duration::ZERO);
            world.observe(Change::Applied(machine), Duration::ZERO);
            let stamp = world.ledger.begins_check(&name);
            world.judged(&name, stamp, Readiness::Faulty(Fault::NoDriver), Duration::ZERO);
        });
        pass::<Classes>(&scripted.shared, &name).await;
        let written = scripted.heard("PATCH");
        assert_eq!(written.len(), 2, "{written:?}");
        assert!(written[0].ends_with("/machineclasses/small/status"), "{written:?}");
        assert!(written[1].ends_with("/machineclasses/small"), "{written:?}");
        pass::<Classes>(&scripted.shared, &name).await;
        assert_eq!(scripted.heard("/status").len(), 1);
    }
}
