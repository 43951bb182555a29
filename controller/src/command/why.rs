//! `why`: what the manager would do about an object now, and what keeps it from more.
//!
//! Reads, lets core plan with the settings of the manager that runs, and prints. The manager tells its settings in its Lease, which
//! names who leads and which whoever reads the namespace reaches; its admin port is reached from within the cluster only. What is shown
//! beside the plan are the objects' own words: conditions, last operations.

use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, Phase, meta};
use millwright_core::explain::{self, Explanation, Subject};
use millwright_core::ids::{Name, NodeName};
use millwright_core::kinds::OwnedBy;
use millwright_core::settings::Settings;
use millwright_core::world::World;

use super::failure::Failure;
use super::flags::WhyFlags;
use super::leader::Leader;
use super::session::Session;
use super::{output, subject};
use crate::env::{Outside as _, System};

/// As many Machines that are not well are shown; of a thousand the first ones say enough.
const SHOWN: usize = 10;

/// Runs the command.
pub async fn run(flags: &WhyFlags) -> Result<(), Failure> {
    let subject = subject::object(&flags.words)?;
    let session = Session::open(&flags.reach).await?;
    let now = System.now();
    let settings = settings(&session).await;
    let world = explain::world(read(&session, &subject, flags).await?, now);
    let Some(told) = explain::explain(&world, &subject, &settings, now) else {
        return Err(session.lacks(&title(&subject)));
    };
    output::print(&written(&world, &subject, &told))
}

/// The settings of the manager that works on the namespace; where none does, or nobody may know, the defaults, and a word of it.
async fn settings(session: &Session) -> Settings {
    let leader = match Leader::of(session).await {
        Ok(leader) => leader,
        Err(failure) => return assumed(&failure.to_string()),
    };
    leader.note_absence(System.now());
    match leader.settings() {
        Some(text) => serde_json::from_str(text).unwrap_or_else(|error| assumed(&error.to_string())),
        None => assumed("there is no manager to tell its own"),
    }
}

fn assumed(reason: &str) -> Settings {
    output::note(&format!("the default settings of a manager are assumed: {reason}"));
    Settings::default()
}

async fn read(session: &Session, subject: &Subject, flags: &WhyFlags) -> Result<explain::Read, Failure> {
    let machines: Vec<Machine> = session.list().await?;
    let (nodes, pods): (Vec<Node>, _) = match subject {
        Subject::Machine(name) => {
            let target = Session::target(flags.target_kubeconfig.as_deref(), &flags.reach).await?;
            let pods = match drained(&machines, name) {
                Some(node) => Some((name.clone(), target.pods_on(&node).await?)),
                None => None,
            };
            (target.list_everywhere().await?, pods)
        }
        Subject::Deployment(_) | Subject::Set(_) | Subject::Class(_) => (Vec::new(), None),
    };
    Ok(explain::Read {
        deployments: session.list().await?,
        sets: session.list().await?,
        machines,
        classes: session.list().await?,
        nodes,
        pods,
    })
}

/// The Node of a Machine that is deleted, as far as its label tells.
fn drained(machines: &[Machine], name: &Name) -> Option<NodeName> {
    let machine = machines
        .iter()
        .find(|machine| meta::name(&machine.metadata) == name.as_str())?;
    machine.node_label().filter(|_| meta::is_deleting(&machine.metadata))
}

fn title(subject: &Subject) -> String {
    match subject {
        Subject::Deployment(name) => format!("machinedeployment/{name}"),
        Subject::Set(name) => format!("machineset/{name}"),
        Subject::Machine(name) => format!("machine/{name}"),
        Subject::Class(name) => format!("machineclass/{name}"),
    }
}

fn written(world: &World, subject: &Subject, told: &Explanation) -> String {
    let mut lines = vec![format!("{}: {}", title(subject), told.why)];
    lines.extend(
        told.part_of
            .iter()
            .map(|owner| format!("It is planned as a part of {owner}.")),
    );
    match told.steps.is_empty() {
        true => lines.push("Nothing is to be done now.".to_owned()),
        false => section("Would now, in this order:", &told.steps, &mut lines),
    }
    lines.extend(told.waits_for.iter().map(|what| format!("The rollout waits: {what}")));
    section("Leaves alone:", &told.withheld, &mut lines);
    lines.extend(
        told.again
            .iter()
            .map(|again| format!("Looks again {again}, if nothing happens before.")),
    );
    section("It says of itself:", &said(world, subject), &mut lines);
    section(
        "Its machines that are not running:",
        &unwell(world, subject),
        &mut lines,
    );
    lines.join("\n") + "\n"
}

fn section(head: &str, items: &[String], lines: &mut Vec<String>) {
    if !items.is_empty() {
        lines.push(head.to_owned());
        lines.extend(items.iter().map(|item| format!("  - {item}")));
    }
}

/// The conditions of the object, and the last operation of a Machine.
fn said(world: &World, subject: &Subject) -> Vec<String> {
    let line = |type_: &str, status: &str, reason: &str, message: &str| format!("{type_}={status} {reason}: {message}");
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match subject {
        Subject::Deployment(name) => {
            let status = world.deployments.get(name).and_then(|object| object.status.as_ref());
            let conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions
                .map(|told| line(&told.type_, &told.status, &text(&told.reason), &text(&told.message)))
                .collect()
        }
        Subject::Set(name) => {
            let status = world.sets.get(name).and_then(|object| object.status.as_ref());
            let conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions
                .map(|told| line(&told.type_, &told.status, &text(&told.reason), &text(&told.message)))
                .collect()
        }
        Subject::Class(name) => {
            let status = world.classes.get(name).and_then(|object| object.status.as_ref());
            let conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions
                .map(|told| line(&told.type_, &told.status, &told.reason, &told.message))
                .collect()
        }
        Subject::Machine(name) => world
            .machines
            .get(name)
            .map(|machine| last_words(machine))
            .into_iter()
            .collect(),
    }
}

/// Phase and last operation.
fn last_words(machine: &Machine) -> String {
    let phase = match machine.phase() {
        phase if phase.is_new() => "no phase yet".to_owned(),
        phase => phase.as_str().to_owned(),
    };
    let description = machine.last_words().map(str::to_owned);
    format!(
        "{phase}: {}",
        description.unwrap_or_else(|| "nothing was done yet".to_owned())
    )
}

/// The Machines of a deployment or set that are not Running or on their way out, the first ones.
fn unwell(world: &World, subject: &Subject) -> Vec<String> {
    let sets: Vec<String> = match subject {
        Subject::Deployment(name) => owned_sets(world, name),
        Subject::Set(name) => world
            .sets
            .get(name)
            .and_then(|set| set.metadata.uid.clone())
            .into_iter()
            .collect(),
        Subject::Machine(_) | Subject::Class(_) => Vec::new(),
    };
    let machines = sets
        .iter()
        .flat_map(|set| world.machines.find(OwnedBy::Controller, set));
    let mut unwell: Vec<&Machine> = machines
        .map(AsRef::as_ref)
        .filter(|machine: &&Machine| *machine.phase() != Phase::Running || meta::is_deleting(&machine.metadata))
        .collect();
    unwell.sort_by_key(|machine| meta::name(&machine.metadata));
    let more = unwell.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> = unwell
        .iter()
        .take(SHOWN)
        .map(|machine| format!("{} is {}", meta::name(&machine.metadata), last_words(machine)))
        .collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn owned_sets(world: &World, deployment: &Name) -> Vec<String> {
    let uid = world
        .deployments
        .get(deployment)
        .and_then(|deployment| deployment.metadata.uid.clone());
    let sets = world.sets.find(OwnedBy::Controller, uid.as_deref().unwrap_or_default());
    sets.filter_map(|set| set.metadata.uid.clone()).collect()
}
