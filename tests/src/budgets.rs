//! Watches the pods of a scene, their budgets and the attachments of volumes beside everybody else, and judges at every event
//! whether each budget holds. It shares nothing with the manager nor with the controller of budgets: it counts pods itself.
//!
//! A pod counts while it is ready and nobody has asked it to end.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::cloud::Entry;
use crate::laws;
use crate::scene::Scene;

/// A watch under way.
#[derive(Debug)]
pub struct BudgetWatch {
    task: JoinSet<Result<Seen, String>>,
    over: oneshot::Sender<()>,
}

/// What was seen until the end.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Changes that were judged.
    pub events: usize,
    /// The fewest pods that counted at one time, and how many had to, by budget.
    pub fewest: BTreeMap<String, (u64, u64)>,
    /// Moments in which a budget did not hold.
    pub breaches: Vec<String>,
    /// Pods and attachments that went, in this order.
    pub gone: Vec<Gone>,
    /// Those that are there at the end, as name and node.
    pub left: Vec<(String, String)>,
}

/// Something on a node, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub name: String,
    pub node: String,
    /// Kind of its controller; of an attachment nothing.
    pub owner: String,
    /// The Eviction API says that it was evicted.
    pub is_evicted: bool,
    /// When it was asked to end.
    pub asked: Option<Timestamp>,
    /// When it was gone.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pod,
    Budget,
    Attachment,
}

type Changes = SelectAll<BoxStream<'static, watcher::Result<(Kind, Event<Value>)>>>;

impl BudgetWatch {
    /// Watches from now on, when every budget holds. Attachments are those of all namespaces.
    #[must_use]
    pub fn begin(scene: &Scene) -> Self {
        let (client, namespace) = (&scene.client, &scene.namespace);
        let changes = futures::stream::select_all([
            changes(Kind::Pod, Api::<Pod>::namespaced(client.clone(), namespace)),
            changes(
                Kind::Budget,
                Api::<PodDisruptionBudget>::namespaced(client.clone(), namespace),
            ),
            changes(Kind::Attachment, Api::<VolumeAttachment>::all(client.clone())),
        ]);
        let (over, ended) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(watch(changes, ended));
        Self { task, over }
    }

    /// Stops watching.
    ///
    /// # Panics
    /// The watch failed, and what it saw is not all that happened.
    pub async fn end(mut self) -> Seen {
        // The receiver is gone only where the watch failed, which is told below.
        let _ = self.over.send(());
        let seen = self.task.join_next().await.expect("one task");
        let seen = seen.expect("it does not panic");
        seen.unwrap_or_else(|why| panic!("the watch of the budgets: {why}"))
    }
}

fn changes<K>(kind: Kind, api: Api<K>) -> BoxStream<'static, watcher::Result<(Kind, Event<Value>)>>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + Serialize + serde::de::DeserializeOwned + 'static,
{
    let events = watcher::watcher(api, watcher::Config::default());
    events.map_ok(move |event| (kind, plain(event))).boxed()
}

fn plain<K: Serialize>(event: Event<K>) -> Event<Value> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(json!(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(json!(object)),
        Event::Delete(object) => Event::Delete(json!(object)),
    }
}

async fn watch(mut changes: Changes, mut ended: oneshot::Receiver<()>) -> Result<Seen, String> {
    let mut room = Room::default();
    loop {
        let change = tokio::select! {
            change = changes.try_next() => change.map_err(|error| error.to_string())?.ok_or("it ended by itself")?,
            _ = &mut ended => return room.close(),
        };
        room.take(change)?;
    }
}

/// All that is known at one moment, and what was seen before.
#[derive(Debug, Default)]
struct Room {
    there: BTreeMap<(Kind, String), Value>,
    asked: BTreeMap<String, Timestamp>,
    /// Kinds whose first list is complete.
    listed: Vec<Kind>,
    seen: Seen,
}

impl Room {
    fn take(&mut self, (kind, event): (Kind, Event<Value>)) -> Result<(), String> {
        match event {
            // Between two lists anything may have happened.
            Event::Init if self.listed.contains(&kind) => return Err(format!("the watch of {kind:?} began anew")),
            Event::Init => return Ok(()),
            Event::InitDone => self.listed.push(kind),
            Event::InitApply(object) | Event::Apply(object) => self.see(kind, object),
            Event::Delete(object) => self.lose(kind, &object),
        }
        if self.listed.len() == 3 {
            self.judge();
        }
        Ok(())
    }

    fn see(&mut self, kind: Kind, object: Value) {
        let uid = laws::uid(&object).to_owned();
        if !object["metadata"]["deletionTimestamp"].is_null() {
            self.asked.entry(uid.clone()).or_insert_with(Timestamp::now);
        }
        self.there.insert((kind, uid), object);
    }

    fn lose(&mut self, kind: Kind, object: &Value) {
        let uid = laws::uid(object).to_owned();
        // The last that was seen before its end says more than the end itself.
        let last = self.there.remove(&(kind, uid.clone()));
        let node = node_of(object);
        if kind == Kind::Budget || node.is_empty() {
            return;
        }
        self.seen.gone.push(Gone {
            name: laws::name(object).to_owned(),
            node: node.to_owned(),
            owner: owner_of(object).to_owned(),
            is_evicted: [object].into_iter().chain(last.as_ref()).any(is_evicted),
            asked: self.asked.remove(&uid),
            at: Timestamp::now(),
        });
    }

    fn judge(&mut self) {
        self.seen.events += 1;
        for budget in self.of(Kind::Budget).cloned().collect::<Vec<_>>() {
            let name = laws::name(&budget).to_owned();
            let wanted = budget["spec"]["minAvailable"].as_u64().unwrap_or(u64::MAX);
            let counted = self
                .of(Kind::Pod)
                .filter(|pod| is_of(pod, &budget) && counts(pod))
                .count() as u64;
            let told = (
                budget["status"]["currentHealthy"].as_u64().unwrap_or(0),
                budget["status"]["desiredHealthy"].as_u64().unwrap_or(u64::MAX),
            );
            if counted < wanted {
                let breach = format!("{}: {name} has {counted} pods of {wanted}", Timestamp::now());
                self.seen.breaches.push(breach);
            }
            if told.0 < told.1 {
                self.seen.breaches.push(format!("{name} says of itself {told:?}"));
            }
            let fewest = self.seen.fewest.entry(name).or_insert((counted, wanted));
            fewest.0 = fewest.0.min(counted);
        }
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.there
            .iter()
            .filter(move |((of, _), _)| *of == kind)
            .map(|(_, object)| object)
    }

    fn close(mut self) -> Result<Seen, String> {
        if self.listed.len() < 3 {
            return Err(format!("only {:?} were ever listed", self.listed));
        }
        let left = self.of(Kind::Pod).chain(self.of(Kind::Attachment));
        self.seen.left = left
            .filter(|object| owner_of(object) != "DaemonSet")
            .map(|object| (laws::name(object).to_owned(), node_of(object).to_owned()))
            .collect();
        Ok(self.seen)
    }
}

impl Seen {
    /// Pods of everything but DaemonSets that went.
    pub fn pods(&self) -> impl Iterator<Item = &Gone> {
        let moves = |gone: &&Gone| !gone.owner.is_empty() && gone.owner != "DaemonSet";
        self.gone.iter().filter(moves)
    }

    /// Attachments of volumes that went.
    pub fn attachments(&self) -> impl Iterator<Item = &Gone> {
        self.gone.iter().filter(|gone| gone.owner.is_empty())
    }

    /// Every pod that had to go was evicted and given the time that its kubelet takes, `ending`; whatever is seen a little late.
    ///
    /// # Errors
    /// The pods that were not.
    pub fn nobody_was_forced(&self, ending: Duration) -> Result<(), String> {
        let at_least = ending / 2;
        let waited = |gone: &Gone| {
            gone.asked
                .is_some_and(|asked| gone.at.duration_since(asked).unsigned_abs() >= at_least)
        };
        let forced: Vec<&Gone> = self.pods().filter(|gone| !gone.is_evicted || !waited(gone)).collect();
        match forced.is_empty() {
            true => Ok(()),
            false => Err(format!("not evicted, or not waited for: {forced:#?}")),
        }
    }

    /// No VM was told to go while a pod of its node (but those of DaemonSets) or an attachment was there; whoever does not wait
    /// for their ends is sooner by `ending`. And no pod of a DaemonSet went before its VM.
    ///
    /// # Errors
    /// What was on a node when its VM went.
    pub fn vms_went_last(&self, journal: &[Entry], ending: Duration) -> Result<(), String> {
        let late = ending / 2;
        for vm in journal.iter().filter(|entry| entry.event == "deleting") {
            if let Some(left) = self.left.iter().find(|(_, node)| *node == vm.name) {
                return Err(format!("{left:?} is there, and its VM was told to go at {}", vm.at));
            }
            for gone in self.gone.iter().filter(|gone| gone.node == vm.name) {
                let is_daemon = gone.owner == "DaemonSet";
                let after = gone.at.duration_since(vm.at);
                if is_daemon && after.is_negative() || !is_daemon && after.unsigned_abs() > late && after.is_positive()
                {
                    return Err(format!("{gone:?}, and its VM was told to go at {}", vm.at));
                }
            }
        }
        Ok(())
    }
}

/// Where a pod runs or a volume is attached; "" for what is nowhere.
fn node_of(object: &Value) -> &str {
    object["spec"]["nodeName"].as_str().unwrap_or_default()
}

fn owner_of(object: &Value) -> &str {
    object["metadata"]["ownerReferences"][0]["kind"]
        .as_str()
        .unwrap_or_default()
}

fn is_of(pod: &Value, budget: &Value) -> bool {
    let mut wanted = budget["spec"]["selector"]["matchLabels"]
        .as_object()
        .into_iter()
        .flatten();
    wanted.all(|(label, value)| pod["metadata"]["labels"][label] == *value)
}

fn counts(pod: &Value) -> bool {
    let ready = laws::condition(&pod["status"]["conditions"], "Ready");
    pod["metadata"]["deletionTimestamp"].is_null() && ready.is_some_and(|ready| ready["status"] == "True")
}

fn is_evicted(pod: &Value) -> bool {
    let target = laws::condition(&pod["status"]["conditions"], "DisruptionTarget");
    target.is_some_and(|target| target["reason"] == "EvictionByEvictionAPI")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDING: Duration = Duration::from_secs(2);

    fn pod(uid: &str, more: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": uid, "uid": uid, "labels": {"app": "web"}, "ownerReferences": [{"kind": "ReplicaSet"}]},
            "spec": {"nodeName": "n"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        millwright_core::merge::apply(&mut pod, &more);
        pod
    }

    fn room() -> Room {
        let mut room = Room::default();
        let budget = json!({"metadata": {"name": "web", "uid": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"currentHealthy": 2, "desiredHealthy": 1}});
        for (kind, objects) in [
            (Kind::Budget, vec![budget]),
            (Kind::Pod, vec![pod("a", json!({})), pod("b", json!({}))]),
            (Kind::Attachment, vec![]),
        ] {
            let all = objects.into_iter().map(Event::InitApply);
            for event in [Event::Init].into_iter().chain(all).chain([Event::InitDone]) {
                room.take((kind, event)).unwrap();
            }
        }
        room
    }

    fn ending() -> Value {
        json!({"metadata": {"deletionTimestamp": "t"}})
    }

    #[test]
    fn a_budget_is_broken_by_the_pod_too_many_that_is_asked_to_end_or_is_not_ready() {
        let mut room = room();
        room.take((Kind::Pod, Event::Apply(pod("a", ending())))).unwrap();
        assert!(room.seen.breaches.is_empty());
        assert_eq!(room.seen.fewest["web"], (1, 1));
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        room.take((Kind::Pod, Event::Apply(pod("b", unready)))).unwrap();
        assert_eq!(room.seen.breaches.len(), 1);
        assert_eq!(room.seen.fewest["web"], (0, 1));
    }

    #[test]
    fn a_watch_that_may_have_missed_something_is_no_watch() {
        assert!(room().take((Kind::Pod, Event::Init)).is_err());
        assert!(Room::default().close().is_err());
    }

    #[test]
    fn a_pod_that_was_not_evicted_or_went_at_once_was_forced() {
        let mut room = room();
        room.take((Kind::Pod, Event::Delete(pod("a", json!({}))))).unwrap();
        assert!(room.seen.nobody_was_forced(ENDING).is_err());
        let gone = &mut room.seen.gone[0];
        gone.is_evicted = true;
        gone.asked = Some(gone.at - ENDING);
        room.seen.nobody_was_forced(ENDING).unwrap();
        room.seen.gone[0].asked = Some(room.seen.gone[0].at);
        assert!(room.seen.nobody_was_forced(ENDING).is_err());
    }

    #[test]
    fn a_vm_that_does_not_wait_is_found_and_so_is_a_daemon_that_was_ended_for_it() {
        let vm = |at: Timestamp| Entry {
            at,
            event: "deleting".into(),
            vm_id: "i".into(),
            uid: "u".into(),
            name: "n".into(),
        };
        let mut room = room();
        room.take((Kind::Pod, Event::Delete(pod("a", json!({}))))).unwrap();
        let early = room.seen.gone[0].at - ENDING;
        let late = room.seen.gone[0].at + ENDING;
        room.seen.vms_went_last(&[vm(late)], ENDING).unwrap();
        assert!(room.seen.vms_went_last(&[vm(early)], ENDING).is_err());
        room.seen.gone[0].owner = "DaemonSet".into();
        room.seen.vms_went_last(&[vm(early)], ENDING).unwrap();
        assert!(room.seen.vms_went_last(&[vm(late)], ENDING).is_err());
        let seen = room.close().unwrap();
        assert!(seen.vms_went_last(&[vm(early)], ENDING).is_err(), "b is there still");
    }
}
