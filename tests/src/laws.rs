//! What must be true of a scene, judged from what can be seen from outside: the cloud's own journal, the API server's
//! objects and their managed fields. Pure, and written apart from the code under test; it shares no rule with it. What should be
//! in the end is the oracles' affair, who judge the simulator's runs as well.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::cloud::Entry;
use crate::scene::Sight;

/// S1: at no time two live VMs of one uid. A VM lives from the order's acceptance until nothing is left of it.
///
/// # Errors
/// The uid and its VMs.
pub fn one_vm_a_machine(journal: &[Entry]) -> Result<(), String> {
    let mut live: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut ordered: Vec<&Entry> = journal.iter().collect();
    ordered.sort_by_key(|entry| &entry.at); // stable: of one time, the order of the journal
    for entry in ordered {
        let vms = live.entry(&entry.uid).or_default();
        match entry.event.as_str() {
            "accepted" => drop(vms.insert(&entry.vm_id)),
            "removed" => drop(vms.remove(entry.vm_id.as_str())),
            _ => {}
        }
        if vms.len() > 1 {
            return Err(format!(
                "{} ({}) has the VMs {vms:?} at {}",
                entry.name, entry.uid, entry.at
            ));
        }
    }
    Ok(())
}

/// How many VMs were ever made.
#[must_use]
pub fn vms_made(journal: &[Entry]) -> usize {
    journal.iter().filter(|entry| entry.event == "accepted").count()
}

/// All is as the specs say, by the oracles' own reference; there are exactly `wanted` machines, VMs and Nodes, and the
/// deployments count that many.
///
/// # Errors
/// What is otherwise.
pub fn settled(sight: &Sight, wanted: usize) -> Result<(), String> {
    let counts = [
        ("machines", sight.machines.len()),
        ("VMs", sight.vms.len()),
        ("nodes", sight.nodes.len()),
    ];
    if counts.iter().any(|(_, count)| *count != wanted) {
        return Err(format!("there are {counts:?}"));
    }
    millwright_oracles::wanted::settled(sight, &BTreeSet::new())?;
    for deployment in &sight.deployments {
        let counts = ["replicas", "readyReplicas", "availableReplicas"].map(|field| &deployment["status"][field]);
        if counts.iter().any(|count| count.as_u64().unwrap_or(0) != wanted as u64) {
            return Err(format!("the deployment counts {counts:?}"));
        }
    }
    Ok(())
}

/// Nothing at all is left in the cloud and the target cluster, and no machine or set in the control cluster.
///
/// # Errors
/// What is left, by name.
pub fn nothing_left(sight: &Sight) -> Result<(), String> {
    let named = |objects: &[Value]| objects.iter().map(|object| name(object).to_owned()).collect::<Vec<_>>();
    let vms = sight.vms.iter().map(|vm| format!("{} of {}", vm.provider_id, vm.name));
    let all = [
        ("machines", named(&sight.machines)),
        ("sets", named(&sight.sets)),
        ("deployments", named(&sight.deployments)),
        ("VMs", vms.collect()),
        ("nodes", named(&sight.nodes)),
        ("tokens", named(&sight.tokens)),
    ];
    let left: Vec<String> = all
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{} {what}: {}", names.len(), names.join(", ")))
        .collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("left are {}", left.join("; "))),
    }
}

/// What a user asked of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// So many machines.
    Size(u32),
    /// Machines of this template; those of others are to go.
    Template(String),
    /// Nothing new: all that was asked for before had come true.
    Settled,
}

/// No VM went that nobody had asked to go, of a deployment whose `maxUnavailable` is 0: one of the template that is wanted goes only
/// where fewer were asked for since all had come true, and there are never fewer VMs at work than were wanted all the time since.
/// `template_of` a machine by its name.
///
/// # Errors
/// The VM that went, and when.
pub fn none_gone_unasked(
    journal: &[Entry],
    wishes: &[(Timestamp, Wish)],
    template_of: impl Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let mut ordered: Vec<&Entry> = journal.iter().collect();
    ordered.sort_by_key(|entry| &entry.at);
    let mut wishes = wishes.iter().peekable();
    let mut wanted = Wanted::default();
    let mut at_work = BTreeSet::new();
    for entry in ordered {
        while let Some((_, wish)) = wishes.next_if(|(at, _)| *at <= entry.at) {
            wanted.hears(wish);
        }
        match entry.event.as_str() {
            "booted" => drop(at_work.insert(entry.vm_id.as_str())),
            "deleting" | "stopped" | "removed" => drop(at_work.remove(entry.vm_id.as_str())),
            _ => {}
        }
        let what = || format!("VM {} of {} went at {}", entry.vm_id, entry.name, entry.at);
        if entry.event == "deleting" && !wanted.lets_go(template_of(&entry.name)) {
            return Err(format!("{}, and nobody had asked for it: {wanted:?}", what()));
        }
        if at_work.len() < wanted.at_least {
            return Err(format!(
                "{}, after which {} were at work: {wanted:?}",
                what(),
                at_work.len()
            ));
        }
    }
    Ok(())
}

/// What is wanted of a deployment at one moment.
#[derive(Debug, Default)]
struct Wanted {
    size: u32,
    template: Option<String>,
    /// How many of the template that is wanted may still go.
    may_go: u32,
    /// So many were there when all had come true, and were wanted all the time since.
    at_least: usize,
}

impl Wanted {
    fn hears(&mut self, wish: &Wish) {
        match wish {
            Wish::Size(size) => {
                self.may_go += self.size.saturating_sub(*size);
                self.size = *size;
                self.at_least = self.at_least.min(*size as usize);
            }
            Wish::Template(template) => {
                self.template = Some(template.clone());
                self.may_go = 0;
            }
            Wish::Settled => {
                self.may_go = 0;
                self.at_least = self.size as usize;
            }
        }
    }

    fn lets_go(&mut self, template: Option<String>) -> bool {
        if template != self.template {
            return true;
        }
        let may_go = self.may_go > 0;
        self.may_go = self.may_go.saturating_sub(1);
        may_go
    }
}

/// Of an object that somebody else made, `millwright` has written nothing but what lies under one of `own`
/// (`.status`, `.metadata.finalizers`…), by the API server's own record.
///
/// # Errors
/// The fields it should not have touched.
pub fn only_own_fields(object: &Value, own: &[&str]) -> Result<(), String> {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .ok_or("the object has no managed fields")?;
    let mut written = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry["manager"] == "millwright") {
        paths("", &entry["fieldsV1"], &mut written);
    }
    let foreign: Vec<&String> = written
        .iter()
        .filter(|path| !own.iter().any(|prefix| is_under(path, prefix)))
        .collect();
    match foreign.is_empty() {
        true => Ok(()),
        false => Err(format!("{} has foreign fields of ours: {foreign:?}", name(object))),
    }
}

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The leaves of a `fieldsV1`: `f:a: {f:b: {}}` is `.a.b`, an item of a list is in brackets.
fn paths(at: &str, fields: &Value, found: &mut BTreeSet<String>) {
    let children: Vec<_> = fields
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != ".")
        .collect();
    if children.is_empty() && !at.is_empty() {
        found.insert(at.to_owned());
    }
    for (key, below) in children {
        match key.strip_prefix("f:") {
            Some(field) => paths(&format!("{at}.{field}"), below, found),
            None => paths(&format!("{at}[{key}]"), below, found),
        }
    }
}

/// The phase of a Machine, "" before its first.
#[must_use]
pub fn phase(machine: &Value) -> &str {
    machine["status"]["currentStatus"]["phase"].as_str().unwrap_or_default()
}

/// The name of any object.
#[must_use]
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The uid of any object.
#[must_use]
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The condition of a type in a list of conditions.
#[must_use]
pub fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;
    use crate::cloud::Vm;

    fn entry(at: &str, event: &str, vm: &str) -> Entry {
        let at = format!("2026-01-01T00:00:0{at}Z").parse().unwrap();
        Entry {
            at,
            event: event.into(),
            vm_id: vm.into(),
            uid: "u".into(),
            name: "m".into(),
        }
    }

    #[test]
    fn two_vms_of_one_uid_at_one_time_are_found() {
        let both = [
            entry("1", "accepted", "a"),
            entry("2", "deleting", "a"),
            entry("3", "accepted", "b"),
        ];
        assert!(one_vm_a_machine(&both).is_err());
        let after = [
            entry("1", "accepted", "a"),
            entry("3", "accepted", "b"),
            entry("2", "removed", "a"),
        ];
        one_vm_a_machine(&after).unwrap();
    }

    /// Two machines of template `a` at work since second 1, with what else the cloud tells and what was asked for.
    fn judged(more: &[Entry], wishes: &[(&str, Wish)]) -> Result<(), String> {
        let calm = [entry("1", "booted", "a-1"), entry("1", "booted", "a-2")];
        let journal: Vec<Entry> = calm.iter().chain(more).map(|entry| named(entry.clone())).collect();
        let at = |second: &str| entry(second, "", "").at;
        let first = [
            ("0", Wish::Template("a".into())),
            ("0", Wish::Size(2)),
            ("2", Wish::Settled),
        ];
        let wishes = first
            .iter()
            .chain(wishes)
            .map(|(second, wish)| (at(second), wish.clone()));
        let template = |name: &str| name.split_once('-').map(|(template, _)| template.to_owned());
        none_gone_unasked(&journal, &wishes.collect::<Vec<_>>(), template)
    }

    fn named(entry: Entry) -> Entry {
        Entry {
            name: entry.vm_id.clone(),
            ..entry
        }
    }

    #[test]
    fn a_vm_that_goes_unasked_is_found_and_one_that_was_asked_to_go_is_none() {
        let goes = entry("4", "deleting", "a-1");
        let one = ("3", Wish::Size(1));
        judged(std::slice::from_ref(&goes), std::slice::from_ref(&one)).unwrap();
        judged(std::slice::from_ref(&goes), &[]).unwrap_err();
        judged(std::slice::from_ref(&goes), &[("5", Wish::Size(1))]).unwrap_err();
        let both = [goes, entry("5", "deleting", "a-2")];
        let why = judged(&both, std::slice::from_ref(&one)).unwrap_err();
        assert!(why.contains("a-2"), "{why}");
        let late = [one, ("4", Wish::Settled)];
        judged(&[entry("5", "deleting", "a-1")], &late).unwrap_err();
    }

    #[test]
    fn an_old_vm_goes_in_a_rollout_only_while_as_many_as_wanted_are_at_work() {
        let roll = ("3", Wish::Template("b".into()));
        let new = entry("4", "booted", "b-1");
        let old = entry("5", "deleting", "a-1");
        judged(&[new.clone(), old.clone()], std::slice::from_ref(&roll)).unwrap();
        let why = judged(std::slice::from_ref(&old), std::slice::from_ref(&roll)).unwrap_err();
        assert!(why.contains("1 were at work"), "{why}");
        let newer = entry("6", "deleting", "b-1");
        judged(&[new, old, newer], std::slice::from_ref(&roll)).unwrap_err();
    }

    type Wrong = fn(&mut Sight);

    fn owned_by(uid: &str) -> Value {
        json!([{ "uid": uid, "controller": true }])
    }

    /// One machine at rest.
    fn rest() -> Sight {
        let vm = Vm {
            provider_id: "p".into(),
            state: "running".into(),
            name: "m".into(),
            uid: "u".into(),
        };
        Sight {
            machines: vec![json!({
                "metadata": { "name": "m", "uid": "u", "ownerReferences": owned_by("s") },
                "spec": { "providerID": "p" },
                "status": { "currentStatus": { "phase": "Running" } },
            })],
            sets: vec![json!({
                "metadata": { "uid": "s", "generation": 3, "ownerReferences": owned_by("d") },
                "spec": { "replicas": 1 },
                "status": { "observedGeneration": 3, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 },
            })],
            deployments: vec![json!({
                "metadata": { "uid": "d", "generation": 2 },
                "spec": { "replicas": 1 },
                "status": { "observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 },
            })],
            vms: vec![vm],
            nodes: vec![json!({
                "metadata": { "name": "m", "labels": { "node.gardener.cloud/machine-name": "m" } },
                "spec": { "providerID": "p" },
            })],
            tokens: Vec::new(),
        }
    }

    #[test]
    fn whatever_differs_from_rest_is_found() {
        settled(&rest(), 1).unwrap();
        settled(&rest(), 2).unwrap_err();

        let wrongs: [(&str, Wrong); 12] = [
            ("a machine on its way out", |sight| {
                sight.machines[0]["metadata"]["deletionTimestamp"] = json!("t")
            }),
            ("a machine not running", |sight| {
                sight.machines[0]["status"]["currentStatus"]["phase"] = json!("Pending")
            }),
            ("no VM", |sight| sight.vms.clear()),
            ("a second VM of the machine", |sight| {
                sight.vms.push(sight.vms[0].clone())
            }),
            ("a VM of nobody", |sight| {
                sight.vms.push(Vm {
                    uid: "other".into(),
                    ..sight.vms[0].clone()
                })
            }),
            ("the VM of another", |sight| sight.vms[0].uid = "other".into()),
            ("no node", |sight| sight.nodes.clear()),
            ("a node of nobody", |sight| {
                sight.nodes.push(json!({ "spec": { "providerID": "other" } }))
            }),
            ("a token", |sight| {
                sight.tokens.push(Sight::token(&Secret {
                    type_: Some("bootstrap.kubernetes.io/token".to_owned()),
                    ..Secret::default()
                }));
            }),
            ("a set that nobody has looked at since", |sight| {
                sight.sets[0]["metadata"]["generation"] = json!(4)
            }),
            ("a set of another size", |sight| {
                sight.sets[0]["spec"]["replicas"] = json!(2)
            }),
            ("a wrong count", |sight| {
                sight.deployments[0]["status"]["readyReplicas"] = json!(0)
            }),
        ];
        for (what, wrong) in wrongs {
            let mut sight = rest();
            wrong(&mut sight);
            assert!(settled(&sight, 1).is_err(), "{what} is not found");
            assert!(nothing_left(&sight).is_err(), "{what} is something");
        }
    }

    #[test]
    fn a_field_outside_of_ours_is_found() {
        let object = json!({ "metadata": { "name": "x", "managedFields": [
            { "manager": "kubectl", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
            { "manager": "millwright", "fieldsV1": { "f:metadata": { "f:finalizers": { ".": {}, "v:\"x\"": {} } }, "f:statusText": {} } },
        ] } });
        only_own_fields(&object, &[".metadata.finalizers", ".statusText"]).unwrap();
        let error = only_own_fields(&object, &[".metadata.finalizers", ".status"]).unwrap_err();
        assert!(error.contains(".statusText") && !error.contains("replicas"), "{error}");
    }
}
