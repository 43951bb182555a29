//! Reads a schema from the JSON of a CRD's version. Decides what is understood; whether the CRD as a whole may stand is not its
//! business, so what it does not know (descriptions, examples, list map types) it passes over.

use serde_json::{Map, Value};

use super::{Additional, Bounds, Kind, ListKind, Schema, rules::Rule};

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path}: a schema is an object")]
    NotAnObject { path: String },
    #[error("{path}: there is no type {found:?}")]
    UnknownType { path: String, found: String },
    #[error("{path}: {source}")]
    Pattern {
        path: String,
        #[source]
        source: Box<regex::Error>,
    },
    #[error("{path}: the rule {rule:?} cannot be read: {problem}")]
    Rule {
        path: String,
        rule: String,
        problem: String,
    },
}

impl Schema {
    /// Reads `openAPIV3Schema`. The root is an object with `apiVersion`, `kind` and `metadata`, whether it says so or not.
    pub fn read(source: &Value) -> Result<Self, ReadError> {
        let mut root = node(source, "openAPIV3Schema")?;
        root.is_embedded = false;
        for name in ["apiVersion", "kind", "metadata"] {
            root.properties.remove(name);
        }
        Ok(root)
    }
}

fn node(source: &Value, path: &str) -> Result<Schema, ReadError> {
    let Value::Object(fields) = source else {
        return Err(ReadError::NotAnObject { path: path.to_owned() });
    };
    let says = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or_default();
    let mut schema = Schema {
        kind: kind(fields, path)?,
        format: fields.get("format").and_then(Value::as_str).map(str::to_owned),
        nullable: says("nullable"),
        default: fields.get("default").cloned(),
        allowed: fields
            .get("enum")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        additional: additional(fields, path)?,
        required: texts(fields.get("required")),
        items: fields
            .get("items")
            .map(|items| node(items, &format!("{path}.items")).map(Box::new))
            .transpose()?,
        list: list_kind(fields),
        bounds: bounds(fields),
        pattern: pattern(fields, path)?,
        all_of: branches(fields, "allOf", path)?,
        any_of: branches(fields, "anyOf", path)?,
        one_of: branches(fields, "oneOf", path)?,
        not: fields
            .get("not")
            .map(|not| node(not, &format!("{path}.not")).map(Box::new))
            .transpose()?,
        keeps_unknown: says("x-kubernetes-preserve-unknown-fields"),
        is_embedded: says("x-kubernetes-embedded-resource"),
        rules: rules(fields, path)?,
        ..Schema::default()
    };
    for (name, property) in fields
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        schema
            .properties
            .insert(name.clone(), node(property, &format!("{path}.{name}"))?);
    }
    schema.has_rules = !schema.rules.is_empty()
        || schema.properties.values().any(|below| below.has_rules)
        || schema.items.as_ref().is_some_and(|below| below.has_rules)
        || matches!(&schema.additional, Additional::Of(below) if below.has_rules);
    Ok(schema)
}

fn kind(fields: &Map<String, Value>, path: &str) -> Result<Option<Kind>, ReadError> {
    if fields.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
        return Ok(Some(Kind::IntOrText));
    }
    let Some(name) = fields
        .get("type")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let kinds = [
        Kind::Object,
        Kind::Array,
        Kind::Text,
        Kind::Integer,
        Kind::Number,
        Kind::Bool,
    ];
    match kinds.into_iter().find(|kind| kind.name() == name) {
        Some(kind) => Ok(Some(kind)),
        None => Err(ReadError::UnknownType {
            path: path.to_owned(),
            found: name.to_owned(),
        }),
    }
}

fn additional(fields: &Map<String, Value>, path: &str) -> Result<Additional, ReadError> {
    match fields.get("additionalProperties") {
        None | Some(Value::Bool(false)) => Ok(Additional::None),
        Some(Value::Bool(true)) => Ok(Additional::Any),
        Some(shared) => Ok(Additional::Of(Box::new(node(shared, &format!("{path}.*"))?))),
    }
}

fn list_kind(fields: &Map<String, Value>) -> ListKind {
    match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(texts(fields.get("x-kubernetes-list-map-keys"))),
        _ => ListKind::Atomic,
    }
}

fn bounds(fields: &Map<String, Value>) -> Bounds {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let count = |name: &str| fields.get(name).and_then(Value::as_u64);
    let says = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or_default();
    Bounds {
        minimum: number("minimum"),
        excludes_minimum: says("exclusiveMinimum"),
        maximum: number("maximum"),
        excludes_maximum: says("exclusiveMaximum"),
        factor: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
    }
}

fn pattern(fields: &Map<String, Value>, path: &str) -> Result<Option<regex::Regex>, ReadError> {
    let Some(pattern) = fields
        .get("pattern")
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    match regex::Regex::new(pattern) {
        Ok(regex) => Ok(Some(regex)),
        Err(source) => Err(ReadError::Pattern {
            path: path.to_owned(),
            source: Box::new(source),
        }),
    }
}

fn branches(fields: &Map<String, Value>, name: &str, path: &str) -> Result<Vec<Schema>, ReadError> {
    let Some(Value::Array(branches)) = fields.get(name) else {
        return Ok(Vec::new());
    };
    branches
        .iter()
        .map(|branch| node(branch, &format!("{path}.{name}")))
        .collect()
}

fn rules(fields: &Map<String, Value>, path: &str) -> Result<Vec<Rule>, ReadError> {
    let Some(Value::Array(rules)) = fields.get("x-kubernetes-validations") else {
        return Ok(Vec::new());
    };
    rules.iter().map(|rule| Rule::read(rule, path)).collect()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
