//! One VM of the simulated cloud: what is stored of it, and what the clock makes of that.
//!
//! Holds no behaviour but derivation: the state of a VM is a function of its record and the time, so a process that
//! was dead for a while finds each VM as far along as if it had lived. May not touch the fleet or the file.

use std::{collections::BTreeMap, fmt, net::Ipv4Addr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock;

/// The longest name of a node, which must be a label value, too.
const NODE_NAME_MAX: usize = 63;

/// A VM's id within the cloud, for example `i-0f3a9c2b7d514e680`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmId(String);

impl VmId {
    /// Takes the text for an id; whether such a VM exists is the fleet's to say.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose VM it is, from its tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The cluster that owns the VM; a driver acts for one cluster at a time.
    pub cluster: String,
    /// The Machine's namespace.
    pub namespace: String,
    /// The Machine's name.
    pub name: String,
    /// The Machine's uid.
    pub uid: String,
}

/// How long this VM takes over its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// From accepted to running.
    pub create: Duration,
    /// From running to the node's registration.
    pub join: Duration,
    /// From the accepted deletion to gone.
    pub delete: Duration,
}

/// An order for a VM, as a driver places it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Idempotency token: one token is one VM, for ever.
    pub token: String,
    /// Identity tags.
    pub owner: Owner,
    /// Name of the class that the VM is made of.
    pub machine_class: String,
    /// Digest of what the VM is made of; a repeat of the token with another one is refused.
    pub spec_digest: String,
    /// The request's tags, stored as they are.
    pub tags: BTreeMap<String, String>,
    /// Where the VM stands.
    pub region: String,
    /// Zone within the region.
    pub zone: String,
    /// Name of its size.
    pub instance_type: String,
    /// How long its changes take.
    pub delays: Delays,
}

/// An accepted deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// When it was accepted.
    pub asked_at: Timestamp,
    /// When the VM is gone.
    pub gone_at: Timestamp,
    /// Nobody ordered it through the API: the VM was taken away, as a failing host does.
    pub is_loss: bool,
}

/// Where a VM is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepted, not powered on yet.
    Creating,
    /// Powered on.
    Running,
    /// Powered off by somebody.
    Stopped,
    /// On its way out.
    Deleting,
}

impl Phase {
    /// The cloud's own word, for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Creating => "pending",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Deleting => "shutting-down",
        }
    }
}

/// What the cloud stores of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// Its id, given at acceptance and never changed.
    pub id: VmId,
    /// The idempotency token it was ordered with.
    pub token: String,
    /// Identity tags.
    pub owner: Owner,
    /// Name of the class it was made of.
    pub machine_class: String,
    /// Digest of what it was made of.
    pub spec_digest: String,
    /// Tags as ordered.
    pub tags: BTreeMap<String, String>,
    /// Region it stands in.
    pub region: String,
    /// Zone it stands in.
    pub zone: String,
    /// Name of its size.
    pub instance_type: String,
    /// Its address in the cloud's private network.
    pub address: Ipv4Addr,
    /// When the cloud accepted it.
    pub accepted_at: Timestamp,
    /// From when on lookups and lists show it.
    pub visible_at: Timestamp,
    /// When it powers on.
    pub running_at: Timestamp,
    /// When its kubelet registers the node.
    pub joins_at: Timestamp,
    /// How long it takes to go.
    pub delete_delay: Duration,
    /// Its boot is in the journal.
    pub booted: bool,
    /// Its node has been registered; a kubelet does this once in a VM's life.
    pub node_registered: bool,
    /// When somebody powered it off.
    pub stopped_at: Option<Timestamp>,
    /// Its deletion, once accepted.
    pub deletion: Option<Deletion>,
}

impl Vm {
    /// The VM that `launch` makes when it is accepted at `now`.
    pub(crate) fn accepted(id: VmId, address: Ipv4Addr, launch: Launch, now: Timestamp, list_lag: Duration) -> Self {
        let running_at = clock::after(now, launch.delays.create);
        Self {
            id,
            token: launch.token,
            owner: launch.owner,
            machine_class: launch.machine_class,
            spec_digest: launch.spec_digest,
            tags: launch.tags,
            region: launch.region,
            zone: launch.zone,
            instance_type: launch.instance_type,
            address,
            accepted_at: now,
            visible_at: clock::after(now, list_lag),
            running_at,
            joins_at: clock::after(running_at, launch.delays.join),
            delete_delay: launch.delays.delete,
            booted: false,
            node_registered: false,
            stopped_at: None,
            deletion: None,
        }
    }

    /// Where the VM is in its life at `now`.
    pub fn phase(&self, now: Timestamp) -> Phase {
        if self.deletion.is_some() {
            return Phase::Deleting;
        }
        if self.stopped_at.is_some() {
            return Phase::Stopped;
        }
        if now < self.running_at {
            Phase::Creating
        } else {
            Phase::Running
        }
    }

    /// Whether the clock alone says that the VM is gone. A process that was dead at that instant has not noted it yet.
    pub fn is_past(&self, now: Timestamp) -> bool {
        self.deletion.is_some_and(|deletion| deletion.gone_at <= now)
    }

    /// Whether lookups and lists show the VM.
    pub fn is_visible(&self, now: Timestamp) -> bool {
        self.visible_at <= now
    }

    /// The id that drivers, machines and nodes share.
    pub fn provider_id(&self) -> String {
        format!("virtual:///{}/{}/{}", self.region, self.zone, self.id)
    }

    /// Name that its node registers with: the machine's, or where that is longer than a node's may be, its start and the VM's id.
    pub fn node_name(&self) -> String {
        let (name, id) = (&self.owner.name, self.id.as_str());
        if name.len() <= NODE_NAME_MAX {
            return name.clone();
        }
        let room = NODE_NAME_MAX.saturating_sub(id.len() + 1);
        let start = name.get(..room).unwrap_or_default();
        format!("{}-{id}", start.trim_end_matches(['-', '.']))
    }
}

/// The id inside a provider id of this cloud; `None` for any other text.
pub(crate) fn id_in(provider_id: &str) -> Option<VmId> {
    let path = provider_id.strip_prefix("virtual:///")?;
    let (_, id) = path.rsplit_once('/')?;
    (!id.is_empty()).then(|| VmId::new(id))
}
