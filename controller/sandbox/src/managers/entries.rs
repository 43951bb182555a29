//! The entries of `managedFields`, read and written.
//!
//! Decides how an owner is told from another and in which order owners are listed. May not know what writes do.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::fields::{self, Fields};
use crate::object;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

/// An owner. The same client is another owner through a subresource, another version (unless it applies) or operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for appliers.
    pub api_version: String,
    pub subresource: String,
}

/// What an owner owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub fields: Fields,
    pub api_version: String,
    pub time: Option<String>,
}

/// All owners of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers(BTreeMap<Manager, Entry>);

/// A `managedFields` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    Version,
    #[error("fieldsType must be `FieldsV1`")]
    FieldsType,
    #[error("error decoding set: {0}")]
    Fields(#[from] fields::Unreadable),
}

/// As conflicts name an owner.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

impl Managers {
    /// The owners that an object lists.
    pub fn read(object: &Value) -> Result<Self, Unreadable> {
        let listed = object::at(object, "/metadata/managedFields").and_then(Value::as_array);
        Self::listed(listed.map_or(&[], Vec::as_slice))
    }

    /// The owners of a list.
    pub(super) fn listed(entries: &[Value]) -> Result<Self, Unreadable> {
        let entries = entries.iter().map(read_entry);
        entries.collect::<Result<BTreeMap<_, _>, _>>().map(Self)
    }

    /// The owners of a list that is stored, which is well formed.
    pub(super) fn stored(listed: Vec<Value>) -> Self {
        let entries = listed.into_iter().filter_map(|entry| {
            let head = read_head(&entry).ok()?;
            Some(head.with(Fields::stored(entry)))
        });
        Self(entries.collect())
    }

    /// The object with these owners: appliers first, then by time.
    pub fn write_into(self, mut object: Value) -> Value {
        let mut entries: Vec<(Manager, Entry)> = self.0.into_iter().collect();
        entries.sort_by(|(one, first), (other, second)| {
            let rank = |manager: &Manager| manager.operation;
            (rank(one), &first.time, &one.name, &first.api_version, &one.subresource).cmp(&(
                rank(other),
                &second.time,
                &other.name,
                &second.api_version,
                &other.subresource,
            ))
        });
        let listed: Vec<Value> = entries
            .into_iter()
            .map(|(manager, entry)| written(manager, entry))
            .collect();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            if listed.is_empty() {
                metadata.remove("managedFields");
            } else {
                metadata.insert("managedFields".to_owned(), Value::Array(listed));
            }
        }
        object
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.0.get(manager)
    }

    pub fn put(&mut self, manager: Manager, entry: Entry) {
        self.0.insert(manager, entry);
    }

    pub fn take(&mut self, manager: &Manager) -> Option<Entry> {
        self.0.remove(manager)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Manager, &Entry)> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Manager, &mut Entry)> {
        self.0.iter_mut()
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.values_mut()
    }

    /// Who owns nothing is no owner.
    pub fn drop_empty(&mut self) {
        self.0.retain(|_, entry| !entry.fields.is_empty());
    }
}

/// What an entry says beside its fields.
struct Head {
    manager: Manager,
    api_version: String,
    time: Option<String>,
}

impl Head {
    fn with(self, fields: Fields) -> (Manager, Entry) {
        let entry = Entry {
            fields,
            api_version: self.api_version,
            time: self.time,
        };
        (self.manager, entry)
    }
}

fn read_entry(entry: &Value) -> Result<(Manager, Entry), Unreadable> {
    let head = read_head(entry)?;
    let fields = entry
        .get("fieldsV1")
        .map_or_else(|| Ok(Fields::default()), Fields::read)?;
    Ok(head.with(fields))
}

fn read_head(entry: &Value) -> Result<Head, Unreadable> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(Unreadable::Operation),
    };
    let api_version = text("apiVersion").to_owned();
    if api_version.is_empty() {
        return Err(Unreadable::Version);
    }
    if text("fieldsType") != "FieldsV1" {
        return Err(Unreadable::FieldsType);
    }
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    let manager = Manager {
        name: text("manager").to_owned(),
        operation,
        api_version: match operation {
            Operation::Apply => String::new(),
            Operation::Update => api_version.clone(),
        },
        subresource: text("subresource").to_owned(),
    };
    Ok(Head {
        manager,
        api_version,
        time,
    })
}

fn written(manager: Manager, entry: Entry) -> Value {
    let fields = match entry.fields.into_entry(entry.time.as_deref()) {
        Ok(stored) => return stored,
        Err(fields) => fields,
    };
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut written = Map::new();
    if !manager.name.is_empty() {
        written.insert("manager".to_owned(), Value::String(manager.name));
    }
    written.insert("operation".to_owned(), json!(operation));
    written.insert("apiVersion".to_owned(), Value::String(entry.api_version));
    if let Some(time) = entry.time {
        written.insert("time".to_owned(), Value::String(time));
    }
    written.insert("fieldsType".to_owned(), json!("FieldsV1"));
    written.insert("fieldsV1".to_owned(), fields.to_value());
    if !manager.subresource.is_empty() {
        written.insert("subresource".to_owned(), Value::String(manager.subresource));
    }
    Value::Object(written)
}
