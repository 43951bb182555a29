//! The tags by which a driver finds a VM again, as `driver.proto` names them (`CreateMachineRequest.tags`).

use std::collections::BTreeMap;

use crate::v1;

/// The longest value of a tag: that of a Kubernetes label, which the narrowest providers take.
const LONGEST: usize = 63;
/// How many characters of the digest a tag holds.
pub const DIGEST_TAG: usize = 32;

/// Who a VM belongs to and what it was made of. `class` is the MachineClass's name; an empty `digest` makes no tag.
pub fn identity_tags(key: &v1::MachineKey, class: &str, digest: &str) -> BTreeMap<String, String> {
    let tags = [
        ("millwright/cluster", key.cluster_id.as_str()),
        ("millwright/namespace", &key.namespace),
        ("millwright/name", &key.name),
        ("millwright/uid", &key.uid),
        ("millwright/machine-class", class),
        ("millwright/spec-digest", digest.get(..DIGEST_TAG).unwrap_or(digest)),
    ];
    let told = tags.into_iter().filter(|(_, value)| !value.is_empty());
    told.map(|(tag, value)| (tag.to_owned(), cut(value).to_owned()))
        .collect()
}

/// Whether two names may be of one Machine, where either may have been read back from its tag: a tag holds the start of a longer name (CRE-6).
/// Two whole names are compared as they are. Names that differ only beyond what a tag holds cannot be told apart by it.
pub fn is_same_name(one: &str, other: &str) -> bool {
    let is_tag_of = |tag: &str, whole: &str| whole.len() > LONGEST && tag == cut(whole);
    one == other || is_tag_of(one, other) || is_tag_of(other, one)
}

/// The start of a value that fits, and ends as a label value may.
fn cut(value: &str) -> &str {
    match value.len() > LONGEST {
        true => value
            .get(..value.floor_char_boundary(LONGEST))
            .unwrap_or_default()
            .trim_end_matches(['-', '.', '_']),
        false => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_a_label_value_and_what_is_not_known_makes_none() {
        let key = v1::MachineKey {
            cluster_id: "shoot--a--b".into(),
            namespace: "default".into(),
            name: format!("{}-.b", "a".repeat(62)),
            uid: "0b5c9d1e-6a7f-4e5d-8c3b-2a1908f7e6d5".into(),
        };
        let tags = identity_tags(&key, &"c".repeat(253), &"d".repeat(64));
        assert_eq!(tags["millwright/name"], "a".repeat(62));
        assert_eq!(tags["millwright/uid"], key.uid);
        assert_eq!(tags["millwright/machine-class"].len(), 63);
        assert_eq!(tags["millwright/spec-digest"].len(), 32);
        assert_eq!(tags.len(), 6);
        assert_eq!(identity_tags(&key, "", "").len(), 4);
    }

    #[test]
    fn a_name_is_known_again_by_its_tag() {
        let long = format!("{}.{}", "a".repeat(62), "b".repeat(20));
        let key = v1::MachineKey {
            name: long.clone(),
            ..v1::MachineKey::default()
        };
        let tag = &identity_tags(&key, "", "")["millwright/name"];
        assert_eq!(tag, &"a".repeat(62), "a label value ends with no dot");
        assert!(is_same_name(&long, &long) && is_same_name(&long, tag) && is_same_name(tag, &long));
        assert!(!is_same_name(&long, &format!("{long}c")), "both are whole");
        assert!(!is_same_name("m", "n") && !is_same_name(&long, "a") && !is_same_name("", &long));
        assert!(!is_same_name(&"a".repeat(62), &"a".repeat(63)), "both fit into a tag");
    }
}
