use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    Timestamp::constant(1_893_456_000, 0)
}

fn pod(name: &str, extra: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"containers": [{"name": "c", "env": [{"name": "SECRET", "value": "hidden"}]}]},
        "status": {"phase": "Running"},
    });
    crate::merge::apply(&mut pod, &extra);
    serde_json::from_value(pod).expect("it is a Pod")
}

fn listed(pods: impl IntoIterator<Item = Pod>) -> Drain {
    let mut drain = Drain::begin(Name::new("m"), NodeName::new("n"), now());
    drain.observe(Change::Restarted, now());
    for pod in pods {
        drain.observe(Change::Listed(pod), now());
    }
    drain.observe(Change::Synced, now());
    drain
}

fn settings() -> Settings {
    Settings::new("test")
}

/// Volumes that are attached to Nodes, as a watch that has listed shows them.
fn known<const N: usize>(attached: [(&str, &str); N]) -> Volumes {
    let mut volumes = Volumes::default();
    volumes.begin();
    let attachment = |(volume, node): (&str, &str)| {
        let attachment = json!({"metadata": {"name": format!("{volume}-{node}"), "uid": volume},
            "spec": {"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": volume}},
            "status": {"attached": true}});
        Change::Listed(serde_json::from_value(attachment).expect("it is a VolumeAttachment"))
    };
    let all = attached.into_iter().map(attachment);
    for change in [Change::Restarted].into_iter().chain(all).chain([Change::Synced]) {
        drop(volumes.apply(change));
    }
    volumes
}

fn names(pods: &[PodRef]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}

fn claim() -> Value {
    json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})
}

/// A pod that was asked to end at that time, with that grace.
fn leaving(name: &str, ends: i64, grace: i64, extra: Value) -> Pod {
    let ends = later(now(), SignedDuration::from_secs(ends));
    let mut pod = json!({"metadata": {"deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}});
    crate::merge::apply(&mut pod, &extra);
    self::pod(name, pod)
}

#[test]
fn a_pod_that_stops_is_there_until_its_object_is_gone_whatever_its_phase() {
    let stopping = leaving("stopping", 0, 0, json!({"status": {"phase": "Failed"}}));
    let mut drain = listed([stopping.clone(), pod("done", json!({"status": {"phase": "Failed"}}))]);
    assert_eq!(drain.emptied(), None, "its volumes are still mounted");
    drain.observe(Change::Deleted(stopping), now());
    assert_eq!(drain.emptied(), Some(now()));
}

/// Rows: K3.
#[test]
fn a_pod_that_never_ends_holds_a_place_no_longer_than_a_detachment_may_take() {
    let stuck = (0..VOLUMES_AT_ONCE).map(|number| leaving(&format!("stuck-{number}"), 600, 600, claim()));
    let mut drain = listed(stuck.chain([pod("waits", claim())]));
    let (settings, due) = (settings(), |drain: &Drain, at| {
        names(&drain.due(&known([]), &self::settings(), None, at)).len()
    });
    let in_time = later(later(now(), SignedDuration::from_secs(600)), settings.detach_timeout);
    assert_eq!(
        (due(&drain, now()), due(&drain, in_time)),
        (0, 1),
        "somebody else asked them"
    );
    for number in 0..VOLUMES_AT_ONCE {
        let asked = reference(&pod(&format!("stuck-{number}"), claim()));
        drain.tried(&asked, Removal::Accepted, now());
    }
    assert_eq!(due(&drain, later(now(), settings.detach_timeout)), 1, "we asked them");
}

/// Rows: K8.
#[test]
fn a_pod_is_in_the_way_once_its_grace_is_over() {
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let drain = listed([leaving("long", 600, 600, json!({})), leaving("held", 30, 30, held)]);
    let first = drain.leaving().expect("two leave");
    assert_eq!((first.pod.name.as_str(), first.since), ("held", now()));
    assert_eq!(drain.blocker(now()), None, "it has its grace");
    let late = later(first.until, SHOWN_WITHIN);
    assert_eq!(drain.again_at(&known([]), &settings(), None, now()), Some(late));
    let Some(Blocker::Overdue(overdue)) = drain.blocker(late) else {
        panic!("its grace is over")
    };
    assert_eq!(overdue.finalizers, ["example.com/hold"]);
}

/// Rows: L6.
#[test]
fn before_an_announced_end_each_pod_has_its_grace() {
    let slow = json!({"spec": {"terminationGracePeriodSeconds": 100}});
    let drain = listed([pod("slow", slow), pod("quick", json!({}))]);
    let end = later(now(), SignedDuration::from_secs(100));
    let (due, next) = drain.due_before(end, now());
    assert_eq!(
        (names(&due), next),
        (vec!["slow"], Some(later(now(), SignedDuration::from_secs(70))))
    );
}

#[test]
fn pods_of_daemon_sets_of_the_kubelet_and_those_that_are_finished_stay() {
    let daemon = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]}});
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    let drain = listed([
        pod("plain", json!({})),
        pod("daemon", daemon),
        pod("mirror", mirror),
        pod("done", json!({"status": {"phase": "Succeeded"}})),
    ]);
    assert_eq!(names(&drain.due(&known([]), &settings(), None, now())), ["plain"]);
    assert_eq!(drain.emptied(), None);
}

#[test]
fn nothing_is_kept_of_a_pod_that_nobody_reads() {
    let drain = listed([pod("plain", claim())]);
    let kept = drain.left().next().expect("it is there");
    let text = serde_json::to_string(&**kept).expect("it can be written");
    assert!(!text.contains("hidden") && text.contains("claimName"), "{text}");
}

#[test]
fn a_refusal_in_the_same_words_says_what_it_said_before() {
    let web = pod("web", json!({}));
    let mut drain = listed([web.clone()]);
    let (web, words) = (reference(&web), "needs 2 healthy pods and has 2 currently");
    assert_eq!(drain.refused(&web, words), None);
    let misconfigured = Removal::Misconfigured {
        fault: "it allows none".to_owned(),
        words: words.to_owned(),
    };
    drain.tried(&web, misconfigured.clone(), now());
    assert_eq!(drain.refused(&web, words), Some(&misconfigured));
    assert_eq!(drain.refused(&web, "needs 2 healthy pods and has 1 currently"), None);
}

#[test]
fn a_pod_that_is_refused_is_tried_again_after_pauses_that_grow_to_twenty_seconds() {
    let mut drain = listed([pod("plain", json!({}))]);
    let pods = drain.due(&known([]), &settings(), None, now());
    let (mut at, mut pauses) = (now(), Vec::new());
    for _ in 0..7 {
        drain.tried(&pods[0], Removal::OverBudget("no".to_owned()), at);
        assert!(drain.due(&known([]), &settings(), None, at).is_empty());
        let again = drain
            .again_at(&known([]), &settings(), None, at)
            .expect("it is tried again");
        pauses.push(again.duration_since(at).as_secs());
        at = again;
        assert_eq!(names(&drain.due(&known([]), &settings(), None, at)), ["plain"]);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20]);
    let Some(Blocker::Refused(pod, _)) = drain.blocker(at) else {
        panic!("it is refused")
    };
    assert_eq!(pod.to_string(), "default/plain");
}

/// Rows: pains 56.
#[test]
fn pods_with_volumes_go_a_few_at_a_time_and_others_do_not_wait_for_them() {
    let many = (0..30).map(|number| pod(&format!("db-{number:02}"), claim()));
    let drain = listed(many.chain([pod("web", json!({}))]));
    let due = drain.due(&known([]), &settings(), None, now());
    assert_eq!(due.len(), VOLUMES_AT_ONCE + 1);
    assert!(names(&due).contains(&"web"));
}

#[test]
fn a_namesake_is_another_pod_and_the_end_of_the_last_one_is_remembered() {
    let mut drain = listed([pod("web-0", json!({}))]);
    let pods = drain.due(&known([]), &settings(), None, now());
    drain.tried(&pods[0], Removal::Accepted, now());
    assert!(drain.due(&known([]), &settings(), None, now()).is_empty());
    let newer = json!({"metadata": {"uid": "other", "resourceVersion": "9"}});
    drain.observe(Change::Applied(pod("web-0", newer.clone())), now());
    assert_eq!(drain.due(&known([]), &settings(), None, now()).len(), 1);
    drain.observe(Change::Deleted(pod("web-0", newer)), now());
    assert_eq!(drain.emptied(), Some(now()));
}

/// Rows: W28.
#[test]
fn the_next_pods_with_volumes_wait_until_those_of_the_last_are_attached_elsewhere_or_their_time_is_over() {
    let many = (0..=VOLUMES_AT_ONCE).map(|number| pod(&format!("db-{number:02}"), claim()));
    let mut drain = listed(many);
    let (settings, here) = (settings(), known([("pv", "n")]));
    let first = drain.due(&here, &settings, None, now());
    for pod in &first {
        drain.takes_along(pod, vec![VolumeName::new("pv")], &here);
        drain.tried(pod, Removal::Accepted, now());
        let gone = json!({"metadata": {"resourceVersion": "2"}});
        let gone = self::pod(&pod.name, gone);
        drain.observe(Change::Deleted(gone), now());
    }
    assert!(drain.due(&here, &settings, None, now()).is_empty(), "none is detached");
    assert!(
        drain.due(&known([]), &settings, None, now()).is_empty(),
        "none has arrived"
    );
    let elsewhere = known([("pv", "other")]);
    assert_eq!(names(&drain.due(&elsewhere, &settings, None, now())), ["db-10"]);
    let late = later(now(), settings.detach_timeout);
    assert_eq!(
        names(&drain.due(&here, &settings, None, late)),
        ["db-10"],
        "their time is over"
    );
    assert_eq!(drain.again_at(&here, &settings, None, now()), Some(late));
}

/// Rows: W29.
#[test]
fn a_claim_that_lives_as_long_as_its_pod_is_a_volume_like_any_other() {
    let volumes = json!([
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
        {"name": "settings", "configMap": {"name": "settings"}},
    ]);
    let many =
        (0..=VOLUMES_AT_ONCE).map(|number| pod(&format!("db-{number:02}"), json!({"spec": {"volumes": volumes}})));
    let drain = listed(many);
    let due = drain.due(&known([]), &settings(), None, now());
    assert_eq!(due.len(), VOLUMES_AT_ONCE, "they go a few at a time");
    assert_eq!(due[0].claims, ["db-00-scratch", "db"]);
}

/// Rows: W29.
#[test]
fn important_pods_go_first() {
    let drain = listed([pod("a", json!({})), pod("b", json!({"spec": {"priority": 1000}}))]);
    assert_eq!(names(&drain.due(&known([]), &settings(), None, now())), ["b", "a"]);
}

/// A budget that lets the pod go only now is met by no pause.
#[test]
fn a_pod_that_was_refused_is_tried_once_more_before_the_deadline() {
    let mut drain = listed([pod("web", json!({}))]);
    let pods = drain.due(&known([]), &settings(), None, now());
    for _ in 0..5 {
        drain.tried(&pods[0], Removal::Failed("busy".to_owned()), now());
    }
    let last = later(now(), SignedDuration::from_secs(9));
    assert_eq!(drain.again_at(&known([]), &settings(), Some(last), now()), Some(last));
    assert_eq!(drain.due(&known([]), &settings(), Some(last), last).len(), 1);
    drain.tried(&pods[0], Removal::Failed("busy".to_owned()), last);
    assert!(drain.due(&known([]), &settings(), Some(last), last).is_empty());
}
