//! Whether a body has the types that the server's own structures have: of metadata, and of the plain data of two kinds.
//!
//! Decides nothing about values. The words are those of Go's decoder, which names structures and fields in its own way.

use std::sync::LazyLock;

use base64::alphabet::STANDARD;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::PAD;
use base64::{DecodeError, Engine as _};
use serde_json::Value;

use crate::builtin_schemas;
use crate::golang;
use crate::kinds::Kind;
use crate::write::times;

/// Texts that stand for bytes are read as leniently as the server does: what is left over of the last letter is not looked at.
const BYTES: GeneralPurpose = GeneralPurpose::new(&STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// The types of Go's fields.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Number,
    Switch,
    /// Of texts.
    Map,
    /// Of texts that stand for bytes.
    Bytes,
    Texts,
    Owners,
    Entries,
    Time,
}

/// The fields of metadata in the order in which they are looked at, which is that of their names.
static METADATA: LazyLock<Vec<(&str, Type)>> = LazyLock::new(|| {
    let fields = builtin_schemas::properties(builtin_schemas::OBJECT_META)
        .into_iter()
        .flatten();
    fields
        .filter_map(|(name, schema)| Some((name.as_str(), Type::of(schema)?)))
        .collect()
});

/// What the server's decoder finds wrong with an object.
pub(crate) fn complaint(kind: &Kind, object: &Value) -> Option<String> {
    in_metadata(kind, object).or_else(|| in_data(kind, object))
}

fn in_metadata(kind: &Kind, object: &Value) -> Option<String> {
    let metadata = object.get("metadata").filter(|metadata| !metadata.is_null())?;
    let Some(fields) = metadata.as_object() else {
        let found = golang::json_name(metadata);
        return Some(if kind.custom {
            format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
        } else {
            refused(found, &format!("{}.metadata", kind.kind), "v1.ObjectMeta")
        });
    };
    // The decoder of definitions' objects begins at metadata.
    let before = if kind.custom { "" } else { "metadata." };
    METADATA.iter().find_map(|(name, wanted)| {
        let value = fields.get(*name)?;
        match wanted.misfit(value) {
            Some((found, wanted)) => Some(refused(found, &format!("ObjectMeta.{before}{name}"), wanted)),
            None if matches!(wanted, Type::Time) => times::complaint(value.as_str()?),
            None => None,
        }
    })
}

/// Takes the times out of metadata that are none: where the server reads only what it needs, they are as if they were not there.
pub(crate) fn drop_no_times(object: &mut Value) {
    let Some(fields) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    fields.retain(|name, value| {
        let is_time = METADATA
            .iter()
            .any(|(known, wanted)| name == known && matches!(wanted, Type::Time));
        !is_time || no_time(value).is_none()
    });
}

/// What the server finds wrong with the times of an object that an apply left.
pub(crate) fn unconvertible(object: &Value) -> Option<String> {
    let times = METADATA.iter().filter(|(_, wanted)| matches!(wanted, Type::Time));
    let mut times = times.filter_map(|(name, _)| object.get("metadata")?.get(*name));
    times.find_map(no_time)
}

/// What is wrong with a time that is read for itself, whatever it is a field of.
fn no_time(value: &Value) -> Option<String> {
    match Type::Time.misfit(value) {
        Some((found, wanted)) => Some(format!("json: cannot unmarshal {found} into Go value of type {wanted}")),
        None => times::complaint(value.as_str()?),
    }
}

/// The plain data of a kind.
fn data(kind: &Kind) -> &'static [(&'static str, Type)] {
    const CONFIG_MAP: [(&str, Type); 3] = [
        ("binaryData", Type::Bytes),
        ("data", Type::Map),
        ("immutable", Type::Switch),
    ];
    const SECRET: [(&str, Type); 3] = [
        ("data", Type::Bytes),
        ("immutable", Type::Switch),
        ("stringData", Type::Map),
    ];
    if kind.is("ConfigMap") {
        &CONFIG_MAP
    } else if kind.is("Secret") {
        &SECRET
    } else {
        &[]
    }
}

fn in_data(kind: &Kind, object: &Value) -> Option<String> {
    data(kind).iter().find_map(|(field, wanted)| {
        let value = object.get(*field)?;
        match wanted.misfit(value) {
            Some((found, wanted)) => Some(refused(found, &format!("{}.{field}", kind.kind), wanted)),
            None if matches!(wanted, Type::Bytes) => no_base64(value),
            None => None,
        }
    })
}

/// What is wrong with bytes that come as texts.
pub(super) fn no_base64(bytes: &Value) -> Option<String> {
    let mut texts = bytes.as_object()?.values().filter_map(Value::as_str);
    texts.find_map(|text| {
        let text = text.replace(['\r', '\n'], ""); // which are no letters to Go
        let at = match BYTES.decode(&text).err()? {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
            _ if text.ends_with('=') => text.len(),
            // Where the last four letters begin, which are not four.
            DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len() / 4 * 4,
        };
        Some(format!("illegal base64 data at input byte {at}"))
    })
}

/// What the server finds wrong with an object that a strategic patch left, which it reads in another way: without a text between.
pub(crate) fn unrestorable(kind: &Kind, object: &Value) -> Option<String> {
    let head = [("apiVersion", Type::Text), ("kind", Type::Text)];
    let metadata = object.get("metadata").filter(|metadata| !metadata.is_null());
    if let Some(metadata) = metadata.filter(|metadata| !metadata.is_object()) {
        return Some(format!("cannot restore struct from: {}", golang::kind(metadata)));
    }
    let in_head = head
        .iter()
        .chain(data(kind))
        .map(|(name, wanted)| (object.get(*name), wanted));
    let in_metadata = METADATA
        .iter()
        .map(|(name, wanted)| (metadata.and_then(|metadata| metadata.get(*name)), wanted));
    let mut wrong = in_head
        .chain(in_metadata)
        .filter_map(|(value, wanted)| wanted.unrestorable(value?));
    wrong.next().or_else(|| {
        let bytes = data(kind).iter().filter(|(_, wanted)| matches!(wanted, Type::Bytes));
        let mut faults = bytes.filter_map(|(name, _)| no_base64(object.get(*name)?));
        faults.next().map(|why| format!("error decoding from json: {why}"))
    })
}

fn refused(found: &str, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
}

impl Type {
    /// The type of a field of metadata.
    fn of(schema: &Value) -> Option<Self> {
        let said = schema.get("type").and_then(Value::as_str);
        let items = schema.get("items").and_then(builtin_schemas::referred);
        match (said, items) {
            (Some("string"), _) => Some(Self::Text),
            (Some("integer"), _) => Some(Self::Number),
            (Some("object"), _) => Some(Self::Map),
            (Some("array"), None) => Some(Self::Texts),
            (Some("array"), Some(builtin_schemas::OWNER_REFERENCE)) => Some(Self::Owners),
            (Some("array"), Some(builtin_schemas::MANAGED_FIELDS)) => Some(Self::Entries),
            (None, _) => builtin_schemas::referred(schema)?
                .ends_with(".Time")
                .then_some(Self::Time),
            _ => None,
        }
    }

    /// What is there, and what should be, if that is something else. Null is nothing, and fits everywhere.
    fn misfit(self, value: &Value) -> Option<(&'static str, &'static str)> {
        let inner = |items: &mut dyn Iterator<Item = &Value>, wanted: &'static str| {
            let mut wrong = items.filter(|item| !item.is_string() && !item.is_null());
            wrong.next().map(|item| (golang::json_name(item), wanted))
        };
        let (fits, wanted) = match (self, value) {
            (_, Value::Null) => return None,
            (Self::Bytes, Value::Object(fields)) => return inner(&mut fields.values(), "[]uint8"),
            (Self::Map, Value::Object(fields)) => return inner(&mut fields.values(), "string"),
            (Self::Texts, Value::Array(items)) => return inner(&mut items.iter(), "string"),
            (Self::Text, value) => (value.is_string(), "string"),
            (Self::Number, value) => (value.is_i64(), "int64"),
            (Self::Switch, value) => (value.is_boolean(), "bool"),
            (Self::Map, _) => (false, "map[string]string"),
            (Self::Bytes, _) => (false, "map[string][]uint8"),
            (Self::Texts, _) => (false, "[]string"),
            (Self::Owners, value) => (value.is_array(), "[]v1.OwnerReference"),
            (Self::Entries, value) => (value.is_array(), "[]v1.ManagedFieldsEntry"),
            (Self::Time, value) => (value.is_string(), "string"),
        };
        (!fits).then(|| (golang::json_name(value), wanted))
    }

    /// Why a value in memory cannot become this.
    fn unrestorable(self, value: &Value) -> Option<String> {
        let is_wrong = |inner: &&Value| !inner.is_string() && !inner.is_null();
        let text = |value: &Value| match value {
            Value::Number(number) if number.is_i64() => "cannot convert int64 to string".to_owned(),
            _ => "unrecognized type: string".to_owned(),
        };
        Some(match (self, value) {
            (Self::Time, _) => return no_time(value),
            (Self::Owners | Self::Entries, Value::Array(items)) => {
                let wrong = items.iter().find(|item| !item.is_object() && !item.is_null())?;
                format!("cannot restore struct from: {}", golang::kind(wrong))
            }
            _ if self.misfit(value).is_none() => return None,
            (Self::Map, Value::Object(fields)) => text(fields.values().find(is_wrong)?),
            (Self::Bytes, Value::Object(fields)) => {
                format!(
                    "cannot restore slice from {}",
                    golang::kind(fields.values().find(is_wrong)?)
                )
            }
            (Self::Texts, Value::Array(items)) => text(items.iter().find(is_wrong)?),
            (Self::Map | Self::Bytes, _) => format!("cannot restore map from {}", golang::kind(value)),
            (Self::Texts | Self::Owners | Self::Entries, _) => {
                format!("cannot restore slice from {}", golang::kind(value))
            }
            (Self::Number, Value::Number(_)) => "cannot convert float64 to int64".to_owned(),
            (Self::Number, _) => "unrecognized type: int64".to_owned(),
            (Self::Switch, _) => "unrecognized type: bool".to_owned(),
            (Self::Text, _) => text(value),
        })
    }
}

/// The fields of `DeleteOptions`.
const OPTIONS: [(&str, Type); 4] = [
    ("dryRun", Type::Texts),
    ("gracePeriodSeconds", Type::Number),
    ("orphanDependents", Type::Switch),
    ("propagationPolicy", Type::Text),
];

/// What the server's decoder finds wrong with the options of a deletion.
pub(crate) fn complaint_of_options(said: &Value) -> Option<String> {
    let mut all = OPTIONS.iter();
    let wrong = all.find_map(|(name, wanted)| {
        let (found, wanted) = wanted.misfit(said.get(*name)?)?;
        let wanted = if *name == "propagationPolicy" {
            "v1.DeletionPropagation"
        } else {
            wanted
        };
        Some(refused(found, &format!("DeleteOptions.{name}"), wanted))
    });
    let preconditions = said
        .get("preconditions")
        .filter(|said| !said.is_object() && !said.is_null());
    wrong.or_else(|| {
        Some(refused(
            golang::json_name(preconditions?),
            "DeleteOptions.preconditions",
            "v1.Preconditions",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_metadata_has_a_type() {
        let fields = builtin_schemas::properties(builtin_schemas::OBJECT_META).unwrap();
        assert!(fields.keys().eq(METADATA.iter().map(|(name, _)| name)));
    }
}
