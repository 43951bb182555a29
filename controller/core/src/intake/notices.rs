//! Notices about VMs, as far as Machines are concerned by them: whose VM is doubted from now on, and who looks again.
//!
//! Decides nothing about a Machine: it is asked for its VM, and the plan judges the answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::{Machine, Phase, meta};
use crate::driver::VmState;
use crate::ids::{Name, ProviderId, Uid};
use crate::kinds::OwnedBy;
use crate::ledger::Calls;
use crate::notice::Notice;
use crate::orphans::{Inventory, Way};
use crate::wake::{Key, Wake};
use crate::world::World;

impl World {
    /// Takes a notice. Gives whether a Machine's VM is doubted because of it, and was not before.
    pub fn noticed(&mut self, notice: &Notice, (now, uptime): (Timestamp, Duration)) -> bool {
        let Some(machine) = notice.name.as_ref().and_then(|name| self.machines.get(name)) else {
            return false;
        };
        let (name, uid) = meta::identity(&machine.metadata);
        let tagged = self.tagged_uid(&uid);
        // A VM from before a restore may bear another namespace, too.
        let is_tagged = notice.uid.is_some() && notice.uid == tagged;
        let is_named =
            notice.namespace == meta::namespace(&machine.metadata) && notice.uid.as_ref().is_none_or(|of| *of == uid);
        let is_its =
            (is_named || is_tagged) && (machine.provider_id().is_none() || machine.provider_id() == notice.provider_id);
        if !is_its {
            return false;
        }
        let is_leaving = meta::is_deleting(&machine.metadata);
        let has_ended = notice.state == VmState::Deleted;
        let is_doubted = notice.is_bad() && !is_leaving;
        let (mut is_news, mut begins) = (is_doubted, false);
        self.note_calls(&name, &uid, |calls| {
            if is_doubted {
                begins = calls.doubt.is_none();
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
        begins
    }

    /// The uid that a Machine's VM bears, where it is another than the Machine's.
    pub fn tagged_uid(&self, uid: &Uid) -> Option<Uid> {
        self.ledger.calls.get(uid)?.vm.as_ref()?.tagged_uid.clone()
    }

    /// Whether the id that a Machine names is another Machine's VM's.
    pub fn names_foreign_vm(&self, uid: &Uid) -> bool {
        let calls = self.ledger.calls.get(uid);
        calls.is_some_and(Calls::names_foreign_vm)
    }

    /// All VMs of an inventory were shown by a watch, which was opened by one of these ways: a Machine that runs, whose VM belongs there and
    /// was not among them, is doubted. Gives how many are.
    pub fn all_noticed(&mut self, ways: &[Way], shown: &BTreeSet<ProviderId>, at: (Timestamp, Duration)) -> usize {
        let is_watched = |machine: &Machine| machine.has_joined() || *machine.phase() == Phase::Available;
        self.all_shown(ways, shown, is_watched, at)
    }

    /// The same of a listing, whose driver need not be able to watch: Machines that have a Node are judged by it.
    pub fn all_listed(&mut self, ways: &[Way], shown: &BTreeSet<ProviderId>, at: (Timestamp, Duration)) -> usize {
        self.all_shown(ways, shown, |machine| *machine.phase() == Phase::Available, at)
    }

    fn all_shown(
        &mut self,
        ways: &[Way],
        shown: &BTreeSet<ProviderId>,
        is_judged: impl Fn(&Machine) -> bool,
        (now, uptime): (Timestamp, Duration),
    ) -> usize {
        let unrecorded = self.reach(ways, shown, uptime);
        let is_missing = |machine: &&Machine| {
            is_judged(machine)
                && !meta::is_deleting(&machine.metadata)
                && machine.provider_id().is_some_and(|id| !shown.contains(&id))
        };
        let inventory = ways.first().and_then(|way| Inventory::of(&way.request));
        let recorded = inventory
            .iter()
            .flat_map(|inventory| self.machines.find(OwnedBy::Inventory, inventory.as_str()));
        let unrecorded = unrecorded.iter().filter_map(|name| self.machines.get(name));
        let missing = recorded.chain(unrecorded).map(AsRef::as_ref).filter(is_missing);
        let missing: Vec<_> = missing.map(|machine| meta::identity(&machine.metadata)).collect();
        for (name, uid) in &missing {
            self.note_calls(name, uid, |calls| calls.doubt(now));
            self.wake([Wake::event(Key::Machine(name.clone()))], uptime);
        }
        missing.len()
    }

    /// Machines of these classes that do not say by what their VMs are reached: those whose VMs were shown learn it. Gives those whose VMs
    /// were not. Where a class was changed since the look began, the look says nothing of them.
    fn reach(&mut self, ways: &[Way], shown: &BTreeSet<ProviderId>, uptime: Duration) -> Vec<Name> {
        let mut missing = Vec::new();
        for way in ways {
            if way.live(self).is_none() {
                continue;
            }
            let request = Arc::new(way.request.clone());
            let is_open = |machine: &Machine| match machine.creation_request() {
                None => true,
                Some(has) => has.inventory_key.is_none() && has != &way.request && has.is_same(&way.request),
            };
            let machines = self.machines.find(OwnedBy::Class, way.class.as_str());
            let machines = machines.map(AsRef::as_ref).filter(|machine| is_open(machine));
            let seen: Vec<_> = machines
                .filter_map(|machine| Some((meta::identity(&machine.metadata), machine.provider_id()?)))
                .collect();
            for ((name, uid), id) in seen {
                if !shown.contains(&id) {
                    missing.push(name);
                    continue;
                }
                self.note_calls(&name, &uid, |calls| calls.reached = Some(Arc::clone(&request)));
                self.wake([Wake::event(Key::Machine(name))], uptime);
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::{CreationRequest, MachineClass};
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
        world.note_calls(&name, &uid, |calls| calls.delete_at = Some(later));
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

    fn class(region: &str) -> MachineClass {
        let class = json!({
            "metadata": {"name": "small", "namespace": "test", "uid": "c"},
            "provider": "virtual", "providerSpec": {"region": region},
        });
        serde_json::from_value(class).expect("it is a class")
    }

    fn way(region: &str) -> Way {
        Way {
            class: Name::new("small"),
            request: CreationRequest::of(&class(region), Some(region)),
        }
    }

    /// A world whose class names a region, and whose Machine says that its VM was asked for there, or nothing of it.
    fn world_in(region: &str, recorded: Option<&str>) -> World {
        let mut world = world(None);
        world.observe(Change::Applied(class(region)), Duration::ZERO);
        let machine = world.machines.iter().next().expect("it is there");
        let mut machine = machine.as_ref().clone();
        machine.metadata.resource_version = Some("2".to_owned());
        let status = machine.status.get_or_insert_default();
        status.creation_request = recorded.map(|region| way(region).request);
        world.observe(Change::Applied(machine), Duration::ZERO);
        world
    }

    #[test]
    fn a_watch_that_shows_nothing_makes_machines_be_asked_for_and_a_listing_only_those_without_a_node() {
        let (ways, none) = ([way("a")], BTreeSet::new());
        let at = (now(), Duration::ZERO);
        for recorded in [None, Some("a")] {
            let world = || world_in("a", recorded);
            assert_eq!(world().all_noticed(&ways, &none, at), 1);
            assert_eq!(world().all_listed(&ways, &none, at), 0, "its node says how it is");
            let own: BTreeSet<ProviderId> = ProviderId::non_empty(Some("virtual:///1")).into_iter().collect();
            assert_eq!(world().all_noticed(&ways, &own, at), 0);
        }
    }

    /// Rows: L1.
    #[test]
    fn a_vm_is_missing_only_among_those_that_it_was_made_with() {
        let (none, at) = (BTreeSet::new(), (now(), Duration::ZERO));
        assert_eq!(
            world_in("b", Some("a")).all_noticed(&[way("b")], &none, at),
            0,
            "the class was edited"
        );
        assert_eq!(world_in("b", Some("a")).all_noticed(&[way("a")], &none, at), 1);
        assert_eq!(
            world_in("b", None).all_noticed(&[way("a")], &none, at),
            0,
            "edited since the look began"
        );
    }

    #[test]
    fn a_machine_learns_by_what_its_vm_is_reached_when_it_was_shown_through_its_class() {
        let own: BTreeSet<ProviderId> = ProviderId::non_empty(Some("virtual:///1")).into_iter().collect();
        let learned = |mut world: World| {
            world.all_listed(&[way("a")], &own, (now(), Duration::ZERO));
            let calls = world.ledger.calls.get(&Uid::new("1"));
            calls.and_then(|calls| calls.reached.as_deref().cloned())
        };
        assert_eq!(learned(world_in("a", None)), Some(way("a").request));
        assert_eq!(
            learned(world_in("b", None)),
            None,
            "the class was edited since the look began"
        );
        assert_eq!(learned(world_in("a", Some("a"))), None, "it says so already");
    }
}
