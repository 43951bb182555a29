//! The watch: all VMs of a cluster in a region, then what happens to them.
//!
//! Bounded: a reader that falls too far behind loses its place and starts over. Cannot resume.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use millwright_provider_sdk::{Change, DriverError, Reason, WatchEvent, WatchStream};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::answer;
use crate::cloud::{Cloud, Event, Happening};

pub(super) fn stream(cloud: &Cloud, region: String, cluster: String) -> WatchStream {
    // Subscribed before the list is read: what happens in between is told twice rather than never.
    let happenings = cloud.watch();
    let now = cloud.now();
    let known = cloud.list(&region, &cluster, None, usize::MAX);
    let known = known
        .into_iter()
        .map(move |vm| Ok(event(Change::Upsert(Box::new(answer::machine(&vm, now))))));
    let synced = stream::iter([Ok(event(Change::Synced))]);
    let changes = stream::unfold(
        Some((
            cloud.clone(),
            happenings,
            Arc::<(String, String)>::from((region, cluster)),
        )),
        |place| async move {
            let (cloud, mut happenings, whose) = place?;
            match next(&cloud, &mut happenings, &whose).await {
                Ok(Some(change)) => Some((Ok(event(change)), Some((cloud, happenings, whose)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        },
    );
    stream::iter(known).chain(synced).chain(changes).boxed()
}

/// The next change in the region to VMs of the cluster; `None` once the cloud is no more.
async fn next(
    cloud: &Cloud,
    happenings: &mut Receiver<Happening>,
    (region, cluster): &(String, String),
) -> Result<Option<Change>, DriverError> {
    loop {
        match happenings.recv().await {
            Ok(Happening { vm, .. }) if vm.region != *region || vm.owner.cluster != *cluster => {}
            Ok(happening) => return Ok(Some(change(&happening, cloud.now()))),
            Err(RecvError::Closed) => return Ok(None),
            Err(RecvError::Lagged(missed)) => {
                let text = format!("the reader is {missed} changes behind");
                return Err(DriverError::new(Reason::ResumeTokenExpired, text));
            }
        }
    }
}

fn change(happening: &Happening, now: Timestamp) -> Change {
    let vm = &happening.vm;
    match happening.event {
        Event::Accepted | Event::Booted | Event::Joined | Event::Stopped | Event::Deleting => {
            Change::Upsert(Box::new(answer::machine(vm, now)))
        }
        Event::Removed => Change::Deleted(Box::new(answer::gone(vm))),
    }
}

fn event(change: Change) -> WatchEvent {
    WatchEvent {
        change,
        resume_token: String::new(),
    }
}
