//! What an API is made of: its objects, its kinds, and what it is to tell the caller of the request under way.
//!
//! Decides what a definition does to the kinds when it is stored or taken away. How a request is answered is `api`'s.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::failure::Failure;
use crate::kinds::{Kind, Kinds};
use crate::object;
use crate::store::{Change, Key, Object, Place, Store, Tree};
use crate::write::size;

/// A Kubernetes API.
#[derive(Debug, Clone)]
pub struct Api {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    /// When it was asked last: the time by which events tell ages, as whatever causes one brings its moment.
    pub(crate) now: Timestamp,
    /// The versions of objects that hold nulls where they lie, though nobody sees them. The server compares what lies with what it
    /// would write, so that the next write of such an object takes place even if it changes nothing.
    pub(crate) nulls: BTreeSet<u64>,
    /// What the caller of the request under way is to be warned of.
    pub(crate) warnings: Vec<String>,
}

impl Api {
    /// An API of these objects that knows the built-in kinds only.
    pub(crate) fn holding(store: Store, now: Timestamp) -> Self {
        Self {
            store,
            kinds: Kinds::default(),
            now,
            nulls: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    /// The API that held these objects at that version. Watches and pages from before answer 410.
    pub fn restored(version: u64, objects: impl IntoIterator<Item = (Place, Key, Value)>, now: Timestamp) -> Self {
        let mut api = Self::holding(Store::restored(version, objects), now);
        let definitions = Place {
            group: "apiextensions.k8s.io".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
        };
        for (_, definition) in api.store.all(&definitions) {
            api.kinds.define(&definition);
        }
        api
    }

    /// Every change after a version, for who keeps them.
    pub fn changes(&self, after: u64) -> Vec<(&Place, &Change)> {
        self.store.all_since(after)
    }

    /// All kinds that are served, for discovery.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// One object as it is stored.
    pub fn stored(&self, place: &Place, key: &Key) -> Option<Arc<Value>> {
        self.store.get(place, key)
    }

    /// All objects of a kind as they are stored, in their order.
    pub fn all<'a>(&'a self, place: &Place) -> impl Iterator<Item = (&'a Key, Arc<Value>)> + use<'a> {
        self.store.all(place)
    }

    /// What became of a kind's objects after a version, as far as that is remembered.
    pub fn changes_of(&self, place: &Place, after: u64) -> impl Iterator<Item = &Change> {
        self.store.since(place, after).into_iter().flatten()
    }

    /// The version of the newest write.
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    /// Forgets history, as etcd's compaction does: older watches and pages answer 410.
    pub fn compact(&mut self, version: u64) {
        self.store.compact(version);
    }

    /// Forgets history that is longer than so many changes of one kind.
    pub fn trim(&mut self, changes: usize) {
        self.store.trim(changes);
    }

    /// Keeps the texts alone of kinds with more objects than `many`: a tenth of the room, but each look inside reads the text anew.
    pub fn cool(&mut self, many: usize) {
        self.store.cool(many);
    }

    /// Tells the caller something that does not hinder his request.
    pub(crate) fn warn(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// The stored object that a request names.
    pub(crate) fn find(&self, kind: &Kind, key: &Key) -> Result<Tree, Failure> {
        let found = self.store.tree(&kind.place(), key);
        found.ok_or_else(|| Failure::NotFound {
            subject: kind.resource(),
            name: key.name.clone(),
        })
    }

    /// Stores an object and lets definitions take effect.
    pub(crate) fn put(&mut self, kind: &Kind, key: Key, object: Value) -> Result<Tree, Failure> {
        let place = kind.place();
        let object = self.store.next(object);
        size::admit(&object)?;
        let stored = self.store.put(&place, key, object);
        if kind.is("CustomResourceDefinition") {
            let place = defined(&stored);
            if self.kinds.at(&place).is_none() {
                self.store.begin(&place);
            }
            self.kinds.define(&stored);
        }
        Ok(stored)
    }

    /// Takes an object away; a definition takes its kinds and all their objects with it.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Object> {
        let gone = self.store.remove(&kind.place(), key)?;
        if kind.is("CustomResourceDefinition") {
            let gone = gone.value();
            let place = defined(&gone);
            let keys: Vec<Key> = self.store.all(&place).map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.store.remove(&place, &key);
            }
            self.kinds.forget(&gone);
        }
        Some(gone)
    }
}

/// Where the objects of a definition lie.
fn defined(definition: &Value) -> Place {
    let text = |pointer| object::text(definition, pointer).to_owned();
    Place {
        group: text("/spec/group"),
        plural: text("/spec/names/plural"),
    }
}
