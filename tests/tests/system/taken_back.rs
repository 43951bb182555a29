//! A great size that is taken back: what was not made yet is not made any more.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use millwright_tests::laws;
use millwright_tests::scene::{Kind, shared_plane};
use millwright_tests::script::Script;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
/// How long the great size is wanted.
const WANTED: Duration = Duration::from_millis(900);
/// Most machines that may ever be made.
const MOST: usize = 300;

/// Every Machine of a namespace that there was since the watch began, by uid.
struct Counter {
    uids: Arc<Mutex<BTreeSet<String>>>,
    watch: JoinHandle<()>,
}

impl Counter {
    async fn of(machines: Api<DynamicObject>) -> Self {
        let there = machines.list(&ListParams::default()).await.unwrap();
        let uids: BTreeSet<String> = there.items.iter().filter_map(|machine| machine.uid()).collect();
        let uids = Arc::new(Mutex::new(uids));
        let from = there.metadata.resource_version.unwrap();
        let watch = tokio::spawn(count(machines, from, Arc::clone(&uids)));
        Self { uids, watch }
    }

    /// How many there were.
    fn seen(&self) -> usize {
        assert!(!self.watch.is_finished(), "the watch saw everything");
        self.uids.lock().unwrap().len()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn count(machines: Api<DynamicObject>, from: String, uids: Arc<Mutex<BTreeSet<String>>>) {
    let params = WatchParams::default().timeout(290);
    let mut events = machines.watch(&params, &from).await.unwrap().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::Added(machine)) => {
                uids.lock().unwrap().extend(machine.uid());
            }
            Ok(WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => {}
            Ok(WatchEvent::Error(error)) => panic!("the watch of machines: {error:?}"),
            Err(error) => panic!("the watch of machines: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_machines_that_are_taken_back_within_a_second_are_mostly_never_made() {
    let Some(plane) = shared_plane("a size that is taken back").await else {
        return;
    };
    let mut scene = Script::new("back").begin(&plane).await;
    scene.deploy(3).await;
    scene.settled_at(3, LIMIT).await;
    let counter = Counter::of(scene.api(Kind::Machine)).await;

    scene.scale(3000).await;
    tokio::time::sleep(WANTED).await;
    scene.scale(3).await;
    let taken_back = Instant::now();
    scene.settled_at(3, LIMIT).await;
    println!("back at 3 after {:.1} s", taken_back.elapsed().as_secs_f64());
    // What was sent before would be here by now.
    tokio::time::sleep(Duration::from_secs(3)).await;
    scene.settled_at(3, Duration::ZERO).await;

    let (made, journal) = (counter.seen(), scene.journal().await.unwrap());
    println!("{made} machines and {} VMs were ever made", laws::vms_made(&journal));
    assert!(made <= MOST, "{made} machines were made");
    assert!(made > 3, "the great size was seen at all");
    laws::one_vm_a_machine(&journal).unwrap();
}
