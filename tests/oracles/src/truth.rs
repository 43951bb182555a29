//! Ground truth: what is, whatever anybody believes. Decides nothing.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

/// A VM that the cloud holds, from the acceptance of its order until nothing is left of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vm {
    /// The Machine's uid with which it is tagged.
    pub uid: String,
    /// The cloud's own id of it.
    pub id: String,
    /// `spec.providerID` of a Machine that has it.
    pub provider_id: String,
    /// Whether its removal was accepted.
    pub leaving: bool,
    /// Whether it is powered on, or will be.
    pub runs: bool,
}

/// The world of a run at one instant.
pub trait Truth {
    /// The time by which the API server writes timestamps.
    fn now(&self) -> Timestamp;
    /// All objects of a plural ("machines", "nodes", …), of all namespaces, in any fixed order.
    fn objects(&self, resource: &str) -> Vec<Arc<Value>>;
    /// Every VM.
    fn vms(&self) -> Vec<Vm>;
    /// Whether the cloud works on a creation for this uid that may still become a VM.
    fn may_appear(&self, uid: &str) -> bool;
}

/// The object of a uid.
pub fn by_uid(truth: &dyn Truth, resource: &str, uid: &str) -> Option<Arc<Value>> {
    truth
        .objects(resource)
        .into_iter()
        .find(|object| crate::object::uid(object) == uid)
}
