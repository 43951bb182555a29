//! Reading objects as the API server shows them. Decides nothing.

use jiff::Timestamp;
use serde_json::Value;

/// What holds back a Machine, set, deployment or class of ours.
pub const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    metadata(object, "uid").and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    metadata(object, "name").and_then(Value::as_str).unwrap_or_default()
}

/// A field of the metadata.
fn metadata<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// What stands at a JSON pointer. `Value::pointer` copies each name for the sake of those with an escape, on very many calls.
fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut steps = pointer.split('/').skip(1);
    steps.try_fold(object, |inner, step| match inner {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other if step.contains('~') => other.get(step.replace("~1", "/")),
        other => other.get(step),
    })
}

/// The text at a JSON pointer, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a JSON pointer, or 0, as the API's omitted numbers are.
pub fn number(object: &Value, pointer: &str) -> i64 {
    at(object, pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The time at a JSON pointer.
pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// Whether deletion was asked for.
pub fn is_deleting(object: &Value) -> bool {
    metadata(object, "deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// Whether it is held by this finalizer.
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let held = metadata(object, "finalizers").and_then(Value::as_array);
    held.into_iter().flatten().any(|item| item == finalizer)
}

/// Whether an object has the labels that the `matchLabels` of another name. Nothing is selected where there are none.
pub fn selects(selector: &Value, object: &Value) -> bool {
    let wanted = selector
        .pointer("/spec/selector/matchLabels")
        .and_then(Value::as_object);
    let labels = metadata(object, "labels");
    wanted.is_some_and(|wanted| {
        let mut wanted = wanted.iter();
        wanted.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    })
}

/// The uid of the controller that owns it, or "".
pub fn controller(object: &Value) -> &str {
    let owners = metadata(object, "ownerReferences").and_then(Value::as_array);
    let mut controllers = owners
        .into_iter()
        .flatten()
        .filter(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    controllers.next().map_or("", |owner| text(owner, "/uid"))
}

/// The kind of the controller that owns it, or "".
pub fn controller_kind(object: &Value) -> &str {
    let owners = metadata(object, "ownerReferences").and_then(Value::as_array);
    let mut owners = owners.into_iter().flatten();
    let controller = owners.find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    controller.map_or("", |owner| text(owner, "/kind"))
}

/// Its condition of this type.
pub fn condition<'a>(object: &'a Value, of_type: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|told| text(told, "/type") == of_type)
}

/// Whether its condition of this type is true.
pub fn is_true(object: &Value, of_type: &str) -> bool {
    condition(object, of_type).is_some_and(|told| text(told, "/status") == "True")
}

/// Whether it is a Secret with which a machine joins.
pub fn is_token(secret: &Value) -> bool {
    text(secret, "/type") == "bootstrap.kubernetes.io/token"
}

/// The phase of a Machine, "" before its first.
pub fn phase(machine: &Value) -> &str {
    text(machine, "/status/currentStatus/phase")
}
