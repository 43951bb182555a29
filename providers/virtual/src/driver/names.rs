//! Names whose VMs are being ordered, so that two Machines of one name cannot both find it free and both take it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use millwright_provider_sdk::{DriverError, MachineKey, Reason};

/// Region, cluster, namespace and name.
type Name = (String, String, String, String);

#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<Name, String>>);

impl Names {
    /// The right to order a VM of this name, until the claim is dropped.
    pub(super) fn claim(&self, region: &str, key: &MachineKey) -> Result<Claim<'_>, DriverError> {
        let name = (
            region.to_owned(),
            key.cluster_id.clone(),
            key.namespace.clone(),
            key.name.clone(),
        );
        let mut held = self.lock();
        if held.get(&name).is_some_and(|uid| *uid != key.uid) {
            let text = format!("a VM of the name {} is being ordered for another machine", key.name);
            return Err(DriverError::new(Reason::OperationInProgress, text));
        }
        held.insert(name.clone(), key.uid.clone());
        Ok(Claim { names: self, name })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, String>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

pub(super) struct Claim<'a> {
    names: &'a Names,
    name: Name,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.names.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_ordered_for_one_machine_at_a_time() {
        let key = |uid: &str| MachineKey {
            name: "m".into(),
            uid: uid.into(),
            ..MachineKey::default()
        };
        let names = Names::default();
        let claim = names.claim("moon", &key("one")).expect("it is free");
        let refused = names.claim("moon", &key("other")).err().expect("it is taken");
        assert_eq!(refused.reason(), &Reason::OperationInProgress);
        names.claim("mars", &key("other")).expect("another region");
        drop(claim);
        names.claim("moon", &key("other")).expect("it is free again");
    }
}
