//! Bodies in protobuf, which Go's clients send of the kinds that they were built with: kubectl from `create namespace`, `create
//! configmap` and all its other generators.
//!
//! Decides what such a body says, as the JSON that it stands for. Numbers of fields are the table's, types are those of OpenAPI.
//! Definitions of custom kinds are not read.

mod numbers;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::builtin_schemas;
use crate::json;
use crate::kinds::Kind;
use numbers::{Field, Message};
use wire::Raw;

/// The media type of such a body.
pub const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// What comes before the envelope.
const MAGIC: &[u8] = b"k8s\0";

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// What is around every object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub api_version: String,
    pub kind: String,
    pub raw: Vec<u8>,
}

impl Envelope {
    /// Takes a body out of its envelope. What it does not say of its kind is as expected.
    pub(crate) fn open(body: &[u8], api_version: &str, kind: &str) -> Result<Self, String> {
        if body.is_empty() {
            return Err("empty data".to_owned());
        }
        let Some(inner) = body.strip_prefix(MAGIC) else {
            return Err(
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned(),
            );
        };
        if inner.is_empty() {
            return Err("empty body".to_owned());
        }
        let mut out = Self::default();
        for field in wire::fields(inner) {
            match field? {
                (1, Raw::Bytes(of)) => out.head(of)?,
                (2, Raw::Bytes(raw)) => raw.clone_into(&mut out.raw),
                (1, said) => return Err(misfit("TypeMeta", said)),
                (2, said) => return Err(misfit("Raw", said)),
                _ => {}
            }
        }
        // A version that is none counts as none said.
        if out.api_version.is_empty() || out.api_version.matches('/').count() > 1 {
            api_version.clone_into(&mut out.api_version);
        }
        if out.kind.is_empty() {
            kind.clone_into(&mut out.kind);
        }
        Ok(out)
    }

    fn head(&mut self, head: &[u8]) -> Result<(), String> {
        for field in wire::fields(head) {
            match field? {
                (1, Raw::Bytes(text)) => self.api_version = lossy(text),
                (2, Raw::Bytes(text)) => self.kind = lossy(text),
                _ => {}
            }
        }
        Ok(())
    }

    /// What is inside, as JSON. Of a kind that is not known there is only its name to tell.
    pub(crate) fn object(&self) -> Result<Value, String> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        // Options are of every group.
        let schema = match self.kind.as_str() {
            "DeleteOptions" => Some(DELETE_OPTIONS),
            kind => builtin_schemas::built_in(group, version, kind),
        };
        let mut out = match schema {
            Some(schema) => message(schema, &self.raw)?,
            None => json!({}),
        };
        if let Some(fields) = out.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(self.api_version));
            fields.insert("kind".to_owned(), json!(self.kind));
        }
        Ok(out)
    }
}

/// Reads a body that says itself what it is.
pub fn object(body: &[u8]) -> Result<Value, String> {
    Envelope::open(body, "", "")?.object()
}

/// Whether objects of a kind are read from protobuf.
pub(crate) fn speaks_of(kind: &Kind) -> bool {
    let schema = builtin_schemas::built_in(&kind.group, &kind.version, &kind.kind);
    !kind.custom && schema.is_some_and(|schema| numbers::of(schema).is_some())
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Reads a message by the schema that it is of.
fn message(schema: &str, raw: &[u8]) -> Result<Value, String> {
    let (Some(message), Some(properties)) = (numbers::of(schema), builtin_schemas::properties(schema)) else {
        return Ok(json!({}));
    };
    let mut out = Map::new();
    fill(&mut out, message, properties, 0, raw)?;
    Ok(Value::Object(out))
}

/// Reads the fields of a message, or those of what is embedded in it under a number.
fn fill(
    out: &mut Map<String, Value>,
    message: &Message,
    properties: &Map<String, Value>,
    embedded: u64,
    raw: &[u8],
) -> Result<(), String> {
    for field in wire::fields(raw) {
        let (number, said) = field?;
        if let (0, true, Raw::Bytes(inner)) = (embedded, message.embeds(number), said) {
            fill(out, message, properties, number, inner)?;
            continue;
        }
        // What is not known is passed over, as it is in Go.
        let Some(field) = message.field(embedded, number) else {
            continue;
        };
        if let Some(schema) = properties.get(field.name) {
            add(out, field, schema, said)?;
        }
    }
    Ok(())
}

/// Puts in what was said of a field: once, or once more where it is a list or a map.
fn add(out: &mut Map<String, Value>, field: &Field, schema: &Value, said: Raw<'_>) -> Result<(), String> {
    if let Some(items) = schema.get("items") {
        let all = out.entry(field.name).or_insert_with(|| json!([]));
        if let (Some(all), Some(one)) = (all.as_array_mut(), value(field.name, items, said)?) {
            all.push(one);
        }
        return Ok(());
    }
    if let (Some(of), Raw::Bytes(entry)) = (schema.get("additionalProperties"), said) {
        let all = out.entry(field.name).or_insert_with(|| json!({}));
        let (key, one) = pair(field.name, of, entry)?;
        if let Some(all) = all.as_object_mut() {
            all.insert(key, one);
        }
        return Ok(());
    }
    // Go sends zeros of what has to have a value, and leaves them out of JSON where its schema has no default for them.
    let counts_zero =
        field.counts_zero || schema.get("default").is_some() || builtin_schemas::referred(schema).is_some();
    let is_shown = |value: &Value| counts_zero || !is_zero(value);
    if let Some(value) = value(field.name, schema, said)?.filter(is_shown) {
        out.insert(field.name.to_owned(), value);
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    *value == json!("") || *value == json!(0) || *value == json!(false)
}

fn pair(name: &str, of: &Value, entry: &[u8]) -> Result<(String, Value), String> {
    let (mut key, mut one) = (String::new(), value(name, of, Raw::Bytes(b""))?);
    for field in wire::fields(entry) {
        match field? {
            (1, Raw::Bytes(text)) => key = lossy(text),
            (2, said) => one = value(name, of, said)?,
            _ => {}
        }
    }
    Ok((key, one.unwrap_or_default()))
}

/// What was said of something with a schema; none if it was nothing, as the time that is zero.
fn value(name: &str, schema: &Value, said: Raw<'_>) -> Result<Option<Value>, String> {
    match (schema["type"].as_str(), said) {
        (Some("boolean"), Raw::Varint(number)) => Ok(Some(json!(number != 0))),
        (Some("integer"), Raw::Varint(number)) => Ok(Some(json!(number.cast_signed()))),
        (Some("string"), Raw::Bytes(bytes)) if schema["format"] == "byte" => Ok(Some(json!(STANDARD.encode(bytes)))),
        (Some("string"), Raw::Bytes(text)) => Ok(Some(json!(lossy(text)))),
        (None | Some("object"), Raw::Bytes(inner)) => match builtin_schemas::referred(schema) {
            Some(schema) => thing(schema, inner),
            None => Ok(None),
        },
        _ => Err(misfit(name, said)),
    }
}

/// The refusal of what stands for a value in a form that its field does not have, in Go's words for field and form.
fn misfit(name: &str, said: Raw<'_>) -> String {
    let name = match name.split_at_checked(1) {
        Some((first, rest)) if name != "metadata" => first.to_uppercase() + rest,
        _ => "ObjectMeta".to_owned(),
    };
    format!("proto: wrong wireType = {} for field {name}", said.form())
}

/// A message, or one of those that look otherwise in JSON.
fn thing(schema: &str, raw: &[u8]) -> Result<Option<Value>, String> {
    match schema.rsplit('.').next().unwrap_or_default() {
        "Quantity" => Ok(Some(json!(lossy(inside(raw)?)))),
        "IntOrString" => int_or_string(raw).map(Some),
        "Time" => time(raw, "%Y-%m-%dT%H:%M:%SZ"),
        "MicroTime" => time(raw, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        // These are JSON as they are.
        "FieldsV1" | "RawExtension" => json::read(inside(raw)?).map(Some),
        _ => message(schema, raw).map(Some),
    }
}

/// The first field of a message that has no other.
fn inside(raw: &[u8]) -> Result<&[u8], String> {
    let mut out: &[u8] = b"";
    for field in wire::fields(raw) {
        if let (1, Raw::Bytes(inner)) = field? {
            out = inner;
        }
    }
    Ok(out)
}

fn int_or_string(raw: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in wire::fields(raw) {
        match field? {
            (1, Raw::Varint(form)) => is_text = form == 1,
            (2, Raw::Varint(said)) => number = said.cast_signed(),
            (3, Raw::Bytes(said)) => text = lossy(said),
            _ => {}
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

/// A time; none if it is zero, of which nothing is sent.
fn time(raw: &[u8], format: &str) -> Result<Option<Value>, String> {
    if raw.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in wire::fields(raw) {
        match field? {
            (1, Raw::Varint(said)) => seconds = said.cast_signed(),
            (2, Raw::Varint(said)) => nanos = i32::try_from(said).unwrap_or(0),
            _ => {}
        }
    }
    let time = Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
    Ok(Some(json!(time.strftime(format).to_string())))
}
