//! Driver calls about one Machine: each runs as a task of its own and gives its answer to the queue.
//!
//! Chooses nothing: which call, and whether, is the plan's. A worker never waits for a driver, so a thousand machines
//! can be in creation while workers stay free (`architecture.md` §2.2).

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;
use millwright_core::api::machine_class::SecretRef;
use millwright_core::api::{Machine, meta};
use millwright_core::class::{self, Readiness};
use millwright_core::driver::{Code, Deletion, Failure, Reason};
use millwright_core::ids::{DriverName, Name, SecretKey};
use millwright_core::machine::{Answer, Call, Pacing};
use millwright_core::permit::DeletePermit;
use millwright_core::provider_spec::SpecError;
use millwright_core::user_data;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::machine::{driver_of, is_due_still, readiness};
use super::shared::Shared;
use crate::crash;
use crate::driver::{
    ClassSecrets, Creation, Driver, DriverClass, DriverState, MachineKey, SecretData, SecretError, Target,
};
use crate::kube::error::ReadError;
use crate::telemetry::original::Moment;

/// Starts a call; its answer wakes the Machine.
pub fn start(shared: &Arc<Shared>, machine: &Arc<Machine>, call: Call, token: Option<Zeroizing<String>>) {
    let digest = machine
        .class_name()
        .and_then(|class| match readiness(shared, &Name::new(class)) {
            Readiness::Ready(recipe) => Some(recipe.digest),
            Readiness::Unchecked | Readiness::Faulty(_) => None,
        });
    if !shared.quietly(|world| world.begins(machine, call)) {
        return;
    }
    let (task, machine) = (Arc::clone(shared), Arc::clone(machine));
    let call_and_answer = async move {
        let asked = crash::around(word(call), ask(&task, &machine, call, token, digest.clone()));
        let answer = AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(machine = meta::name(&machine.metadata), %call, "the call panicked");
            failed(call, Failure::transport(Code::Internal, "the manager's call panicked"))
        });
        let now = task.env.now();
        measure(&task, &machine, &answer, now);
        task.change(|world, uptime| {
            let pacing = Pacing {
                resource_exhausted: task.settings.resource_exhausted_retry,
                jitter: task.env.jitter(),
            };
            world.answered(&machine, (call, answer), digest.as_deref(), pacing, (now, uptime));
        });
    };
    // The pass ends long before its call: what the call does is seen below it all the same.
    shared.calls.spawn(millwright_trace::beneath(call_and_answer));
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
        ..Failure::not_sent(Code::InvalidArgument, error.to_string())
    }
}

/// How long the Machine waited for what the driver answers.
fn measure(shared: &Shared, machine: &Machine, answer: &Answer, now: Timestamp) {
    let happened = &shared.metrics.original.happened;
    let created = meta::created(&machine.metadata).map(|at| now.duration_since(at));
    match (answer, created, meta::deleting_since(&machine.metadata)) {
        (Answer::Vm(Call::Create, Ok(_)), Some(took), _) => happened.note(machine, Moment::Created(took)),
        (Answer::Vm(Call::Initialize, Ok(_)), Some(took), _) => happened.note(machine, Moment::Initialized(took)),
        (Answer::Deletion(Ok(deletion)), _, Some(since)) if deletion.gone => {
            happened.note(machine, Moment::Deleted(now.duration_since(since)));
        }
        (Answer::Vm(..) | Answer::Deletion(_) | Answer::NotAsked(_), _, _) => {}
    }
}

/// Which driver is asked, about which spec, with which Secrets.
struct Request {
    driver: Arc<Driver>,
    class: DriverClass,
    secrets: Vec<SecretKey>,
}

/// Why nobody is asked.
enum NoRequest {
    /// What the plan had seen is no longer so; the next plan sees what is so now.
    NotAsked,
    /// The class cannot be put into a request.
    Unusable(Failure),
    /// Nobody knows which driver made the VM.
    UnknownDriver,
}

async fn ask(
    shared: &Shared,
    machine: &Machine,
    call: Call,
    token: Option<Zeroizing<String>>,
    digest: Option<String>,
) -> Answer {
    let request = match request(shared, machine, call) {
        Ok(request) => request,
        Err(NoRequest::UnknownDriver) if call == Call::Delete => {
            return delete_everywhere(shared, machine).await;
        }
        Err(NoRequest::NotAsked | NoRequest::UnknownDriver) => return Answer::NotAsked(call),
        Err(NoRequest::Unusable(failure)) => return failed(call, failure),
    };
    let secrets = match secrets_of(shared, &request.secrets).await {
        Ok(secrets) => secrets,
        // Credentials that are gone for good must not keep the VM: the driver may not need them, and says so if it does (W4).
        // Those that exist and cannot be had now are waited for: without them a driver could look into the wrong account (P2).
        Err(error) if meta::is_deleting(&machine.metadata) && error.is_certain_absence() => ClassSecrets {
            data: Arc::new(SecretData::default()),
            user_data: None,
        },
        Err(error) => return failed(call, Failure::not_sent(Code::Unavailable, error.to_string())),
    };
    let target = target_of(shared, machine, request.class, Arc::clone(&secrets.data));
    let driver = &request.driver;
    match call {
        Call::Create => match digest {
            Some(digest) => {
                let made = create(shared, driver, &target, &secrets, machine, (token, digest));
                Answer::Vm(call, made.await)
            }
            // The class is being looked at again, as after every return of its driver.
            None => Answer::NotAsked(call),
        },
        Call::Initialize => Answer::Vm(call, driver.initialize_machine(&target).await),
        Call::Status => Answer::Vm(call, driver.get_machine_status(&target).await),
        Call::Delete => delete(shared, driver, &target, machine).await,
    }
}

/// The class says who is asked and how. For a VM that must go, what it was asked for with counts where the class is gone, names
/// another driver now, or cannot be sent any more.
fn request(shared: &Shared, machine: &Machine, call: Call) -> Result<Request, NoRequest> {
    let class = machine
        .class_name()
        .and_then(|class| shared.look(|world| world.classes.get(&Name::new(class)).cloned()));
    let Some(name) = driver_of(machine, class.as_deref()) else {
        return Err(NoRequest::UnknownDriver);
    };
    let DriverState::Ready(driver) = shared.drivers.get(&name) else {
        return Err(NoRequest::NotAsked);
    };
    let class = class.filter(|class| class.driver().as_ref() == Some(&name));
    let from_class = class.map(|class| {
        let spec = wire_class(machine, meta::name(&class.metadata), &name, &class.spec.provider_spec);
        (spec, class::secret_keys(&class))
    });
    let request = machine
        .creation_request()
        .filter(|_| meta::is_deleting(&machine.metadata));
    let (class, secrets) = match (from_class, request) {
        (Some((Ok(class), secrets)), _) => (class, secrets),
        (Some((Err(_), _)) | None, Some(request)) => {
            let spec = json!(request.provider_spec);
            let class = wire_class(machine, machine.class_name().unwrap_or("unknown"), &name, &spec);
            let secrets = request.secret_refs.iter().filter_map(SecretRef::key).collect();
            (class.map_err(|error| NoRequest::Unusable(unusable(&error)))?, secrets)
        }
        // A class that went bad after its VM was made must not keep the VM: the driver gets its name and the credentials.
        (Some((Err(_), secrets)), None) if meta::is_deleting(&machine.metadata) => {
            let class = wire_class(machine, machine.class_name().unwrap_or("unknown"), &name, &json!({}));
            (class.map_err(|error| NoRequest::Unusable(unusable(&error)))?, secrets)
        }
        (Some((Err(error), _)), None) => return Err(NoRequest::Unusable(unusable(&error))),
        (None, None) if call == Call::Delete => return Err(NoRequest::UnknownDriver),
        (None, None) => return Err(NoRequest::NotAsked),
    };
    Ok(Request { driver, class, secrets })
}

fn wire_class(machine: &Machine, name: &str, driver: &DriverName, spec: &Value) -> Result<DriverClass, SpecError> {
    DriverClass::new(meta::namespace(&machine.metadata), name, driver, spec)
}

/// The data of these Secrets, merged. The metadata watch tells the version of those in its own namespace.
pub(super) async fn secrets_of(shared: &Shared, keys: &[SecretKey]) -> Result<ClassSecrets, SecretError> {
    let version = |key: &SecretKey| {
        if key.namespace != shared.write.namespace() {
            return None;
        }
        shared.look(|world| {
            world
                .secrets
                .get(&Name::new(&key.name))?
                .metadata
                .resource_version
                .clone()
        })
    };
    shared.secrets.get(keys, version).await
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

/// The plan has read the Machine live. Where the call had to wait since, for a place or for a throttled account, it is read again before a
/// VM is asked for.
async fn still_wanted(shared: &Shared, machine: &Machine) -> Result<(), Failure> {
    let (name, uid) = meta::identity(&machine.metadata);
    match shared.write.read::<Machine>(&name).await {
        Ok(live) if meta::identity(&live.metadata).1 == uid && !meta::is_deleting(&live.metadata) => Ok(()),
        Ok(_) | Err(ReadError::Gone) => Err(Failure::not_sent(
            Code::Aborted,
            "not sent: the Machine was deleted while the call waited",
        )),
        Err(error) => Err(Failure::not_sent(
            Code::Unavailable,
            format!("not sent: the Machine could not be read again: {error}"),
        )),
    }
}

async fn create(
    shared: &Shared,
    driver: &Driver,
    target: &Target,
    secrets: &ClassSecrets,
    machine: &Machine,
    (token, spec_digest): (Option<Zeroizing<String>>, String),
) -> Result<millwright_core::driver::Vm, Failure> {
    let Some(template) = &secrets.user_data else {
        let text = "the user data went while the call was made";
        return Err(Failure::not_sent(Code::Unavailable, text));
    };
    let token = token.as_ref().map(|token| token.as_str());
    let filled = user_data::fill(template, token, target.key.name.as_str()).map_err(|error| unusable(&error))?;
    let mut tags = BTreeMap::from([("millwright/cluster".to_owned(), target.key.cluster_id.clone())]);
    // Tags are for people and bills; a class name that is too long for one is in the driver's own tags anyway.
    let class = machine.class_name().filter(|class| class.len() <= 128);
    tags.extend(class.map(|class| ("millwright/machine-class".to_owned(), class.to_owned())));
    driver
        .create_machine_if(
            target,
            &Creation {
                user_data: Zeroizing::new(filled),
                tags,
                spec_digest,
            },
            || still_wanted(shared, machine),
        )
        .await
}

/// Where the call had to wait, the Machine is looked at again before its VM is removed: one whose Node joined meanwhile is drained first.
async fn delete(shared: &Shared, driver: &Driver, target: &Target, machine: &Machine) -> Answer {
    let Some(permit) = DeletePermit::for_deleting(machine) else {
        let text = "the Machine is not being deleted";
        return Answer::Deletion(Err(Failure::not_sent(Code::FailedPrecondition, text)));
    };
    let (name, uid) = meta::identity(&machine.metadata);
    let put_off = Failure::not_sent(Code::Aborted, "not sent: its node joined while the call waited");
    let still_wanted = async || match is_due_still(shared, &name, &uid) {
        true => Ok(()),
        false => Err(put_off.clone()),
    };
    match driver.delete_machine_if(target, permit, still_wanted).await {
        Err(failure) if failure == put_off => Answer::NotAsked(Call::Delete),
        deletion => Answer::Deletion(deletion),
    }
}

/// Nobody knows which driver made the VM: the deletion holds when every driver that this manager was given says so, and not while one
/// of them cannot be asked. Asking the wrong one is harmless, because a driver never touches what does not bear the uid
/// (driver.proto, DeleteMachine).
async fn delete_everywhere(shared: &Shared, machine: &Machine) -> Answer {
    let drivers = match shared.drivers.every() {
        Ok(drivers) => drivers,
        Err(error) => return Answer::Deletion(Err(Failure::not_sent(Code::Unavailable, error.to_string()))),
    };
    let mut all = Deletion {
        gone: true,
        poll_after: None,
        last_known_state: None,
    };
    for driver in drivers {
        let name = machine.class_name().unwrap_or("unknown");
        let class = match wire_class(machine, name, &driver.info().name, &json!({})) {
            Ok(class) => class,
            Err(error) => return Answer::Deletion(Err(unusable(&error))),
        };
        let target = target_of(shared, machine, class, Arc::new(SecretData::default()));
        match delete(shared, &driver, &target, machine).await {
            Answer::Deletion(Ok(answer)) => {
                all.gone &= answer.gone;
                all.poll_after = all.poll_after.or(answer.poll_after);
            }
            other => return other,
        }
    }
    Answer::Deletion(Ok(all))
}

#[cfg(test)]
mod tests;
