//! Requests about the pods of a Node that is drained, and about what they hang on: budgets, claims, attachments.
//!
//! Which pods, and how, is the plan's. A pod that does not go is an answer here and no error; an error only where this process may not
//! write any more.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::Status;
use millwright_core::drain::{PodRef, Removal, budget};
use millwright_core::ids::{Name, Uid, VolumeName};

use super::bare::Bare;
use super::error::{ReadError, WriteError, over_budget};
use super::write::{Writer, no_target, same};
use crate::crash;

impl Writer {
    fn pods(&self, pod: &PodRef) -> Result<Api<Pod>, WriteError> {
        let target = self.target().ok_or_else(no_target)?;
        Ok(Api::namespaced(target, &pod.namespace))
    }

    /// Evicts a pod of that name and uid, as its budget allows.
    pub async fn evict(&self, pod: &PodRef) -> Result<Removal, WriteError> {
        let api = self.pods(pod)?;
        let (eviction, params) = (eviction(pod), PostParams::default());
        let sent = async {
            let sent = api.create_subresource::<_, Status>("eviction", &pod.name, &params, &eviction);
            sent.await
        };
        let answer = crash::around("evict", sent).await.map(drop);
        let is_internal = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 500);
        match removed(answer)? {
            // A pod of which several budgets speak is refused with no other code.
            Removal::Failed(words) if is_internal => Ok(match self.fault_of_budgets(pod).await {
                Some(fault) => Removal::Misconfigured { fault, words },
                None => Removal::Failed(words),
            }),
            removal => Ok(removal),
        }
    }

    /// Deletes a pod of that name and uid, which may take so long to end.
    pub async fn delete_pod(&self, pod: &PodRef, grace: SignedDuration) -> Result<Removal, WriteError> {
        let api = self.pods(pod)?;
        let grace = u32::try_from(grace.as_secs().max(0)).unwrap_or(u32::MAX);
        let params = DeleteParams::default()
            .grace_period(grace)
            .preconditions(same(&pod.uid));
        let sent = async { api.delete(&pod.name, &params).await };
        removed(crash::around("pod delete", sent).await.map(drop))
    }

    /// What is wrong with the budgets of a pod, if they never let it go. `None` also where they cannot be read: the server's own words are
    /// told then.
    pub async fn fault_of_budgets(&self, pod: &PodRef) -> Option<String> {
        let api = Api::<Bare<PodDisruptionBudget>>::namespaced(self.target()?, &pod.namespace);
        match api.list(&ListParams::default()).await {
            Ok(found) => {
                let budgets: Vec<_> = found.items.into_iter().map(|Bare(budget)| budget).collect();
                budget::fault(pod, &budgets)
            }
            Err(error) => {
                tracing::debug!(%pod, %error, "the PodDisruptionBudgets could not be read");
                None
            }
        }
    }

    /// The volume that a pod's claim is bound to, if it is bound. Listed by its name: the role of the original may list claims, and not get
    /// one.
    pub async fn volume_of(&self, pod: &PodRef, claim: &str) -> Result<Option<VolumeName>, ReadError> {
        let target = self.target().ok_or(ReadError::Gone)?;
        let api = Api::<Bare<PersistentVolumeClaim>>::namespaced(target, &pod.namespace);
        let of_name = ListParams::default().fields(&format!("metadata.name={claim}"));
        let found = api.list(&of_name).await?.items;
        let Bare(claim) = found.into_iter().next().ok_or(ReadError::Gone)?;
        let volume = claim.spec.and_then(|spec| spec.volume_name);
        Ok(VolumeName::non_empty(volume.as_deref()))
    }

    /// Deletes the VolumeAttachment of that name and uid, so that whoever attaches and detaches lets go of the Node. One that is gone is
    /// what was wanted.
    pub async fn detach(&self, attachment: &Name, uid: &Uid) -> Result<(), WriteError> {
        let target = self.target().ok_or_else(no_target)?;
        let api = Api::<VolumeAttachment>::all(target);
        let params = DeleteParams::default().preconditions(same(uid));
        let sent = async { api.delete(attachment.as_str(), &params).await };
        match crash::around("detach", sent).await.map_err(WriteError::from) {
            Ok(_) | Err(WriteError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Kubernetes reads the uid from `deleteOptions`. `Api::evict` of the kube crate sends `delete_options`, which is ignored: a pod of a
/// StatefulSet that runs elsewhere under the same name would be evicted in place of the one that is gone.
fn eviction(pod: &PodRef) -> Eviction {
    let preconditions = Preconditions {
        uid: Some(pod.uid.as_str().to_owned()),
        ..Preconditions::default()
    };
    Eviction {
        delete_options: Some(DeleteOptions {
            preconditions: Some(preconditions),
            ..DeleteOptions::default()
        }),
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
    }
}

/// What an answer says of a pod that was to go. One that is gone, or whose name another one bears, went.
fn removed(answer: Result<(), kube::Error>) -> Result<Removal, WriteError> {
    let Err(error) = answer else {
        return Ok(Removal::Accepted);
    };
    if let Some(words) = over_budget(&error) {
        return Ok(Removal::OverBudget(words));
    }
    match WriteError::from(error) {
        WriteError::Gone => Ok(Removal::Accepted),
        WriteError::Fenced => Err(WriteError::Fenced),
        other => Ok(Removal::Failed(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn refused(code: u16, extra: Value) -> Removal {
        let mut status =
            json!({"status": "Failure", "code": code, "reason": "TooManyRequests", "message": "too many requests"});
        millwright_core::merge::apply(&mut status, &extra);
        let status = serde_json::from_value(status).unwrap();
        removed(Err(kube::Error::Api(status))).unwrap()
    }

    /// Rows: W49.
    #[test]
    fn a_429_blames_a_budget_only_where_one_gave_it() {
        let causes = json!({"details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 pods"}]}});
        assert_eq!(
            refused(429, causes),
            Removal::OverBudget("The disruption budget web needs 2 pods".to_owned())
        );
        for busy in [json!({}), json!({"details": {"retryAfterSeconds": 1}})] {
            let Removal::Failed(words) = refused(429, busy) else {
                panic!("it is no budget's")
            };
            assert!(words.contains("too many requests"), "{words}");
        }
    }

    #[test]
    fn an_eviction_is_bound_to_the_uid_of_its_pod() {
        let pod = PodRef {
            namespace: "default".to_owned(),
            name: "db-0".to_owned(),
            uid: Uid::new("a"),
            claims: Vec::new(),
            labels: BTreeMap::new(),
            grace: SignedDuration::ZERO,
        };
        let sent = serde_json::to_value(eviction(&pod)).unwrap();
        assert_eq!(sent["deleteOptions"]["preconditions"]["uid"], "a", "{sent}");
    }
}
