//! Sets of fields, as `metadata.managedFields` holds them.
//!
//! Decides what belongs to a set of paths, and how such a set is written. May not know who owns which set.

pub mod compare;
pub mod extract;
mod unread;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

pub use unread::Fields;

/// One step of a path. Ordered as the server orders them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Field(String),
    /// The item of a keyed list with these keys.
    Key(Vec<(String, Scalar)>),
    /// The item of a set that is this value.
    Value(Scalar),
    Index(i64),
}

/// A JSON value with an order, so that it can be part of a step.
#[derive(Debug, Clone)]
pub struct Scalar(Value);

/// Paths. A path may be a member and have members below it: an object's own existence is apart from its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    members: BTreeSet<Step>,
    /// Never holds an empty set.
    children: BTreeMap<Step, FieldSet>,
}

/// A `fieldsV1` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("a set of fields is an object")]
    NotAnObject,
    #[error("a step is written as f:, k:, v: or i: and its content, not {0:?}")]
    Step(String),
}

impl FieldSet {
    /// The set of these paths of field names.
    pub fn of_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
            set.insert(&steps);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    pub fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn has(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|below| below.has(rest)),
        }
    }

    pub fn has_member(&self, step: &Step) -> bool {
        self.members.contains(step)
    }

    pub fn below(&self, step: &Step) -> Option<&Self> {
        self.children.get(step)
    }

    pub fn add(&mut self, other: Self) {
        self.members.extend(other.members);
        for (step, theirs) in other.children {
            self.children.entry(step).or_default().add(theirs);
        }
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.add(other.clone());
        both
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let shared = self.children.iter().filter_map(|(step, below)| {
            let shared = below.intersection(other.children.get(step)?);
            (!shared.is_empty()).then(|| (step.clone(), shared))
        });
        Self {
            members,
            children: shared.collect(),
        }
    }

    /// Takes the other's paths away; what lies below them stays.
    pub fn subtract(&mut self, other: &Self) {
        for step in &other.members {
            self.members.remove(step);
        }
        self.descend(other, Self::subtract);
    }

    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// Without the other's paths and all that lies below them.
    pub fn without(mut self, other: &Self) -> Self {
        self.cut(other);
        self
    }

    fn cut(&mut self, other: &Self) {
        for step in &other.members {
            self.members.remove(step);
            self.children.remove(step);
        }
        self.descend(other, Self::cut);
    }

    /// Takes away what the other has below each place that both have.
    fn descend(&mut self, other: &Self, take: impl Fn(&mut Self, &Self)) {
        for (step, theirs) in &other.children {
            let Some(mine) = self.children.get_mut(step) else {
                continue;
            };
            take(mine, theirs);
            if mine.is_empty() {
                self.children.remove(step);
            }
        }
    }

    /// Every path, members of a place before what lies deeper.
    pub fn paths(&self) -> Vec<Vec<Step>> {
        let mut all = Vec::new();
        self.gather(&mut Vec::new(), &mut all);
        all
    }

    fn gather(&self, prefix: &mut Vec<Step>, all: &mut Vec<Vec<Step>>) {
        for member in &self.members {
            all.push(prefix.iter().chain([member]).cloned().collect());
        }
        for (step, below) in &self.children {
            prefix.push(step.clone());
            below.gather(prefix, all);
            prefix.pop();
        }
    }

    /// As `fieldsV1` writes it.
    pub fn to_value(&self) -> Value {
        let mut written = Map::new();
        for member in &self.members {
            written.insert(member.to_key(), Value::Object(Map::new()));
        }
        for (step, below) in &self.children {
            let mut inner = match below.to_value() {
                Value::Object(inner) => inner,
                _ => Map::new(),
            };
            if self.members.contains(step) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            written.insert(step.to_key(), Value::Object(inner));
        }
        Value::Object(written)
    }

    /// Reads what `to_value` writes.
    pub fn from_value(value: &Value) -> Result<Self, Unreadable> {
        Ok(Self::read(value)?.0)
    }

    /// The set, and whether the place itself is a member.
    fn read(value: &Value) -> Result<(Self, bool), Unreadable> {
        let Value::Object(written) = value else {
            return Err(Unreadable::NotAnObject);
        };
        let mut set = Self::default();
        let mut itself = written.is_empty();
        for (key, below) in written {
            if key == "." {
                itself = true;
                continue;
            }
            let step = Step::from_key(key)?;
            let (below, member) = Self::read(below)?;
            if member {
                set.members.insert(step.clone());
            }
            if !below.is_empty() {
                set.children.insert(step, below);
            }
        }
        Ok((set, itself))
    }
}

impl Step {
    fn to_key(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(keys) => {
                let keys: Map<String, Value> = keys.iter().map(|(name, key)| (name.clone(), key.0.clone())).collect();
                format!("k:{}", Value::Object(keys))
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn from_key(key: &str) -> Result<Self, Unreadable> {
        let broken = || Unreadable::Step(key.to_owned());
        let (kind, content) = key.split_once(':').ok_or_else(broken)?;
        match kind {
            "f" => Ok(Self::Field(content.to_owned())),
            "v" => serde_json::from_str(content)
                .map(|value| Self::Value(Scalar(value)))
                .map_err(|_| broken()),
            "i" => content.parse().map(Self::Index).map_err(|_| broken()),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(content).map_err(|_| broken())?;
                let mut keys: Vec<(String, Scalar)> =
                    keys.into_iter().map(|(name, value)| (name, Scalar(value))).collect();
                keys.sort();
                Ok(Self::Key(keys))
            }
            _ => Err(broken()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, key)| format!("{name}={}", key.0)).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as the server's messages write it.
pub fn path_text(path: &[Step]) -> String {
    path.iter().map(Step::to_string).collect()
}

impl Scalar {
    pub fn new(value: &Value) -> Self {
        Self(value.clone())
    }
}

impl Ord for Scalar {
    /// Numbers by size, whether written with a point or not; everything else by its text within its kind.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Number(_) => 2,
            Value::String(_) => 3,
            Value::Array(_) => 4,
            Value::Object(_) => 5,
        };
        match (&self.0, &other.0) {
            (Value::String(mine), Value::String(theirs)) => mine.cmp(theirs),
            (Value::Number(mine), Value::Number(theirs)) => match (mine.as_i64(), theirs.as_i64()) {
                (Some(mine), Some(theirs)) => mine.cmp(&theirs),
                _ => mine
                    .as_f64()
                    .unwrap_or_default()
                    .total_cmp(&theirs.as_f64().unwrap_or_default()),
            },
            (mine, theirs) if rank(mine) == rank(theirs) => mine.to_string().cmp(&theirs.to_string()),
            (mine, theirs) => rank(mine).cmp(&rank(theirs)),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_is_read_back_as_it_was_written() {
        let written = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}}, "f:labels": {"f:x.io/y": {}}},
            "f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}}}, "f:list": {"i:3": {}}},
        });
        let set = FieldSet::from_value(&written).expect("it is well formed");
        assert_eq!(set.to_value(), written);
        assert_eq!(set.paths().len(), 6);
    }

    #[test]
    fn a_broken_set_is_refused() {
        assert!(FieldSet::from_value(&json!({"x": {}})).is_err());
        assert!(FieldSet::from_value(&json!({"k:{": {}})).is_err());
        assert!(FieldSet::from_value(&json!({"f:a": 1})).is_err());
    }

    #[test]
    fn a_difference_leaves_what_lies_below_and_without_does_not() {
        let set = FieldSet::from_value(&json!({"f:a": {".": {}, "f:b": {}}})).expect("it is well formed");
        let a = FieldSet::of_names(&[&["a"]]);
        assert_eq!(set.difference(&a).to_value(), json!({"f:a": {"f:b": {}}}));
        assert!(set.without(&a).is_empty());
    }
}
