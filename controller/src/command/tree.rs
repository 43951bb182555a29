//! `tree`: deployments, their sets, the sets' machines; and below, what nobody controls.
//!
//! Reads three lists and draws. Judges nothing but how to feel about a machine: why one is not well, it says itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright_core::api::{Machine, MachineDeployment, MachineSet, OperationState, Phase, Template, keys, meta};
use millwright_core::deployment::history;
use millwright_core::owner;
use millwright_core::rollout::standing;

use super::failure::Failure;
use super::flags::TreeFlags;
use super::session::Session;
use super::{age, output, subject, table};
use crate::env::{Outside as _, System};

/// Runs the command.
pub async fn run(flags: &TreeFlags) -> Result<(), Failure> {
    let name = match flags.words.as_slice() {
        [] => None,
        words => Some(subject::name(words)?),
    };
    let session = Session::open(&flags.reach).await?;
    let seen = Seen::read(&session, name.as_deref(), flags.all_namespaces).await?;
    if seen.is_empty() {
        let place = match flags.all_namespaces {
            true => "any namespace".to_owned(),
            false => format!("namespace {:?}", session.namespace),
        };
        output::note(&format!(
            "there are no machinedeployments, machinesets or machines in {place}"
        ));
        return Ok(());
    }
    output::print(&seen.draw(System.now(), flags.all_namespaces))
}

/// What was read.
#[derive(Debug, Default)]
struct Seen {
    deployments: Vec<MachineDeployment>,
    sets: Vec<MachineSet>,
    machines: Vec<Machine>,
    /// One deployment was asked for: what is not below it is not looked at.
    is_of_one: bool,
}

impl Seen {
    async fn read(session: &Session, name: Option<&str>, everywhere: bool) -> Result<Self, Failure> {
        // Owners first: what is made meanwhile has its owner here, or is of an owner that is not here yet and shows as such.
        if everywhere {
            return Ok(Self {
                deployments: session.list_everywhere().await?,
                sets: session.list_everywhere().await?,
                machines: session.list_everywhere().await?,
                is_of_one: false,
            });
        }
        let deployments = match name {
            Some(name) => vec![session.deployment(name).await?],
            None => session.list().await?,
        };
        Ok(Self {
            deployments,
            sets: session.list().await?,
            machines: session.list().await?,
            is_of_one: name.is_some(),
        })
    }

    fn is_empty(&self) -> bool {
        self.deployments.is_empty() && self.sets.is_empty() && self.machines.is_empty()
    }

    /// Everything, as lines.
    fn draw(&self, now: Timestamp, with_namespace: bool) -> String {
        let drawing = Drawing {
            children: Children::of(self),
            now,
        };
        let mut rows = Vec::new();
        for deployment in sorted(&self.deployments, |deployment| &deployment.metadata) {
            drawing.deployment(deployment, &mut rows);
        }
        if !self.is_of_one {
            drawing.orphans(self, &mut rows);
        }
        written(&rows, with_namespace)
    }
}

/// One line.
#[derive(Debug, Default)]
struct Row {
    namespace: String,
    name: String,
    status: String,
    revision: String,
    class: String,
    node: String,
    age: String,
    reason: String,
}

fn written(rows: &[Row], with_namespace: bool) -> String {
    let cells = |row: &Row| {
        [
            row.name.clone(),
            row.status.clone(),
            row.revision.clone(),
            row.class.clone(),
            row.node.clone(),
            row.age.clone(),
            row.reason.clone(),
        ]
    };
    let head = ["NAME", "STATUS", "REVISION", "CLASS", "NODE", "AGE", "REASON"];
    if !with_namespace {
        return table::lines(head, &rows.iter().map(cells).collect::<Vec<_>>());
    }
    let [a, b, c, d, e, f, g] = head;
    let rows = rows.iter().map(|row| {
        let [a, b, c, d, e, f, g] = cells(row);
        [row.namespace.clone(), a, b, c, d, e, f, g]
    });
    table::lines(["NAMESPACE", a, b, c, d, e, f, g], &rows.collect::<Vec<_>>())
}

/// Who is below whom. By uid: a namesake of an owner that is gone controls nothing.
struct Children<'a> {
    sets: BTreeMap<&'a str, Vec<&'a MachineSet>>,
    machines: BTreeMap<&'a str, Vec<&'a Machine>>,
}

impl<'a> Children<'a> {
    fn of(seen: &'a Seen) -> Self {
        Self {
            sets: by_owner(&seen.sets, |set| &set.metadata),
            machines: by_owner(&seen.machines, |machine| &machine.metadata),
        }
    }
}

fn by_owner<K>(objects: &[K], metadata: fn(&K) -> &ObjectMeta) -> BTreeMap<&str, Vec<&K>> {
    let mut all: BTreeMap<&str, Vec<&K>> = BTreeMap::new();
    for object in sorted(objects, metadata) {
        if let Some(owner) = meta::controller_of(metadata(object)) {
            all.entry(owner.uid.as_str()).or_default().push(object);
        }
    }
    all
}

fn sorted<K>(objects: &[K], metadata: fn(&K) -> &ObjectMeta) -> Vec<&K> {
    let mut all: Vec<&K> = objects.iter().collect();
    all.sort_by_key(|object| (meta::namespace(metadata(object)), meta::name(metadata(object))));
    all
}

fn below<'a, K>(children: &BTreeMap<&str, Vec<&'a K>>, owner: &ObjectMeta) -> Vec<&'a K> {
    let uid = owner.uid.as_deref().unwrap_or_default();
    children.get(uid).cloned().unwrap_or_default()
}

struct Drawing<'a> {
    children: Children<'a>,
    now: Timestamp,
}

/// The lines before the name of a child, and before those of its own children.
fn branch(parent: &str, is_last: bool) -> (String, String) {
    match is_last {
        true => (format!("{parent}└─ "), format!("{parent}   ")),
        false => (format!("{parent}├─ "), format!("{parent}│  ")),
    }
}

impl Drawing<'_> {
    fn deployment(&self, deployment: &MachineDeployment, rows: &mut Vec<Row>) {
        rows.push(self.deployment_row(deployment));
        let mut sets = below(&self.children.sets, &deployment.metadata);
        // The newest first: of ten that are kept for a way back, it is the one that is looked for.
        sets.sort_by_key(|set| std::cmp::Reverse(history::number(&set.metadata)));
        let last = sets.len().saturating_sub(1);
        for (at, set) in sets.into_iter().enumerate() {
            self.set(set, branch("", at == last), None, rows);
        }
    }

    fn set(&self, set: &MachineSet, (before, below_it): (String, String), note: Option<String>, rows: &mut Vec<Row>) {
        rows.push(self.set_row(set, &before, note));
        let machines = below(&self.children.machines, &set.metadata);
        let last = machines.len().saturating_sub(1);
        for (at, machine) in machines.into_iter().enumerate() {
            let (before, _) = branch(&below_it, at == last);
            rows.push(self.machine_row(machine, &before, None));
        }
    }

    /// Sets and machines that nobody here controls.
    fn orphans(&self, seen: &Seen, rows: &mut Vec<Row>) {
        let sets = sorted(&seen.sets, |set| &set.metadata).into_iter().filter_map(|set| {
            let owners = seen.deployments.iter().map(|deployment| &deployment.metadata);
            lost(&set.metadata, owners).map(|note| (set, note))
        });
        let machines = sorted(&seen.machines, |machine| &machine.metadata);
        let machines = machines.into_iter().filter_map(|machine| {
            let owners = seen.sets.iter().map(|set| &set.metadata);
            lost(&machine.metadata, owners).map(|note| (machine, note))
        });
        let (sets, machines): (Vec<_>, Vec<_>) = (sets.collect(), machines.collect());
        let count = sets.len() + machines.len();
        if count == 0 {
            return;
        }
        rows.push(Row {
            name: "(controlled by nobody)".to_owned(),
            ..Row::default()
        });
        for (at, (set, note)) in sets.iter().enumerate() {
            self.set(set, branch("", at + 1 == count), note.clone(), rows);
        }
        for (at, (machine, note)) in (sets.len()..).zip(&machines) {
            let (before, _) = branch("", at + 1 == count);
            rows.push(self.machine_row(machine, &before, note.clone()));
        }
    }

    fn deployment_row(&self, deployment: &MachineDeployment) -> Row {
        let available = deployment.status.as_ref().map_or(0, |status| status.available_replicas);
        Row {
            name: format!("machinedeployment/{}", meta::name(&deployment.metadata)),
            status: format!("{available}/{} available", deployment.spec.replicas),
            revision: meta::annotation(&deployment.metadata, keys::REVISION)
                .unwrap_or_default()
                .to_owned(),
            class: class(&deployment.spec.template),
            reason: deployment_reason(deployment),
            ..self.row(&deployment.metadata)
        }
    }

    fn set_row(&self, set: &MachineSet, before: &str, note: Option<String>) -> Row {
        let available = set.status.as_ref().map_or(0, |status| status.available_replicas);
        Row {
            name: format!("{before}machineset/{}", meta::name(&set.metadata)),
            status: format!("{available}/{} available", set.spec.replicas),
            revision: history::number(&set.metadata).map_or_else(String::new, |number| number.to_string()),
            class: class(&set.spec.template),
            reason: set_reason(set, note),
            ..self.row(&set.metadata)
        }
    }

    fn machine_row(&self, machine: &Machine, before: &str, note: Option<String>) -> Row {
        let phase = match machine.phase() {
            Phase::New => "New".to_owned(),
            phase => phase.to_string(),
        };
        Row {
            name: format!("{before}machine/{}", meta::name(&machine.metadata)),
            status: phase,
            class: machine.class_name().unwrap_or_default().to_owned(),
            node: machine.node_label().map_or_else(String::new, |node| node.to_string()),
            reason: joined(note.into_iter().chain(machine_reason(machine))),
            ..self.row(&machine.metadata)
        }
    }

    fn row(&self, metadata: &ObjectMeta) -> Row {
        Row {
            namespace: meta::namespace(metadata).to_owned(),
            age: age::of(metadata, self.now),
            ..Row::default()
        }
    }
}

/// Whether none of these owners controls the child; with what to say of the owner that it names.
fn lost<'a>(child: &ObjectMeta, mut owners: impl Iterator<Item = &'a ObjectMeta>) -> Option<Option<String>> {
    if owners.any(|owner| owner::controls(owner, child)) {
        return None;
    }
    let named = meta::controller_of(child);
    Some(named.map(|owner| {
        format!(
            "its controller {}/{} is not there",
            owner.kind.to_lowercase(),
            owner.name
        )
    }))
}

fn class(template: &Template) -> String {
    template.class().and_then(|class| class.name).unwrap_or_default()
}

fn deployment_reason(deployment: &MachineDeployment) -> String {
    let deleting = meta::is_deleting(&deployment.metadata).then(|| "is being deleted".to_owned());
    let rolling_back = deployment.spec.rollback_to.as_ref().map(|order| match order.revision {
        0 => "a rollback to the previous revision is requested".to_owned(),
        number => format!("a rollback to revision {number} is requested"),
    });
    let status = deployment.status.as_ref();
    let progressing = status.and_then(|status| status.condition(keys::CONDITION_PROGRESSING));
    let stuck = progressing
        .filter(|condition| condition.status == keys::STATUS_FALSE)
        .and_then(|condition| condition.message.as_deref().map(table::one_line));
    let obstacles = standing::obstacles(deployment);
    joined(deleting.into_iter().chain(rolling_back).chain(stuck).chain(obstacles))
}

fn set_reason(set: &MachineSet, note: Option<String>) -> String {
    let deleting = meta::is_deleting(&set.metadata).then(|| "is being deleted".to_owned());
    let conditions = set.status.iter().flat_map(|status| &status.conditions);
    let told = conditions
        .filter(|condition| {
            [keys::CONDITION_REPLICA_FAILURE, keys::CONDITION_FROZEN].contains(&condition.type_.as_str())
        })
        .filter(|condition| condition.status == keys::STATUS_TRUE)
        .map(|condition| table::one_line(condition.message.as_deref().unwrap_or(&condition.type_)));
    joined(note.into_iter().chain(deleting).chain(told))
}

/// What was last done to a machine that is not as wanted.
fn machine_reason(machine: &Machine) -> Option<String> {
    if machine.phase().is_fine() && machine.operation_state() != Some(OperationState::Failed) {
        return None;
    }
    let description = machine.last_operation()?.description.as_deref()?;
    Some(table::one_line(description)).filter(|text| !text.is_empty())
}

fn joined(reasons: impl IntoIterator<Item = String>) -> String {
    reasons.into_iter().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn metadata(name: &str, owner: Option<(&str, &str)>, annotations: Value, labels: Value) -> Value {
        let owners: Vec<Value> = owner
            .iter()
            .map(|(kind, name)| {
                json!({"apiVersion": "v", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true})
            })
            .collect();
        json!({
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "ownerReferences": owners,
            "annotations": annotations, "labels": labels, "creationTimestamp": "2030-01-01T00:00:00Z",
        })
    }

    fn template(class: &str) -> Value {
        json!({"spec": {"class": {"kind": "MachineClass", "name": class}}})
    }

    fn deployment() -> MachineDeployment {
        read(json!({
            "metadata": metadata("workers", None, json!({keys::REVISION: "2"}), json!({})),
            "spec": {"replicas": 2, "paused": true, "template": template("large")},
            "status": {"availableReplicas": 1},
        }))
    }

    fn set(name: &str, owner: Option<&str>, revision: &str, class: &str, replicas: i32) -> MachineSet {
        let owner = owner.map(|name| ("MachineDeployment", name));
        read(json!({
            "metadata": metadata(name, owner, json!({keys::REVISION: revision}), json!({})),
            "spec": {"replicas": replicas, "template": template(class)},
            "status": {"availableReplicas": 1},
        }))
    }

    fn machine(name: &str, owner: Option<&str>, phase: &str, said: &str) -> Machine {
        let owner = owner.map(|name| ("MachineSet", name));
        read(json!({
            "metadata": metadata(name, owner, json!({}), json!({keys::NODE: format!("node-{name}")})),
            "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            "status": {"currentStatus": {"phase": phase}, "lastOperation": {"description": said, "state": "Processing"}},
        }))
    }

    fn seen() -> Seen {
        Seen {
            deployments: vec![deployment()],
            sets: vec![
                set("w-1", Some("workers"), "1", "small", 1),
                set("w-2", Some("workers"), "2", "large", 1),
                set("lone", None, "", "small", 1),
                set("lost", Some("gone"), "4", "small", 0),
            ],
            machines: vec![
                machine("w-2-b", Some("w-2"), "Pending", "Creating\n a VM"),
                machine("w-2-a", Some("w-2"), "Running", "joined"),
                machine("w-1-a", Some("w-1"), "Running", "joined"),
                machine("lone-a", Some("lone"), "Failed", "no quota"),
                machine("own", None, "Running", "joined"),
            ],
            is_of_one: false,
        }
    }

    fn drawn(seen: &Seen, with_namespace: bool) -> String {
        seen.draw("2030-01-01T00:05:00Z".parse().unwrap(), with_namespace)
    }

    #[test]
    fn the_tree_has_every_object_once_and_says_what_is_not_well() {
        let wanted = "\
NAME                        STATUS          REVISION   CLASS   NODE          AGE   REASON
machinedeployment/workers   1/2 available   2          large                 5m    the deployment is paused
├─ machineset/w-2           1/1 available   2          large                 5m
│  ├─ machine/w-2-a         Running                    small   node-w-2-a    5m
│  └─ machine/w-2-b         Pending                    small   node-w-2-b    5m    Creating a VM
└─ machineset/w-1           1/1 available   1          small                 5m
   └─ machine/w-1-a         Running                    small   node-w-1-a    5m
(controlled by nobody)
├─ machineset/lone          1/1 available              small                 5m
│  └─ machine/lone-a        Failed                     small   node-lone-a   5m    no quota
├─ machineset/lost          1/0 available   4          small                 5m    its controller machinedeployment/gone is not there
└─ machine/own              Running                    small   node-own      5m
";
        let drawn = drawn(&seen(), false);
        assert_eq!(drawn, wanted, "\n{drawn}");
    }

    #[test]
    fn of_one_deployment_only_what_is_below_it_is_drawn() {
        let drawn = drawn(
            &Seen {
                is_of_one: true,
                ..seen()
            },
            false,
        );
        assert!(drawn.contains("machine/w-1-a"), "{drawn}");
        assert!(!drawn.contains("lone") && !drawn.contains("nobody"), "{drawn}");
    }

    #[test]
    fn of_all_namespaces_the_namespace_comes_first() {
        let drawn = drawn(&seen(), true);
        assert!(drawn.starts_with("NAMESPACE   NAME "), "{drawn}");
        assert!(drawn.contains("\nshop        machinedeployment/workers "), "{drawn}");
    }
}
