//! The shape of objects, told: OpenAPI v3, from which `kubectl explain` prints and by which kubectl learns that the server checks fields.
//!
//! Decides what stands under `/openapi/v3`. Custom kinds are told from their definitions; the server's own from
//! `builtin_schemas`. OpenAPI v2 names no kinds: kubectl 1.32 and later asks for it only where v3 does not know a kind,
//! and passes over what it does not find there, but not over a document that is missing.

mod custom;
mod paths;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::answer::Answer;
use crate::builtin_schemas::{Definitions, PREFIX, built_in, references, schema};
use crate::failure::Failure;
use crate::kinds::{Kind, Kinds};

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
        for version in kinds.versions(group) {
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
    for kind in kinds.served(group, version) {
        let open_api = kind.open_api.as_ref().map(Value::to_string);
        let told = (&kind.plural, &kind.kind, &kind.list_kind, kind.namespaced, kind.status);
        hasher.update(format!("{told:?} {:?} {open_api:?}", kind.scale));
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// All that can be done with the kinds of a group and version, and the schemas that this mentions.
fn document(kinds: &Kinds, group: &str, version: &str) -> Answer {
    let all: Vec<&Kind> = kinds.served(group, version).collect();
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
        let Some(schema) = own.get(name).or_else(|| schema(name)) else {
            continue;
        };
        if found.insert(name.to_owned(), schema.clone()).is_none() {
            references(schema, &mut open);
        }
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

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
