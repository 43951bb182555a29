//! Machines that failed and that somebody wants kept, or that the deployment keeps unasked: who says so, and how they come to fail.

use millwright_core::api::keys;
use millwright_provider_virtual::cloud::VmId;
use serde_json::json;

use super::action::{Action, begin, moment, of_class, patch, scale};
use crate::event::{Actor, What};
use crate::kinds::path;
use crate::world::World;

/// Workloads in which machines fail, and somebody wants them kept.
pub fn workload(name: &str) -> Option<Vec<Action>> {
    let begun = [begin(3), Action::Settle, unasked(1), Action::AskToPreserve];
    let more = match name {
        "keep" => vec![
            Action::SwitchOff,
            moment(),
            Action::SwitchOff,
            Action::AskToPreserve,
            moment(),
            scale(2),
            moment(),
            Action::AskToPreserve,
            unasked(0),
        ],
        // Where nobody takes anything back, what is kept is kept to the end.
        "keep-to-the-end" => vec![Action::SwitchOff, Action::Settle, Action::SwitchOff, Action::Settle],
        "keep-roll" => vec![
            Action::SwitchOff,
            moment(),
            of_class("large"),
            moment(),
            Action::AskToPreserve,
            Action::SwitchOff,
            moment(),
            of_class("small"),
        ],
        _ => return None,
    };
    Some(begun.into_iter().chain(more).collect())
}

pub fn unasked(most: u32) -> Action {
    let body = json!({ "spec": { "autoPreserveFailedMachineMax": most } });
    let text = format!("lets {most} failed machines be preserved unasked");
    patch(&text, "machinedeployments/workers", body)
}

/// Says of a machine or a Node whether it is to be preserved, or takes that back.
pub fn ask_to_preserve(world: &World) {
    let plural = world.pick("wish-on", &["machines", "nodes"]);
    let value = world.pick("wish", &["when-failed", "now", "false", "", "perhaps"]);
    let value = Some(value).filter(|value| !value.is_empty());
    if let Some(name) = world.one("one", plural) {
        let said = value.unwrap_or("nothing any more");
        let text = format!("says of {plural} {name} whether it is to be preserved: {said}");
        world.tell(What::UserAction { text });
        let body = json!({ "metadata": { "annotations": { keys::PRESERVE: value } } });
        world.order(Actor::Human, "PATCH", &path(plural, &name), &body);
    }
}

/// Switches a VM off.
pub async fn switch_off(world: &World) {
    let vms = world.cloud.everything();
    let ids: Vec<&str> = vms.iter().map(|vm| vm.id.as_str()).collect();
    if ids.is_empty() {
        return;
    }
    let vm = world.pick("victim", &ids);
    let text = format!("switches VM {vm} off");
    world.tell(What::UserAction { text });
    // It may be gone by itself.
    world.cloud.stop(&VmId::new(vm)).await.ok();
}
