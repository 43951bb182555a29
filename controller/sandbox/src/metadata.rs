//! What is wrong with an object's metadata.
//!
//! Decides what names, labels, annotations, owners and finalizers may be, and what an update may change of metadata. The server looks at
//! it several times in an update, and tells each time what it sees; how often, and in which order, is each kind's own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::builtin;
use crate::failure::Cause;
use crate::kinds::Kind;
use crate::object::{at, finalizers, is_deleting, name, of_metadata, text};
use crate::write::part::Part;

const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
     with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn is_low(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    text.chars().all(|c| is_low(c) || c == '-') && text.starts_with(is_low) && text.ends_with(is_low)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(|c| ends(c) || "-_.".contains(c)) && text.starts_with(ends) && text.ends_with(ends)
}

/// What is wrong with a key of labels or annotations, or with a finalizer.
pub fn key_complaint(key: &str) -> Option<String> {
    if key.matches('/').count() > 1 {
        return Some(
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                .to_owned(),
        );
    }
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix.filter(|prefix| !is_subdomain(prefix)) {
        let why = if prefix.is_empty() {
            "prefix part must be non-empty".to_owned()
        } else {
            format!("prefix part {SUBDOMAIN}")
        };
        return Some(why);
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".to_owned());
    }
    (!is_qualified(name)).then(|| LABEL_NAME.to_owned())
}

/// What is wrong with the value of a label.
pub fn value_complaint(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!value.is_empty() && !is_qualified(value)).then_some(LABEL_VALUE)
}

/// Bytes of all names and texts of an object's annotations.
const MOST_NOTES: usize = 256 * 1024;

/// Finalizers without a domain that the server itself knows.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What each part of some metadata has wrong.
struct Faults {
    name: Vec<Cause>,
    /// Of labels, annotations and owners, which each look tells together.
    content: Vec<Cause>,
    finalizers: Vec<Cause>,
    /// Finalizers that only older kinds refuse, as they look a second time and want a domain.
    undomained: Vec<Cause>,
}

/// One of the looks that the server takes at metadata in an update.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// At what is stated, as in a creation.
    Stated,
    /// At what changed; what changed and what did not must be right in itself, too.
    Changed,
    /// The same as older kinds do it.
    StatedStrictly,
    ChangedStrictly,
}

/// What is wrong with the metadata of a new object.
pub fn complaints(kind: &Kind, object: &Value) -> Vec<Cause> {
    let faults = Faults::of(kind, object);
    let strict = if is_strict(kind) { faults.undomained } else { Vec::new() };
    [faults.name, faults.content, faults.finalizers, strict].concat()
}

/// What is wrong with metadata after an update, as often as the server says so.
pub fn update_complaints(kind: &Kind, old: &Value, new: &Value, part: Part) -> Vec<Cause> {
    let faults = Faults::of(kind, new);
    let changes = changes(old, new);
    let mut out = Vec::new();
    for look in looks(kind, part) {
        let parts: &[&[Cause]] = match look {
            Look::Stated => &[&faults.name, &faults.content, &faults.finalizers],
            Look::StatedStrictly => &[&faults.name, &faults.content, &faults.finalizers, &faults.undomained],
            Look::Changed => &[&changes, &faults.content],
            Look::ChangedStrictly => &[&changes, &faults.content, &faults.undomained],
        };
        out.extend(parts.iter().copied().flatten().cloned());
    }
    out
}

/// The looks that a kind takes in an update, in their order. Asked of the server, kind by kind.
fn looks(kind: &Kind, part: Part) -> &'static [Look] {
    use Look::{Changed, ChangedStrictly, Stated, StatedStrictly};
    if kind.custom {
        return &[Stated, Changed, Changed];
    }
    match (kind.kind.as_str(), part) {
        ("Lease", _) => &[Stated, Changed, Changed],
        ("PodDisruptionBudget", _) => &[Stated, Changed],
        ("Event", _) if !builtin::is_new_event(kind) => &[Stated, Changed],
        ("VolumeAttachment", Part::Status) => &[Changed],
        ("Event", _) | (_, Part::Status) => &[Stated, Changed, ChangedStrictly],
        ("VolumeAttachment", _) => &[Stated, Changed, StatedStrictly],
        ("PersistentVolume", _) => &[Stated, Changed, StatedStrictly, StatedStrictly],
        ("ConfigMap" | "Secret" | "ServiceAccount" | "Pod" | "PersistentVolumeClaim" | "ControllerRevision", _) => {
            &[Stated, Changed, ChangedStrictly, StatedStrictly]
        }
        _ => &[Stated, Changed, StatedStrictly, ChangedStrictly],
    }
}

/// Whether a kind wants a domain of finalizers.
fn is_strict(kind: &Kind) -> bool {
    !kind.custom && !["Lease", "PodDisruptionBudget"].iter().any(|known| kind.is(known))
}

impl Faults {
    fn of(kind: &Kind, object: &Value) -> Self {
        let finalizers = finalizers(object);
        Self {
            name: name_complaints(kind, name(object)),
            content: [
                label_complaints(object),
                note_complaints(object),
                owners_complaints(object),
            ]
            .concat(),
            finalizers: finalizer_complaints(&finalizers),
            undomained: undomained(&finalizers),
        }
    }
}

fn entries<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(object, path).and_then(Value::as_object).into_iter().flatten()
}

fn label_complaints(object: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    for (key, value) in entries(object, "/metadata/labels") {
        if let Some(why) = key_complaint(key) {
            out.push(Cause::invalid("metadata.labels", format!("\"{key}\""), &why));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(why) = value_complaint(value) {
            out.push(Cause::invalid("metadata.labels", format!("\"{value}\""), why));
        }
    }
    out
}

fn note_complaints(object: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    let mut size = 0;
    for (key, value) in entries(object, "/metadata/annotations") {
        if let Some(why) = key_complaint(&key.to_lowercase()) {
            out.push(Cause::invalid("metadata.annotations", format!("\"{key}\""), &why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MOST_NOTES {
        out.push(Cause::too_long("metadata.annotations", MOST_NOTES));
    }
    out
}

fn owners_complaints(object: &Value) -> Vec<Cause> {
    let owners = of_metadata(object, "ownerReferences").and_then(Value::as_array);
    let owners: Vec<&Value> = owners.into_iter().flatten().collect();
    let mut out: Vec<Cause> = owners.iter().flat_map(|owner| owner_complaints(owner)).collect();
    if owners.iter().filter(|owner| owner["controller"] == json!(true)).count() > 1 {
        let why = "Only one reference can have Controller set to true";
        let shown = Value::Array(owners.iter().map(|owner| (*owner).clone()).collect());
        out.push(Cause::invalid("metadata.ownerReferences", shown, why));
    }
    out
}

fn finalizer_complaints(finalizers: &[&str]) -> Vec<Cause> {
    let field = "metadata.finalizers";
    let mut out = Vec::new();
    for finalizer in finalizers {
        if let Some(why) = key_complaint(finalizer) {
            out.push(Cause::invalid(field, format!("\"{finalizer}\""), &why));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        out.push(Cause::invalid(field, json!(finalizers), why));
    }
    out
}

fn undomained(finalizers: &[&str]) -> Vec<Cause> {
    let is_wrong = |finalizer: &str| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer);
    let wrong = finalizers
        .iter()
        .enumerate()
        .filter(|(_, finalizer)| is_wrong(finalizer));
    wrong
        .map(|(number, finalizer)| {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            Cause::invalid(
                &format!("metadata.finalizers[{number}]"),
                format!("\"{finalizer}\""),
                why,
            )
        })
        .collect()
}

fn name_complaints(kind: &Kind, name: &str) -> Vec<Cause> {
    let field = "metadata.name";
    if name.is_empty() {
        return vec![Cause::required(field, "name or generateName is required")];
    }
    let why = if kind.group == "rbac.authorization.k8s.io" || kind.is("PodDisruptionBudget") {
        let bad = name == "." || name == ".." || name.contains(['/', '%']);
        bad.then(|| "may not contain '/' or '%', nor be '.' or '..'".to_owned())
    } else if kind.is("Namespace") {
        (!is_label(name)).then(|| LABEL.to_owned())
    } else if name.len() > 253 {
        Some("must be no more than 253 characters".to_owned())
    } else {
        (!is_subdomain(name)).then(|| SUBDOMAIN.to_owned())
    };
    why.map(|why| Cause::invalid(field, format!("\"{name}\""), &why))
        .into_iter()
        .collect()
}

fn owner_complaints(owner: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    if text(owner, "/apiVersion").is_empty() {
        out.push(Cause::invalid(
            "metadata.ownerReferences.apiVersion",
            "\"\"",
            "version must not be empty",
        ));
    }
    for key in ["kind", "name", "uid"] {
        if text(owner, &format!("/{key}")).is_empty() {
            out.push(Cause::invalid(
                &format!("metadata.ownerReferences.{key}"),
                "\"\"",
                "must not be empty",
            ));
        }
    }
    out
}

/// What an update may not do to metadata.
fn changes(old: &Value, new: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    // A set: sorted, and each once.
    let added: BTreeSet<&str> = finalizers(new)
        .into_iter()
        .filter(|one| !finalizers(old).contains(one))
        .collect();
    if is_deleting(old) && !added.is_empty() {
        let quoted: Vec<String> = added.iter().map(|one| format!("\"{one}\"")).collect();
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        out.push(Cause::forbidden("metadata.finalizers", why));
    }
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let after = of_metadata(new, key);
        if of_metadata(old, key) != after {
            let shown = after.map_or_else(|| "null".to_owned(), Value::to_string);
            out.push(Cause::invalid(&format!("metadata.{key}"), shown, "field is immutable"));
        }
    }
    out
}
