//! Notices about VMs, as far as Machines are concerned by them: whose VM is doubted from now on, and who looks again.
//!
//! Decides nothing about a Machine: it is asked for its VM, and the plan judges the answer.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::World;
use crate::api::{Machine, Phase, meta};
use crate::driver::VmState;
use crate::ids::{Name, ProviderId};
use crate::kinds::OwnedBy;
use crate::notice::Notice;
use crate::wake::{Key, Wake};

impl World {
    /// Takes a notice. Gives whether a Machine's VM is doubted because of it.
    pub fn noticed(&mut self, notice: &Notice, (now, uptime): (Timestamp, Duration)) -> bool {
        let Some(machine) = notice.name.as_ref().and_then(|name| self.machines.get(name)) else {
            return false;
        };
        let (name, uid) = meta::identity(&machine.metadata);
        let is_its = notice.namespace == meta::namespace(&machine.metadata)
            && notice.uid.as_ref().is_none_or(|of| *of == uid)
            && (machine.provider_id().is_none() || machine.provider_id() == notice.provider_id);
        if !is_its {
            return false;
        }
        let is_leaving = meta::is_deleting(&machine.metadata);
        let has_ended = notice.state == VmState::Deleted;
        let is_doubted = notice.is_bad() && !is_leaving;
        let mut is_news = is_doubted;
        self.note::<Machine>(&name, &uid, |ledger| {
            let calls = ledger.calls.entry(uid.clone()).or_default();
            if is_doubted {
                calls.doubt(now);
            }
            // Whoever waits for the VM to change waits no longer than until it did.
            let waits = match is_leaving {
                true => calls.delete_at.as_mut().filter(|_| has_ended),
                false => calls.poll_at.as_mut().filter(|_| notice.state != VmState::Creating),
            };
            if let Some(at) = waits.filter(|at| **at > now) {
                *at = now;
                is_news = true;
            }
        });
        if is_news {
            self.wake([Wake::event(Key::Machine(name))], uptime);
        }
        is_doubted
    }

    /// All VMs that these classes reach were shown by a watch: a Machine that runs, and whose VM was not among them, is doubted. Gives
    /// how many are.
    pub fn all_noticed(&mut self, classes: &[Name], shown: &BTreeSet<ProviderId>, at: (Timestamp, Duration)) -> usize {
        let is_watched = |machine: &Machine| machine.has_joined() || *machine.phase() == Phase::Available;
        self.all_shown(classes, shown, is_watched, at)
    }

    /// The same of a listing, whose driver need not be able to watch: Machines that have a Node are judged by it.
    pub fn all_listed(&mut self, classes: &[Name], shown: &BTreeSet<ProviderId>, at: (Timestamp, Duration)) -> usize {
        self.all_shown(classes, shown, |machine| *machine.phase() == Phase::Available, at)
    }

    fn all_shown(
        &mut self,
        classes: &[Name],
        shown: &BTreeSet<ProviderId>,
        is_judged: impl Fn(&Machine) -> bool,
        (now, uptime): (Timestamp, Duration),
    ) -> usize {
        let is_missing = |machine: &&Machine| {
            is_judged(machine)
                && !meta::is_deleting(&machine.metadata)
                && machine.provider_id().is_some_and(|id| !shown.contains(&id))
        };
        let all = classes
            .iter()
            .flat_map(|class| self.machines.find(OwnedBy::Class, class.as_str()));
        let missing = all.map(AsRef::as_ref).filter(is_missing);
        let missing: Vec<_> = missing.map(|machine| meta::identity(&machine.metadata)).collect();
        for (name, uid) in &missing {
            self.note::<Machine>(name, uid, |ledger| {
                ledger.calls.entry(uid.clone()).or_default().doubt(now)
            });
            self.wake([Wake::event(Key::Machine(name.clone()))], uptime);
        }
        missing.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::change::Change;
    use crate::ids::Uid;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("it is a time")
    }

    fn world(deleting: Option<&str>) -> World {
        let metadata = json!({
            "name": "one", "namespace": "test", "uid": "1", "resourceVersion": "1", "deletionTimestamp": deleting,
        });
        let class = json!({"kind": "MachineClass", "name": "small"});
        let spec = json!({"providerID": "virtual:///1", "class": class});
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let machine: Value = json!({"metadata": metadata, "spec": spec, "status": status});
        let mut world = World::default();
        let machine: Machine = serde_json::from_value(machine).expect("it is a machine");
        world.observe(Change::Applied(machine), Duration::ZERO);
        world
    }

    fn notice() -> Notice {
        Notice {
            namespace: "test".to_owned(),
            name: Name::non_empty(Some("one")),
            uid: Uid::non_empty(Some("1")),
            provider_id: ProviderId::non_empty(Some("virtual:///1")),
            state: VmState::Stopped,
            disturbance: None,
        }
    }

    #[test]
    fn news_of_a_vm_that_is_not_the_machines_own_concern_nobody() {
        let own = notice();
        let of = |change: fn(&mut Notice)| {
            let mut notice = own.clone();
            change(&mut notice);
            world(None).noticed(&notice, (now(), Duration::ZERO))
        };
        assert!(of(|_| {}), "it is its own");
        assert!(of(|notice| notice.uid = None), "an older controller made it");
        assert!(!of(|notice| notice.uid = Uid::non_empty(Some("2"))), "a namesake's");
        assert!(!of(|notice| notice.namespace = "other".to_owned()));
        assert!(!of(
            |notice| notice.provider_id = ProviderId::non_empty(Some("virtual:///2"))
        ));
        assert!(!of(|notice| notice.name = None), "the tag is lost");
        assert!(!of(|notice| notice.state = VmState::Running), "no bad news");
    }

    #[test]
    fn whoever_waits_for_the_end_of_a_vm_asks_when_it_has_come() {
        let mut world = world(Some("2026-01-01T00:00:00Z"));
        let (name, uid) = (Name::new("one"), Uid::new("1"));
        let later = now() + jiff::SignedDuration::from_mins(5);
        world.note::<Machine>(&name, &uid, |ledger| {
            ledger.calls.entry(Uid::new("1")).or_default().delete_at = Some(later);
        });
        let delete_at = |world: &World| world.ledger.calls[&Uid::new("1")].delete_at;
        assert!(!world.noticed(&notice(), (now(), Duration::ZERO)));
        assert_eq!(delete_at(&world), Some(later), "it is stopped, not gone");
        let gone = Notice {
            state: VmState::Deleted,
            ..notice()
        };
        assert!(
            !world.noticed(&gone, (now(), Duration::ZERO)),
            "it is being deleted: nothing is doubted"
        );
        assert_eq!(delete_at(&world), Some(now()));
    }

    #[test]
    fn a_watch_that_shows_nothing_makes_machines_be_asked_for_and_a_listing_only_those_without_a_node() {
        let (classes, none) = ([Name::new("small")], BTreeSet::new());
        let at = (now(), Duration::ZERO);
        assert_eq!(world(None).all_noticed(&classes, &none, at), 1);
        assert_eq!(
            world(None).all_listed(&classes, &none, at),
            0,
            "its node says how it is"
        );
        let own: BTreeSet<ProviderId> = ProviderId::non_empty(Some("virtual:///1")).into_iter().collect();
        assert_eq!(world(None).all_noticed(&classes, &own, at), 0);
    }
}
