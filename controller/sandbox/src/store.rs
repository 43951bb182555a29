//! The objects, and what became of them.
//!
//! One version counts all writes of all kinds. Each kind has an ordered log of its changes, from which watches are served and
//! from which a list of an older version is worked out, backwards. Knows no rule of the API but that.

mod object;
mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

pub use object::Object;
pub(crate) use object::{Facts, Owner};
pub use tree::Tree;

/// Where objects of one kind lie: group and plural, whatever the version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub group: String,
    pub plural: String,
}

/// Which object of a kind; the order is the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key in one of a kind's namespaces.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What became of one object at one version.
#[derive(Debug, Clone)]
pub struct Change {
    pub version: u64,
    pub key: Key,
    pub before: Option<Object>,
    /// Absent when the object went.
    pub after: Option<Object>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    objects: BTreeMap<Key, Object>,
    log: VecDeque<Change>,
    /// The newest version whose change is no longer in the log.
    forgotten: u64,
    /// The version up to which objects are cold; none of a table with few.
    cold: Option<u64>,
}

/// So many objects of one kind are too many to be kept as trees.
pub(crate) const MANY: usize = 1_000;

/// The version asked for is older than what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// The oldest version that can still be asked for.
    pub oldest: u64,
}

/// All objects of all kinds.
#[derive(Debug, Clone, Default)]
pub struct Store {
    version: u64,
    tables: BTreeMap<Place, Table>,
}

impl Store {
    /// What was stored before, at the version that it had reached. Nothing is remembered of how it came to be.
    pub fn restored(version: u64, objects: impl IntoIterator<Item = (Place, Key, Value)>) -> Self {
        let mut store = Self {
            version,
            tables: BTreeMap::new(),
        };
        for (place, key, object) in objects {
            let table = store.tables.entry(place).or_default();
            let object = Object::new(object.into());
            if table.objects.len() > MANY {
                object.cool();
            }
            table.forgotten = version;
            table.objects.insert(key, object);
        }
        store
    }

    /// The version of the newest write.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The object as it is now.
    pub fn get(&self, place: &Place, key: &Key) -> Option<Arc<Value>> {
        self.object(place, key).map(Object::value)
    }

    /// The object as it is now, with its text.
    pub(crate) fn tree(&self, place: &Place, key: &Key) -> Option<Tree> {
        self.object(place, key).map(Object::tree)
    }

    /// The object as it is stored.
    pub(crate) fn object(&self, place: &Place, key: &Key) -> Option<&Object> {
        self.tables.get(place)?.objects.get(key)
    }

    /// All objects of a kind in their order.
    pub fn all<'a>(&'a self, place: &Place) -> impl Iterator<Item = (&'a Key, Arc<Value>)> + use<'a> {
        self.objects(place).map(|(key, object)| (key, object.value()))
    }

    /// All objects of a kind in their order, as they are stored.
    pub(crate) fn objects<'a>(&'a self, place: &Place) -> impl Iterator<Item = (&'a Key, &'a Object)> + use<'a> {
        self.tables.get(place).into_iter().flat_map(|table| &table.objects)
    }

    /// All objects of all kinds, for what follows owners across kinds.
    pub(crate) fn everything(&self) -> impl Iterator<Item = (&Place, &Key, &Object)> {
        self.tables
            .iter()
            .flat_map(|(place, table)| table.objects.iter().map(move |(key, object)| (place, key, object)))
    }

    /// An object as it will be if it is what is stored next.
    pub(crate) fn next(&self, mut object: Value) -> Tree {
        set_version(&mut object, self.version + 1);
        object.into()
    }

    /// Stores an object under the next version, which it carries already.
    pub(crate) fn put(&mut self, place: &Place, key: Key, object: Tree) -> Tree {
        self.version += 1;
        debug_assert_eq!(
            crate::object::version(&object),
            self.version,
            "nothing was stored in between"
        );
        let object = Object::new(object);
        let table = self.tables.entry(place.clone()).or_default();
        let before = table.objects.insert(key.clone(), object.clone());
        table.log.push_back(Change {
            version: self.version,
            key,
            before,
            after: Some(object.clone()),
        });
        object.tree()
    }

    /// Takes an object away, under the next version; watches see it as given, carrying that version.
    pub fn remove(&mut self, place: &Place, key: &Key) -> Option<Object> {
        let table = self.tables.get_mut(place)?;
        let gone = table.objects.remove(key)?;
        self.version += 1;
        table.log.push_back(Change {
            version: self.version,
            key: key.clone(),
            before: Some(gone.clone()),
            after: None,
        });
        Some(gone)
    }

    /// What happened to a kind after a version.
    pub fn since(&self, place: &Place, version: u64) -> Result<impl Iterator<Item = &Change>, Forgotten> {
        let table = self.tables.get(place);
        if let Some(table) = table.filter(|table| version < table.forgotten) {
            return Err(Forgotten {
                oldest: table.forgotten,
            });
        }
        let skipped = table.map_or(0, |table| table.log.partition_point(|change| change.version <= version));
        Ok(table.into_iter().flat_map(move |table| table.log.iter().skip(skipped)))
    }

    /// Every change of every kind after a version, in the order in which they came.
    pub fn all_since(&self, version: u64) -> Vec<(&Place, &Change)> {
        let mut changes: Vec<(&Place, &Change)> = Vec::new();
        for (place, table) in &self.tables {
            let newer = table.log.iter().rev().take_while(|change| change.version > version);
            changes.extend(newer.map(|change| (place, change)));
        }
        changes.sort_unstable_by_key(|(_, change)| change.version);
        changes
    }

    /// Whether a change of any kind after a version is one of those looked for; true also if such could be forgotten.
    pub fn any_since(&self, version: u64, looked_for: impl Fn(&Change) -> bool) -> bool {
        self.tables.values().any(|table| {
            let mut newer = table.log.iter().rev().take_while(|change| change.version > version);
            version < table.forgotten || newer.any(&looked_for)
        })
    }

    /// A kind's objects as they were at a version.
    pub fn at(&self, place: &Place, version: u64) -> Result<BTreeMap<Key, Object>, Forgotten> {
        let mut objects = self
            .tables
            .get(place)
            .map(|table| table.objects.clone())
            .unwrap_or_default();
        let changes: Vec<&Change> = self.since(place, version)?.collect();
        for change in changes.into_iter().rev() {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Begins the history of a kind now: nobody can watch it from before it was defined.
    pub fn begin(&mut self, place: &Place) {
        let version = self.version;
        self.tables.entry(place.clone()).or_default().forgotten = version;
    }

    /// Forgets the oldest history of kinds that have more of it than so many changes.
    pub fn trim(&mut self, changes: usize) {
        for table in self.tables.values_mut() {
            let old = table.log.len().saturating_sub(changes);
            if let Some(last) = table.log.drain(..old).next_back() {
                table.forgotten = last.version;
            }
        }
    }

    /// Keeps the texts alone of kinds with more objects than `many`; what is written later is warm until the next time.
    pub fn cool(&mut self, many: usize) {
        let version = self.version;
        for table in self.tables.values_mut() {
            match table.cold {
                None if table.objects.len() <= many => continue,
                None => table.objects.values().for_each(Object::cool),
                Some(_) => {}
            }
            let after = table.cold.replace(version).unwrap_or(0);
            let newer = table.log.iter().rev().take_while(|change| change.version > after);
            for object in newer.flat_map(|change| change.before.iter().chain(&change.after)) {
                object.cool();
            }
        }
    }

    /// Forgets the history up to a version, of all kinds.
    pub fn compact(&mut self, version: u64) {
        for table in self.tables.values_mut() {
            while table.log.front().is_some_and(|change| change.version <= version) {
                table.log.pop_front();
            }
            table.forgotten = table.forgotten.max(version.min(self.version));
        }
    }
}

/// Writes the version into `metadata`.
pub fn set_version(object: &mut Value, version: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(version.to_string()));
    }
}
