//! What the manager asks, one struct a call. Required fields and sizes are already checked (`validate.rs`).
//!
//! A request can be logged by `Debug`: what is secret shows as `<redacted>`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Identity, MachineClass, MachineKey, Secrets, UserData};

/// How many VMs a page holds if the caller does not say.
pub(crate) const PAGE_SIZE_DEFAULT: usize = 500;

/// What is known about a call besides its request.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Context {
    /// When the caller of a read stops waiting, from its `grpc-timeout`: the call is dropped then. `None` in `create_machine`,
    /// `initialize_machine` and `delete_machine`, whose work outlives its callers; give each request to the provider a timeout of its own there.
    pub deadline: Option<Instant>,
    cancelled: CancellationToken,
    stopping: CancellationToken,
}

impl Context {
    /// A context with a deadline, for tests of a driver without a server.
    pub fn with_deadline(deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::default()
        }
    }

    pub(crate) fn new(deadline: Option<Instant>, stopping: CancellationToken) -> Self {
        Self {
            deadline,
            stopping,
            ..Self::default()
        }
    }

    /// The same call, which ends early at this sign.
    pub(crate) fn until(self, cancelled: CancellationToken) -> Self {
        Self { cancelled, ..self }
    }

    /// Waits until the work should end early, because a deletion of the Machine waits for it. Work that goes on is dropped 30 s later. End with
    /// an error that says what is left: [`Outcome::Partial`](crate::Outcome::Partial) or [`Outcome::Unknown`](crate::Outcome::Unknown).
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Whether [`cancelled`](Self::cancelled) has come. Worth a look between two requests to the provider.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Waits until the process is asked to stop. From then on work in flight has `--drain-timeout`, 25 s by default; what is recorded at the
    /// provider by then is found by the repeat.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Whether [`stopping`](Self::stopping) has come.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Time left until the deadline; `None` without one, zero when it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// Request of `create_machine`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateMachine {
    /// The Machine.
    pub key: MachineKey,
    /// Its recipe.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// Boot configuration, byte for byte the same while an earlier outcome is unknown.
    pub user_data: UserData,
    /// Tags that the VM must carry from its first moment, never empty. A driver that stores all of them finds the VM again by
    /// `millwright/cluster` and `millwright/uid`.
    pub tags: BTreeMap<String, String>,
    /// Digest of what the manager made the request of. Store it as a tag, and compare it by [`is_made_of`](Self::is_made_of). Empty: the
    /// caller does not know it.
    pub spec_digest: String,
    /// What an earlier answer said to remember.
    pub last_known_state: String,
    /// Labels that the node will bear.
    pub node_labels: BTreeMap<String, String>,
    /// Annotations that the node will bear.
    pub node_annotations: BTreeMap<String, String>,
}

impl CreateMachine {
    /// A request as a caller by hand makes it, for tests of a driver without a server. Its tags are those of key and class.
    pub fn new(key: MachineKey, machine_class: MachineClass) -> Self {
        let mut request = Self {
            key,
            machine_class,
            secrets: Secrets::default(),
            user_data: UserData::default(),
            tags: BTreeMap::new(),
            spec_digest: String::new(),
            last_known_state: String::new(),
            node_labels: BTreeMap::new(),
            node_annotations: BTreeMap::new(),
        };
        request.tags = Identity::of(&request).tags();
        request
    }

    /// Whether a VM with that digest is the one that is asked for: the digests are equal, or one of them is not known. If not, the call
    /// fails with `SPEC_CONFLICT`.
    pub fn is_made_of(&self, spec_digest: &str) -> bool {
        is_same_spec(&self.spec_digest, spec_digest)
    }
}

/// Whether two digests are equal, or one of them is not known. One may be as its tag holds it: the first 32 characters.
pub(crate) fn is_same_spec(one: &str, other: &str) -> bool {
    let is_tag_of = |tag: &str, whole: &str| tag.len() == millwright_proto::DIGEST_TAG && whole.starts_with(tag);
    one == other || one.is_empty() || other.is_empty() || is_tag_of(one, other) || is_tag_of(other, one)
}

/// Request of `initialize_machine`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InitializeMachine {
    /// The Machine.
    pub key: MachineKey,
    /// Hint; may be empty.
    pub provider_id: String,
    /// Its recipe.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// What an earlier answer said to remember.
    pub last_known_state: String,
}

impl InitializeMachine {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(key: MachineKey, machine_class: MachineClass) -> Self {
        Self {
            key,
            provider_id: String::new(),
            machine_class,
            secrets: Secrets::default(),
            last_known_state: String::new(),
        }
    }
}

/// Request of `delete_machine`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeleteMachine {
    /// The Machine. `uid` is empty only for a VM that bears none; `provider_id` is set then.
    pub key: MachineKey,
    /// Hint; empty if the manager never learned it.
    pub provider_id: String,
    /// For region and credentials. The VM may have been made of an older spec.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// What an earlier answer said to remember.
    pub last_known_state: String,
}

impl DeleteMachine {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(key: MachineKey, machine_class: MachineClass) -> Self {
        Self {
            key,
            provider_id: String::new(),
            machine_class,
            secrets: Secrets::default(),
            last_known_state: String::new(),
        }
    }
}

/// Request of `get_machine_status`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GetMachineStatus {
    /// The Machine.
    pub key: MachineKey,
    /// Hint; may be empty or wrong.
    pub provider_id: String,
    /// For region and credentials.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
}

impl GetMachineStatus {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(key: MachineKey, machine_class: MachineClass) -> Self {
        Self {
            key,
            provider_id: String::new(),
            machine_class,
            secrets: Secrets::default(),
        }
    }
}

/// Request of `list_machines`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListMachines {
    /// Whose VMs.
    pub cluster_id: String,
    /// For region and credentials.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// At most this many machines: 1 to 1000, defaults are filled in.
    pub page_size: usize,
    /// Empty for the first page, else the `next_cursor` of the page before. The SDK has checked that it belongs to
    /// this cluster and class.
    pub cursor: String,
}

impl ListMachines {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(cluster_id: impl Into<String>, machine_class: MachineClass) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            machine_class,
            secrets: Secrets::default(),
            page_size: PAGE_SIZE_DEFAULT,
            cursor: String::new(),
        }
    }
}

/// Request of `watch_machines`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchMachines {
    /// Whose VMs.
    pub cluster_id: String,
    /// For region and credentials.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
    /// Empty: start with all VMs. Else the last `resume_token` that the manager saw.
    pub resume_token: String,
}

impl WatchMachines {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(cluster_id: impl Into<String>, machine_class: MachineClass) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            machine_class,
            secrets: Secrets::default(),
            resume_token: String::new(),
        }
    }
}

/// Request of `validate_machine_class`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ValidateMachineClass {
    /// The class to check.
    pub machine_class: MachineClass,
    /// The class's credentials; may be empty if `live` is false.
    pub secrets: Secrets,
    /// Whether to ask the provider, too. With `false` no provider call is made.
    pub live: bool,
}

impl ValidateMachineClass {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(machine_class: MachineClass) -> Self {
        Self {
            machine_class,
            secrets: Secrets::default(),
            live: false,
        }
    }
}

/// Request of `node_template`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GetNodeTemplate {
    /// The class.
    pub machine_class: MachineClass,
    /// The class's credentials.
    pub secrets: Secrets,
}

impl GetNodeTemplate {
    /// A request as a caller by hand makes it, for tests of a driver without a server.
    pub fn new(machine_class: MachineClass) -> Self {
        Self {
            machine_class,
            secrets: Secrets::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_only_where_both_are_known() {
        let (one, other) = ("ab".repeat(32), "cd".repeat(32));
        assert!(!is_same_spec(&one, &other));
        assert!(!is_same_spec(&one, &other[..32]));
        assert!(!is_same_spec(&one, &one[..31]), "that is no tag of it");
        for same in [one.as_str(), "", &one[..32]] {
            assert!(is_same_spec(&one, same) && is_same_spec(same, &one));
        }
    }

    #[test]
    fn a_request_is_logged_without_its_secrets() {
        let mut request = CreateMachine::new(MachineKey::default(), MachineClass::default());
        request.secrets = [("token".to_owned(), b"canary".to_vec())].into_iter().collect();
        request.user_data = UserData::from(b"canary".to_vec());
        let text = format!("{request:?}");
        assert!(text.contains("token") && text.contains("<redacted>"), "{text}");
        assert!(!text.contains("canary") && !text.contains("99, 97"), "{text}");
    }
}
