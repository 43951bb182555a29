//! Whether a body has the types that the server's own structures have: of metadata, and of the plain data of two kinds.
//!
//! Decides nothing about values. The words are those of Go's decoder, which names structures and fields in its own way.

use serde_json::Value;

use crate::kinds::Kind;
use crate::patch::go_name;

/// The types of Go's fields.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Number,
    Switch,
    /// Of texts.
    Map,
    Texts,
    Owners,
    Entries,
    /// Its words depend on the time itself.
    Time,
}

const METADATA: [(&str, Type); 14] = [
    ("annotations", Type::Map),
    ("creationTimestamp", Type::Time),
    ("deletionGracePeriodSeconds", Type::Number),
    ("deletionTimestamp", Type::Time),
    ("finalizers", Type::Texts),
    ("generateName", Type::Text),
    ("generation", Type::Number),
    ("labels", Type::Map),
    ("managedFields", Type::Entries),
    ("name", Type::Text),
    ("namespace", Type::Text),
    ("ownerReferences", Type::Owners),
    ("resourceVersion", Type::Text),
    ("uid", Type::Text),
];

/// What the server's decoder finds wrong with an object.
pub(crate) fn complaint(kind: &Kind, object: &Value) -> Option<String> {
    in_metadata(kind, object).or_else(|| in_data(kind, object))
}

fn in_metadata(kind: &Kind, object: &Value) -> Option<String> {
    let metadata = object.get("metadata").filter(|metadata| !metadata.is_null())?;
    let Some(fields) = metadata.as_object() else {
        let found = go_name(metadata);
        return Some(if kind.custom {
            format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
        } else {
            refused(found, &format!("{}.metadata", kind.kind), "v1.ObjectMeta")
        });
    };
    // The decoder of definitions' objects begins at metadata.
    let before = if kind.custom { "" } else { "metadata." };
    METADATA.iter().find_map(|(name, wanted)| {
        let (found, wanted) = wanted.misfit(fields.get(*name)?)?;
        Some(refused(found, &format!("ObjectMeta.{before}{name}"), wanted))
    })
}

fn in_data(kind: &Kind, object: &Value) -> Option<String> {
    let (name, field) = if kind.is("ConfigMap") {
        ("ConfigMap", "data")
    } else if kind.is("Secret") {
        ("Secret", "stringData")
    } else {
        return None;
    };
    let (found, wanted) = Type::Map.misfit(object.get(field)?)?;
    Some(refused(found, &format!("{name}.{field}"), wanted))
}

fn refused(found: &str, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
}

impl Type {
    /// What is there, and what should be, if that is something else. Null is nothing, and fits everywhere.
    fn misfit(self, value: &Value) -> Option<(&'static str, &'static str)> {
        let inner = |items: &mut dyn Iterator<Item = &Value>, wanted: &'static str| {
            let mut wrong = items.filter(|item| !item.is_string() && !item.is_null());
            wrong.next().map(|item| (go_name(item), wanted))
        };
        let (fits, wanted) = match (self, value) {
            (_, Value::Null) => return None,
            (Self::Map, Value::Object(fields)) => return inner(&mut fields.values(), "string"),
            (Self::Texts, Value::Array(items)) => return inner(&mut items.iter(), "string"),
            (Self::Text, value) => (value.is_string(), "string"),
            (Self::Number, value) => (value.is_i64(), "int64"),
            (Self::Switch, value) => (value.is_boolean(), "bool"),
            (Self::Map, _) => (false, "map[string]string"),
            (Self::Texts, _) => (false, "[]string"),
            (Self::Owners, value) => (value.is_array(), "[]v1.OwnerReference"),
            (Self::Entries, value) => (value.is_array(), "[]v1.ManagedFieldsEntry"),
            (Self::Time, _) => (true, ""),
        };
        (!fits).then(|| (go_name(value), wanted))
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
            go_name(preconditions?),
            "DeleteOptions.preconditions",
            "v1.Preconditions",
        ))
    })
}
