//! Workloads with pods, which a budget covers, and what the operator does about them.

use millwright_core::api::keys;
use millwright_sandbox::object;
use serde_json::json;

use super::action::{Action, begin, make, moment, of_class, scale};
use super::body::{budget, updated_in_place};
use super::keep;
use super::operator::{LOOK, PATIENCE};
use crate::event::{Actor, What};
use crate::kinds::path;
use crate::pods;
use crate::pods::volumes::claims;
use crate::world::World;

/// How many pods there are where there are any.
pub const PODS: u32 = 4;

/// How many of them have volumes where any have.
pub const STATEFUL: u32 = 2;

/// Workloads with pods, which a budget covers.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    let begun = |least: u32, machines: u32| {
        let budget = make("creates the budget", "poddisruptionbudgets", budget(least));
        vec![budget, begin(machines), Action::Settle, Action::Serve]
    };
    // The volumes are there before the pods that use them.
    let with_volumes = |machines: u32| {
        let volumes = claims(STATEFUL).into_iter();
        let made = volumes.map(|(plural, body)| make(&format!("creates {}", object::name(&body)), plural, body));
        made.chain(begun(PODS - 1, machines)).collect::<Vec<_>>()
    };
    let (mut script, more) = match name {
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
                Action::AskToPreserve,
                Action::SwitchOff,
                moment(),
                Action::AskToPreserve,
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
                Action::Settle,
                Action::Serve,
            ],
            vec![of_class("large"), moment(), scale(1), moment(), of_class("small")],
        ),
        // Volumes follow their pods, of which the DaemonSet's stay.
        "drain-volumes" => (
            with_volumes(3),
            vec![scale(2), moment(), of_class("large"), moment(), scale(1)],
        ),
        // A node is dead, and nobody says that its volumes are unmounted.
        "drain-volumes-dead" => (
            with_volumes(3),
            vec![
                Action::SwitchOff,
                moment(),
                scale(2),
                moment(),
                Action::DeleteOne("machines"),
                moment(),
                Action::Force,
            ],
        ),
        // No pod may ever go: by the deadline, and by force.
        "drain-stuck" => (
            begun(PODS, 3),
            vec![scale(2), Action::Settle, scale(1), moment(), Action::Force],
        ),
        _ => return None,
    };
    script.extend(more);
    Some(script)
}

/// Waits until all pods serve, or for so long.
pub async fn serve(world: &World) {
    let until = world.time.passed() + PATIENCE;
    while world.time.passed() < until && !world.look(|truth| pods::are_well(truth, PODS as usize)) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Lets no machine that is being deleted wait for its pods.
pub fn force(world: &World) {
    let names: Vec<String> = world.look(|truth| {
        let leaving = truth.all("machines").filter(|machine| object::is_deleting(machine));
        leaving.map(|machine| object::name(&machine).to_owned()).collect()
    });
    for name in names {
        let text = format!("forces the deletion of machine {name}");
        world.tell(What::UserAction { text });
        let body = json!({ "metadata": { "labels": { keys::FORCE_DELETION: "True" } } });
        world.order(Actor::Human, "PATCH", &path("machines", &name), &body);
    }
}
