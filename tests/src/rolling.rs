//! Watches one deployment's Machines beside the manager and judges at every event how many there are and how many are available.
//! It shares nothing with the manager: it counts Machines by their labels and phases, as the API server tells them.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::laws;
use crate::scene::{Kind, Scene};

/// How far the numbers of a rollout may go.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// As many Machines there may be, those counted that are being deleted: `replicas + maxSurge`.
    pub most: usize,
    /// As many are available at any time: `replicas - maxUnavailable`.
    pub fewest_available: usize,
}

/// A watch under way. It begins with the Machines that are there and ends with [`RolloutWatch::end`].
#[derive(Debug)]
pub struct RolloutWatch {
    task: JoinSet<Result<Seen, String>>,
    over: oneshot::Sender<()>,
}

/// What was seen until the end.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Changes that were judged.
    pub events: usize,
    /// The most Machines at one time.
    pub most: usize,
    /// The fewest available ones at one time.
    pub fewest_available: usize,
    /// Moments outside the bounds.
    pub breaches: Vec<String>,
}

impl RolloutWatch {
    /// Watches the Machines of the scene from now on.
    #[must_use]
    pub fn begin(scene: &Scene, bounds: Bounds) -> Self {
        Self::with(scene, bounds, watcher::Config::default())
    }

    /// Watches the Machines of one deployment of the scene, which bear its name as the label `name`.
    #[must_use]
    pub fn of(scene: &Scene, deployment: &str, bounds: Bounds) -> Self {
        let config = watcher::Config::default().labels(&format!("name={deployment}"));
        Self::with(scene, bounds, config)
    }

    fn with(scene: &Scene, bounds: Bounds, config: watcher::Config) -> Self {
        let (over, ended) = oneshot::channel();
        let machines = scene.api(Kind::Machine);
        let mut task = JoinSet::new();
        task.spawn(watch(machines, config, bounds, ended));
        Self { task, over }
    }

    /// Stops watching.
    ///
    /// # Panics
    /// The watch failed, and what it saw is not all that happened.
    pub async fn end(mut self) -> Seen {
        // The receiver is gone only where the watch failed, which is told below.
        let _ = self.over.send(());
        let seen = self
            .task
            .join_next()
            .await
            .expect("one task")
            .expect("it does not panic");
        seen.unwrap_or_else(|why| panic!("the watch of the rollout: {why}"))
    }
}

async fn watch(
    machines: Api<DynamicObject>,
    config: watcher::Config,
    bounds: Bounds,
    mut ended: oneshot::Receiver<()>,
) -> Result<Seen, String> {
    let mut events = watcher::watcher(machines, config).boxed();
    let mut there: BTreeMap<String, Value> = BTreeMap::new();
    let mut seen = Seen {
        fewest_available: usize::MAX,
        ..Seen::default()
    };
    loop {
        let event = tokio::select! {
            event = events.try_next() => event.map_err(|error| error.to_string())?.ok_or("it ended by itself")?,
            _ = &mut ended => return Ok(seen),
        };
        match event {
            Event::Init => there.clear(),
            Event::InitApply(machine) => {
                there.insert(machine.metadata.uid.clone().unwrap_or_default(), json!(machine));
                continue;
            }
            Event::InitDone => judge(&there, bounds, "at the start", &mut seen),
            Event::Apply(machine) => {
                let name = machine.metadata.name.clone().unwrap_or_default();
                there.insert(machine.metadata.uid.clone().unwrap_or_default(), json!(machine));
                judge(&there, bounds, &name, &mut seen);
            }
            Event::Delete(machine) => {
                there.remove(machine.metadata.uid.as_deref().unwrap_or_default());
                judge(
                    &there,
                    bounds,
                    machine.metadata.name.as_deref().unwrap_or_default(),
                    &mut seen,
                );
            }
        }
    }
}

fn judge(there: &BTreeMap<String, Value>, bounds: Bounds, after: &str, seen: &mut Seen) {
    let is_available =
        |machine: &&Value| laws::phase(machine) == "Running" && machine["metadata"]["deletionTimestamp"].is_null();
    let (all, available) = (there.len(), there.values().filter(is_available).count());
    seen.events += 1;
    seen.most = seen.most.max(all);
    seen.fewest_available = seen.fewest_available.min(available);
    if all > bounds.most || available < bounds.fewest_available {
        seen.breaches
            .push(format!("after {after}: {all} machines, {available} available"));
    }
}
