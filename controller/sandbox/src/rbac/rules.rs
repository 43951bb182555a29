//! One rule of a role and one deed.
//!
//! Decides whether the first covers the second; an asterisk stands for all.

use serde_json::Value;

use super::deed::{Deed, Thing};

const ALL: &str = "*";

/// The rules of a role.
pub(super) fn of(role: &Value) -> impl Iterator<Item = &Value> {
    role.get("rules").and_then(Value::as_array).into_iter().flatten()
}

/// Whether a rule lets the deed be done.
pub(super) fn covers(rule: &Value, deed: &Deed) -> bool {
    match deed {
        Deed::Resource { verb, thing } => {
            has(rule, "verbs", |said| said == ALL || said == verb)
                && has(rule, "apiGroups", |said| said == ALL || said == thing.group)
                && has(rule, "resources", |said| names(said, thing))
                && covers_name(rule, &thing.name)
        }
        Deed::Path { verb, path } => {
            has(rule, "verbs", |said| said == ALL || said == verb)
                && has(rule, "nonResourceURLs", |said| leads_to(said, path))
        }
    }
}

fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    let all = rule.get(key).and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str)
}

fn has(rule: &Value, key: &str, is_meant: impl FnMut(&str) -> bool) -> bool {
    texts(rule, key).any(is_meant)
}

/// `machines`, `machines/status`, `*/status`, and everything.
fn names(said: &str, thing: &Thing) -> bool {
    if said == ALL {
        return true;
    }
    match said.split_once('/') {
        None => thing.subresource.is_empty() && said == thing.resource,
        Some((resource, part)) => {
            !thing.subresource.is_empty()
                && part == thing.subresource
                && (resource == ALL || resource == thing.resource)
        }
    }
}

/// A rule that names no objects is about all of them; one that does is not about a deed that names none.
fn covers_name(rule: &Value, name: &str) -> bool {
    let mut said = texts(rule, "resourceNames").peekable();
    said.peek().is_none() || said.any(|said| said == name)
}

/// A path, or with an asterisk at its end the beginning of one.
fn leads_to(said: &str, path: &str) -> bool {
    said == path || said.ends_with(ALL) && path.starts_with(said.trim_end_matches(ALL))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deed(resource: &str, subresource: &str, name: &str) -> Deed {
        Deed::Resource {
            verb: "get".to_owned(),
            thing: Thing {
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                name: name.to_owned(),
                ..Thing::default()
            },
        }
    }

    fn rule(resource: &str, names: &[&str]) -> Value {
        json!({ "verbs": ["get"], "apiGroups": [""], "resources": [resource], "resourceNames": names })
    }

    #[test]
    fn a_rule_for_the_whole_is_none_for_its_parts_and_the_other_way_round() {
        assert!(covers(&rule("pods", &[]), &deed("pods", "", "p")));
        assert!(!covers(&rule("pods", &[]), &deed("pods", "log", "p")));
        assert!(!covers(&rule("pods/log", &[]), &deed("pods", "", "p")));
        assert!(covers(&rule("*/log", &[]), &deed("pods", "log", "p")));
        assert!(!covers(&rule("*/log", &[]), &deed("pods", "", "p")));
        assert!(covers(&rule("*", &[]), &deed("pods", "log", "p")));
    }

    #[test]
    fn a_rule_for_names_is_none_for_collections() {
        assert!(covers(&rule("pods", &["p"]), &deed("pods", "", "p")));
        assert!(!covers(&rule("pods", &["p"]), &deed("pods", "", "q")));
        assert!(!covers(&rule("pods", &["p"]), &deed("pods", "", "")));
    }

    #[test]
    fn a_path_is_meant_whole_unless_an_asterisk_says_otherwise() {
        assert!(leads_to("/logs/*", "/logs/x") && !leads_to("/logs/*", "/logs"));
        assert!(leads_to("*", "/x") && !leads_to("/x", "/x/y"));
    }
}
