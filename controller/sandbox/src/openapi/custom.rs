//! The schemas of custom kinds: what their definitions say, and what every kind has.
//!
//! Decides what is added to a definition's schema. May not judge it.

use serde_json::{Value, json};

use super::{name_of, reference};
use crate::kinds::Kind;
use crate::object::part;

/// The schemas of a kind and of its list, with their names.
pub(super) fn schemas(kind: &Kind) -> [(String, Value); 2] {
    let name = |what: &str| name_of(&kind.group, &kind.version, what, true);
    let (own, list) = (name(&kind.kind), name(&kind.list_kind));
    [(own.clone(), whole(kind)), (list, list_of(kind, &own))]
}

fn whole(kind: &Kind) -> Value {
    let mut schema = kind.open_api.clone().unwrap_or_else(|| json!({ "type": "object" }));
    spell_out(&mut schema);
    // Whoever keeps all unknown fields may have no properties; the head is told all the same.
    let properties = part(&mut schema, "properties");
    add_head(
        properties,
        "ObjectMeta",
        "Standard object's metadata, which all kinds have.",
    );
    add_kind(&mut schema, kind, &kind.kind);
    schema
}

fn list_of(kind: &Kind, own: &str) -> Value {
    let mut properties = json!({
        "items": { "description": format!("List of {}.", kind.plural), "type": "array", "items": reference(own) },
    });
    add_head(
        &mut properties,
        "ListMeta",
        "Metadata of the list, which all lists have.",
    );
    let mut schema = json!({
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "type": "object", "required": ["items"], "properties": properties,
    });
    add_kind(&mut schema, kind, &kind.list_kind);
    schema
}

fn add_head(properties: &mut Value, metadata: &str, about: &str) {
    let Some(fields) = properties.as_object_mut() else {
        return;
    };
    let text = |about: &str| json!({ "description": about, "type": "string" });
    let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{metadata}");
    fields.insert("apiVersion".to_owned(), text("Group and version of the kind."));
    fields.insert(
        "kind".to_owned(),
        text("What the object is; given by where it is sent to."),
    );
    fields.insert(
        "metadata".to_owned(),
        json!({ "description": about, "allOf": [reference(&name)] }),
    );
}

fn add_kind(schema: &mut Value, kind: &Kind, name: &str) {
    let stands_for = json!([{ "group": kind.group, "kind": name, "version": kind.version }]);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("x-kubernetes-group-version-kind".to_owned(), stands_for);
    }
}

/// Says in the words of OpenAPI what is a number or a text: the flag for it is Kubernetes' own.
fn spell_out(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
                fields
                    .entry("anyOf")
                    .or_insert_with(|| json!([{ "type": "integer" }, { "type": "string" }]));
            }
            fields.values_mut().for_each(spell_out);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
