//! What the human wants in a run: deeds in their order, with pauses in between.

use std::sync::Arc;
use std::time::Duration;

use millwright_core::api::keys;
use millwright_sandbox::api::Answer;
use millwright_sandbox::object;
use serde_json::{Value, json};

use self::body::{
    adoptable, budget, class, deployment, forsaken, held, machine, of_secret, recreated, set_of, updated_in_place,
    user_data,
};
use crate::any;
use crate::choices::Choices;
use crate::event::{Actor, Regime, What};
use crate::judge::settled;
use crate::kinds;
use crate::outage;
use crate::pods;
use crate::provider::Port;
use crate::world::World;

pub mod body;
mod in_place;
mod keep;
mod orphans;

/// Paths of our kinds.
pub const OURS: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
/// How long a deed's effect is waited for before the next deed; faults may hold it up for longer.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often the human looks.
const LOOK: Duration = Duration::from_millis(500);

/// One thing that the human does.
#[derive(Clone, Debug)]
pub enum Deed {
    /// A request.
    Ask {
        /// In words.
        text: String,
        /// The method.
        method: &'static str,
        /// Below the namespace.
        path: String,
        /// The body.
        body: Value,
    },
    /// Takes the labels of a machine, by choice.
    Drift,
    /// Makes a machine the first to go, by choice, as the autoscaler does before it takes one off the count.
    Prefer,
    /// Wants one machine less and says which, by choice and in one write, as the autoscaler does.
    Name,
    /// Says of a machine, or of its Node, whether it is to be preserved, or takes that back, by choice.
    Wish,
    /// Switches a VM off, by choice: its node falls silent.
    SwitchOff,
    /// Leaves a machine as another controller does that ends between a VM's creation and its first word about it.
    Leave(&'static str),
    /// Deletes an object of a kind, by choice.
    DeleteOne(&'static str),
    /// The driver's process ends, and comes back after so long.
    DriverAway(Duration),
    /// Takes the finalizer of somebody else from a machine that is on its way out.
    Unhold(&'static str),
    /// Makes VMs at the cloud that no Machine owns, and such that are no business of the manager's.
    Orphans,
    /// Waits until all is as wanted, but not for ever.
    Settle,
    /// Waits until all pods serve, but not for ever.
    Serve,
    /// Forces the deletion of every machine that is being deleted.
    Force,
    /// Waits for a moment that is chosen, so that the next deed comes in the middle of something; sometimes until all settled.
    Moment,
}

/// What stands in the user data and nowhere else.
pub const CANARY: &str = "c4n4ry-of-the-user-data";

/// Where every VM stands.
pub const ZONE: &str = "local-a";

/// A class whose driver never comes.
pub const FORSAKEN: &str = "forsaken";

/// A class whose Secret never comes.
pub const NEVER: &str = "never";

/// The names of all workloads.
pub const ALL: [&str; 33] = [
    "scale",
    "create",
    "machine",
    "delete",
    "roll",
    "rotate",
    "again",
    "away",
    "node",
    "victim",
    "repair",
    "beside",
    "prefer",
    "takeover",
    "held",
    "bring",
    "renew",
    "flip",
    "pause",
    "recreate",
    "named",
    "undo",
    "adopt",
    "drain-roll",
    "drain",
    "drain-stuck",
    "orphans",
    "keep",
    "keep-roll",
    "drain-keep",
    "in-place",
    "in-place-surge",
    "drain-in-place",
];

/// How many pods there are where there are any.
const PODS: u32 = 4;

/// The workload that begins in any state; it has campaigns of its own.
pub const ANY: &str = "any";

/// As what the end of a workload's runs is judged.
pub fn regime(name: &str) -> Regime {
    match name {
        "beside" => Regime::Beside,
        "repair" => Regime::Repaired,
        ANY => Regime::AnyState,
        _ => Regime::Ordinary,
    }
}

/// How many pods a workload has, where it has any.
pub fn pods(name: &str) -> Option<usize> {
    name.starts_with("drain").then_some(PODS as usize)
}

/// Whether a workload is about VMs of no Machine.
pub fn has_orphans(name: &str) -> bool {
    name.starts_with("orphans")
}

/// The workload of this name; by choice where none is named.
pub fn chosen(name: Option<&str>, choices: &mut Choices) -> String {
    if let Some(name) = name {
        return name.to_owned();
    }
    let nth = choices.choose("workload", u32::try_from(ALL.len()).unwrap_or(1)) as usize;
    ALL.get(nth).copied().unwrap_or("scale").to_owned()
}

/// The deeds of a workload.
pub fn deeds(name: &str) -> Option<Vec<Deed>> {
    let single = |name: &str| make(&format!("creates machine {name}"), "machines", machine(name));
    Some(match name {
        "scale" => vec![begin(0), Deed::Settle, scale(3), moment(), scale(1), moment(), scale(0)],
        "create" => vec![make("creates the set", "machinesets", set_of("workers", 2, "small"))],
        "machine" => vec![
            single("alone"),
            moment(),
            delete("machines/alone"),
            moment(),
            single("other"),
        ],
        "again" => vec![
            single("same"),
            moment(),
            delete("machines/same"),
            moment(),
            single("same"),
        ],
        "delete" => vec![begin(2), moment(), delete("machinedeployments/workers")],
        "roll" => vec![begin(2), moment(), of_class("large"), moment(), of_class("small")],
        "rotate" => vec![begin(1), moment(), size("large"), moment(), secret(), scale(2)],
        // What is there is not known; where there is no deployment, this changes nothing.
        ANY => vec![moment(), scale(2), moment()],
        _ => {
            return troubled(name)
                .or_else(|| rollout(name))
                .or_else(|| drained(name))
                .or_else(|| keep::workload(name))
                .or_else(|| in_place::workload(name))
                .or_else(|| short(name));
        }
    })
}

/// Workloads in which something else than the size changes: drivers, classes, Machines of others.
fn troubled(name: &str) -> Option<Vec<Deed>> {
    Some(match name {
        "away" => vec![
            Deed::DriverAway(Duration::from_secs(20)),
            begin(2),
            moment(),
            Deed::DriverAway(Duration::from_secs(90)),
            moment(),
            scale(1),
        ],
        "node" => vec![begin(2), Deed::Settle, Deed::DeleteOne("nodes"), moment(), scale(3)],
        "victim" => vec![begin(2), moment(), Deed::DeleteOne("machines"), moment(), scale(1)],
        "repair" => vec![
            make(
                "creates a class whose secret is not there",
                "machineclasses",
                of_secret("later", "later"),
            ),
            make("creates the set", "machinesets", set_of("workers", 2, "later")),
            moment(),
            make("creates the secret", "secrets", user_data("later")),
        ],
        "beside" => vec![
            make("creates a class that nobody serves", "machineclasses", forsaken()),
            make("creates a set of it", "machinesets", set_of("lost", 2, FORSAKEN)),
            begin(2),
            moment(),
            scale(3),
        ],
        "prefer" => vec![
            begin(3),
            Deed::Settle,
            Deed::Prefer,
            scale(2),
            moment(),
            Deed::Prefer,
            scale(1),
        ],
        "takeover" => vec![
            Deed::DriverAway(Duration::from_secs(20)),
            Deed::Leave("left"),
            moment(),
            delete("machines/left"),
        ],
        "orphans" => vec![
            begin(2),
            moment(),
            Deed::Orphans,
            moment(),
            scale(4),
            moment(),
            of_class("large"),
            moment(),
            scale(1),
        ],
        // An orphan that the set selects and that is on its way out, held by somebody else.
        "held" => vec![
            make("creates a machine of another tool's", "machines", held("orphan")),
            moment(),
            delete("machines/orphan"),
            moment(),
            make("creates the set", "machinesets", set_of("workers", 2, "small")),
            moment(),
            Deed::Unhold("orphan"),
        ],
        _ => return None,
    })
}

/// Workloads in which the template changes, and what may come between.
fn rollout(name: &str) -> Option<Vec<Deed>> {
    Some(match name {
        "renew" => vec![begin(4), Deed::Settle, of_class("large"), moment(), scale(5), moment()],
        // A template comes that never works, others before it is out, and the last one works.
        "flip" => vec![
            make(
                "creates a class whose secret never comes",
                "machineclasses",
                of_secret(NEVER, NEVER),
            ),
            begin(3),
            Deed::Settle,
            of_class(NEVER),
            moment(),
            of_class("large"),
            moment(),
            of_class("small"),
            moment(),
            of_class("large"),
        ],
        "pause" => vec![
            begin(3),
            Deed::Settle,
            of_class("large"),
            moment(),
            paused(true),
            moment(),
            scale(5),
            moment(),
            scale(2),
            moment(),
            paused(false),
        ],
        "recreate" => vec![
            make("creates the deployment", "machinedeployments", recreated(3)),
            Deed::Settle,
            of_class("large"),
            moment(),
            scale(2),
            moment(),
            of_class("small"),
        ],
        "named" => vec![
            begin(5),
            Deed::Settle,
            of_class("large"),
            moment(),
            Deed::Name,
            moment(),
            Deed::Name,
        ],
        // Back, back again, and to a revision that there never was; the history is short.
        "undo" => vec![
            begin(3),
            Deed::Settle,
            history(1),
            of_class("large"),
            moment(),
            undo(0),
            moment(),
            undo(1),
            moment(),
            undo(77),
            moment(),
            of_class("large"),
        ],
        // A set that somebody made, without the label by which a deployment tells its sets apart.
        "adopt" => vec![
            make("creates a set", "machinesets", adoptable("mine", 2)),
            moment(),
            begin(3),
            moment(),
            of_class("large"),
            moment(),
            scale(2),
        ],
        _ => return None,
    })
}

/// Workloads with pods, which a budget covers.
fn drained(name: &str) -> Option<Vec<Deed>> {
    let begun = |least: u32, machines: u32| {
        let budget = make("creates the budget", "poddisruptionbudgets", budget(least));
        vec![budget, begin(machines), Deed::Settle, Deed::Serve]
    };
    let (mut deeds, more) = match name {
        // The last pods have nowhere to go, and end by the deadline.
        "drain" => (
            begun(PODS - 1, 3),
            vec![scale(2), moment(), scale(1), moment(), scale(0)],
        ),
        "drain-roll" => (begun(PODS - 1, 2), vec![of_class("large"), moment(), of_class("small")]),
        // A machine that is kept stays, and its pods go.
        "drain-keep" => (
            begun(PODS - 1, 3),
            vec![
                keep::unasked(1),
                Deed::Wish,
                Deed::SwitchOff,
                moment(),
                Deed::Wish,
                moment(),
                scale(2),
            ],
        ),
        // Machines stay, and their pods go; then only the last one is to be updated, where pods have nowhere to go.
        "drain-in-place" => (
            vec![
                make("creates the budget", "poddisruptionbudgets", budget(PODS - 1)),
                make(
                    "creates the deployment",
                    "machinedeployments",
                    updated_in_place(2, 0, 1),
                ),
                Deed::Settle,
                Deed::Serve,
            ],
            vec![of_class("large"), moment(), scale(1), moment(), of_class("small")],
        ),
        // No pod may ever go: by the deadline, and by force.
        "drain-stuck" => (
            begun(PODS, 3),
            vec![scale(2), Deed::Settle, scale(1), moment(), Deed::Force],
        ),
        _ => return None,
    };
    deeds.extend(more);
    Some(deeds)
}

/// Not drawn by any campaign: bugs of the zoo show best in what is short, or says one thing again and again.
fn short(name: &str) -> Option<Vec<Deed>> {
    Some(match name {
        "create-deployment" => vec![begin(2)],
        "drift" => vec![
            make("creates the set", "machinesets", set_of("workers", 2, "small")),
            Deed::Settle,
            Deed::Drift,
        ],
        "lose" => vec![
            make("creates the set", "machinesets", set_of("workers", 2, "small")),
            Deed::Settle,
            Deed::DeleteOne("machines"),
        ],
        // Some are up and some are not when fewer are wanted.
        "shrink-early" => vec![begin(4), moment(), scale(2), moment(), scale(1)],
        "shrink" => vec![begin(3), Deed::Settle, scale(2)],
        "shrink-by-ones" => {
            let by_one = |size| [scale(size), moment(), Deed::Prefer];
            let mut deeds = vec![begin(6), Deed::Settle];
            deeds.extend((1..6).rev().flat_map(by_one));
            deeds
        }
        // What needs no rollout is brought to the machines that there are, and then more are wanted.
        "bring" => {
            let timeout = json!({ "spec": { "template": { "spec": { "healthTimeout": "3m" } } } });
            let text = "changes the health timeout";
            let change = patch(text, "machinedeployments/workers", timeout);
            vec![begin(2), Deed::Settle, moment(), change, moment(), scale(3), moment()]
        }
        "roll-once" => vec![begin(2), moment(), of_class("large")],
        // Nobody goes on with it.
        "pause-for-good" => vec![begin(3), Deed::Settle, paused(true), of_class("large"), Deed::Moment],
        "orphans-few" => vec![begin(1), Deed::Settle, Deed::Orphans],
        // They are old when they are seen first.
        "orphans-late" => vec![
            begin(1),
            Deed::Settle,
            Deed::DriverAway(Duration::from_secs(220)),
            Deed::Orphans,
            Deed::Settle,
            Deed::Settle,
        ],
        _ => return None,
    })
}

fn begin(replicas: u32) -> Deed {
    make("creates the deployment", "machinedeployments", deployment(replicas))
}

fn moment() -> Deed {
    Deed::Moment
}

fn make(text: &str, kind: &str, body: Value) -> Deed {
    Deed::Ask {
        text: text.to_owned(),
        method: "POST",
        path: kind.to_owned(),
        body,
    }
}

fn patch(text: &str, path: &str, body: Value) -> Deed {
    Deed::Ask {
        text: text.to_owned(),
        method: "PATCH",
        path: path.to_owned(),
        body,
    }
}

fn delete(path: &str) -> Deed {
    Deed::Ask {
        text: format!("deletes {path}"),
        method: "DELETE",
        path: path.to_owned(),
        body: Value::Null,
    }
}

fn scale(replicas: u32) -> Deed {
    let body = json!({ "spec": { "replicas": replicas } });
    patch(&format!("scales to {replicas}"), "machinedeployments/workers", body)
}

fn paused(paused: bool) -> Deed {
    let text = if paused {
        "pauses the rollout"
    } else {
        "lets the rollout go on"
    };
    patch(
        text,
        "machinedeployments/workers",
        json!({ "spec": { "paused": paused } }),
    )
}

fn undo(revision: u32) -> Deed {
    let text = format!("orders the template of revision {revision} back");
    let body = json!({ "spec": { "rollbackTo": { "revision": revision } } });
    patch(&text, "machinedeployments/workers", body)
}

fn history(limit: u32) -> Deed {
    let text = format!("wants {limit} old sets kept");
    let body = json!({ "spec": { "revisionHistoryLimit": limit } });
    patch(&text, "machinedeployments/workers", body)
}

fn of_class(class: &str) -> Deed {
    let class = json!({ "kind": "MachineClass", "name": class });
    let text = format!("changes the template to {class}");
    let body = json!({ "spec": { "template": { "spec": { "class": class } } } });
    patch(&text, "machinedeployments/workers", body)
}

fn size(size: &str) -> Deed {
    let body = json!({ "providerSpec": { "instanceType": size } });
    patch(&format!("changes the class to {size}"), "machineclasses/small", body)
}

fn secret() -> Deed {
    let data = json!({ "userData": format!("#cloud-config\n# {CANARY}\n# <<BOOTSTRAP_TOKEN>> new\n") });
    patch("changes the secret", "secrets/user-data", json!({ "stringData": data }))
}

/// The classes and the Secret that every workload has.
pub fn furniture() -> Vec<Value> {
    vec![user_data("user-data"), class("small"), class("large")]
}

/// Carries deeds out.
pub async fn act(world: &Arc<World>, port: &Arc<Port>, deeds: Vec<Deed>) {
    for deed in deeds {
        match deed {
            Deed::DeleteOne(plural) => delete_one(world, plural),
            Deed::DriverAway(lasts) => {
                let text = format!("ends the driver's process for {} s", lasts.as_secs());
                world.tell(What::Deed { text });
                port.restart_after(lasts);
            }
            Deed::Settle => settle(world, PATIENCE).await,
            Deed::Serve => serve(world).await,
            Deed::Force => force(world),
            Deed::Unhold(name) => unhold(world, name),
            Deed::Drift => drift(world),
            Deed::Prefer => prefer(world),
            Deed::Name => name_victim(world),
            Deed::Wish => keep::wish(world),
            Deed::SwitchOff => keep::switch_off(world).await,
            Deed::Leave(name) => any::leave(world, name).await,
            Deed::Orphans => orphans::make(world).await,
            Deed::Moment => {
                let pause = world.pick("moment", &[0, 20, 100, 400, 1000, 1500, 2500, 5000, 12_000, 40_000]);
                if pause == 0 {
                    settle(world, PATIENCE).await;
                } else {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            }
            Deed::Ask {
                text,
                method,
                path,
                body,
            } => {
                world.tell(What::Deed { text });
                let path = match path.split_once('/') {
                    Some((plural, name)) => self::path(plural, name),
                    None => collection(&path),
                };
                ask(world, method, &path, &body).await;
            }
        }
    }
}

/// Where objects of a kind are made.
pub fn collection(plural: &str) -> String {
    kinds::kind(plural).collection()
}

/// Where one object of a kind is.
pub fn path(plural: &str, name: &str) -> String {
    format!("{}/{name}", collection(plural))
}

/// The name of one object of a kind, by choice, if there is any.
pub fn one(world: &World, point: &'static str, plural: &'static str) -> Option<String> {
    let names: Vec<String> = world.look(|truth| {
        truth
            .all(plural)
            .map(|object| object::name(&object).to_owned())
            .collect()
    });
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Some(world.pick(point, &names).to_owned())
}

/// Deletes one of a kind, if there is one.
fn delete_one(world: &World, plural: &'static str) {
    if let Some(name) = one(world, "one", plural) {
        let text = format!("deletes {plural} {name}");
        world.tell(What::Deed { text });
        world.order(Actor::Human, "DELETE", &path(plural, &name), &Value::Null);
    }
}

/// Waits until all pods serve, or for so long.
async fn serve(world: &World) {
    let until = world.time.passed() + PATIENCE;
    while world.time.passed() < until && !world.look(|truth| pods::are_well(truth, PODS as usize)) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Lets no machine that is being deleted wait for its pods.
fn force(world: &World) {
    let names: Vec<String> = world.look(|truth| {
        let leaving = truth.all("machines").filter(|machine| object::is_deleting(machine));
        leaving.map(|machine| object::name(&machine).to_owned()).collect()
    });
    for name in names {
        let text = format!("forces the deletion of machine {name}");
        world.tell(What::Deed { text });
        let body = json!({ "metadata": { "labels": { keys::FORCE_DELETION: "True" } } });
        world.order(Actor::Human, "PATCH", &path("machines", &name), &body);
    }
}

/// Takes the label that selects it from a machine, if there is one.
fn drift(world: &World) {
    if let Some(name) = one(world, "one", "machines") {
        let text = format!("takes the label of machine {name}");
        world.tell(What::Deed { text });
        let body = json!({ "metadata": { "labels": { "name": null } } });
        world.order(Actor::Human, "PATCH", &path("machines", &name), &body);
    }
}

/// The finalizer of another tool.
const HOLD: &str = "example.org/hold";

/// Takes that tool's finalizer away.
fn unhold(world: &World, name: &str) {
    let Some(machine) = world.look(|truth| truth.named("machines", name)) else {
        return;
    };
    let held = machine.pointer("/metadata/finalizers").and_then(Value::as_array);
    let kept: Vec<&Value> = held
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != HOLD)
        .collect();
    let text = format!("lets machine {name} go");
    world.tell(What::Deed { text });
    let body = json!({ "metadata": { "finalizers": kept } });
    world.order(Actor::Human, "PATCH", &path("machines", name), &body);
}

fn prefer(world: &World) {
    if let Some(name) = one(world, "one", "machines") {
        let text = format!("wants machine {name} to go first");
        world.tell(What::Deed { text });
        let body = json!({ "metadata": { "annotations": { keys::PRIORITY: keys::PRIORITY_TRIGGERED } } });
        world.order(Actor::Human, "PATCH", &path("machines", &name), &body);
    }
}

/// Takes one off the deployment's count and puts one of its machines on the list of those to go.
fn name_victim(world: &World) {
    let names: Vec<String> = world.look(|truth| {
        let staying = truth.all("machines").filter(|machine| !object::is_deleting(machine));
        staying.map(|machine| object::name(&machine).to_owned()).collect()
    });
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(stored) = world.look(|truth| truth.named("machinedeployments", "workers")) else {
        return;
    };
    let size = stored.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(0);
    if names.is_empty() || size == 0 {
        return;
    }
    let name = world.pick("one", &names);
    let pointer = format!("/metadata/annotations/{}", keys::TRIGGER_DELETION.replace('/', "~1"));
    let before = stored.pointer(&pointer).and_then(Value::as_str);
    let entry = format!("{name}{}{:.0}", keys::TRIGGER_DELETION_SEPARATOR, world.time.wall());
    let list: Vec<&str> = before.into_iter().chain([entry.as_str()]).collect();
    let text = format!("scales to {} and wants to go: {}", size - 1, list.join(","));
    world.tell(What::Deed { text });
    let change = json!({
        "metadata": { "annotations": { keys::TRIGGER_DELETION: list.join(",") } },
        "spec": { "replicas": size - 1 },
    });
    let path = path("machinedeployments", "workers");
    // A whole object that a newer one is in the way of is refused, and the autoscaler comes again when it likes.
    match world.pick("whole", &["PATCH", "PUT"]) {
        "PUT" => world.order(
            Actor::Human,
            "PUT",
            &path,
            &body::as_go_writes(stored.as_ref().clone(), &change),
        ),
        _ => world.order(Actor::Human, "PATCH", &path, &change),
    };
}

/// Asks until it is so: a name that is still taken by what goes is waited for.
async fn ask(world: &Arc<World>, method: &str, path: &str, body: &Value) {
    for try_number in 0..4000 {
        if try_number == 1000 {
            // A machine that joined goes only when its Node can be removed.
            outage::outlast(world).await;
            world.calm();
        }
        match world.order(Actor::Human, method, path, body) {
            // Made again by the human's accident (F51), it is there as it was to be.
            Answer::Object { code: 409, .. } if method == "POST" && is_there(world, path, body) => return,
            Answer::Object { code: 409, .. } if method == "POST" => tokio::time::sleep(LOOK).await,
            // What a mishap took away is neither changed nor deleted any more.
            Answer::Object { code: 404, .. } if method != "POST" && world.enter().returning.contains(path) => {
                tokio::time::sleep(LOOK).await;
            }
            Answer::Object { code: 404, .. } if method != "POST" && is_gone(world, path) => return,
            Answer::Object { code, body, .. } if code >= 300 => {
                world.broken("workload", format!("{method} {path}: {code} {body}"));
                return;
            }
            Answer::Object { .. } | Answer::List(_) | Answer::Text { .. } | Answer::Watch(_) => return,
        }
    }
    world.broken("L2", format!("{path} is still taken 25 minutes after faults ended"));
}

/// Whether the object that is to be made is there, and stays.
fn is_there(world: &World, path: &str, body: &Value) -> bool {
    let plural = path.rsplit('/').next().unwrap_or_default();
    world.look(|truth| {
        let stored = truth.named(plural, object::name(body));
        stored.is_some_and(|stored| !object::is_deleting(&stored))
    })
}

/// Whether there is no object at this path, of a kind that the API serves.
fn is_gone(world: &World, path: &str) -> bool {
    let mut steps = path.rsplit('/');
    let (name, plural) = (steps.next().unwrap_or_default(), steps.next().unwrap_or_default());
    world.look(|truth| truth.api.kinds().at(&kinds::place(plural)).is_some() && truth.named(plural, name).is_none())
}

/// Waits until all is as wanted, or for so long.
pub async fn settle(world: &Arc<World>, patience: Duration) {
    let until = world.time.passed() + patience;
    let mut seen = None;
    while world.time.passed() < until {
        let version = world.look(|truth| truth.api.version());
        if seen != Some(version) && world.look(settled).is_ok() {
            return;
        }
        seen = Some(version);
        tokio::time::sleep(LOOK).await;
    }
}
