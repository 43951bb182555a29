//! A set of fields as it stands in an object, read when somebody looks inside.
//!
//! Decides when that is needed. Most writes touch the fields of one owner, and reading those of all others was a tenth of what a
//! write costs.

use std::cell::OnceCell;
use std::ops::Deref;

use serde_json::Value;

use super::{FieldSet, Scalar, Step, Unreadable};

/// The fields of an owner. It holds at least one of both forms.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// The owner's entry, with his fields under `fieldsV1`.
    entry: Option<Value>,
    set: OnceCell<FieldSet>,
}

impl Fields {
    /// Those of an entry that the store holds, which is well formed.
    pub fn stored(entry: Value) -> Self {
        Self {
            entry: Some(entry),
            set: OnceCell::new(),
        }
    }

    /// The entry as it was stored, if it is still true: its fields were not changed, and it tells this time.
    pub fn into_entry(self, time: Option<&str>) -> Result<Value, Self> {
        let tells = |entry: &Value| entry.get("time").and_then(Value::as_str) == time;
        match self.entry {
            Some(entry) if tells(&entry) => Ok(entry),
            entry => Err(Self { entry, ..self }),
        }
    }

    /// Reads what somebody says, who may be wrong.
    pub fn read(written: &Value) -> Result<Self, Unreadable> {
        FieldSet::from_value(written).map(Self::from)
    }

    /// Takes the other's paths away; what lies below them stays.
    pub fn subtract(&mut self, other: &FieldSet) {
        let is_apart = self.written().is_some_and(|written| !other.meets(written));
        if !is_apart {
            self.inside().subtract(other);
        }
    }

    pub fn add(&mut self, other: FieldSet) {
        self.inside().add(other);
    }

    pub fn is_empty(&self) -> bool {
        match (self.set.get(), self.written()) {
            (None, Some(Value::Object(written))) => written.keys().all(|step| step == "."),
            (Some(_), _) | (None, _) => self.deref().is_empty(),
        }
    }

    fn written(&self) -> Option<&Value> {
        self.entry.as_ref()?.get("fieldsV1")
    }

    fn read_once(&self) -> &FieldSet {
        // Who owns nothing that can be read is no owner.
        let read = || self.written().and_then(|written| FieldSet::from_value(written).ok());
        self.set.get_or_init(|| read().unwrap_or_default())
    }

    /// For changing, after which the entry is no more.
    fn inside(&mut self) -> &mut FieldSet {
        self.read_once();
        self.entry = None;
        self.set.get_mut().expect("it has just been read")
    }
}

impl Deref for Fields {
    type Target = FieldSet;

    fn deref(&self) -> &FieldSet {
        self.read_once()
    }
}

impl From<FieldSet> for Fields {
    fn from(set: FieldSet) -> Self {
        Self {
            entry: None,
            set: OnceCell::from(set),
        }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.deref() == other.deref()
    }
}

impl Eq for Fields {}

impl FieldSet {
    /// Whether one of the paths, or something on the way to it, stands in a set that is written. True also where only reading can
    /// tell: an item may be spelled in several ways.
    fn meets(&self, written: &Value) -> bool {
        let Value::Object(written) = written else {
            return true;
        };
        let found = |step: &Step| match step.has_one_spelling() {
            true => written.get(&step.to_key()).map(Some),
            false => Some(None),
        };
        self.members.iter().any(|step| found(step).is_some())
            || self
                .children
                .iter()
                .any(|(step, below)| found(step).is_some_and(|inner| inner.is_none_or(|inner| below.meets(inner))))
    }
}

impl Step {
    /// Whether equal steps are written alike, which numbers are not: 1 and 1.0.
    fn has_one_spelling(&self) -> bool {
        let is_number = |scalar: &Scalar| scalar.0.is_number();
        match self {
            Self::Field(_) | Self::Index(_) => true,
            Self::Key(keys) => !keys.iter().any(|(_, scalar)| is_number(scalar)),
            Self::Value(scalar) => !is_number(scalar),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(written: &Value) -> FieldSet {
        FieldSet::from_value(written).expect("it is well formed")
    }

    #[test]
    fn what_is_taken_from_a_set_that_was_not_read_is_what_is_taken_from_one_that_was() {
        let held = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"x\"": {}, "v:1": {}}},
            "f:spec": {"f:replicas": {}}, "f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}}}},
        });
        let taken = [
            json!({}),
            json!({"f:other": {}}),
            json!({"f:spec": {}}),
            json!({"f:spec": {"f:replicas": {}}}),
            json!({"f:spec": {"f:replicas": {"f:below": {}}}}),
            json!({"f:metadata": {"f:labels": {"f:b": {}}}}),
            json!({"f:metadata": {"f:labels": {".": {}}}}),
            json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}, "v:1.0": {}}}}),
            json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {"f:status": {}}}}}),
            json!({"f:status": {"f:conditions": {"k:{\"type\":\"Gone\"}": {"f:status": {}}}}}),
        ];
        for other in taken {
            let mut unread = Fields::stored(json!({"fieldsV1": held}));
            unread.subtract(&set(&other));
            let mut read = set(&held);
            read.subtract(&set(&other));
            assert_eq!(unread.to_value(), read.to_value(), "without {other}");
            assert_eq!(*unread, read, "without {other}");
        }
    }

    #[test]
    fn what_nobody_meets_is_not_read() {
        let mut fields = Fields::stored(json!({"fieldsV1": {"f:spec": {"f:replicas": {}}}}));
        fields.subtract(&set(&json!({"f:spec": {"f:paused": {}}, "f:status": {}})));
        assert!(!fields.is_empty() && fields.set.get().is_none());
    }
}
