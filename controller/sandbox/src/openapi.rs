//! The shape of objects, told: OpenAPI v3, from which `kubectl explain` prints and by which kubectl learns that the server checks fields.
//!
//! Decides what stands under `/openapi/v3`. Custom kinds are told from their definitions; the server's own from `builtins.json`,
//! which `tests/face/openapi.py` takes from a real kube-apiserver: a crate of types has neither the keys by which lists are merged nor
//! the kinds that schemas stand for. OpenAPI v2 names no kinds: kubectl 1.32 and later asks for it only where v3 does not know a kind,
//! and passes over what it does not find there, but not over a document that is missing.

mod custom;
mod paths;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::Answer;
use crate::discovery::{served, versions};
use crate::failure::Failure;
use crate::kinds::{Kind, Kinds};

/// The schemas of the server's own kinds by name, as `io.k8s.api.core.v1.Pod`.
type Definitions = BTreeMap<String, Value>;

static BUILT_IN: LazyLock<Definitions> = LazyLock::new(|| {
    serde_json::from_str(include_str!("openapi/builtins.json"))
        .expect("builtins.json is part of this crate and a test reads all of it")
});

/// The names of the schemas that stand for a group, version and kind.
static NAMES: LazyLock<BTreeMap<(String, String, String), String>> = LazyLock::new(|| {
    let stands_for = |schema: &Value| {
        let kind = schema.get("x-kubernetes-group-version-kind")?.get(0)?;
        let text = |key| kind.get(key).and_then(Value::as_str).map(str::to_owned);
        Some((text("group")?, text("version")?, text("kind")?))
    };
    let named = BUILT_IN.iter();
    named
        .filter_map(|(name, schema)| Some((stands_for(schema)?, name.clone())))
        .collect()
});

/// The schemas of what all objects have.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(crate) const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";
pub(crate) const MANAGED_FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry";

const PREFIX: &str = "#/components/schemas/";

/// Answers a path below `/openapi`.
pub fn answer(kinds: &Kinds, path: &[&str], accept: &str) -> Result<Answer, Failure> {
    match path {
        ["v2"] => Ok(empty_v2(accept)),
        // The server calls the list of documents a plain text.
        ["v3"] => Ok(Answer::Text {
            code: 200,
            body: index(kinds).to_string(),
        }),
        ["v3", "api", version] => Ok(document(kinds, "", version)),
        ["v3", "apis", group, version] => Ok(document(kinds, group, version)),
        ["v3", ..] => Ok(nothing()),
        _ => Err(Failure::NoPath),
    }
}

/// An OpenAPI v2 document without kinds.
fn empty_v2(accept: &str) -> Answer {
    let (title, version) = ("Kubernetes", "v1.36");
    if !accept.contains("protobuf") {
        return Answer::ok(json!({ "swagger": "2.0", "info": { "title": title, "version": version }, "paths": {} }));
    }
    // The same as gnostic's protobuf has it: field numbers with lengths, all of them small enough to be letters.
    let field = |tag: char, text: &str| format!("{tag}{}{text}", char::from(u8::try_from(text.len()).unwrap_or(0)));
    let info = field('\n', title) + &field('\u{12}', version);
    Answer::Text {
        code: 200,
        body: field('\n', "2.0") + &field('\u{12}', &info) + &field('B', ""),
    }
}

fn nothing() -> Answer {
    Answer::Text {
        code: 404,
        body: String::new(),
    }
}

/// Where the document of each group and version is found. The hash changes when the document does.
fn index(kinds: &Kinds) -> Value {
    let mut groups: Vec<&str> = kinds.all().map(|kind| kind.group.as_str()).collect();
    groups.dedup();
    let mut paths = Map::new();
    for group in groups {
        for version in versions(kinds, group) {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let url = format!("/openapi/v3/{path}?hash={}", hash(kinds, group, version));
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// Stands for all that a document is made from.
fn hash(kinds: &Kinds, group: &str, version: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    for kind in served(kinds, group, version) {
        let open_api = kind.open_api.as_ref().map(Value::to_string);
        let told = (&kind.plural, &kind.kind, &kind.list_kind, kind.namespaced, kind.status);
        hasher.update(format!("{told:?} {:?} {open_api:?}", kind.scale));
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// All that can be done with the kinds of a group and version, and the schemas that this mentions.
fn document(kinds: &Kinds, group: &str, version: &str) -> Answer {
    let all: Vec<&Kind> = served(kinds, group, version).collect();
    let Some(first) = all.first() else {
        return nothing();
    };
    Answer::ok(kinds.document(group, version, || made(first, &all)))
}

fn made(first: &Kind, all: &[&Kind]) -> Value {
    let info = if first.custom {
        json!({ "title": "Kubernetes CRD Swagger", "version": "v0.1.0" })
    } else {
        json!({ "title": "Kubernetes", "version": "1.36" })
    };
    let paths: Map<String, Value> = all.iter().flat_map(|kind| paths::of(kind)).collect();
    let paths = Value::Object(paths);
    let own: Definitions = all
        .iter()
        .filter(|kind| kind.custom)
        .flat_map(|kind| custom::schemas(kind))
        .collect();
    let mut components = json!({ "schemas": mentioned(&paths, &own) });
    if let (false, Some(fields)) = (first.custom, components.as_object_mut()) {
        let bearer = json!({ "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header" });
        fields.insert("securitySchemes".to_owned(), json!({ "BearerToken": bearer }));
    }
    json!({ "openapi": "3.0.0", "info": info, "paths": paths, "components": components })
}

/// The schemas that something mentions, and those that these mention.
fn mentioned(start: &Value, own: &Definitions) -> Map<String, Value> {
    let mut found = Map::new();
    let mut open = Vec::new();
    references(start, &mut open);
    while let Some(name) = open.pop() {
        let Some(schema) = own.get(name).or_else(|| BUILT_IN.get(name)) else {
            continue;
        };
        if found.insert(name.to_owned(), schema.clone()).is_none() {
            references(schema, &mut open);
        }
    }
    found
}

fn references<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            let named = fields.get("$ref").and_then(Value::as_str);
            out.extend(named.and_then(|name| name.strip_prefix(PREFIX)));
            fields.values().for_each(|inner| references(inner, out));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{PREFIX}{name}") })
}

/// The name under which the schema of a kind stands.
fn name_of(group: &str, version: &str, kind: &str, custom: bool) -> String {
    if custom {
        let mut parts: Vec<&str> = group.split('.').collect();
        parts.reverse();
        return format!("{}.{version}.{kind}", parts.join("."));
    }
    built_in(group, version, kind).unwrap_or_default().to_owned()
}

/// The schema that stands under a name, if it is of the server's own.
pub(crate) fn schema(name: &str) -> Option<&'static Value> {
    BUILT_IN.get(name)
}

/// The fields of a schema that is of the server's own, in the order of their names; none if they have none.
pub(crate) fn properties(name: &str) -> Option<&'static Map<String, Value>> {
    schema(name)?.get("properties")?.as_object()
}

/// All schemas of the server's own kinds by their names.
pub(crate) fn schemas() -> impl Iterator<Item = (&'static str, &'static Value)> {
    BUILT_IN.iter().map(|(name, schema)| (name.as_str(), schema))
}

/// The name under which the schema of a kind stands that is of the server's own.
pub(crate) fn built_in(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let key = (group.to_owned(), version.to_owned(), kind.to_owned());
    NAMES.get(&key).map(String::as_str)
}

/// The name of the schema that another one is, or only adds a default to.
pub(crate) fn referred(schema: &Value) -> Option<&str> {
    let own = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"))?;
    own.as_str()?.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_mentioned_is_there() {
        for (name, schema) in BUILT_IN.iter() {
            let mut mentioned = Vec::new();
            references(schema, &mut mentioned);
            for other in mentioned {
                assert!(BUILT_IN.contains_key(other), "{name} mentions {other}");
            }
        }
    }

    #[test]
    fn every_built_in_kind_has_a_schema_and_so_has_its_list() {
        for kind in Kinds::default().all() {
            for name in [&kind.kind, &kind.list_kind] {
                assert_ne!(
                    name_of(&kind.group, &kind.version, name, false),
                    "",
                    "{}/{name}",
                    kind.group
                );
            }
        }
    }
}
