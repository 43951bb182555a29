//! Driver calls about one Machine: each runs as a task of its own and gives its answer to the queue.
//!
//! Chooses nothing: which call, and whether, is the plan's. A worker never waits for a driver, so a thousand machines
//! can be in creation while workers stay free.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;
use millwright_core::api::{CreationRequest, Machine, MachineClass, meta};
use millwright_core::class::{self, Readiness};
use millwright_core::driver::{Call, Code, Failure, Reason};
use millwright_core::ids::{Name, SecretKey};
use millwright_core::ledger::Answer;
use millwright_core::machine::Pacing;
use millwright_core::permit::DeletePermit;
use millwright_core::user_data;
use zeroize::Zeroizing;

use super::shared::Shared;
use super::view::is_due_still;
use crate::crash;
use crate::driver::{
    ClassSecrets, Creation, Driver, DriverClass, DriverState, MachineKey, NodeMetadata, SecretData, SecretError, Target,
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
        let asked = ask(&task, &machine, call, token, digest.clone());
        let asked = Box::pin(crash::around(word(call), asked));
        let answer = AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(machine = meta::name(&machine.metadata), %call, "the call panicked");
            failed(call, Failure::transport(Code::Internal, "the manager's call panicked"))
        });
        let digest = digest.as_deref();
        let absorbed = catch_unwind(AssertUnwindSafe(|| absorb(&task, &machine, (call, answer), digest)));
        if absorbed.is_err() {
            // The call would run for the life of the process.
            tracing::error!(machine = meta::name(&machine.metadata), %call, "taking the answer in panicked; the call counts as failed");
            let failure = Failure::transport(Code::Internal, "the manager panicked at the driver's answer");
            absorb(&task, &machine, (call, failed(call, failure)), digest);
        }
    };
    // The pass ends long before its call: what the call does is seen below it all the same.
    shared.calls.spawn(millwright_trace::beneath(call_and_answer));
}

/// What a class is known for, cloned out of the world.
fn readiness(shared: &Shared, class: &Name) -> Readiness {
    shared.look(|world| world.ledger.readiness(class).clone())
}

/// Takes an answer in, which wakes the Machine.
fn absorb(shared: &Shared, machine: &Arc<Machine>, (call, answer): (Call, Answer), digest: Option<&str>) {
    let now = shared.env.now();
    measure(shared, machine, &answer, now);
    shared.change(|world, uptime| {
        let pacing = Pacing {
            resource_exhausted: shared.settings.resource_exhausted_retry,
            jitter: shared.env.jitter(),
        };
        world.answered(machine, (call, answer), digest, pacing, (now, uptime));
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

/// The failure of a class that cannot be put into a request: the call is tried again at once when the class changes.
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
        Err(NoRequest::NotAsked) => return Answer::NotAsked(call),
        Err(NoRequest::Unusable(failure)) => return failed(call, failure),
    };
    let secrets = match secrets_of(shared, &request.secrets).await {
        Ok(secrets) => secrets,
        // Without its credentials a driver could look into another account, and find nothing there (CL-2).
        Err(error) => return failed(call, Failure::not_sent(Code::Unavailable, error.to_string())),
    };
    let target = target_of(shared, machine, request.class, Arc::clone(&secrets.data));
    let driver = &request.driver;
    match call {
        Call::Create => match digest {
            Some(digest) => {
                let made = create(shared, driver, &target, &secrets, machine, (token, digest));
                Answer::Vm(call, Box::pin(made).await)
            }
            // The class is being looked at again, as after every return of its driver.
            None => Answer::NotAsked(call),
        },
        Call::Initialize => Answer::Vm(call, driver.initialize_machine(&target).await),
        Call::Status => Answer::Vm(call, driver.get_machine_status(&target).await),
        Call::Delete => delete(shared, driver, &target, machine).await,
    }
}

/// Which driver is asked about the VM, and with which spec and Secrets, is said by the Machine's record of the creation, whatever became of
/// the class since. Where the class still says the same, its providerSpec is sent, because the record may hold only a part of it. If the
/// class was changed between the record and a CreateMachine, nobody is asked: the VM would be made in another place than the record says.
fn request(shared: &Shared, machine: &Machine, call: Call) -> Result<Request, NoRequest> {
    let class = machine.class_name().and_then(|class| {
        shared.look(|world| {
            let class = world.classes.get(&Name::new(class))?;
            Some((Arc::clone(class), world.ledger.driver_of(class)))
        })
    });
    let asked = machine.creation_request();
    let is_as_asked = |class: &MachineClass| asked.is_none_or(|asked| asked.is_same(&CreationRequest::of(class, None)));
    let live = class.filter(|(class, _)| is_as_asked(class));
    let (driver, spec, secrets) = match (&live, asked) {
        (Some((class, driver)), _) => (
            asked.map_or_else(|| driver.clone(), CreationRequest::driver),
            &class.spec.provider_spec,
            class::secret_keys(class),
        ),
        (None, Some(_)) if call == Call::Create => return Err(NoRequest::NotAsked),
        (None, Some(asked)) => (asked.driver(), &asked.provider_spec, asked.secret_keys()),
        (None, None) => return Err(NoRequest::NotAsked),
    };
    let name = driver.ok_or(NoRequest::NotAsked)?;
    let DriverState::Ready(driver) = shared.drivers.get(&name) else {
        return Err(NoRequest::NotAsked);
    };
    let class_name = machine.class_name().unwrap_or("unknown");
    let locator = asked.map_or(&serde_json::Value::Null, |asked| &asked.locator);
    let wire = DriverClass::new(meta::namespace(&machine.metadata), class_name, &name, spec)
        .and_then(|wire| wire.at(locator, &shared.settings.legacy_marks))
        .map_err(|error| NoRequest::Unusable(unusable(&error)))?;
    let class = match &live {
        Some((class, _)) => wire.with_object(class),
        None => wire,
    };
    Ok(Request { driver, class, secrets })
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
    let (tagged_uid, is_foreign) = shared.look(|world| (world.tagged_uid(&uid), world.names_foreign_vm(&uid)));
    Target {
        tagged_uid,
        key: MachineKey {
            cluster_id: shared.settings.cluster_id.clone(),
            namespace: meta::namespace(&machine.metadata).to_owned(),
            name,
            uid,
        },
        class,
        secrets,
        former_namespace: shared.settings.former_namespace.clone(),
        provider_id: machine.provider_id().filter(|_| !is_foreign),
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
    let text = token.as_ref().map(|token| token.as_str());
    let filled = user_data::fill(template, text, target.key.name.as_str()).map_err(|error| unusable(&error))?;
    driver
        .create_machine_if(
            target,
            &Creation {
                token,
                user_data: Zeroizing::new(filled),
                spec_digest,
                node: NodeMetadata::of(machine),
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

#[cfg(test)]
mod tests;
