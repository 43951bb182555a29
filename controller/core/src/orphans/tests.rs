use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::api::Machine;
use crate::change::Change;
use crate::ids::{NodeName, Uid};
use crate::world::Kind;

const PERIOD: SignedDuration = SignedDuration::from_mins(15);

fn at(minute: i64) -> Timestamp {
    Timestamp::constant(1_893_456_000, 0) + SignedDuration::from_mins(minute)
}

fn machine(name: &str, uid: &str, extra: &Value) -> Machine {
    let mut body = json!({
        "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": "1"},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    });
    crate::merge::apply(&mut body, extra);
    serde_json::from_value(body).expect("a Machine")
}

fn vm(name: &str) -> Sighting {
    Sighting {
        is_down: false,
        cluster_id: "c".into(),
        namespace: "n".into(),
        name: Some(Name::new(name)),
        uid: Some(Uid::new(format!("uid-{name}"))),
        provider_id: Some(ProviderId::new(format!("virtual:///{name}"))),
        node_name: Some(NodeName::new(name)),
        zone: "a".into(),
        created: Some(at(-60)),
    }
}

/// A run of looks, one after the other.
struct Story {
    world: World,
    settings: Settings,
    sight: Sight,
    noted: Noted,
}

impl Story {
    /// Six Machines with their VMs, so that one or two more are no common cause.
    fn new() -> Self {
        let mut story = Self {
            world: World::default(),
            settings: Settings::new("c"),
            sight: Sight::CLEAR,
            noted: Noted::default(),
        };
        for name in OWN {
            story.sees(machine(name, &format!("uid-{name}"), &json!({})));
        }
        story
    }

    fn sees<K: Kind>(&mut self, object: K) {
        self.world.observe(Change::Applied(object), Duration::ZERO);
    }

    fn look(&mut self, minute: i64, vms: &[Sighting], gap: Option<Gap>) -> Plan {
        let listing = Listing {
            begun: at(minute),
            ended: at(minute),
            vms: OWN.into_iter().map(vm).chain(vms.iter().cloned()).collect(),
            gap,
        };
        let seen = Observed {
            listing: &listing,
            noted: &self.noted,
            world: &self.world,
            sight: self.sight,
            propagation_delay: SignedDuration::ZERO,
            namespace: "n",
            settings: &self.settings,
        };
        let plan = plan(&seen);
        self.noted = plan.noted.clone();
        plan
    }
}

const OWN: [&str; 6] = ["m-1", "m-2", "m-3", "m-4", "m-5", "m-6"];

fn deleted(plan: &Plan) -> Vec<String> {
    let evidence = |step: &Step| match step {
        Step::Delete(evidence) => Some(evidence.machine().to_string()),
        Step::Tell(..) | Step::Hold(_) => None,
    };
    plan.steps.iter().filter_map(evidence).collect()
}

/// How many VMs people are told to be so.
fn told(plan: &Plan, finding: Finding) -> usize {
    let is_told = |step: &&Step| matches!(step, Step::Tell(told, _) if *told == finding);
    plan.steps.iter().filter(is_told).count()
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

/// Rows: W6, pains 29, 33.
#[test]
fn a_vm_of_no_machine_goes_after_two_complete_listings_that_are_apart() {
    let mut story = Story::new();
    let first = story.look(0, &[vm("lost")], None);
    assert_eq!((deleted(&first), &first.why), (vec![], &Why::Accounted));
    assert_eq!(first.wake, Some(at(2)), "it is looked at again soon");
    assert_eq!(deleted(&story.look(1, &[vm("lost")], None)), [""; 0], "too soon");
    let second = story.look(2, &[vm("lost")], None);
    assert_eq!((deleted(&second), second.why), (names(["lost"]), Why::Deleting));
    assert_eq!(second.report.owned, 6);
}

/// Rows: pains 19, 21.
#[test]
fn what_a_machine_owns_or_claims_or_may_be_about_to_own_stays() {
    let mut story = Story::new();
    let claims = json!({"spec": {"providerID": "virtual:///restored"}});
    story.sees(machine("other", "uid-renamed", &json!({})));
    story.sees(machine("restored", "uid-new", &claims));
    story.world.ledger.sends(&Name::new("sent"), at(0));
    let all = [vm("renamed"), vm("restored"), vm("sent")];
    for minute in [0, 15, 30] {
        let plan = story.look(minute, &all, None);
        assert_eq!(
            (deleted(&plan), plan.report.owned, plan.report.suspected),
            (vec![], 9, 0)
        );
    }
}

/// Rows: pains 20.
#[test]
fn a_vm_whose_creation_is_tried_again_stays() {
    let mut story = Story::new();
    for phase in ["", "Pending", "CrashLoopBackOff", "Failed"] {
        let name = format!("again-{}", phase.to_lowercase());
        let failed = json!({"status": {
            "currentStatus": {"phase": phase},
            "lastOperation": {"type": "Create", "state": "Failed", "errorCode": "Internal", "description": "no answer"},
        }});
        story.sees(machine(&name, &format!("uid-{name}"), &failed));
        // Its first try was not answered: only the provider knows of the VM.
        for minute in [0, 15, 30] {
            let plan = story.look(minute, &[vm(&name)], None);
            assert_eq!((deleted(&plan), plan.report.owned), (vec![], 7), "{phase}");
        }
    }
}

#[test]
fn a_second_vm_of_a_machine_is_told_once_and_stays() {
    let mut story = Story::new();
    let named = json!({"metadata": {"resourceVersion": "2"}, "spec": {"providerID": "virtual:///m-1"}});
    story.sees(machine("m-1", "uid-m-1", &named));
    let second = |name: &str| Sighting {
        provider_id: Some(ProviderId::new(format!("virtual:///{name}-2"))),
        ..vm(name)
    };
    // Which VM is m-2's is not known yet.
    let twins = [second("m-1"), second("m-2")];
    let first = story.look(0, &twins, None);
    let told = Step::Tell(Finding::Duplicate, Box::new(second("m-1")));
    assert_eq!(first.steps, [told]);
    assert_eq!((first.report.owned, first.report.unclear), (7, 1));
    for minute in [15, 30] {
        assert_eq!(story.look(minute, &twins, None).steps, []);
    }
}

#[test]
fn a_vm_without_a_uid_belongs_to_the_machine_of_its_name() {
    let older = |name: &str| Sighting {
        uid: None,
        provider_id: Some(ProviderId::new(format!("old:///{name}"))),
        ..vm(name)
    };
    let mut story = Story::new();
    story.look(0, &[older("m-1"), older("lost")], None);
    assert_eq!(deleted(&story.look(15, &[older("m-1"), older("lost")], None)), ["lost"]);
}

#[test]
fn a_vm_without_a_namespace_is_the_machines_that_names_it() {
    let mut story = Story::new();
    let mut named = machine("adopted", "adopted-uid", &json!({}));
    named.spec.provider_id = Some("p:///adopted".to_owned());
    story.sees(named);
    let vm = |name: &str| Sighting {
        namespace: String::new(),
        uid: None,
        provider_id: ProviderId::non_empty(Some(&format!("p:///{name}"))),
        ..vm(name)
    };
    let plan = story.look(0, &[vm("adopted"), vm("stray")], None);
    assert_eq!(
        (plan.report.unclear, told(&plan, Finding::Unmarked)),
        (1, 1),
        "the stray one alone"
    );
}

#[test]
fn a_listing_has_no_running_vm_where_the_provider_shows_one_that_is_down() {
    let down = Sighting {
        is_down: true,
        ..vm("down")
    };
    let listing = Listing {
        begun: at(0),
        ended: at(0),
        vms: vec![vm("up"), down],
        gap: None,
    };
    assert_eq!(listing.up(), vm("up").provider_id.into_iter().collect());
}

/// A bastion bears the tags of the cluster as well.
#[test]
fn a_vm_that_only_an_older_controller_has_marked_is_told_and_never_deleted() {
    let marked = Sighting {
        uid: None,
        ..vm("bastion")
    };
    let mut story = Story::new();
    story.settings.legacy_marks = [("kubernetes.io/cluster/c".to_owned(), "1".to_owned())].into();
    for minute in [0, 15, 30] {
        assert_eq!(
            deleted(&story.look(minute, std::slice::from_ref(&marked), None)),
            [""; 0]
        );
    }
    story.settings.legacy_marks.clear();
    story.look(45, std::slice::from_ref(&marked), None);
    assert_eq!(
        deleted(&story.look(60, &[marked], None)),
        ["bastion"],
        "a driver's own older marks"
    );
}

/// Rows: W6.
#[test]
fn vms_of_other_clusters_and_namespaces_and_of_lost_tags_stay() {
    let mut story = Story::new();
    let foreign = Sighting {
        cluster_id: "other".into(),
        ..vm("a")
    };
    let elsewhere = Sighting {
        namespace: "elsewhere".into(),
        ..vm("b")
    };
    let no_cluster = Sighting {
        cluster_id: String::new(),
        ..vm("c")
    };
    let no_name = Sighting { name: None, ..vm("d") };
    let all = [foreign, elsewhere, no_cluster, no_name];
    let first = story.look(0, &all, None);
    assert_eq!((first.report.foreign, first.report.unclear), (2, 2));
    assert_eq!(told(&first, Finding::Unmarked), 2, "lost tags are told");
    let second = story.look(15, &all, None);
    assert_eq!((second.steps.len(), second.why), (0, Why::Accounted), "and told once");
}

/// Rows: pains 33.
#[test]
fn an_incomplete_listing_proves_nothing_and_disproves_nothing() {
    let mut story = Story::new();
    let gap = Some(Gap::Unreachable(vec!["zone-b".into()]));
    story.look(0, &[vm("lost")], None);
    let plan = story.look(15, &[vm("lost")], gap.clone());
    assert!(
        plan.steps.is_empty() && matches!(plan.why, Why::Incomplete(_)),
        "{plan:?}"
    );
    assert_eq!(deleted(&story.look(30, &[vm("lost")], None)), ["lost"]);
    let mut story = Story::new();
    for minute in [0, 15, 30] {
        assert!(story.look(minute, &[vm("lost")], gap.clone()).steps.is_empty());
    }
}

/// Rows: pains 19.
#[test]
fn a_young_vm_waits_for_its_age_and_one_without_an_age_is_told() {
    let mut story = Story::new();
    let young = Sighting {
        created: Some(at(0)),
        ..vm("young")
    };
    story.look(0, std::slice::from_ref(&young), None);
    let plan = story.look(15, std::slice::from_ref(&young), None);
    assert_eq!((deleted(&plan), plan.wake), (vec![], Some(at(20))));
    assert_eq!(deleted(&story.look(20, &[young], None)), ["young"]);

    let ageless = Sighting {
        created: None,
        ..vm("ageless")
    };
    let mut story = Story::new();
    let mut counted = |minute| {
        let plan = story.look(minute, std::slice::from_ref(&ageless), None);
        told(&plan, Finding::Ageless)
    };
    assert_eq!([0, 15, 30].map(&mut counted), [1, 0, 0]);
}

/// Rows: pains 32, 34.
#[test]
fn a_gap_in_the_lead_or_the_watches_voids_what_was_seen_before() {
    let blind = [
        Sight {
            lead_since: at(10),
            ..Sight::CLEAR
        },
        Sight {
            control_since: Some(at(10)),
            ..Sight::CLEAR
        },
        Sight {
            driver_since: Some(at(10)),
            ..Sight::CLEAR
        },
    ];
    for sight in blind {
        let mut story = Story::new();
        story.look(0, &[vm("lost")], None);
        story.sight = sight;
        assert_eq!(deleted(&story.look(15, &[vm("lost")], None)), [""; 0], "{sight:?}");
        assert_eq!(deleted(&story.look(30, &[vm("lost")], None)), ["lost"], "{sight:?}");
        story.sight.control_since = None;
        assert_eq!(story.look(45, &[vm("lost")], None).why, Why::Blind);
    }
}

/// Rows: pains 32, 48.
#[test]
fn where_most_vms_have_no_machine_none_is_deleted() {
    let mut story = Story::new();
    story.world = World::default();
    let held = |plan: &Plan| plan.steps.iter().filter(|step| matches!(step, Step::Hold(_))).count();
    story.look(0, &[], None);
    let plan = story.look(15, &[], None);
    assert_eq!(
        plan.why,
        Why::TooMany {
            orphans: 6,
            vms: 6,
            limit: 3
        }
    );
    assert_eq!((deleted(&plan), held(&plan)), (vec![], 1));
    assert_eq!(held(&story.look(30, &[], None)), 0, "it is told once");
    story.settings.max_orphans = IntOrPercent::Text("100%".into());
    assert_eq!(
        deleted(&story.look(45, &[], None)).len(),
        1,
        "a tenth, but one at least"
    );
    story.settings.max_orphans = IntOrPercent::Int(0);
    assert_eq!(deleted(&story.look(60, &[], None)).len(), 0);
}

#[test]
fn a_look_deletes_a_tenth_and_the_oldest_first() {
    let mut story = Story::new();
    for nth in 0..34 {
        let name = format!("own-{nth}");
        story.sees(machine(&name, &format!("uid-{name}"), &json!({})));
    }
    let mut all: Vec<Sighting> = (0..34).map(|nth| vm(&format!("own-{nth}"))).collect();
    all.extend((0..8).map(|nth| Sighting {
        created: Some(at(-100 + nth)),
        ..vm(&format!("lost-{nth}"))
    }));
    story.look(0, &all, None);
    let plan = story.look(15, &all, None);
    assert_eq!(
        (deleted(&plan), plan.why),
        (names(["lost-0", "lost-1", "lost-2", "lost-3"]), Why::Capped)
    );
}

/// Rows: pains 36.
#[test]
fn no_orphan_is_deleted_while_a_breaker_is_open() {
    let mut story = Story::new();
    for name in OWN {
        let ill = json!({"metadata": {"resourceVersion": "2"}, "status": {"currentStatus": {"phase": "Unknown"}}});
        story.sees(machine(name, &format!("uid-{name}"), &ill));
    }
    story.look(0, &[vm("lost")], None);
    let plan = story.look(15, &[vm("lost")], None);
    assert!(
        deleted(&plan).is_empty() && matches!(plan.why, Why::Breaker(_)),
        "{plan:?}"
    );
}

#[test]
fn a_dry_run_names_orphans_once_and_deletes_none() {
    let mut story = Story::new();
    story.settings.orphan_dry_run = true;
    let counts = [0, 15, 30].map(|minute| {
        let plan = story.look(minute, &[vm("lost")], None);
        let named = told(&plan, Finding::DryRun);
        (named, deleted(&plan).len(), plan.report.orphans)
    });
    assert_eq!(counts, [(0, 0, 0), (1, 0, 1), (0, 0, 1)]);
}

#[test]
fn a_vm_that_was_tagged_anew_between_two_listings_is_a_new_suspect() {
    let mut story = Story::new();
    story.look(0, &[vm("lost")], None);
    let retagged = Sighting {
        uid: Some(Uid::new("another")),
        ..vm("lost")
    };
    assert_eq!(deleted(&story.look(15, &[retagged], None)), [""; 0]);
}

/// Rows: W6.
#[test]
fn the_live_read_spares_a_vm_whose_machine_is_there_or_claims_it() {
    let evidence = |sighting: &Sighting| Evidence::of(sighting, &Name::new("lost"), at(0), at(15));
    let lost = vm("lost");
    let lives = machine("lost", "uid-lost", &json!({}));
    assert!(matches!(evidence(&lost).confirm(Some(&lives)), Err(Spared::Lives(_))));
    let claims = machine("lost", "new", &json!({"spec": {"providerID": "virtual:///lost"}}));
    assert!(matches!(
        evidence(&lost).confirm(Some(&claims)),
        Err(Spared::Claimed(_))
    ));
    let namesake = machine("lost", "new", &json!({}));
    assert!(
        evidence(&lost).confirm(Some(&namesake)).is_ok(),
        "a namesake has a VM of its own"
    );
    let unmarked = Sighting {
        uid: None,
        ..vm("lost")
    };
    assert!(matches!(
        evidence(&unmarked).confirm(Some(&namesake)),
        Err(Spared::Lives(_))
    ));
    let proof = evidence(&lost).confirm(None).expect("there is no such Machine");
    assert_eq!(
        crate::permit::DeletePermit::for_orphan(proof).uid().as_str(),
        "uid-lost"
    );
}

fn class(name: &str) -> crate::api::MachineClass {
    let body =
        json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "provider": "virtual", "providerSpec": {}});
    serde_json::from_value(body).expect("a class")
}

fn judge(world: &mut World, class: &str, key: Option<&str>) {
    let name = Name::new(class);
    let stamp = world.ledger.begins_check(&name);
    let reached = crate::api::CreationRequest::of(world.classes.get(&name).expect("a class"), key);
    world.ledger.note_reached(&name, reached, None);
    world.ledger.judged(
        &name,
        stamp,
        crate::class::Readiness::Faulty(crate::class::Fault::NoDriver),
    );
}

/// Rows: pains 107.
#[test]
fn classes_that_reach_the_same_vms_are_listed_once() {
    let mut world = World::default();
    for name in ["a", "b", "c", "unchecked"] {
        world.observe(Change::Applied(class(name)), Duration::ZERO);
    }
    judge(&mut world, "a", Some("account"));
    judge(&mut world, "b", Some("account"));
    judge(&mut world, "c", None);
    let settings = Settings::new("c");
    let mut due = |minute, is_ready: bool| {
        let due = Inventories::due(&mut world, at(0), &settings, |_| is_ready, at(minute));
        let text = |(inventory, ways): &(Inventory, Vec<Way>)| format!("{inventory}: {}", ways.len());
        (due.iter().map(text).collect::<Vec<_>>(), due)
    };
    assert_eq!(due(1, true).0, [""; 0], "not so soon after the lead began");
    assert_eq!(due(2, false).0, [""; 0], "the driver is away");
    let (first, all) = due(2, true);
    assert_eq!(first.len(), 2, "{first:?}");
    assert_eq!(
        first[1], "virtual/account: 2",
        "the other has no name but what reaches it"
    );
    assert_eq!(due(30, true).0, [""; 0], "they are under way");
    for (inventory, _) in &all {
        world.ledger.inventories.ended(inventory, at(2) + PERIOD);
    }
    // What is in doubt is not forgotten.
    world.doubt(&Name::new("c"), Duration::ZERO);
    let again = Inventories::due(&mut world, at(0), &settings, |_| true, at(17));
    assert_eq!(again.len(), 2);
}

fn node(name: &str, ready: &str, id: &str) -> k8s_openapi::api::core::v1::Node {
    let body = json!({
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": at(-60).to_string(),
            "labels": {crate::api::keys::MACHINE_NAME: name}, "finalizers": [crate::api::keys::NODE_FINALIZER],
        },
        "spec": {"providerID": id}, "status": {"conditions": [{"type": "Ready", "status": ready}]},
    });
    serde_json::from_value(body).expect("a Node")
}

/// Rows: K6, pains 22.
#[test]
fn a_node_without_machine_and_vm_goes_after_two_looks() {
    let mut story = Story::new();
    for (name, ready) in [
        ("left", "Unknown"),
        ("ready", "True"),
        ("m-1", "Unknown"),
        ("has-vm", "Unknown"),
        ("strange", "Unknown"),
    ] {
        story.sees(node(name, ready, &format!("virtual:///{name}")));
    }
    story.sees(class("a"));
    judge(&mut story.world, "a", Some("account"));
    let due = Inventories::due(&mut story.world, at(-10), &story.settings, |_| true, at(0));
    let inventory = &due.first().expect("one").0;
    let ours =
        ["left", "ready", "m-1", "has-vm"].map(|name| (ProviderId::new(format!("virtual:///{name}")), Name::new(name)));
    story.world.ledger.inventories.saw(ours.into(), |_| true);
    let mut look = |listed: Option<i64>, now: i64| {
        if let Some(minute) = listed {
            let shown = BTreeSet::from([ProviderId::new("virtual:///has-vm")]);
            story
                .world
                .ledger
                .inventories
                .shown(inventory, at(minute), shown, Report::default());
        }
        let mut plan = nodes::plan(&story.world, &story.sight, &story.settings, at(now));
        nodes::note(&mut story.world, &mut plan);
        plan.removals
    };
    assert_eq!(look(None, 0), [], "nothing was listed yet");
    assert_eq!(look(Some(1), 1), []);
    assert_eq!(look(None, 10), [], "no second listing");
    let removals = look(Some(16), 16);
    let names: Vec<String> = removals.iter().map(|evidence| evidence.node().to_string()).collect();
    assert_eq!(names, ["left"]);
    let mut removals = removals.into_iter();
    let recovered = node("left", "True", "virtual:///left");
    assert_eq!(
        removals.next().and_then(|evidence| evidence.confirm(None, &recovered)),
        None
    );
    let evidence = look(Some(31), 31).pop().expect("it is found again");
    let live = node("left", "Unknown", "virtual:///left");
    assert!(evidence.confirm(None, &live).is_some());
    // K6. Somebody has deleted it, and nobody is there who would take our finalizer off.
    let mut held = node("ready", "True", "virtual:///ready");
    held.metadata.deletion_timestamp = Some(Time(at(32)));
    held.metadata.resource_version = Some("2".to_owned());
    story.sees(held.clone());
    let removals = nodes::plan(&story.world, &story.sight, &story.settings, at(32)).removals;
    let evidence = removals
        .into_iter()
        .find(|evidence| evidence.node().to_string() == "ready");
    assert!(evidence.and_then(|evidence| evidence.confirm(None, &held)).is_some());
}
