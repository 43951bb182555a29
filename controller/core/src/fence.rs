//! Read-your-writes: which version of an object is the oldest that may still be believed.
//!
//! Every write returns the version that it made, and the store takes that object at once (`architecture.md` §2.4). A
//! watch event that was under way meanwhile is older than it; the fence keeps such an event from undoing what the
//! store already knows, and keeps an object that we saw the last of from coming back. It knows uids and versions only.

use std::collections::BTreeMap;

use crate::ids::{ResourceVersion, Uid};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Fence {
    floors: BTreeMap<Uid, Floor>,
}

#[derive(Clone, Copy, Debug)]
enum Floor {
    /// We wrote this version.
    Wrote(ResourceVersion),
    /// We removed the last thing that kept the object alive.
    Gone,
}

impl Fence {
    /// Our write made `version` of the object.
    pub fn wrote(&mut self, uid: Uid, version: ResourceVersion) {
        let floor = self.floors.entry(uid).or_insert(Floor::Wrote(version));
        if let Floor::Wrote(known) = floor {
            *known = (*known).max(version);
        }
    }

    /// Our write ended the object: whatever still arrives of it is history.
    pub fn ended(&mut self, uid: Uid) {
        self.floors.insert(uid, Floor::Gone);
    }

    /// Whether an object of that version, brought by a watch, may enter the store. A version that cannot be compared
    /// is let in, because refusing it for ever would be worse.
    pub fn admits(&self, uid: &Uid, version: Option<ResourceVersion>) -> bool {
        match (self.floors.get(uid), version) {
            (None, _) | (Some(Floor::Wrote(_)), None) => true,
            (Some(Floor::Wrote(floor)), Some(version)) => version >= *floor,
            (Some(Floor::Gone), _) => false,
        }
    }

    /// The watch itself said that the object is gone.
    pub fn forget(&mut self, uid: &Uid) {
        self.floors.remove(uid);
    }

    /// Drops the floors of all objects but those that `keeps` names: after a relist, what is neither in the list nor
    /// in the store can bring no more events.
    pub fn retain(&mut self, keeps: impl Fn(&Uid) -> bool) {
        self.floors.retain(|uid, _| keeps(uid));
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
        fence.wrote(Uid::new("u"), version("10"));
        fence.wrote(Uid::new("u"), version("9"));
        assert!(!fence.admits(&Uid::new("u"), Some(version("9"))));
        assert!(fence.admits(&Uid::new("u"), Some(version("10"))));
        assert!(fence.admits(&Uid::new("other"), Some(version("1"))));
    }

    #[test]
    fn an_object_that_we_ended_does_not_come_back_until_the_watch_has_told_its_end() {
        let mut fence = Fence::default();
        fence.ended(Uid::new("u"));
        fence.wrote(Uid::new("u"), version("3"));
        assert!(!fence.admits(&Uid::new("u"), Some(version("99"))));
        fence.forget(&Uid::new("u"));
        assert!(fence.admits(&Uid::new("u"), Some(version("1"))));
    }
}
