//! The cloud's VMs in memory, with their indexes: exactly what the file holds, never more.
//!
//! Changes come from the writer after they are durable. Beside them live two facts of the moment that no restart
//! needs: which VMs have a node registration in flight, and which are about to be removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::{
    Happening,
    ledger::Change,
    vm::{Vm, VmId},
};

/// A token as one region knows it: another region knows nothing of it.
pub(crate) fn in_region(region: &str, token: &str) -> String {
    format!("{region}/{token}")
}

/// All VMs and every token that was ever spent.
#[derive(Default)]
pub(crate) struct Fleet {
    vms: BTreeMap<VmId, Arc<Vm>>,
    by_token: HashMap<String, VmId>,
    by_name: BTreeSet<(String, String, VmId)>,
    spent: HashMap<String, Timestamp>,
    registering: HashSet<VmId>,
    closing: HashSet<VmId>,
    listeners: Vec<mpsc::UnboundedSender<Happening>>,
}

impl Fleet {
    pub(crate) fn get(&self, id: &VmId) -> Option<&Arc<Vm>> {
        self.vms.get(id)
    }

    pub(crate) fn by_token(&self, region: &str, token: &str) -> Option<&Arc<Vm>> {
        let id = self.by_token.get(&in_region(region, token))?;
        self.vms.get(id)
    }

    /// VMs of one cluster and machine name. More than one only if uids differ.
    pub(crate) fn by_name(&self, cluster: &str, name: &str) -> impl Iterator<Item = &Arc<Vm>> {
        let from = (cluster.to_owned(), name.to_owned(), VmId::new(""));
        let wanted = (cluster.to_owned(), name.to_owned());
        self.by_name
            .range(from..)
            .take_while(move |(cluster, name, _)| (cluster, name) == (&wanted.0, &wanted.1))
            .filter_map(|(_, _, id)| self.vms.get(id))
    }

    /// All VMs with an id greater than `after`, in the order of ids.
    pub(crate) fn beyond(&self, after: Option<&VmId>) -> impl Iterator<Item = &Arc<Vm>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.vms.range::<VmId, _>((from, Bound::Unbounded)).map(|(_, vm)| vm)
    }

    pub(crate) fn is_spent(&self, region: &str, token: &str) -> bool {
        self.spent.contains_key(&in_region(region, token))
    }

    /// Tokens spent before `limit`.
    pub(crate) fn spent_before(&self, limit: Timestamp) -> Vec<String> {
        self.spent
            .iter()
            .filter(|(_, at)| **at < limit)
            .map(|(token, _)| token.clone())
            .collect()
    }

    pub(crate) fn is_registering(&self, id: &VmId) -> bool {
        self.registering.contains(id)
    }

    /// Opens a registration, unless the VM is off, on its way out, registered, or has one open already.
    pub(crate) fn begin_registration(&mut self, id: &VmId) -> Option<Arc<Vm>> {
        let vm = self.vms.get(id)?;
        let is_leaving = vm.deletion.is_some() || self.closing.contains(id);
        let is_up = vm.stopped_at.is_none() && !is_leaving;
        if !is_up || vm.node_registered || !self.registering.insert(id.clone()) {
            return None;
        }
        Some(Arc::clone(vm))
    }

    pub(crate) fn end_registration(&mut self, id: &VmId) {
        self.registering.remove(id);
    }

    /// From here until the removal is durable (or has failed) no registration may begin.
    pub(crate) fn close(&mut self, id: &VmId) {
        self.closing.insert(id.clone());
    }

    pub(crate) fn reopen(&mut self, id: &VmId) {
        self.closing.remove(id);
    }

    pub(crate) fn is_closing(&self, id: &VmId) -> bool {
        self.closing.contains(id)
    }

    pub(crate) fn listen(&mut self) -> mpsc::UnboundedReceiver<Happening> {
        let (tell, hear) = mpsc::unbounded_channel();
        self.listeners.push(tell);
        hear
    }

    pub(crate) fn tell(&mut self, happening: &Happening) {
        self.listeners
            .retain(|listener| listener.send(happening.clone()).is_ok());
    }

    /// Takes over a change that is durable.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Put(vm) => self.put(vm),
            Change::Remove(id) => self.remove(&id),
            Change::Spend { token, at } => {
                self.spent.insert(token, at);
            }
            Change::Forget { token } => {
                self.spent.remove(&token);
            }
            Change::Journal(_) => {}
        }
    }

    fn put(&mut self, vm: Arc<Vm>) {
        self.by_token.insert(in_region(&vm.region, &vm.token), vm.id.clone());
        self.by_name
            .insert((vm.owner.cluster.clone(), vm.owner.name.clone(), vm.id.clone()));
        self.vms.insert(vm.id.clone(), vm);
    }

    fn remove(&mut self, id: &VmId) {
        let Some(vm) = self.vms.remove(id) else { return };
        self.by_token.remove(&in_region(&vm.region, &vm.token));
        self.by_name
            .remove(&(vm.owner.cluster.clone(), vm.owner.name.clone(), vm.id.clone()));
        self.closing.remove(id);
    }
}
