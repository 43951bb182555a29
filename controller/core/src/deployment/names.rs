//! Name and hash of a deployment's set: a function of the template, so that a repeat meets its own set.
//!
//! Nobody needs the original's hash (MD-3): sets are found by comparing templates. Ours must
//! stay the same for the same template, release after release; a golden value keeps it.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::api::template::is_zero;
use crate::api::{MachineDeployment, MachineSet, Template, keys, meta};
use crate::set::names::{cut, suffix};

/// The hash of a template after `collisions` names that were taken, as the label shows it: a decimal u32.
pub fn template_hash(template: &Template, collisions: i32) -> u32 {
    let bare = template.without_label(keys::TEMPLATE_HASH);
    let mut digest = Sha256::new();
    digest.update(canonical(&Value::Object(bare.as_json().clone())));
    digest.update(collisions.to_le_bytes());
    let bytes = digest.finalize();
    bytes.iter().take(4).fold(0u32, |sum, byte| sum << 8 | u32::from(*byte))
}

/// The name of the set with that hash. A deployment's name that leaves no room for the hash is cut: a set of the same name that
/// another deployment has made is met as any other name that is taken.
pub fn set_name(deployment: &str, hash: u32) -> String {
    let suffix = suffix(u64::from(hash));
    let room = LONGEST_NAME - "-".len() - suffix.len();
    format!("{}-{suffix}", cut(deployment, room))
}

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// How many names are tried for a set, where others' sets bear the first ones.
const NAMES: i32 = 32;

/// The names that the set of the present template may get, each with its hash. Another owner's set may bear the first: then the next one
/// is tried, which names itself as deterministically.
pub fn names(deployment: &MachineDeployment) -> impl Iterator<Item = (String, u32)> + '_ {
    let hashes = counts(deployment).map(|count| template_hash(&deployment.spec.template, count));
    hashes.map(|hash| (set_name(meta::name(&deployment.metadata), hash), hash))
}

/// How many names were taken before the set of the present template got its own, where that is more than is told
/// (`status.collisionCount`).
pub fn collisions(deployment: &MachineDeployment, new: Option<&Arc<MachineSet>>) -> Option<i32> {
    let set = &new?.metadata;
    let label: u32 = meta::label(set, keys::TEMPLATE_HASH)?.parse().ok()?;
    // The original's sets are named otherwise.
    if meta::name(set) != set_name(meta::name(&deployment.metadata), label) {
        return None;
    }
    let is_same = |count: &i32| template_hash(&deployment.spec.template, *count) == label;
    counts(deployment)
        .find(is_same)
        .filter(|count| *count > told(deployment))
}

fn counts(deployment: &MachineDeployment) -> std::ops::Range<i32> {
    let told = told(deployment);
    told..told.saturating_add(NAMES)
}

fn told(deployment: &MachineDeployment) -> i32 {
    let status = deployment.status.as_ref();
    status.and_then(|status| status.collision_count).unwrap_or(0)
}

/// JSON with sorted keys and without what says nothing. Other than `meaningful`, it leaves nothing of an empty
/// entry of a list: hashes that are in use were made so.
fn canonical(value: &Value) -> String {
    match value {
        _ if is_zero(value) => String::new(),
        Value::Object(fields) => {
            let mut parts: Vec<(&String, String)> = fields
                .iter()
                .map(|(key, value)| (key, canonical(value)))
                .filter(|(_, text)| !text.is_empty())
                .collect();
            if parts.is_empty() {
                return String::new();
            }
            parts.sort();
            let texts: Vec<String> = parts.into_iter().map(|(key, text)| format!("{key:?}:{text}")).collect();
            format!("{{{}}}", texts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> Template {
        serde_json::from_value(value).expect("any object is a template")
    }

    #[test]
    fn the_hash_of_a_template_never_changes_between_releases() {
        let plain = template(
            json!({"metadata": {"labels": {"name": "workers"}}, "spec": {"class": {"kind": "MachineClass", "name": "small"}}}),
        );
        assert_eq!(template_hash(&plain, 0), GOLDEN);
        assert_eq!(set_name("workers", GOLDEN), format!("workers-{GOLDEN_LETTERS}"));
    }
    const GOLDEN: u32 = 1_302_153_869;
    const GOLDEN_LETTERS: &str = "dlkj2";

    #[test]
    fn every_name_that_a_deployment_can_have_leaves_room_for_its_sets_hash() {
        assert_eq!(set_name(&"a".repeat(247), 7).len(), LONGEST_NAME);
        assert_eq!(set_name(&"a".repeat(253), 7), set_name(&"a".repeat(247), 7));
        let dotted = set_name(&format!("{}.{}", "a".repeat(246), "b".repeat(6)), 7);
        assert!(!dotted.contains(".-"), "{dotted}");
    }

    #[test]
    fn what_go_adds_to_a_template_does_not_change_its_hash() {
        let plain = template(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"class": {"name": "c"}}}));
        let gos = template(json!({
            "metadata": {"creationTimestamp": null, "labels": {"a": "b", "machine-template-hash": "123"}},
            "spec": {"nodeTemplate": {"metadata": {}, "spec": {}}, "class": {"name": "c", "apiGroup": ""}},
        }));
        assert_eq!(template_hash(&plain, 0), template_hash(&gos, 0));
        assert_ne!(template_hash(&plain, 0), template_hash(&plain, 1));
    }
}
