//! To what a request bound itself, so that it fails where that is no more. Read from the request alone.

use millwright_sandbox::request::{Request, Verb};
use serde_json::Value;

/// What a write names beside its object's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The object's uid.
    pub to_uid: bool,
    /// A resourceVersion. An apply counts: the server compares field by field what it is about to take from others.
    pub to_version: bool,
}

impl Bound {
    /// Of a request; reads and creations are bound to nothing.
    pub fn of(request: &Request) -> Self {
        let is_patch = request.verb == Verb::Patch;
        if is_patch && request.content_type.starts_with("application/apply-patch") {
            return Self {
                to_uid: false,
                to_version: true,
            };
        }
        let within = match request.verb {
            Verb::Patch | Verb::Update => "metadata",
            Verb::Delete | Verb::DeleteCollection => "preconditions",
            Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::Other => return Self::default(),
        };
        // Most name neither, which is seen without reading all of it; an escaped name would be missed, and nobody here escapes one.
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Self::default();
        };
        if !text.contains("uid") && !text.contains("resourceVersion") {
            return Self::default();
        }
        let Ok(body) = serde_json::from_str::<Value>(text) else {
            return Self::default();
        };
        if is_patch && request.content_type == "application/json-patch+json" {
            return Self {
                to_uid: tests(&body, "/metadata/uid"),
                to_version: tests(&body, "/metadata/resourceVersion"),
            };
        }
        let names = |field: &str| {
            let named = body.get(within).and_then(|inner| inner.get(field));
            named.and_then(Value::as_str).is_some_and(|text| !text.is_empty())
        };
        Self {
            to_uid: names("uid"),
            to_version: names("resourceVersion"),
        }
    }
}

/// Whether a JSON patch has a `test` of this field.
fn tests(patch: &Value, path: &str) -> bool {
    let steps = patch.as_array().into_iter().flatten();
    steps
        .filter(|step| step.get("op").is_some_and(|op| op == "test"))
        .any(|step| step.get("path").is_some_and(|at| at == path))
}

#[cfg(test)]
mod tests {
    use millwright_sandbox::request::Http;

    use super::*;

    fn bound(method: &str, content_type: &str, body: &str) -> (bool, bool) {
        let http = Http {
            method,
            path: "/api/v1/nodes/one",
            content_type,
            body: body.as_bytes(),
            ..Http::default()
        };
        let bound = Bound::of(&Request::parse(&http).expect("a request"));
        (bound.to_uid, bound.to_version)
    }

    #[test]
    fn a_write_is_bound_by_what_its_way_of_writing_lets_it_name() {
        let (json, merge) = ("application/json", "application/merge-patch+json");
        let (steps, apply) = ("application/json-patch+json", "application/apply-patch+yaml");
        let uid = r#"{"metadata":{"uid":"u"}}"#;
        let both = r#"{"metadata":{"uid":"u","resourceVersion":"7"}}"#;
        assert_eq!(bound("PATCH", merge, uid), (true, false));
        assert_eq!(
            bound("PATCH", "application/strategic-merge-patch+json", both),
            (true, true)
        );
        assert_eq!(bound("PUT", json, both), (true, true));
        assert_eq!(bound("DELETE", json, r#"{"preconditions":{"uid":"u"}}"#), (true, false));
        let tested = r#"[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]"#;
        assert_eq!(bound("PATCH", steps, tested), (false, true));
        assert_eq!(bound("PATCH", apply, "metadata: {}"), (false, true));
    }

    #[test]
    fn a_write_is_not_bound_by_what_only_looks_like_it() {
        let (json, merge) = ("application/json", "application/merge-patch+json");
        assert_eq!(bound("DELETE", json, ""), (false, false));
        assert_eq!(bound("DELETE", json, r#"{"metadata":{"uid":"u"}}"#), (false, false));
        assert_eq!(
            bound("PATCH", merge, r#"{"metadata":{"resourceVersion":""}}"#),
            (false, false)
        );
        assert_eq!(bound("PATCH", merge, r#"{"metadata":{"uid":null}}"#), (false, false));
        let set = r#"[{"op":"replace","path":"/metadata/uid","value":"u"}]"#;
        assert_eq!(bound("PATCH", "application/json-patch+json", set), (false, false));
        assert_eq!(bound("POST", json, r#"{"metadata":{"uid":"u"}}"#), (false, false));
    }
}
