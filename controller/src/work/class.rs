//! Observe and execute for MachineClasses and the Secrets they name.
//!
//! `check` is the one place that finds out whether machines can be made of a class; what that means is decided in
//! `millwright_core::class`.

use std::sync::Arc;

use millwright_core::api::{MachineClass, keys, meta};
use millwright_core::class::{self, Fault, Observed, Readiness, Recipe, SecretStep, Step};
use millwright_core::driver::Capability;
use millwright_core::ids::{DriverName, Name};
use millwright_core::kinds::{ClassBy, OwnedBy};
use millwright_core::provider_spec;
use millwright_core::queue::Verdict;
use millwright_core::user_data;

use super::dispatch::Pass;
use super::shared::Shared;
use super::step::StepError;
use crate::driver::{ClassSecrets, DriverClass, DriverState, Scope, SecretError};
use crate::kube::events::Severity;

/// A fault that may heal without any event of ours is looked at again after this time.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

/// One pass over a class.
pub async fn work(shared: &Arc<Shared>, name: &Name) -> Pass {
    let observed = shared.look(|world| {
        let class = world.classes.get(name)?;
        let machines = world.machines.count(OwnedBy::Class, name.as_str());
        let seen = Observed {
            class,
            machines,
            // What may heal by itself is looked at again at every wake: `LOOK_AGAIN` is one, and an event in between may be too.
            readiness: match world.readiness(name) {
                Readiness::Faulty(fault) if may_heal(fault) => &Readiness::Unchecked,
                known => known,
            },
        };
        Some((Arc::clone(class), (shared.env.planners.class)(&seen)))
    });
    let Some((class, steps)) = observed else {
        return Pass::gone();
    };
    let why = steps.last().map_or("Settled", |step| match step {
        Step::AddFinalizer => "Needed",
        Step::RemoveFinalizer => "NotNeeded",
        Step::Check => "Unchecked",
    });
    let done = execute(shared, class, steps).await;
    let wake = done.map(|after| after.map(|after| shared.env.uptime() + after));
    Pass::ended("class", name, why.to_owned(), wake)
}

async fn execute(
    shared: &Shared,
    mut class: Arc<MachineClass>,
    steps: Vec<Step>,
) -> Result<Option<std::time::Duration>, StepError> {
    let name = meta::identity(&class.metadata).0;
    let mut look_again = None;
    for step in steps {
        match step {
            Step::AddFinalizer => class = shared.wrote(shared.write.add_finalizer(&*class, keys::FINALIZER).await?),
            Step::RemoveFinalizer => {
                let left = shared.write.remove_finalizer(&*class, keys::FINALIZER).await?;
                if let Some(left) = shared.released(left) {
                    class = left;
                }
            }
            Step::Check => {
                let readiness = match check(shared, &class).await {
                    Ok(recipe) => Readiness::Ready(recipe),
                    Err(fault) => {
                        look_again = may_heal(&fault).then_some(LOOK_AGAIN);
                        report(shared, &class, &fault);
                        Readiness::Faulty(fault)
                    }
                };
                // What was found out holds for the class that was read, not for one that replaced it meanwhile.
                shared.change(|world, uptime| {
                    let same = world.classes.get(&name).is_some_and(|now| now.spec == class.spec);
                    if same {
                        world.judged(&name, readiness, uptime);
                    }
                });
            }
        }
    }
    Ok(look_again)
}

fn may_heal(fault: &Fault) -> bool {
    match fault {
        // A Secret of another namespace is not watched.
        Fault::SecretMissing(_) | Fault::SecretUnreadable(..) | Fault::NoUserData(_) => true,
        Fault::NoProvider | Fault::Spec(_) | Fault::NodeTemplate(_) | Fault::UserData(_) | Fault::Rejected(_) => false,
    }
}

fn report(shared: &Shared, class: &MachineClass, fault: &Fault) {
    tracing::warn!(class = meta::name(&class.metadata), %fault, "no machine can be made of the class");
    shared
        .events
        .publish(class, Severity::Warning, fault.label(), &fault.to_string());
}

/// Whether machines can be made of the class.
async fn check(shared: &Shared, class: &MachineClass) -> Result<Recipe, Fault> {
    let provider = class.driver().ok_or(Fault::NoProvider)?;
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
    validate(shared, class, &provider, &secrets).await?;
    Ok(Recipe {
        digest: provider_spec::digest(
            meta::name(&class.metadata),
            &provider,
            &class.spec.provider_spec,
            template,
        ),
        needs_token: user_data::needs_token(template),
    })
}

async fn secrets(shared: &Shared, class: &MachineClass) -> Result<ClassSecrets, Fault> {
    let versions = |key: &millwright_core::ids::SecretKey| {
        shared.look(|world| {
            world
                .secrets
                .get(&Name::new(&key.name))
                .and_then(|secret| secret.metadata.resource_version.clone())
        })
    };
    let keys = class::secret_keys(class);
    shared.secrets.get(&keys, versions).await.map_err(|error| match error {
        SecretError::Missing(key) => Fault::SecretMissing(key),
        SecretError::Forbidden(ref key) => Fault::SecretUnreadable(key.clone(), error.to_string()),
        SecretError::Unreachable { ref key, .. } => Fault::SecretUnreadable(key.clone(), error.to_string()),
        SecretError::TooLarge { .. } => Fault::UserData(error.to_string()),
    })
}

/// Asks the driver, where it is there and can tell. One that is away is asked when it comes: that doubts the class.
async fn validate(
    shared: &Shared,
    class: &MachineClass,
    provider: &DriverName,
    secrets: &ClassSecrets,
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
    );
    let scope = Scope {
        cluster_id: shared.settings.cluster_id.clone(),
        class: wire.map_err(Fault::Spec)?,
        secrets: Arc::clone(&secrets.data),
    };
    match driver.validate_machine_class(&scope, false).await {
        Ok(report) => {
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
            tracing::warn!(class = name, driver = %provider, message = %failure.message, "the driver could not check the class");
            Ok(())
        }
    }
}

/// One pass over a Secret of the control namespace.
pub async fn work_secret(shared: &Arc<Shared>, name: &Name) -> Pass {
    let observed = shared.look(|world| {
        let secret = world.secrets.get(name)?;
        let place = format!("{}/{}", meta::namespace(&secret.metadata), name);
        let named = world.classes.count(ClassBy::Secret, &place) > 0;
        Some((
            Arc::clone(secret),
            (shared.env.planners.secret)(&secret.metadata, named),
        ))
    });
    let Some((secret, step)) = observed else {
        return Pass::gone();
    };
    let why = match step {
        None => {
            return Pass {
                verdict: Verdict::Done { wake: None },
                why: "Settled".to_owned(),
                result: "done",
            };
        }
        Some(SecretStep::AddFinalizer) => "Needed",
        Some(SecretStep::RemoveFinalizer) => "NotNeeded",
    };
    let written = match step {
        Some(SecretStep::AddFinalizer) => shared.write.guard_secret(&secret).await,
        Some(SecretStep::RemoveFinalizer) | None => shared.write.release_secret(&secret).await,
    };
    let done = written.map(|secret| drop(shared.wrote(secret)));
    Pass::ended(
        "secret",
        name,
        why.to_owned(),
        done.map(|()| None).map_err(StepError::from),
    )
}
