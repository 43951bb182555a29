//! How deployments, sets and machines look: rows of cells in the order of a tree, and what changed between two looks.
//! It may not know where rows are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright::command::age;
use millwright_core::api::{Machine, MachineDeployment, MachineSet, Phase, keys, meta};

use super::seen::Seen;

/// The names of the columns.
pub const HEAD: [&str; 5] = ["NAME", "PHASE", "NODE", "AGE", "REASON"];

/// What is counted of the machines of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those whose nodes are ready.
    Ready,
    /// Those that are available, which they are also without a node.
    Available,
}

impl Counted {
    /// `2/3 ready`.
    fn told(self, count: i32, wanted: i32) -> String {
        let word = match self {
            Self::Ready => "ready",
            Self::Available => "available",
        };
        format!("{count}/{wanted} {word}")
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The lines of the tree before the name.
    pub branch: &'static str,
    /// `kind/name`.
    pub name: String,
    /// A Machine's phase; how many are ready, or available, for the others.
    pub phase: String,
    /// The Node's name, where it is another one than the Machine's.
    pub node: String,
    /// Time since the creation.
    pub age: String,
    /// Why the phase is what it is.
    pub reason: String,
    /// How to feel about it.
    pub mood: Mood,
}

/// How a row is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// As wanted.
    Good,
    /// On its way.
    Moving,
    /// Not as wanted.
    Bad,
}

/// Everything that is seen, as rows.
pub fn rows(seen: &Seen, counted: Counted, now: Timestamp) -> Vec<Row> {
    let (deployments, sets, machines) = (seen.deployments(), seen.sets(), seen.machines());
    let mut rows = Vec::new();
    for deployment in &deployments {
        rows.push(deployment_row(deployment, counted, now));
        let sets: Vec<_> = sets
            .iter()
            .filter(|set| belongs(&set.metadata, &deployment.metadata))
            .collect();
        for (at, set) in sets.iter().enumerate() {
            let last_set = at + 1 == sets.len();
            rows.push(set_row(set, last_set, counted, now));
            let machines: Vec<&Arc<Machine>> = machines
                .iter()
                .filter(|machine| belongs(&machine.metadata, &set.metadata))
                .collect();
            let last = machines.len().saturating_sub(1);
            rows.extend(
                machines
                    .iter()
                    .enumerate()
                    .map(|(at, machine)| machine_row(machine, branch(last_set, at == last), now)),
            );
        }
    }
    rows
}

fn belongs(child: &ObjectMeta, owner: &ObjectMeta) -> bool {
    meta::controller_uid(child).is_some_and(|uid| Some(uid) == meta::uid(owner))
}

fn branch(last_set: bool, last: bool) -> &'static str {
    match (last_set, last) {
        (true, true) => "   └─ ",
        (true, false) => "   ├─ ",
        (false, true) => "│  └─ ",
        (false, false) => "│  ├─ ",
    }
}

fn deployment_row(deployment: &MachineDeployment, counted: Counted, now: Timestamp) -> Row {
    let status = deployment.status.as_ref();
    let count = status.map_or(0, |status| match counted {
        Counted::Ready => status.ready_replicas,
        Counted::Available => status.available_replicas,
    });
    let condition = status.and_then(|status| {
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == keys::CONDITION_AVAILABLE)
    });
    Row {
        branch: "",
        name: format!("machinedeployment/{}", meta::name(&deployment.metadata)),
        phase: counted.told(count, deployment.spec.replicas),
        node: String::new(),
        age: age::of(&deployment.metadata, now),
        reason: condition
            .and_then(|condition| condition.message.clone())
            .unwrap_or_default(),
        mood: count_mood(count, deployment.spec.replicas),
    }
}

fn set_row(set: &MachineSet, last: bool, counted: Counted, now: Timestamp) -> Row {
    let status = set.status.as_ref();
    let count = status.map_or(0, |status| match counted {
        Counted::Ready => status.ready_replicas,
        Counted::Available => status.available_replicas,
    });
    let failure = status.and_then(|status| {
        let mut conditions = status.conditions.iter();
        conditions
            .find(|condition| condition.type_ == keys::CONDITION_REPLICA_FAILURE && condition.status == keys::TRUE)
    });
    Row {
        branch: if last { "└─ " } else { "├─ " },
        name: format!("machineset/{}", meta::name(&set.metadata)),
        phase: counted.told(count, set.spec.replicas),
        node: String::new(),
        age: age::of(&set.metadata, now),
        reason: failure
            .and_then(|condition| condition.message.clone())
            .unwrap_or_default(),
        mood: count_mood(count, set.spec.replicas),
    }
}

fn machine_row(machine: &Machine, branch: &'static str, now: Timestamp) -> Row {
    let reason = machine
        .last_operation()
        .and_then(|operation| operation.description.clone());
    let name = meta::name(&machine.metadata);
    let node = machine.node_label().map(|node| node.to_string());
    Row {
        branch,
        name: format!("machine/{name}"),
        phase: match machine.phase() {
            Phase::New => "-".to_owned(),
            phase => phase.to_string(),
        },
        node: node.filter(|node| node != name).unwrap_or_default(),
        age: age::of(&machine.metadata, now),
        reason: one_line(&reason.unwrap_or_default()),
        mood: phase_mood(machine.phase()),
    }
}

fn count_mood(count: i32, wanted: i32) -> Mood {
    if count == wanted { Mood::Good } else { Mood::Moving }
}

fn phase_mood(phase: &Phase) -> Mood {
    match phase {
        Phase::Running | Phase::Available | Phase::InPlaceUpdateSuccessful => Mood::Good,
        Phase::New | Phase::Pending | Phase::Terminating | Phase::InPlaceUpdating => Mood::Moving,
        Phase::Unknown | Phase::Failed | Phase::CrashLoopBackOff | Phase::InPlaceUpdateFailed | Phase::Other(_) => {
            Mood::Bad
        }
    }
}

/// A driver's text may have lines; a row has one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What was told already, for plain lines: one for each change.
#[derive(Debug, Default)]
pub struct Told(BTreeMap<String, Row>);

impl Told {
    /// What changed since the last call, a line each. That time passes is no change.
    pub fn changes(&mut self, rows: &[Row]) -> Vec<String> {
        let mut lines = Vec::new();
        for row in rows {
            let before = self.0.insert(row.name.clone(), row.clone());
            let is_news = before.as_ref().is_none_or(|before| {
                (&before.phase, &before.node, &before.reason) != (&row.phase, &row.node, &row.reason)
            });
            if is_news {
                lines.push(line(before.as_ref(), row));
            }
        }
        self.0.retain(|name, _| {
            let stays = rows.iter().any(|row| row.name == *name);
            if !stays {
                lines.push(format!("{name}  gone"));
            }
            stays
        });
        lines
    }
}

fn line(before: Option<&Row>, row: &Row) -> String {
    let mut line = row.name.clone();
    line += "  ";
    if let Some(before) = before.filter(|before| before.phase != row.phase) {
        line += &before.phase;
        line += " -> ";
    }
    line += &row.phase;
    if !row.node.is_empty() {
        line += "  node ";
        line += &row.node;
    }
    if !row.reason.is_empty() {
        line += "  (";
        line += &row.reason;
        line.push(')');
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(name: &str, phase: &str, age: &str) -> Row {
        Row {
            branch: "",
            name: format!("machine/{name}"),
            phase: phase.to_owned(),
            node: String::new(),
            age: age.to_owned(),
            reason: String::new(),
            mood: Mood::Good,
        }
    }

    #[test]
    fn a_change_is_told_once_and_the_passing_of_time_never() {
        let mut told = Told::default();
        assert_eq!(told.changes(&[row("a", "Pending", "0s")]), ["machine/a  Pending"]);
        assert!(told.changes(&[row("a", "Pending", "1s")]).is_empty());
        assert_eq!(
            told.changes(&[row("a", "Running", "2s")]),
            ["machine/a  Pending -> Running"]
        );
    }

    #[test]
    fn a_node_is_told_where_it_is_not_called_as_its_machine() {
        let machine = |node: &str| -> Machine {
            serde_json::from_value(json!({"metadata": {"name": "m-1", "labels": {"node": node}}})).unwrap()
        };
        assert_eq!(machine_row(&machine("m-1"), "", Timestamp::MIN).node, "");
        assert_eq!(
            machine_row(&machine("ip-10-0-0-7"), "", Timestamp::MIN).node,
            "ip-10-0-0-7"
        );
    }

    #[test]
    fn machines_without_nodes_are_counted_as_available_and_not_as_never_ready() {
        let status = json!({"readyReplicas": 0, "availableReplicas": 3});
        let (spec, name) = (json!({"replicas": 3}), json!({"name": "w"}));
        let deployment: MachineDeployment =
            serde_json::from_value(json!({"metadata": name, "spec": spec, "status": status})).unwrap();
        let row = deployment_row(&deployment, Counted::Available, Timestamp::MIN);
        assert_eq!((row.phase.as_str(), row.mood), ("3/3 available", Mood::Good));
        let row = deployment_row(&deployment, Counted::Ready, Timestamp::MIN);
        assert_eq!((row.phase.as_str(), row.mood), ("0/3 ready", Mood::Moving));
        let set: MachineSet =
            serde_json::from_value(json!({"metadata": name, "spec": spec, "status": status})).unwrap();
        assert_eq!(
            set_row(&set, true, Counted::Available, Timestamp::MIN).phase,
            "3/3 available"
        );
    }

    #[test]
    fn what_is_not_there_any_more_is_told_once() {
        let mut told = Told::default();
        told.changes(&[row("a", "Running", "1s"), row("b", "Running", "1s")]);
        assert_eq!(told.changes(&[row("b", "Running", "2s")]), ["machine/a  gone"]);
        assert!(told.changes(&[row("b", "Running", "3s")]).is_empty());
    }
}
