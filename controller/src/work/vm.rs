//! Driver calls about one Machine: each runs as a task of its own and gives its answer to the queue.
//!
//! Chooses nothing: which call, and whether, is the plan's. A worker never waits for a driver, so a thousand machines
//! can be in creation while workers stay free (`architecture.md` §2.2).

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use millwright_core::api::{Machine, MachineClass, meta};
use millwright_core::class::{self, Readiness};
use millwright_core::driver::{Code, Deletion, Effect, Failure, Reason};
use millwright_core::ids::{DriverName, Name};
use millwright_core::machine::{Answer, Call, Pacing};
use millwright_core::permit::DeletePermit;
use millwright_core::queue::Urgency;
use millwright_core::user_data;
use millwright_core::wake::Key;
use zeroize::Zeroizing;

use super::machine::{begin, readiness};
use super::shared::Shared;
use crate::crash;
use crate::driver::{ClassSecrets, Creation, Driver, DriverClass, DriverState, MachineKey, SecretData, Target};

/// Starts a call; its answer wakes the Machine.
pub fn start(shared: &Arc<Shared>, machine: &Arc<Machine>, call: Call, token: Option<Zeroizing<String>>) {
    let (name, uid) = meta::identity(&machine.metadata);
    let digest = machine
        .class_name()
        .and_then(|class| match readiness(shared, &Name::new(class)) {
            Readiness::Ready(recipe) => Some(recipe.digest),
            Readiness::Unchecked | Readiness::Faulty(_) => None,
        });
    begin(shared, &uid, call);
    let (task, machine) = (Arc::clone(shared), Arc::clone(machine));
    shared.calls.spawn(async move {
        let asked = crash::around(word(call), ask(&task, &machine, call, token, digest.clone()));
        let answer = AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(machine = %name, %call, "the call panicked");
            failed(call, Failure::transport(Code::Internal, "the manager's call panicked"))
        });
        task.change(|world, uptime| {
            let now = task.env.now();
            let pacing = Pacing {
                resource_exhausted: task.settings.resource_exhausted_retry,
                jitter: task.env.jitter(),
            };
            if let Some(calls) = world.calls.get_mut(&uid) {
                calls.absorb(answer, digest.as_deref(), pacing, now);
            }
            world.queue.push(Key::Machine(name), uptime, Urgency::Prompt);
        });
    });
}

/// Names the crash points of a call.
fn word(call: Call) -> &'static str {
    match call {
        Call::Create => "CreateMachine",
        Call::Initialize => "InitializeMachine",
        Call::Status => "GetMachineStatus",
        Call::Delete => "DeleteMachine",
    }
}

fn failed(call: Call, failure: Failure) -> Answer {
    match call {
        Call::Create | Call::Initialize | Call::Status => Answer::Vm(call, Err(failure)),
        Call::Delete => Answer::Deletion(Err(failure)),
    }
}

/// The class cannot be put into a request; a changed one is tried at once.
fn unusable(error: &dyn std::error::Error) -> Failure {
    Failure {
        reason: Some(Reason::InvalidField),
        ..not_sent(Code::InvalidArgument, error.to_string())
    }
}

/// A call that was not sent left nothing behind.
fn not_sent(code: Code, message: impl Into<String>) -> Failure {
    Failure {
        effect: Effect::None,
        ..Failure::transport(code, message)
    }
}

async fn ask(
    shared: &Shared,
    machine: &Machine,
    call: Call,
    token: Option<Zeroizing<String>>,
    digest: Option<String>,
) -> Answer {
    let class = machine
        .class_name()
        .and_then(|class| shared.look(|world| world.classes.get(&Name::new(class)).cloned()));
    let Some(class) = class else {
        return match call {
            Call::Delete => Answer::Deletion(delete_everywhere(shared, machine).await),
            Call::Create | Call::Initialize | Call::Status => Answer::NotAsked(call),
        };
    };
    let driver = class.driver().map(|driver| shared.drivers.get(&driver));
    let driver = match driver {
        Some(DriverState::Ready(driver)) => driver,
        Some(DriverState::Away { .. } | DriverState::Missing { .. }) => return Answer::NotAsked(call),
        None if call == Call::Delete => return Answer::Deletion(delete_everywhere(shared, machine).await),
        None => return Answer::NotAsked(call),
    };
    let secrets = match secrets_of(shared, &class).await {
        Ok(secrets) => secrets,
        // A deletion goes on without: the driver may not need them, and says so if it does (W4).
        Err(_) if call == Call::Delete || meta::is_deleting(&machine.metadata) => ClassSecrets {
            data: Arc::new(SecretData::default()),
            user_data: None,
        },
        Err(failure) => return failed(call, failure),
    };
    let target = match target(shared, machine, &class, &driver, &secrets) {
        Ok(target) => target,
        Err(failure) => return failed(call, failure),
    };
    match call {
        Call::Create => match digest {
            Some(digest) => Answer::Vm(call, create(&driver, &target, &secrets, machine, token, digest).await),
            // The class is being looked at again, as after every return of its driver.
            None => Answer::NotAsked(call),
        },
        Call::Initialize => Answer::Vm(call, driver.initialize_machine(&target).await),
        Call::Status => Answer::Vm(call, driver.get_machine_status(&target).await),
        Call::Delete => Answer::Deletion(delete(&driver, &target, machine).await),
    }
}

/// The Secrets of a class.
pub async fn secrets_of(shared: &Shared, class: &MachineClass) -> Result<ClassSecrets, Failure> {
    let keys = class::secret_keys(class);
    let versions = |key: &millwright_core::ids::SecretKey| {
        (key.namespace == shared.write.namespace())
            .then(|| {
                shared.look(|world| {
                    world
                        .secrets
                        .get(&Name::new(&key.name))
                        .and_then(|s| s.metadata.resource_version.clone())
                })
            })
            .flatten()
    };
    shared
        .secrets
        .get(&keys, versions)
        .await
        // A Secret that is missing for good is found by the check of the class; what is met here passes.
        .map_err(|error| not_sent(Code::Unavailable, error.to_string()))
}

fn target(
    shared: &Shared,
    machine: &Machine,
    class: &MachineClass,
    driver: &Driver,
    secrets: &ClassSecrets,
) -> Result<Target, Failure> {
    let spec = DriverClass::new(
        meta::namespace(&class.metadata),
        meta::name(&class.metadata),
        &driver.info().name,
        &class.spec.provider_spec,
    );
    // A class that went bad after its VM was made must not keep the VM: the driver gets what it needs least, its name.
    let spec = match spec {
        Err(_) if meta::is_deleting(&machine.metadata) => nameless_spec(class, &driver.info().name),
        other => other,
    };
    let spec = spec.map_err(|error| unusable(&error))?;
    Ok(target_of(shared, machine, spec, Arc::clone(&secrets.data)))
}

fn nameless_spec(
    class: &MachineClass,
    driver: &DriverName,
) -> Result<DriverClass, millwright_core::provider_spec::SpecError> {
    DriverClass::new(
        meta::namespace(&class.metadata),
        meta::name(&class.metadata),
        driver,
        &serde_json::json!({}),
    )
}

fn target_of(shared: &Shared, machine: &Machine, class: DriverClass, secrets: Arc<SecretData>) -> Target {
    let (name, uid) = meta::identity(&machine.metadata);
    Target {
        key: MachineKey {
            cluster_id: shared.settings.cluster_id.clone(),
            namespace: meta::namespace(&machine.metadata).to_owned(),
            name,
            uid,
        },
        class,
        secrets,
        provider_id: machine.provider_id(),
        last_known_state: machine
            .status
            .as_ref()
            .and_then(|status| status.last_known_state.clone()),
    }
}

async fn create(
    driver: &Driver,
    target: &Target,
    secrets: &ClassSecrets,
    machine: &Machine,
    token: Option<Zeroizing<String>>,
    spec_digest: String,
) -> Result<millwright_core::driver::Vm, Failure> {
    let Some(template) = &secrets.user_data else {
        let text = "the user data went while the call was made";
        return Err(not_sent(Code::Unavailable, text));
    };
    let token = token.as_ref().map(|token| token.as_str());
    let filled = user_data::fill(template, token, target.key.name.as_str()).map_err(|error| unusable(&error))?;
    let mut tags = BTreeMap::from([("millwright/cluster".to_owned(), target.key.cluster_id.clone())]);
    // Tags are for people and bills; a class name that is too long for one is in the driver's own tags anyway.
    let class = machine.class_name().filter(|class| class.len() <= 128);
    tags.extend(class.map(|class| ("millwright/machine-class".to_owned(), class.to_owned())));
    driver
        .create_machine(
            target,
            &Creation {
                user_data: Zeroizing::new(filled),
                tags,
                spec_digest,
            },
        )
        .await
}

async fn delete(driver: &Driver, target: &Target, machine: &Machine) -> Result<Deletion, Failure> {
    let Some(since) = meta::deleting_since(&machine.metadata) else {
        return Err(not_sent(Code::FailedPrecondition, "the Machine is not being deleted"));
    };
    driver
        .delete_machine(target, DeletePermit::for_deleting(target.key.uid.clone(), since))
        .await
}

/// The class is gone, or names no provider any more, so nobody knows which driver made the VM: the deletion holds when
/// every driver says so. Asking the wrong one is harmless, because a driver never touches what does not bear the uid
/// (driver.proto, DeleteMachine).
async fn delete_everywhere(shared: &Shared, machine: &Machine) -> Result<Deletion, Failure> {
    let mut all = Deletion {
        gone: true,
        poll_after: None,
        last_known_state: None,
    };
    let drivers = shared
        .drivers
        .every()
        .map_err(|not_all| not_sent(Code::Unavailable, not_all.to_string()))?;
    for driver in drivers {
        let class = machine.class_name().unwrap_or("unknown");
        let class = DriverClass::new(
            meta::namespace(&machine.metadata),
            class,
            &driver.info().name,
            &serde_json::json!({}),
        );
        let class = class.map_err(|error| unusable(&error))?;
        let target = target_of(shared, machine, class, Arc::new(SecretData::default()));
        let answer = delete(&driver, &target, machine).await?;
        all.gone &= answer.gone;
        all.poll_after = all.poll_after.or(answer.poll_after);
    }
    Ok(all)
}
