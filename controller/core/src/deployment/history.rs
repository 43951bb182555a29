//! Revisions of a deployment's templates, and which old sets are kept for a way back.
//!
//! MD-10: the history of a set is appended to only when its revision
//! changes, and is bounded. Decides nothing about Machines: only sets that have and want none are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::members::Members;
use crate::api::template::Scope;
use crate::api::{MachineDeployment, MachineSet, Template, keys, meta};
use crate::owner;
use crate::set;
use crate::set::growth::unanswered;

/// How many old sets are kept where the deployment does not say, as for Deployments. The original keeps all, for ever (weakness 16).
pub const KEPT: i32 = 10;
/// How many earlier revisions a set remembers.
const REMEMBERED: usize = 20;

/// The revision of the new set: one more than the highest of the others, unless its own is higher already.
pub fn revision(new: Option<&MachineSet>, others: &[&set::Observed<'_>]) -> i64 {
    let highest = others.iter().filter_map(|member| number(&member.set.metadata)).max();
    let own = new.and_then(|new| number(&new.metadata)).unwrap_or(0);
    own.max(highest.unwrap_or(0).saturating_add(1))
}

/// The revision that the deployment's own annotation is to have, if it has another one: that of another template.
pub fn numbered(deployment: &MachineDeployment, members: &Members<'_>) -> Option<i64> {
    let revision = revision(Some(members.new_set()?), members.old());
    let told = meta::annotation(&deployment.metadata, keys::REVISION);
    (told != Some(revision.to_string().as_str())).then_some(revision)
}

/// The annotations that say so on the set.
pub fn annotations(set: &MachineSet, revision: i64) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(keys::REVISION.to_owned(), revision.to_string())]);
    if let Some(before) = number(&set.metadata).filter(|before| *before != revision) {
        let history = meta::annotation(&set.metadata, keys::REVISION_HISTORY).unwrap_or_default();
        let mut past: Vec<&str> = history.split(',').filter(|text| !text.is_empty()).collect();
        let before = before.to_string();
        past.push(&before);
        let past = past.split_off(past.len().saturating_sub(REMEMBERED));
        annotations.insert(keys::REVISION_HISTORY.to_owned(), past.join(","));
    }
    annotations
}

/// Old sets beyond the limit, the oldest first, that have and want nothing, and get nothing by a creation that was sent.
pub fn surplus(deployment: &MachineDeployment, old: &[&set::Observed<'_>], now: Timestamp) -> Vec<Arc<MachineSet>> {
    let limit = deployment.spec.revision_history_limit.unwrap_or(KEPT).max(0);
    let staying = old.iter().filter(|member| !meta::is_deleting(&member.set.metadata));
    let beyond = staying.clone().count();
    let beyond = beyond.saturating_sub(usize::try_from(limit).unwrap_or(0));
    let surplus = staying.take(beyond).filter(|member| {
        member.set.spec.replicas == 0 && member.owned().next().is_none() && unanswered(member, now) == 0
    });
    surplus.map(|member| Arc::clone(member.set)).collect()
}

/// One template of the deployment, present or past.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// Its number; none before the deployment's controller has given one.
    pub number: Option<i64>,
    /// The set that has the template.
    pub set: &'a MachineSet,
    /// The deployment has the same template.
    pub is_current: bool,
}

impl<'a> Revision<'a> {
    /// Earlier numbers of the same template, oldest first.
    pub fn earlier(&self) -> Vec<i64> {
        let text = meta::annotation(&self.set.metadata, keys::REVISION_HISTORY).unwrap_or_default();
        text.split(',')
            .filter_map(|number| number.trim().parse().ok())
            .collect()
    }

    /// Why the template is what it is, where somebody said so.
    pub fn cause(&self) -> Option<&'a str> {
        meta::annotation(&self.set.metadata, keys::CHANGE_CAUSE).filter(|cause| !cause.is_empty())
    }

    /// The template as a deployment would have it.
    pub fn template(&self) -> Template {
        self.set.spec.template.without_label(keys::TEMPLATE_HASH)
    }
}

/// All revisions of one deployment, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Revisions<'a>(Vec<Revision<'a>>);

impl<'a> Revisions<'a> {
    /// Finds them among the sets of a namespace: those that the deployment controls and that stay.
    pub fn of(deployment: &MachineDeployment, sets: impl IntoIterator<Item = &'a MachineSet>) -> Self {
        let is_own = |set: &&MachineSet| {
            owner::controls(&deployment.metadata, &set.metadata) && !meta::is_deleting(&set.metadata)
        };
        let revision = |set: &'a MachineSet| Revision {
            number: number(&set.metadata),
            set,
            is_current: set
                .spec
                .template
                .semantically_equal(&deployment.spec.template, Scope::Rollout),
        };
        let mut all: Vec<_> = sets.into_iter().filter(is_own).map(revision).collect();
        let age = |set: &MachineSet| (meta::created(&set.metadata), meta::name(&set.metadata).to_owned());
        all.sort_by_cached_key(|revision| (revision.number, age(revision.set)));
        Self(all)
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Revision<'a>> {
        self.0.iter()
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<i64> {
        let mut numbers: Vec<i64> = self.iter().filter_map(|revision| revision.number).collect();
        numbers.dedup();
        numbers
    }

    /// The one with this number.
    pub fn find(&self, number: i64) -> Option<&Revision<'a>> {
        self.iter().find(|revision| revision.number == Some(number))
    }

    /// The one before the present: the highest whose template the deployment has not. So it is right also while the set of the present
    /// template is not made yet, or has not got its number.
    pub fn previous(&self) -> Option<&Revision<'a>> {
        let mut past = self
            .0
            .iter()
            .rev()
            .filter(|revision| !revision.is_current && revision.number.is_some());
        past.next()
    }
}

/// The number that a set, or a deployment, bears.
pub fn number(metadata: &ObjectMeta) -> Option<i64> {
    meta::annotation(metadata, keys::REVISION)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub fn deployment(class: &str) -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "workers", "uid": "d1", "generation": 1},
            "spec": {"replicas": 3, "template": {"spec": {"class": {"kind": "MachineClass", "name": class}}}},
        }))
        .unwrap()
    }

    pub fn set(name: &str, revision: &str, class: &str) -> MachineSet {
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "annotations": {keys::REVISION: revision},
                "ownerReferences": [{"apiVersion": "v", "kind": "MachineDeployment", "name": "workers", "uid": "d1", "controller": true}],
            },
            "spec": {"template": {
                "metadata": {"labels": {keys::TEMPLATE_HASH: name}},
                "spec": {"class": {"kind": "MachineClass", "name": class}},
            }},
        }))
        .unwrap()
    }

    fn names(revisions: &Revisions<'_>) -> Vec<String> {
        let name = |revision: &Revision<'_>| meta::name(&revision.set.metadata).to_owned();
        revisions.iter().map(name).collect()
    }

    #[test]
    fn revisions_are_sorted_as_numbers_and_those_without_one_come_first() {
        let sets = [set("ten", "10", "a"), set("none", "x", "b"), set("nine", "9", "c")];
        let revisions = Revisions::of(&deployment("a"), &sets);
        assert_eq!(names(&revisions), ["none", "nine", "ten"]);
        assert_eq!(revisions.numbers(), [9, 10]);
    }

    #[test]
    fn sets_of_a_namesake_and_sets_that_are_going_are_no_revisions() {
        let mut namesake = set("namesake", "1", "a");
        namesake.metadata.owner_references.as_mut().unwrap()[0].uid = "d0".to_owned();
        let mut going = set("going", "2", "b");
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert!(names(&Revisions::of(&deployment("a"), &[namesake, going])).is_empty());
    }

    #[test]
    fn the_previous_revision_is_the_highest_with_another_template() {
        let previous = |class: &str, sets: &[MachineSet]| {
            Revisions::of(&deployment(class), sets)
                .previous()
                .and_then(|revision| revision.number)
        };
        let sets = [set("one", "1", "a"), set("two", "2", "b"), set("three", "3", "c")];
        assert_eq!(previous("c", &sets), Some(2), "the present one is the newest");
        assert_eq!(
            previous("d", &sets),
            Some(3),
            "the set of the present template is not made yet"
        );
        assert_eq!(previous("a", &sets), Some(3), "it has not got its new number yet");
        assert_eq!(previous("a", &sets[..1]), None);
    }

    #[test]
    fn a_revisions_template_is_the_deployments_without_the_hash() {
        let (deployment, sets) = (deployment("a"), [set("one", "1", "a")]);
        let revisions = Revisions::of(&deployment, &sets);
        let one = revisions.find(1).unwrap();
        assert!(one.is_current);
        assert!(one.template().labels().is_empty());
    }

    #[test]
    fn earlier_numbers_are_read_as_the_original_writes_them() {
        let mut set = set("one", "7", "a");
        let history = (keys::REVISION_HISTORY.to_owned(), "1,3, 5,,x".to_owned());
        set.metadata.annotations.as_mut().unwrap().extend([history]);
        let sets = [set];
        assert_eq!(
            Revisions::of(&deployment("a"), &sets).find(7).unwrap().earlier(),
            [1, 3, 5]
        );
    }
}
