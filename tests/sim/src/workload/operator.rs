//! The operator, who carries the actions of a workload out, and waits for what they come to.

use std::sync::Arc;
use std::time::Duration;

use millwright_sandbox::api::Answer;
use millwright_sandbox::object;
use serde_json::{Value, json};

use super::action::Action;
use super::{autoscaler, body, drains, keep, orphans};
use crate::any;
use crate::event::{Actor, What};
use crate::judge::settled;
use crate::kinds;
use crate::outage;
use crate::provider::Port;
use crate::world::World;

/// How long a deed's effect is waited for before the next deed; faults may hold it up for longer.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// How often the human looks.
pub const LOOK: Duration = Duration::from_millis(500);

/// Carries actions out.
pub async fn act(world: &Arc<World>, port: &Arc<Port>, actions: Vec<Action>) {
    for action in actions {
        match action {
            Action::DeleteOne(plural) => delete_one(world, plural),
            Action::DriverAway(lasts) => {
                let text = format!("ends the driver's process for {} s", lasts.as_secs());
                world.tell(What::UserAction { text });
                port.restart_after(lasts);
            }
            Action::Settle => settle(world, PATIENCE).await,
            Action::Serve => drains::serve(world).await,
            Action::Force => drains::force(world),
            Action::Unhold(name) => unhold(world, name),
            Action::ChangeOne {
                text,
                plural,
                subresource,
                body,
            } => change_one(world, text, plural, subresource, &body),
            Action::Prefer => autoscaler::prefer(world),
            Action::Name => autoscaler::name_victim(world),
            Action::AskToPreserve => keep::ask_to_preserve(world),
            Action::SwitchOff => keep::switch_off(world).await,
            Action::Leave(name) => any::leave(world, name).await,
            Action::Orphans => orphans::make(world).await,
            Action::Moment => {
                let pause = world.pick("moment", &[0, 20, 100, 400, 1000, 1500, 2500, 5000, 12_000, 40_000]);
                if pause == 0 {
                    settle(world, PATIENCE).await;
                } else {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            }
            Action::Ask {
                text,
                method,
                path,
                body,
            } => {
                world.tell(What::UserAction { text });
                let path = match path.split_once('/') {
                    Some((plural, name)) => kinds::path(plural, name),
                    None => kinds::collection(&path),
                };
                ask(world, method, &path, &body).await;
            }
        }
    }
}

/// Deletes one of a kind, if there is one.
fn delete_one(world: &World, plural: &'static str) {
    if let Some(name) = world.one("one", plural) {
        let text = format!("deletes {plural} {name}");
        world.tell(What::UserAction { text });
        world.order(Actor::Human, "DELETE", &kinds::path(plural, &name), &Value::Null);
    }
}

/// Changes one of a kind, if there is one.
fn change_one(world: &World, text: &str, plural: &'static str, subresource: &str, body: &Value) {
    if let Some(name) = world.one("one", plural) {
        let text = format!("{text} {name}");
        world.tell(What::UserAction { text });
        let path = format!("{}/{subresource}", kinds::path(plural, &name));
        world.order(Actor::Human, "PATCH", path.trim_end_matches('/'), body);
    }
}

/// Takes that tool's finalizer away.
fn unhold(world: &World, name: &str) {
    let Some(machine) = world.look(|truth| truth.named("machines", name)) else {
        return;
    };
    let held = machine.pointer("/metadata/finalizers").and_then(Value::as_array);
    let kept: Vec<&Value> = held
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != body::HOLD)
        .collect();
    let text = format!("lets machine {name} go");
    world.tell(What::UserAction { text });
    let body = json!({ "metadata": { "finalizers": kept } });
    world.order(Actor::Human, "PATCH", &kinds::path("machines", name), &body);
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
