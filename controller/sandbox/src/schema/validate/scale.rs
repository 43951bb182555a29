//! The numbers that the scale subresource reads. They are judged beside the schema, in words of their own.

use serde_json::Value;

use crate::golang;
use crate::schema::cause::{Cause, Reason};

/// Where a kind keeps its replicas, as the CRD's `subresources.scale` says: paths with a leading dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
}

/// What is wrong with the replicas of the spec, or of the status in a write to the status subresource.
pub fn validate_scale(scale: &Scale, object: &Value, of_status: bool) -> Vec<Cause> {
    let path = if of_status {
        &scale.status_replicas
    } else {
        &scale.spec_replicas
    };
    let mut value = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        value = match value {
            Value::Object(fields) => match fields.get(step) {
                Some(inner) => inner,
                None => return Vec::new(),
            },
            Value::Null => return Vec::new(),
            other => return vec![unreadable(path, other, "map[string]interface{}")],
        };
    }
    let detail = match value.as_i64() {
        None => return vec![unreadable(path, value, "int64")],
        Some(count) if count < 0 => format!("{count}: should be a non-negative integer"),
        Some(count) if count > i64::from(i32::MAX) => {
            format!("{count}: should be less than or equal to {}", i32::MAX)
        }
        Some(_) => return Vec::new(),
    };
    vec![Cause::bare(Reason::Invalid, path.clone(), &detail)]
}

fn unreadable(path: &str, value: &Value, wanted: &str) -> Cause {
    let (shown, kind) = (golang::text(value), golang::type_name(value));
    let detail = format!("0: {path} accessor error: {shown} is of the type {kind}, expected {wanted}");
    Cause::bare(Reason::Invalid, path.to_owned(), &detail)
}
