//! Read-your-writes: which version of an object is the oldest that may still be believed.
//!
//! Every write returns the version that it made, and the store takes that object at once (GE-4). A
//! watch event that was under way meanwhile is older than it; the fence keeps such an event from undoing what the
//! store already knows, and keeps an object that we saw the last of from coming back. It knows uids and versions only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::ids::{ResourceVersion, Uid};

/// How many ended objects are remembered. Far more than requests can be under way while so many objects end.
const REMEMBERED: usize = 10_000;

/// Stands for a uid in a tenth of its memory. API servers choose uids at random, so that two with one digest are too
/// unlikely to matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Digest(u64);

impl Digest {
    fn of(uid: &Uid) -> Self {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The oldest version of each object that a watch may still bring into a store.
#[derive(Debug, Default)]
pub struct Fence {
    floors: BTreeMap<Digest, ResourceVersion>,
    gone: BTreeSet<Digest>,
    /// In the order of their ends.
    ends: VecDeque<Digest>,
}

impl Fence {
    /// Our write made `version` of the object.
    pub fn wrote(&mut self, uid: &Uid, version: ResourceVersion) {
        let object = Digest::of(uid);
        if self.gone.contains(&object) {
            return;
        }
        let floor = self.floors.entry(object).or_insert(version);
        *floor = (*floor).max(version);
    }

    /// The object is gone, by our write or by what a watch told: whatever still arrives of it is history. That holds for ever,
    /// because no uid comes back; the answer to an earlier write of ours may arrive after the watch has told of the end.
    pub fn ended(&mut self, uid: &Uid) {
        let object = Digest::of(uid);
        self.floors.remove(&object);
        if self.gone.insert(object) {
            self.ends.push_back(object);
        }
        if self.ends.len() > REMEMBERED
            && let Some(oldest) = self.ends.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    /// Whether an object of that version, brought by a watch, may enter the store. A version that cannot be compared
    /// is let in, because refusing it for ever would be worse.
    pub fn admits(&self, uid: &Uid, version: Option<ResourceVersion>) -> bool {
        let object = Digest::of(uid);
        if self.gone.contains(&object) {
            return false;
        }
        match (self.floors.get(&object), version) {
            (None, _) | (Some(_), None) => true,
            (Some(floor), Some(version)) => version >= *floor,
        }
    }

    /// Drops the floors of all objects but these: after a relist, what is neither in the list nor in the store can bring no more events.
    pub fn retain<'a>(&mut self, alive: impl IntoIterator<Item = &'a Uid>) {
        let alive: BTreeSet<Digest> = alive.into_iter().map(Digest::of).collect();
        self.floors.retain(|object, _| alive.contains(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(n: &str) -> ResourceVersion {
        ResourceVersion::parse(n).expect("a number")
    }

    #[test]
    fn an_event_older_than_our_write_is_refused_and_our_own_event_is_let_in() {
        let mut fence = Fence::default();
        fence.wrote(&Uid::new("u"), version("10"));
        fence.wrote(&Uid::new("u"), version("9"));
        assert!(!fence.admits(&Uid::new("u"), Some(version("9"))));
        assert!(fence.admits(&Uid::new("u"), Some(version("10"))));
        assert!(fence.admits(&Uid::new("other"), Some(version("1"))));
    }

    #[test]
    fn an_object_that_ended_does_not_come_back() {
        let mut fence = Fence::default();
        fence.ended(&Uid::new("u"));
        fence.wrote(&Uid::new("u"), version("3"));
        fence.ended(&Uid::new("u"));
        assert!(!fence.admits(&Uid::new("u"), Some(version("99"))));
        assert!(!fence.admits(&Uid::new("u"), None));
    }

    #[test]
    fn only_so_many_ends_are_remembered() {
        let mut fence = Fence::default();
        (0..REMEMBERED + 5).for_each(|number| fence.ended(&Uid::new(number.to_string())));
        assert_eq!((fence.gone.len(), fence.ends.len()), (REMEMBERED, REMEMBERED));
        assert!(fence.admits(&Uid::new("4"), None));
        assert!(!fence.admits(&Uid::new("5"), None));
    }
}
