//! The watch: all VMs of a cluster in a region, then what happens to them.
//!
//! Bounded: a reader that falls too far behind loses its place and starts over. Cannot resume. Says that all VMs were shown once lookups must
//! show all that were ordered before the watch began. Tells of a VM again only in another state: all else of a VM stays as it is (WAT-4).

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use millwright_provider_sdk::{Change, DriverError, MachineKey, MachineState, Reason, WatchEvent, WatchStream};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{answer, ownership::Ownership};
use crate::{
    clock,
    cloud::{Cloud, Event, Happening, Vm, VmId},
};

/// One watch, and how far it is.
struct Watch {
    cloud: Cloud,
    happenings: Receiver<Happening>,
    region: String,
    own: Ownership,
    /// When lookups show every VM that was ordered before the watch began. `None`: that was said.
    complete_at: Option<Timestamp>,
    /// The state in which each VM that is there was told of last.
    told: HashMap<VmId, MachineState>,
    /// What is told next.
    changes: VecDeque<Change>,
}

pub(super) fn stream(cloud: &Cloud, region: String, own: Ownership, list_lag: Duration) -> WatchStream {
    let mut watch = Watch {
        // Subscribed before the list is read: what happens in between is told twice rather than never.
        happenings: cloud.watch(),
        cloud: cloud.clone(),
        region,
        own,
        complete_at: Some(clock::after(cloud.now(), list_lag)),
        told: HashMap::new(),
        changes: VecDeque::new(),
    };
    watch.look();
    let events = stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        match watch.next().await {
            Ok(Some(change)) => Some((Ok(WatchEvent::new(change)), Some(watch))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    events.boxed()
}

impl Watch {
    /// The next change in the region to VMs of the cluster; `None` once the cloud is no more.
    async fn next(&mut self) -> Result<Option<Change>, DriverError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(Some(change));
            }
            let left = self.complete_at.map(|at| clock::until(at, self.cloud.now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.look();
                self.changes.push_back(Change::Synced);
                self.complete_at = None;
                continue;
            }
            tokio::select! {
                happening = self.happenings.recv() => match happening {
                    Ok(happening) => self.hear(&happening),
                    Err(RecvError::Closed) => return Ok(None),
                    Err(RecvError::Lagged(missed)) => {
                        let text = format!("the reader is {missed} changes behind");
                        return Err(DriverError::new(Reason::ResumeTokenExpired, text));
                    }
                },
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {}
            }
        }
    }

    /// Tells of the VMs that lookups show.
    fn look(&mut self) {
        let vms = self
            .cloud
            .select(&self.region, None, usize::MAX, |vm| self.own.holds(vm));
        for vm in vms {
            self.show(&vm, self.own.key(&vm));
        }
    }

    fn hear(&mut self, happening: &Happening) {
        let vm = &happening.vm;
        if vm.region != self.region || !self.own.holds(vm) {
            return;
        }
        let key = self.own.key(vm);
        match happening.event {
            Event::Accepted | Event::Booted | Event::Joined | Event::Stopped | Event::Deleting => self.show(vm, key),
            Event::Removed => {
                self.told.remove(&vm.id);
                self.changes.push_back(Change::Deleted(Box::new(answer::gone(vm, key))));
            }
        }
    }

    /// Tells of a VM, unless that is no news.
    fn show(&mut self, vm: &Vm, key: MachineKey) {
        let machine = answer::machine(vm, key, self.cloud.now());
        let before = self.told.insert(vm.id.clone(), machine.state);
        if before != Some(machine.state) {
            self.changes.push_back(Change::Upsert(Box::new(machine)));
        }
    }
}
