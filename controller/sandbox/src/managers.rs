//! Who owns which fields: the bookkeeping of `metadata.managedFields`.
//!
//! Decides what a create, update or patch does to everybody's fields. (What an apply does is decided in `patch::apply`, with
//! the types of this room.) Knows one version of each kind; entries of other versions are compared as if of this one.

pub mod blank;
mod entries;

use std::borrow::Cow;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;

pub use entries::{Entry, Manager, Managers, Operation, Unreadable};

use crate::fields::{FieldSet, compare::Comparison};
use crate::object;
use crate::topology::Topology;

/// The name under which fields are held that were there before the first apply, when nobody had been recorded.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The name that takes over from the oldest updaters when there are too many.
const ANCIENT: &str = "ancient-changes";
/// As many updaters as an object remembers by name.
const MOST_UPDATERS: usize = 10;

/// A write, as far as owners are concerned.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub topology: &'a Topology,
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// `fieldManager` of the request, or what stands before the first slash of its user agent.
    pub manager: &'a str,
    pub now: Timestamp,
    /// Fields that this write cannot change: they are put back whatever the request says, and nobody comes to own them.
    pub reset: &'a FieldSet,
}

impl Write<'_> {
    pub(crate) fn as_manager(&self, operation: Operation) -> Manager {
        let name = if self.manager.is_empty() {
            "unknown"
        } else {
            self.manager
        };
        let api_version = match operation {
            // An applier stays the same through versions.
            Operation::Apply => String::new(),
            Operation::Update => self.api_version.to_owned(),
        };
        Manager {
            name: name.to_owned(),
            operation,
            api_version,
            subresource: self.subresource.to_owned(),
        }
    }

    pub(crate) fn stamp(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// The new object with its owners, after a create (`live` is `None`), an update or a patch that is no apply. `new` is what
/// would be stored but for the bookkeeping; a `managedFields` in it is what the request asked for, and is heeded.
pub fn updated(live: Option<&Value>, mut new: Value, write: &Write<'_>) -> Value {
    let asked = new
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .and_then(|metadata| metadata.remove("managedFields"));
    let managers = starting(live, asked, write);
    // Owners that were wiped stay away until somebody applies.
    if managers.is_empty() && live.is_some() {
        return new;
    }
    let before = live.map_or_else(
        || Cow::Owned(blank::blank(write.api_version, write.kind)),
        Cow::Borrowed,
    );
    let managers = after_update(managers, &before, &new, write);
    managers.write_into(new)
}

/// Whom to start from: those that the request names, unless it comes through a subresource or names nobody, else those of
/// the live object. An empty list, or a list of one empty entry, wipes all.
fn starting(live: Option<&Value>, asked: Option<Value>, write: &Write<'_>) -> Managers {
    let held = live.and_then(|live| object::at(live, "/metadata/managedFields"));
    let asked = match asked {
        // Almost always: what was read is sent back, or the request says nothing of it.
        Some(Value::Array(asked)) if held.and_then(Value::as_array) == Some(&asked) => return Managers::stored(asked),
        Some(Value::Array(asked)) => Some(asked),
        Some(_) | None => None,
    };
    let held = || live.and_then(|live| Managers::read(live).ok()).unwrap_or_default();
    let Some(asked) = asked.filter(|_| write.subresource.is_empty()) else {
        return held();
    };
    let empty = |entry: &Value| entry.as_object().is_some_and(serde_json::Map::is_empty);
    if asked.is_empty() || matches!(asked.as_slice(), [entry] if empty(entry)) {
        return Managers::default();
    }
    match Managers::listed(&asked) {
        Ok(asked) if !asked.is_empty() => asked,
        Ok(_) | Err(_) => held(),
    }
}

/// Takes what changed from everybody and gives it to the writer. Whether the objects list their owners makes no difference.
pub(crate) fn after_update(mut managers: Managers, before: &Value, after: &Value, write: &Write<'_>) -> Managers {
    static OWNERS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_names(&[&["metadata", "managedFields"]]));
    let comparison = Comparison::of(write.topology.root(), before, after)
        .without(write.reset)
        .without(&OWNERS);
    let mut mine = comparison.touched();
    for entry in managers.entries_mut() {
        entry.fields.subtract(&mine);
        entry.fields.subtract(&comparison.removed);
    }
    mine.subtract(never_owned());
    if !mine.is_empty() {
        let me = write.as_manager(Operation::Update);
        let mut fields = managers.take(&me).map(|entry| entry.fields).unwrap_or_default();
        fields.add(mine);
        managers.put(
            me,
            Entry {
                fields,
                api_version: write.api_version.to_owned(),
                // The scale of a custom kind is the one writer whose time is not kept.
                time: (write.subresource != "scale").then(|| write.stamp()),
            },
        );
    }
    managers.drop_empty();
    cap(managers)
}

/// Fields that are the server's own business.
pub(crate) fn never_owned() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
        FieldSet::of_names(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    });
    &FIELDS
}

pub(crate) fn without_owners(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    object
}

/// Merges the oldest updaters into one as long as there are too many.
fn cap(mut managers: Managers) -> Managers {
    let updaters = || {
        managers
            .iter()
            .filter(|(manager, _)| manager.operation == Operation::Update)
    };
    let mut count = updaters().count();
    if count <= MOST_UPDATERS {
        return managers;
    }
    let mut oldest: Vec<(Manager, Entry)> = updaters()
        .map(|(manager, entry)| (manager.clone(), entry.clone()))
        .collect();
    oldest.sort_by(|(one, first), (other, second)| (&first.time, one).cmp(&(&second.time, other)));
    // The first of a version only becomes part of the bucket when a second one follows.
    let mut firsts: Vec<(String, Manager)> = Vec::new();
    for (manager, entry) in oldest {
        if count <= MOST_UPDATERS {
            break;
        }
        let bucket = Manager {
            name: ANCIENT.to_owned(),
            operation: Operation::Update,
            api_version: entry.api_version.clone(),
            subresource: String::new(),
        };
        let Some((_, first)) = firsts.iter().find(|(version, _)| *version == entry.api_version) else {
            firsts.push((entry.api_version, manager));
            continue;
        };
        let held = managers.take(&bucket).or_else(|| managers.take(first));
        let fields = held.map_or_else(|| entry.fields.clone(), |held| held.fields.union(&entry.fields).into());
        managers.take(&manager);
        managers.put(bucket, Entry { fields, ..entry });
        count -= 1;
    }
    managers
}

/// Whether two objects are the same but for the times of their owners: then nothing happened, and nothing is stored.
pub fn same_but_for_times(one: &Value, other: &Value) -> bool {
    same_but("metadata", one, other, |one, other| {
        same_but("managedFields", one, other, |one, other| {
            let (Value::Array(one), Value::Array(other)) = (one, other) else {
                return one == other;
            };
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| others(one, "time").eq(others(other, "time")))
        })
    })
}

/// Whether two objects are the same, if a field that both have is compared in a way of its own.
fn same_but(field: &str, one: &Value, other: &Value, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let is_same = match (one.get(field), other.get(field)) {
        (Some(one), Some(other)) => same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    is_same && others(one, field).eq(others(other, field))
}

/// All fields of an object but one.
fn others<'v>(object: &'v Value, field: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(move |(name, _)| *name != field)
}
