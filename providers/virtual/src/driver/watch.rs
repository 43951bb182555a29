//! The watch: all VMs of a cluster, then what happens to them.
//!
//! Bounded: a reader that falls too far behind loses its place and starts over. Cannot resume.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use millwright_provider_sdk::{Change, DriverError, Reason, WatchEvent, WatchStream};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::answer;
use crate::cloud::{Cloud, Event, Happening};

pub(super) fn stream(cloud: &Cloud, cluster: String) -> WatchStream {
    // Subscribed before the list is read: what happens in between is told twice rather than never.
    let happenings = cloud.watch();
    let now = cloud.now();
    let known = cloud.list(&cluster, None, usize::MAX);
    let known = known
        .into_iter()
        .map(move |vm| Ok(event(Change::Upsert(Box::new(answer::machine(&vm, now))))));
    let synced = stream::iter([Ok(event(Change::Synced))]);
    let changes = stream::unfold(
        Some((cloud.clone(), happenings, Arc::<str>::from(cluster))),
        |place| async move {
            let (cloud, mut happenings, cluster) = place?;
            match next(&cloud, &mut happenings, &cluster).await {
                Ok(Some(change)) => Some((Ok(event(change)), Some((cloud, happenings, cluster)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        },
    );
    stream::iter(known).chain(synced).chain(changes).boxed()
}

/// The next change in the cluster; `None` once the cloud is no more.
async fn next(
    cloud: &Cloud,
    happenings: &mut Receiver<Happening>,
    cluster: &str,
) -> Result<Option<Change>, DriverError> {
    loop {
        match happenings.recv().await {
            Ok(happening) if happening.vm.owner.cluster == cluster => return Ok(Some(change(&happening, cloud.now()))),
            Ok(_) => {}
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
