//! One kind's objects and the indexes over them, always true to what was last seen or written.
//!
//! Decides which of two versions is believed and tells what was touched by a change; knows nothing of what the objects
//! mean. Ordered maps only, so that every walk over it is the same in every run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;

use crate::api::meta;
use crate::change::Change;
use crate::fence::Fence;
use crate::ids::{Name, ResourceVersion, Uid};

/// What the store must know of an object beside its metadata.
pub trait Stored: Resource {
    /// Names of the indexes of this kind, each mapping a text (an owner's uid, a class's name) to objects.
    type Index: Copy + Ord;

    /// Under what the object is to be found.
    fn indexed(&self) -> Vec<(Self::Index, String)>;

    /// `metadata.name`.
    fn key(&self) -> Name {
        Name::new(meta::name(self.meta()))
    }

    /// `metadata.uid`.
    fn uid(&self) -> Uid {
        meta::identity(self.meta()).1
    }

    /// `metadata.resourceVersion`, where it can be compared.
    fn version(&self) -> Option<ResourceVersion> {
        meta::resource_version(self.meta())
    }

    /// Cuts off what no plan reads, before the object is kept. Who wrote which field is most of a small object's size.
    fn shorten(&mut self) {
        self.meta_mut().managed_fields = None;
    }

    /// Takes over from the object as it was known before what the API server drops: fields that the cluster's CRD does not know.
    fn inherit(&mut self, _before: &Self) {}

    /// Whether the object has what the API server dropped of it, where the same version is known without: the answer to a write of ours
    /// that came after the watch's event.
    fn completes(&self, _known: &Self) -> bool {
        false
    }
}

/// Kinds that are found by name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoIndex {}

/// What a change did to one object. Never empty on both sides.
#[derive(Debug)]
pub struct Touched<K> {
    /// The object as it was known before.
    pub old: Option<Arc<K>>,
    /// The object as it is known now; `None`: gone.
    pub new: Option<Arc<K>>,
}

impl<K> Touched<K> {
    fn gone(old: Arc<K>) -> Self {
        let old = Some(old);
        Self { old, new: None }
    }
}

/// The newest known version of every object of one kind, with indexes.
#[derive(Debug)]
pub struct Store<K: Stored> {
    objects: BTreeMap<Name, Arc<K>>,
    indexes: BTreeMap<K::Index, BTreeMap<String, Members<K>>>,
    fence: Fence,
    /// What came since the running list began; what is missing at its end is gone.
    listing: Option<Listing>,
    synced: bool,
}

/// The objects under one text of an index, by name: the objects themselves, since a plan walks over thousands of one owner. A map would
/// hold each name once more, and most texts stand for one object.
#[derive(Debug)]
struct Members<K>(Vec<Arc<K>>);

impl<K: Stored> Members<K> {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|member| meta::name(member.meta()).cmp(name))
    }

    fn put(&mut self, object: &Arc<K>) {
        let place = self.place(meta::name(object.meta()));
        let known = place.ok().and_then(|place| self.0.get_mut(place));
        match known {
            Some(known) => *known = Arc::clone(object),
            None => self.0.insert(place.unwrap_or_else(|place| place), Arc::clone(object)),
        }
    }

    fn remove(&mut self, name: &Name) {
        if let Ok(known) = self.place(name.as_str()) {
            self.0.remove(known);
        }
    }
}

/// A list under way.
#[derive(Debug, Default)]
struct Listing {
    /// Names in the list.
    listed: BTreeSet<Name>,
    /// The newest version in the list: the list shows all that was there then.
    newest: Option<ResourceVersion>,
    /// Names that we wrote meanwhile, with the version of the answer.
    wrote: BTreeMap<Name, Option<ResourceVersion>>,
}

impl Listing {
    /// Whether the object of that name may be there. One that we wrote after the list was made is not in it; one that we wrote
    /// before, and that the list does not show, ended in between.
    fn keeps(&self, name: &Name) -> bool {
        let is_newer = |version: &Option<ResourceVersion>| version.is_none() || *version > self.newest;
        self.listed.contains(name) || self.wrote.get(name).is_some_and(is_newer)
    }
}

impl<K: Stored> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            indexes: BTreeMap::new(),
            fence: Fence::default(),
            listing: None,
            synced: false,
        }
    }
}

impl<K: Stored> Store<K> {
    /// Takes what a watch brought.
    pub fn apply(&mut self, change: Change<K>) -> Vec<Touched<K>> {
        match change {
            Change::Restarted => {
                self.listing = Some(Listing::default());
                Vec::new()
            }
            Change::Listed(object) => {
                if let Some(listing) = &mut self.listing {
                    listing.listed.insert(object.key());
                    listing.newest = listing.newest.max(object.version());
                }
                self.see(self.kept(object)).into_iter().collect()
            }
            Change::Synced => self.sweep(),
            Change::Applied(object) => self.see(self.kept(object)).into_iter().collect(),
            Change::Unreadable(name) => {
                if let Some(listing) = &mut self.listing {
                    listing.listed.insert(name);
                }
                Vec::new()
            }
            Change::Deleted(object) => {
                let uid = object.uid();
                self.fence.ended(&uid);
                self.remove(&object.key(), &uid).into_iter().collect()
            }
        }
    }

    /// An object in the form in which it is kept.
    pub fn kept(&self, mut object: K) -> Arc<K> {
        object.shorten();
        if let Some(before) = self
            .objects
            .get(&object.key())
            .filter(|known| known.uid() == object.uid())
        {
            object.inherit(before);
        }
        Arc::new(object)
    }

    /// Takes the object that one of our own writes returned, as it is kept.
    pub fn wrote(&mut self, object: Arc<K>) -> Option<Touched<K>> {
        if let Some(version) = object.version() {
            self.fence.wrote(&object.uid(), version);
        }
        // A list that began before this write may not hold the object; that is no sign of its end.
        if let Some(listing) = &mut self.listing {
            listing.wrote.insert(object.key(), object.version());
        }
        self.see(object)
    }

    /// Our write ended the object: it had no other finalizer, or was deleted outright.
    pub fn ended(&mut self, name: &Name, uid: &Uid) -> Option<Touched<K>> {
        self.fence.ended(uid);
        self.remove(name, uid)
    }

    /// The object of that name.
    pub fn get(&self, name: &Name) -> Option<&Arc<K>> {
        self.objects.get(name)
    }

    /// All objects, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Objects under `text` in one index, by name.
    pub fn find(&self, index: K::Index, text: &str) -> impl Iterator<Item = &Arc<K>> + use<'_, K> {
        self.members(index, text).into_iter().flat_map(|members| &members.0)
    }

    /// Every text in one index.
    pub fn texts(&self, index: K::Index) -> impl Iterator<Item = &str> {
        let texts = self.indexes.get(&index).into_iter().flat_map(BTreeMap::keys);
        texts.map(String::as_str)
    }

    /// How many objects stand under `text` in one index.
    pub fn count(&self, index: K::Index, text: &str) -> usize {
        self.members(index, text).map_or(0, |members| members.0.len())
    }

    fn members(&self, index: K::Index, text: &str) -> Option<&Members<K>> {
        self.indexes.get(&index)?.get(text)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether a whole list has arrived at least once: before that, absence means nothing.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    fn see(&mut self, new: Arc<K>) -> Option<Touched<K>> {
        let (name, uid, version) = (new.key(), new.uid(), new.version());
        if !self.fence.admits(&uid, version) {
            return None;
        }
        // Versions are the cluster's, not the object's, so this holds between namesakes as well.
        let known = self.objects.get(&name).filter(|_| version.is_some());
        if let Some(known) = known.filter(|known| known.version() >= version)
            && !(known.version() == version && new.completes(known))
        {
            return None;
        }
        let old = self.objects.insert(name.clone(), Arc::clone(&new));
        let entries = new.indexed();
        if let Some(old) = &old {
            self.leave(&name, old.indexed().iter().filter(|entry| !entries.contains(entry)));
        }
        for (index, text) in entries {
            let texts = self.indexes.entry(index).or_default();
            texts.entry(text).or_insert_with(|| Members(Vec::new())).put(&new);
        }
        Some(Touched { old, new: Some(new) })
    }

    fn remove(&mut self, name: &Name, uid: &Uid) -> Option<Touched<K>> {
        // A late deletion of a namesake's predecessor says nothing about the object that bears the name now.
        self.objects.get(name).filter(|known| known.uid() == *uid)?;
        self.unlink(name).map(Touched::gone)
    }

    fn unlink(&mut self, name: &Name) -> Option<Arc<K>> {
        let old = self.objects.remove(name)?;
        self.leave(name, &old.indexed());
        Some(old)
    }

    /// Takes the object of that name out of these places.
    fn leave<'a>(&mut self, name: &Name, places: impl IntoIterator<Item = &'a (K::Index, String)>)
    where
        K::Index: 'a,
    {
        for (index, text) in places {
            let Some(texts) = self.indexes.get_mut(index) else {
                continue;
            };
            if let Some(members) = texts.get_mut(text) {
                members.remove(name);
                if members.0.is_empty() {
                    texts.remove(text);
                }
            }
        }
    }

    fn sweep(&mut self) -> Vec<Touched<K>> {
        self.synced = true;
        let Some(listing) = self.listing.take() else {
            return Vec::new();
        };
        let names = self.objects.keys();
        let gone: Vec<Name> = names.filter(|name| !listing.keeps(name)).cloned().collect();
        let gone: Vec<Arc<K>> = gone.iter().filter_map(|name| self.unlink(name)).collect();
        // A write of ours that was answered late would bring it back.
        gone.iter().for_each(|gone| self.fence.ended(&gone.uid()));
        let alive: Vec<Uid> = self.objects.values().map(|object| object.uid()).collect();
        self.fence.retain(&alive);
        gone.into_iter().map(Touched::gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    type Thing = ConfigMap;

    impl Stored for Thing {
        type Index = ();
        fn indexed(&self) -> Vec<((), String)> {
            vec![((), meta::namespace(&self.metadata).to_owned())]
        }
    }

    fn thing(name: &str, uid: &str, version: u64) -> Thing {
        let mut thing = Thing::default();
        thing.metadata.name = Some(name.to_owned());
        thing.metadata.namespace = Some("o".to_owned());
        thing.metadata.uid = Some(uid.to_owned());
        thing.metadata.resource_version = Some(version.to_string());
        thing
    }

    fn names(store: &Store<Thing>) -> Vec<&str> {
        store.iter().map(|thing| meta::name(&thing.metadata)).collect()
    }

    fn synced(things: &[Thing]) -> Store<Thing> {
        let mut store = Store::default();
        store.apply(Change::Restarted);
        for thing in things {
            store.apply(Change::Listed(thing.clone()));
        }
        store.apply(Change::Synced);
        store
    }

    #[test]
    fn an_older_version_changes_nothing() {
        let mut store = synced(&[thing("a", "1", 5)]);
        assert!(store.apply(Change::Applied(thing("a", "1", 4))).is_empty());
        assert!(store.apply(Change::Applied(thing("a", "1", 5))).is_empty());
        assert_eq!(store.apply(Change::Applied(thing("a", "1", 6))).len(), 1);
    }

    /// Rows: pains 92, 94.
    #[test]
    fn our_own_write_is_seen_at_once_and_no_older_event_undoes_it() {
        let mut store = synced(&[thing("a", "1", 5)]);
        let mut moved = thing("a", "1", 9);
        moved.metadata.namespace = Some("p".to_owned());
        store.wrote(Arc::new(moved));
        assert!(store.apply(Change::Applied(thing("a", "1", 7))).is_empty());
        assert_eq!(store.count((), "p"), 1);
        assert_eq!(store.count((), "o"), 0);
    }

    #[test]
    fn an_object_that_we_ended_is_not_revived_by_its_last_events() {
        let mut store = synced(&[thing("a", "1", 5)]);
        assert!(store.ended(&Name::new("a"), &Uid::new("1")).is_some());
        assert!(store.apply(Change::Applied(thing("a", "1", 8))).is_empty());
        assert!(store.apply(Change::Deleted(thing("a", "1", 9))).is_empty());
        // A namesake with a new uid is another object.
        assert_eq!(store.apply(Change::Applied(thing("a", "2", 10))).len(), 1);
    }

    #[test]
    fn an_object_that_is_gone_is_not_revived_by_a_late_answer_to_a_write_of_ours() {
        let mut store = synced(&[thing("a", "1", 5), thing("b", "2", 6)]);
        store.apply(Change::Deleted(thing("a", "1", 9)));
        assert!(store.wrote(Arc::new(thing("a", "1", 8))).is_none());
        // Nor one whose end was seen by its absence from a list.
        store.apply(Change::Restarted);
        store.apply(Change::Synced);
        assert!(store.wrote(Arc::new(thing("b", "2", 7))).is_none());
        assert!(store.is_empty());
    }

    /// Rows: pains 99.
    #[test]
    fn a_late_deletion_of_the_predecessor_leaves_the_namesake_alone() {
        let mut store = synced(&[thing("a", "2", 10)]);
        assert!(store.apply(Change::Deleted(thing("a", "1", 9))).is_empty());
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn what_we_wrote_before_the_list_was_made_and_it_does_not_show_is_gone() {
        let mut store = synced(&[thing("a", "1", 5), thing("b", "2", 6)]);
        store.apply(Change::Restarted);
        // Our write to "a" is answered late: it was deleted since, and the list was made after that.
        store.wrote(Arc::new(thing("a", "1", 7)));
        store.apply(Change::Listed(thing("b", "2", 9)));
        store.apply(Change::Synced);
        assert_eq!(names(&store), ["b"]);
    }

    /// Rows: W31, pains 100, 103.
    #[test]
    fn what_a_relist_does_not_show_is_gone_but_not_what_we_wrote_meanwhile() {
        let mut store = synced(&[thing("a", "1", 5), thing("b", "2", 6)]);
        store.apply(Change::Restarted);
        store.apply(Change::Listed(thing("b", "2", 6)));
        store.wrote(Arc::new(thing("c", "3", 7)));
        let touched = store.apply(Change::Synced);
        assert_eq!(touched.len(), 1);
        assert_eq!(touched[0].old.as_ref().map(|old| old.key()), Some(Name::new("a")));
        assert_eq!(names(&store), ["b", "c"]);
    }
}
