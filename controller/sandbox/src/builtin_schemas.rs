//! The schemas of the server's own kinds, by which OpenAPI, fields, types and protobuf go.
//!
//! Decides nothing: they are read from `openapi/builtins.json`, which `tests/face/openapi.py` takes from a real kube-apiserver. A crate of
//! types has neither the keys by which lists are merged nor the kinds that schemas stand for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The schemas of the server's own kinds by name, as `io.k8s.api.core.v1.Pod`.
pub(crate) type Definitions = BTreeMap<String, Value>;

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

/// What stands before the name of a schema where another one mentions it.
pub(crate) const PREFIX: &str = "#/components/schemas/";

/// The names of the schemas that something mentions.
pub(crate) fn references<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
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
}
