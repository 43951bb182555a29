//! A Machine's bootstrap token in the target cluster: made before its VM, gone when its node has joined or the Machine
//! goes.
//!
//! The Secret's name is a function of the Machine's uid, so a repeat finds the same token and the VM gets the same
//! bytes. Chooses nothing but the next name where one is another's (MC-5; W11, W40).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright_core::api::lenient::GoDuration;
use millwright_core::api::{Machine, keys, meta};
use millwright_core::ids::Uid;
use millwright_core::sight::later;
use millwright_core::user_data::bootstrap_token_id;
use zeroize::Zeroizing;

use super::shared::Shared;
use super::step::StepError;
use crate::kube::error::{ReadError, WriteError};

/// How many names are tried where they turn out to be others'. Two machines of a thousand share one of 36^6 names with
/// a chance of 1 in 4,000; four in a row do not.
const NAMES: u32 = 4;

/// Whose token it is.
const OWNER: &str = "machine.sapcloud.io/machine-uid";
/// The Machine by its cluster id, namespace and name: who finds the token knows whom to ask whether the Machine is still there.
const MACHINE: &str = "machine.sapcloud.io/machine";
/// By this label, and its value, tokens are found.
const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "millwright");

/// The Machine's token, `id.secret`. Makes it if it is not there.
pub async fn ensure(shared: &Shared, machine: &Machine) -> Result<Zeroizing<String>, StepError> {
    let uid = meta::identity(&machine.metadata).1;
    for attempt in 0..NAMES {
        let id = bootstrap_token_id(&uid, attempt);
        let made = shared.write.create_token(secret(shared, machine, &uid, &id)).await;
        let found = match made {
            Ok(made) => made,
            Err(WriteError::AlreadyExists) => shared.write.read_token(&name(&id)).await?,
            Err(error) => return Err(error.into()),
        };
        if is_of(&found, &uid) {
            let token = text(&found, &id).ok_or(StepError::Read(ReadError::Unreadable))?;
            keep_alive(shared, machine, &found, &name(&id)).await?;
            return Ok(token);
        }
    }
    let reason = format!("the names of {NAMES} bootstrap tokens are taken by others");
    Err(StepError::Write(WriteError::Refused { reason }))
}

/// A token lives as long as its Machine may take to join. One that was made at an earlier try, or before a time in which nobody
/// could look, lives on (MC-5): its value stays, because a VM may have it already. One whose Machine vanished meanwhile is removed again.
async fn keep_alive(shared: &Shared, machine: &Machine, found: &Secret, name: &str) -> Result<(), StepError> {
    let lifetime = lifetime(shared, machine);
    let wanted = later(shared.env.wall(), lifetime);
    let slack = (lifetime / 10).max(SignedDuration::from_secs(1));
    let stored = expiration(found);
    if stored.is_none_or(|stored| later(stored, slack) < wanted) {
        shared.write.extend_token(name, found, &format!("{wanted:.0}")).await?;
    }
    let until = later(shared.env.now(), lifetime);
    let is_there = shared.change(|world, uptime| {
        let (name, uid) = meta::identity(&machine.metadata);
        world.note_calls(&name, &uid, |calls| calls.token_until = Some(until));
        let is_there = world
            .machines
            .get(&name)
            .is_some_and(|known| meta::identity(&known.metadata).1 == uid);
        if !is_there {
            world.leaves_behind(Arc::new(machine.clone()), uptime);
        }
        is_there
    });
    is_there.then_some(()).ok_or(StepError::Void)
}

fn lifetime(shared: &Shared, machine: &Machine) -> SignedDuration {
    machine.creation_timeout().unwrap_or(shared.settings.creation_timeout)
}

fn expiration(secret: &Secret) -> Option<Timestamp> {
    let value = secret.data.as_ref()?.get("expiration")?;
    std::str::from_utf8(&value.0).ok()?.parse().ok()
}

/// Deletes the Machine's token, if it is there.
pub async fn remove(shared: &Shared, machine: &Machine) -> Result<(), StepError> {
    remove_of(shared, &meta::identity(&machine.metadata).1).await
}

/// Deletes the token of the Machine that had this uid, if it is there.
pub(super) async fn remove_of(shared: &Shared, uid: &Uid) -> Result<(), StepError> {
    for attempt in 0..NAMES {
        let name = name(&bootstrap_token_id(uid, attempt));
        let found = match shared.write.read_token(&name).await {
            Ok(found) => found,
            Err(ReadError::Gone) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if is_of(&found, uid) {
            let token = Uid::new(found.metadata.uid.unwrap_or_default());
            return Ok(shared.write.delete_token(&name, &token).await?);
        }
    }
    Ok(())
}

/// The Machines of this manager for which there are tokens, with as much of each as its token tells: name, uid, and that it is no
/// younger.
pub(super) async fn owners(shared: &Shared) -> Result<Vec<Machine>, ReadError> {
    let (label, value) = MADE_BY;
    let tokens = shared.write.list_tokens(&format!("{label}={value}")).await?;
    let namespace = shared.write.namespace();
    let ours = place(shared, namespace, "");
    let owner = |token: ObjectMeta| {
        let name = meta::annotation(&token, MACHINE)?.strip_prefix(&ours)?.to_owned();
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.to_owned()),
            uid: Some(meta::annotation(&token, OWNER)?.to_owned()),
            creation_timestamp: token.creation_timestamp,
            ..ObjectMeta::default()
        };
        Some(Machine {
            metadata,
            ..Machine::default()
        })
    };
    Ok(tokens.into_iter().filter_map(owner).collect())
}

/// Where a Machine is, among all that make tokens in one target cluster.
fn place(shared: &Shared, namespace: &str, machine: &str) -> String {
    format!("{}/{namespace}/{machine}", shared.settings.cluster_id)
}

fn name(id: &str) -> String {
    format!("{}{id}", keys::TOKEN_NAME_PREFIX)
}

fn is_of(secret: &Secret, uid: &Uid) -> bool {
    meta::annotation(&secret.metadata, OWNER) == Some(uid.as_str())
}

fn text(secret: &Secret, id: &str) -> Option<Zeroizing<String>> {
    let value = secret.data.as_ref()?.get("token-secret")?;
    let value = std::str::from_utf8(&value.0).ok()?;
    Some(Zeroizing::new(format!("{id}.{value}")))
}

fn secret(shared: &Shared, machine: &Machine, uid: &Uid, id: &str) -> Secret {
    let lifetime = lifetime(shared, machine);
    let expiration = format!("{:.0}", later(shared.env.wall(), lifetime));
    let (namespace, machine_name) = (meta::namespace(&machine.metadata), meta::name(&machine.metadata));
    let description = format!(
        "Lets the VM of machine {namespace}/{machine_name} join, for {}",
        GoDuration::from(lifetime)
    );
    let annotations = [
        (OWNER.to_owned(), uid.as_str().to_owned()),
        (MACHINE.to_owned(), place(shared, namespace, machine_name)),
    ];
    let (label, made_by) = MADE_BY;
    let value = shared.env.token_secret();
    let fields = [
        ("token-id", id),
        ("token-secret", value.as_str()),
        ("description", description.as_str()),
        ("expiration", expiration.as_str()),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
        ("auth-extra-groups", shared.token_groups.as_str()),
    ];
    let data = fields
        .into_iter()
        .map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            name: Some(name(id)),
            namespace: Some(keys::TOKEN_NAMESPACE.to_owned()),
            annotations: Some(annotations.into()),
            labels: Some([(label.to_owned(), made_by.to_owned())].into()),
            ..ObjectMeta::default()
        },
        type_: Some(keys::TOKEN_TYPE.to_owned()),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::work::scripted::{Answer, Scripted};

    fn echo(_: &Method, _: &str, body: &Value) -> Answer {
        (201, body.clone())
    }

    fn machine() -> Machine {
        let metadata = json!({"name": "one", "namespace": "default", "uid": "1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    #[tokio::test]
    async fn a_token_that_was_made_for_a_machine_that_vanished_meanwhile_is_removed_again_and_no_vm_is_asked_for() {
        let scripted = Scripted::new(echo);
        let ended = ensure(&scripted.shared, &machine()).await;
        assert!(matches!(ended, Err(StepError::Void)), "no step after it is taken");
        let left = scripted.shared.look(|world| world.ledger.leftovers.len());
        assert_eq!(left, 1);
    }

    #[tokio::test]
    async fn a_token_of_a_machine_that_is_there_is_handed_out() {
        let scripted = Scripted::new(echo);
        let _kept = scripted.shared.wrote(machine());
        ensure(&scripted.shared, &machine()).await.unwrap();
        assert_eq!(scripted.shared.look(|world| world.ledger.leftovers.len()), 0);
    }
}
