//! Whoever has to do with pods, beside managers: the controllers that make them again, the scheduler, kubelets, the disruption
//! controller, who removes pods of Nodes that are dead or gone, and who attaches and detaches their volumes ([`volumes`]).
//!
//! Each does, after a while by choice, what is to be done by what is; decides nothing of machines. Runs of workloads without pods have
//! none of them, and no choice of theirs. A pod of a StatefulSet has a volume, and is made again under its name when the one before is
//! gone; a pod of a DaemonSet is made again on its Node, whether new pods may come there or not. Not played: pods that no Node has a
//! place for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use jiff::Timestamp;
use millwright_provider_virtual::cloud::Phase;
use millwright_sandbox::object;
use serde_json::{Value, json};

use crate::clock::after;
use crate::event::{Actor, Truth};
use crate::kinds::{self, collection, path};
use crate::world::World;

pub mod volumes;

/// How long a Node is not ready until its pods are deleted, as they tolerate by default.
const TOLERATED: Duration = Duration::from_mins(5);
/// How often it is looked whether a cluster that is away is back.
const AWAY: Duration = Duration::from_secs(30);
/// Seconds that a pod has to end.
const GRACE: u64 = 30;

/// Which pods a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Those of a ReplicaSet.
    pub plain: usize,
    /// Those of a StatefulSet, each with a volume.
    pub stateful: u32,
    /// Whether there is one of a DaemonSet on each Node.
    pub has_daemons: bool,
}

/// One pod, as long as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    uid: String,
    name: String,
}

/// What somebody has to do, and about what.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    /// Makes a pod, by its name, and finds a Node for it.
    Make(String),
    /// Brings it to the Node that was found, whatever has become of that meanwhile.
    Bind(String, String),
    /// Makes the pod that the kubelet of a Node has by itself.
    Mirror(String),
    /// Makes the pod of the DaemonSet on a Node.
    Daemon(String),
    /// Runs it.
    Start(Pod),
    /// Says that it does not serve any more: its Node is not ready.
    Miss(Pod),
    /// Ends it.
    End(Pod),
    /// Deletes it from a Node that was not ready for too long.
    Shun(Pod),
    /// Removes it: its Node is gone.
    Collect(Pod),
    /// Counts for a budget.
    Count(String),
    /// Does something about a volume.
    Volume(volumes::Task),
}

impl Duty {
    /// The point of choice, and for how many milliseconds nobody comes to it.
    fn delay(&self) -> (&'static str, &'static [u64]) {
        match self {
            Self::Make(_) => ("pod-made", &[50, 5, 1000, 4000]),
            Self::Bind(..) => ("pod-bound", &[10, 0, 600, 1500]),
            Self::Mirror(_) => ("pod-mirrored", &[100]),
            Self::Daemon(_) => ("daemon-made", &[200, 20, 3000]),
            Self::Start(_) => ("pod-starts", &[2000, 300, 6000, 25_000]),
            Self::Miss(_) => ("pod-missed", &[10]),
            Self::End(_) => ("pod-ends", &[2000, 50, 10_000, GRACE * 1000]),
            Self::Shun(_) => ("pod-shunned", &[0]),
            Self::Collect(_) => ("pod-collected", &[40_000, 20_000, 60_000]),
            Self::Count(_) => ("budget-counted", &[20, 0, 300, 2000]),
            Self::Volume(task) => task.delay(),
        }
    }
}

/// Everybody who has to do with pods.
pub struct Crew {
    world: Arc<World>,
    wanted: Wanted,
    /// How many of the ReplicaSet were made.
    made: u32,
    /// The Nodes that were found for pods that are not made yet, by the pods' names.
    found: BTreeMap<String, String>,
    agenda: BTreeMap<Duty, Timestamp>,
}

impl Crew {
    /// Who sees to it that there are these pods.
    pub fn new(world: Arc<World>, wanted: Wanted) -> Self {
        Self {
            world,
            wanted,
            made: 0,
            found: BTreeMap::new(),
            agenda: BTreeMap::new(),
        }
    }

    /// Works to the end of the run.
    pub async fn run(mut self) {
        let world = Arc::clone(&self.world);
        let kinds = ["pods", "nodes", "poddisruptionbudgets", "volumeattachments"];
        let mut bells = kinds.map(|plural| world.bell_of(kinds::place(plural)));
        loop {
            if world.target.is_cut().is_some() {
                tokio::time::sleep(AWAY).await;
                continue;
            }
            bells.iter_mut().for_each(|bell| bell.catch_up());
            self.plan();
            let now = world.time.wall();
            let next = self.agenda.iter().min_by_key(|(duty, due)| (**due, *duty));
            let next = next.map(|(duty, due)| (duty.clone(), *due));
            let wait = match next {
                Some((duty, due)) if due <= now => {
                    self.agenda.remove(&duty);
                    self.carry_out(duty);
                    continue;
                }
                Some((_, due)) => Duration::try_from(due.duration_since(now)).unwrap_or_default(),
                None => Duration::MAX,
            };
            let rings = select_all(bells.iter_mut().map(|bell| Box::pin(bell.changed())));
            tokio::select! {
                biased;
                _ = rings => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Brings the agenda to what is to be done by what is now. What was on it keeps its time.
    fn plan(&mut self) {
        let duties = self.world.look(|truth| self.duties(truth));
        let before = std::mem::take(&mut self.agenda);
        let now = self.world.time.wall();
        for (duty, since) in duties {
            let due = before.get(&duty).copied().unwrap_or_else(|| {
                let (point, delays) = duty.delay();
                let pause = self.world.pick(point, delays);
                after(since.unwrap_or(now), Duration::from_millis(pause))
            });
            self.agenda.insert(duty, due);
        }
    }

    /// What is to be done, and from when on, where not from now on.
    fn duties(&self, truth: &Truth<'_>) -> Vec<(Duty, Option<Timestamp>)> {
        let nodes = Nodes::of(truth);
        let pods: Vec<_> = truth.all("pods").collect();
        let mut duties: Vec<_> = pods.iter().filter_map(|pod| of_pod(pod, &nodes, truth)).collect();
        let has_room = nodes.free().next().is_some();
        duties.extend(self.missing(&pods).filter_map(|name| match self.found.get(&name) {
            Some(node) => Some((Duty::Bind(name, node.clone()), None)),
            None => has_room.then_some((Duty::Make(name), None)),
        }));
        let lacks = |name: String| !pods.iter().any(|pod| object::name(pod) == name);
        let bare = nodes.ready().filter(|node| lacks(mirror_name(node)));
        duties.extend(bare.map(|node| (Duty::Mirror(node.to_owned()), None)));
        let bare = nodes.ready().filter(|node| lacks(daemon_name(node)));
        let bare = bare.filter(|_| self.wanted.has_daemons);
        duties.extend(bare.map(|node| (Duty::Daemon(node.to_owned()), None)));
        let uncounted = truth
            .all("poddisruptionbudgets")
            .filter(|budget| !is_counted(budget, &pods));
        duties.extend(uncounted.map(|budget| (Duty::Count(object::name(&budget).to_owned()), None)));
        if self.wanted.stateful > 0 {
            let tasks = volumes::tasks(truth, &nodes, &pods).into_iter();
            duties.extend(tasks.map(|task| (Duty::Volume(task), None)));
        }
        duties
    }

    /// The names of pods that are to be made: the next of the ReplicaSet, and those of the StatefulSet whose namesakes are gone.
    fn missing(&self, pods: &[Arc<Value>]) -> impl Iterator<Item = String> {
        let active = pods
            .iter()
            .filter(|pod| is_ours(pod) && !is_stateful(pod) && !object::is_deleting(pod))
            .count();
        let next = format!("web-{}", self.made);
        let is_due = active < self.wanted.plain || self.found.contains_key(&next);
        let is_free = |name: &String| !pods.iter().any(|pod| object::name(pod) == name);
        let stateful = (0..self.wanted.stateful).map(|number| format!("db-{number}"));
        let stateful: Vec<String> = stateful.filter(is_free).collect();
        is_due.then_some(next).into_iter().chain(stateful)
    }

    fn carry_out(&mut self, duty: Duty) {
        match duty {
            Duty::Make(name) => {
                let node = self.world.look(least_loaded);
                self.found.extend(node.map(|node| (name, node)));
            }
            Duty::Bind(name, node) => {
                self.found.remove(&name);
                self.made += u32::from(name.starts_with("web-"));
                let pod = pod(&name, &node);
                self.world.order(Actor::Scheduler, "POST", &collection("pods"), &pod);
            }
            Duty::Mirror(node) => {
                let pod = mirror(&node);
                self.world.order(Actor::Kubelet, "POST", &collection("pods"), &pod);
            }
            Duty::Daemon(node) => {
                let owner = self.world.look(|truth| truth.named("namespaces", "default"));
                let pod = daemon(&node, owner.as_deref().map_or("", object::uid));
                self.world.order(Actor::Scheduler, "POST", &collection("pods"), &pod);
            }
            Duty::Start(pod) => self.tell(Actor::Kubelet, &pod, "True"),
            Duty::Miss(pod) => self.tell(Actor::NodeController, &pod, "False"),
            Duty::End(pod) => self.remove(Actor::Kubelet, &pod, Some(0)),
            Duty::Shun(pod) => self.remove(Actor::NodeController, &pod, None),
            Duty::Collect(pod) => self.remove(Actor::Collector, &pod, Some(0)),
            Duty::Count(budget) => self.count(&budget),
            Duty::Volume(task) => task.carry_out(&self.world),
        }
    }

    fn tell(&self, actor: Actor, pod: &Pod, ready: &str) {
        let status = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] } });
        self.world
            .order(actor, "PATCH", &format!("{}/status", path("pods", &pod.name)), &status);
    }

    fn remove(&self, actor: Actor, pod: &Pod, grace: Option<u64>) {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace, "preconditions": { "uid": pod.uid },
        });
        self.world.order(actor, "DELETE", &path("pods", &pod.name), &options);
    }

    fn count(&self, name: &str) {
        let status = self.world.look(|truth| {
            let pods: Vec<_> = truth.all("pods").collect();
            truth
                .named("poddisruptionbudgets", name)
                .map(|budget| counts(&budget, &pods))
        });
        let Some(mut status) = status else { return };
        if let Some(status) = status.as_object_mut() {
            status.insert("disruptedPods".to_owned(), Value::Null);
        }
        let path = format!("{}/status", path("poddisruptionbudgets", name));
        self.world
            .order(Actor::Disruption, "PATCH", &path, &json!({ "status": status }));
    }
}

/// The Nodes by name: whether pods can come, and since when it is not ready; whether its kubelet works.
struct Nodes(BTreeMap<String, Node>);

struct Node {
    is_free: bool,
    is_ready: bool,
    has_kubelet: bool,
    is_out_of_service: bool,
    since: Option<Timestamp>,
}

impl Nodes {
    fn of(truth: &Truth<'_>) -> Self {
        let (vms, now) = (truth.vms(), after(crate::clock::DAWN, truth.now));
        let node = |found: &Value| {
            let ready = millwright_oracles::object::condition(found, "Ready");
            let is_ready = ready.is_some_and(|ready| object::text(ready, "/status") == "True");
            let id = object::text(found, "/spec/providerID");
            let is_cordoned = found.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
            Node {
                is_free: is_ready && !is_cordoned && !object::is_deleting(found),
                is_ready,
                has_kubelet: is_ready
                    && vms
                        .iter()
                        .any(|vm| vm.provider_id() == id && vm.phase(now) == Phase::Running),
                is_out_of_service: volumes::is_out_of_service(found),
                since: ready.and_then(|ready| object::text(ready, "/lastTransitionTime").parse().ok()),
            }
        };
        let named = |found: Arc<Value>| (object::name(&found).to_owned(), node(&found));
        Self(truth.all("nodes").map(named).collect())
    }

    fn free(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, node)| node.is_free)
            .map(|(name, _)| name.as_str())
    }

    fn ready(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, node)| node.has_kubelet)
            .map(|(name, _)| name.as_str())
    }
}

/// What is to be done about one pod.
fn of_pod(found: &Value, nodes: &Nodes, truth: &Truth<'_>) -> Option<(Duty, Option<Timestamp>)> {
    let pod = Pod {
        uid: object::uid(found).to_owned(),
        name: object::name(found).to_owned(),
    };
    let Some(node) = nodes.0.get(object::text(found, "/spec/nodeName")) else {
        return Some((Duty::Collect(pod), None));
    };
    let is_leaving = object::is_deleting(found);
    match (is_leaving, is_healthy(found)) {
        (true, _) => node.has_kubelet.then_some((Duty::End(pod), None)),
        (false, true) if !node.is_ready => Some((Duty::Miss(pod), None)),
        (false, true) => None,
        (false, false) if node.has_kubelet => volumes::are_attached(truth, found).then_some((Duty::Start(pod), None)),
        (false, false) if !node.is_ready && !is_daemon(found) => {
            Some((Duty::Shun(pod), node.since.map(|since| after(since, TOLERATED))))
        }
        (false, false) => None,
    }
}

/// The Node with the fewest pods that can take one.
fn least_loaded(truth: &Truth<'_>) -> Option<String> {
    let nodes = Nodes::of(truth);
    let pods: Vec<_> = truth.all("pods").collect();
    let load = |node: &&str| {
        pods.iter()
            .filter(|pod| object::text(pod, "/spec/nodeName") == *node)
            .count()
    };
    nodes.free().min_by_key(load).map(str::to_owned)
}

/// Whether it is one of those that are made again.
fn is_ours(pod: &Value) -> bool {
    object::text(pod, "/metadata/labels/app") == "web"
}

fn is_stateful(pod: &Value) -> bool {
    object::name(pod).starts_with("db-")
}

fn is_daemon(pod: &Value) -> bool {
    object::name(pod).starts_with("agent-")
}

/// Whether it counts for budgets.
fn is_healthy(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|told| object::text(told, "/type") == "Ready" && object::text(told, "/status") == "True")
}

/// What the status of a budget over our pods is to say.
fn counts(budget: &Value, pods: &[Arc<Value>]) -> Value {
    let ours = || pods.iter().filter(|pod| is_ours(pod));
    let healthy = ours()
        .filter(|pod| is_healthy(pod) && !object::is_deleting(pod))
        .count();
    let least = budget
        .pointer("/spec/minAvailable")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let desired = usize::try_from(least).unwrap_or(usize::MAX);
    json!({
        "observedGeneration": budget.pointer("/metadata/generation"), "expectedPods": ours().count(),
        "currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": healthy.saturating_sub(desired),
    })
}

fn is_counted(budget: &Value, pods: &[Arc<Value>]) -> bool {
    let status = budget.get("status").unwrap_or(&Value::Null);
    let counts = counts(budget, pods);
    let mut counts = counts.as_object().into_iter().flatten();
    status.get("disruptedPods").is_none() && counts.all(|(field, count)| status.get(field) == Some(count))
}

/// Whether so many pods serve, and none is on its way.
pub fn are_well(truth: &Truth<'_>, wanted: usize) -> bool {
    let pods: Vec<_> = truth.all("pods").filter(|pod| is_ours(pod)).collect();
    pods.len() == wanted && pods.iter().all(|pod| is_healthy(pod) && !object::is_deleting(pod))
}

fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": GRACE, "containers": [{ "name": "web", "image": "web" }],
        },
    });
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|_| name.starts_with("db-")) {
        let claim = json!({ "claimName": format!("data-{name}") });
        let volume = json!([{ "name": "data", "persistentVolumeClaim": claim }]);
        spec.insert("volumes".to_owned(), volume);
    }
    pod
}

fn daemon_name(node: &str) -> String {
    format!("agent-{node}")
}

/// The API of the simulator serves no DaemonSets: its garbage collector is shown the namespace's uid, which always is.
fn daemon(node: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": daemon_name(node), "namespace": "default", "labels": { "app": "agent" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": namespace, "controller": true,
            }],
        },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": GRACE, "containers": [{ "name": "agent", "image": "agent" }],
        },
    })
}

fn mirror_name(node: &str) -> String {
    format!("static-{node}")
}

fn mirror(node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": mirror_name(node), "namespace": "default", "annotations": { "kubernetes.io/config.mirror": "sim" },
        },
        "spec": { "nodeName": node, "containers": [{ "name": "static", "image": "static" }] },
    })
}
