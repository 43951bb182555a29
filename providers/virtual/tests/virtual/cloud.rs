//! The simulated cloud alone, without driver and gRPC: durability, tokens, lag, the journal and its pace.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use millwright_provider_virtual::cloud::{Cloud, CloudError, Delays, Event, Launch, Owner, Phase, Vm, read_state};

const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3600);

fn launch(name: &str, delays: Delays) -> Launch {
    let uid = format!("uid-of-{name}");
    Launch {
        token: uid.clone(),
        owner: Owner {
            cluster: "dev".into(),
            namespace: "default".into(),
            name: name.into(),
            uid,
        },
        machine_class: "small".into(),
        spec_digest: "d1".into(),
        tags: BTreeMap::from([("kubernetes.io/cluster/dev".into(), "1".into())]),
        region: "moon".into(),
        zone: "moon-a".into(),
        instance_type: "small".into(),
        delays,
    }
}

fn delays(create: Duration, delete: Duration) -> Delays {
    Delays {
        create,
        join: NOW,
        delete,
    }
}

fn open(state: &Path, lag: Duration) -> Cloud {
    Cloud::open(state, lag).expect("the state file opens")
}

/// Waits until the writer thread of a dropped cloud has let go of the file, as a kill does at once.
fn closed(state: &Path) -> (Vec<Arc<Vm>>, Vec<millwright_provider_virtual::cloud::Entry>) {
    read_state(state).expect("the file is free and whole")
}

fn events(cloud: &Cloud) -> Vec<Event> {
    cloud
        .journal()
        .expect("the journal reads")
        .into_iter()
        .map(|entry| entry.event)
        .collect()
}

#[tokio::test]
async fn one_token_makes_one_vm_however_often_and_at_once_it_is_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let cloud = open(&dir.path().join("s"), LONG);
    let runs = (0..20).map(|_| cloud.run_vm(launch("m", delays(LONG, NOW))));
    let vms = futures::future::join_all(runs).await;
    let first = vms[0].as_ref().expect("the first is accepted").id.clone();
    assert!(vms.iter().all(|vm| vm.as_ref().is_ok_and(|vm| vm.id == first)));
    assert_eq!(events(&cloud), [Event::Accepted]);
}

#[tokio::test]
async fn a_token_with_other_parameters_is_refused_and_names_the_vm() {
    let dir = tempfile::tempdir().expect("a directory");
    let cloud = open(&dir.path().join("s"), NOW);
    let vm = cloud.run_vm(launch("m", delays(NOW, NOW))).await.expect("accepted");
    let other = Launch {
        spec_digest: "d2".into(),
        ..launch("m", delays(NOW, NOW))
    };
    let refused = cloud.run_vm(other).await;
    assert!(matches!(refused, Err(CloudError::ParameterMismatch { provider_id }) if provider_id == vm.provider_id()));
}

#[tokio::test]
async fn a_token_whose_vm_was_terminated_is_refused_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("s");
    let cloud = open(&state, NOW);
    let vm = cloud.run_vm(launch("m", delays(NOW, NOW))).await.expect("accepted");
    assert!(
        cloud.terminate(&vm.id).await.expect("terminated"),
        "nothing is left without a delay"
    );
    assert!(matches!(
        cloud.run_vm(launch("m", delays(NOW, NOW))).await,
        Err(CloudError::TokenSpent)
    ));
    assert!(matches!(
        cloud.terminate(&vm.id).await,
        Err(CloudError::NoSuchVm { .. })
    ));
    drop(cloud);
    let cloud = open(&state, NOW);
    assert!(matches!(
        cloud.run_vm(launch("m", delays(NOW, NOW))).await,
        Err(CloudError::TokenSpent)
    ));
    assert_eq!(events(&cloud), [Event::Accepted, Event::Removed]);
}

#[tokio::test]
async fn a_vm_lives_on_while_no_process_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("s");
    let cloud = open(&state, NOW);
    let made = cloud
        .run_vm(launch(
            "m",
            delays(Duration::from_millis(150), Duration::from_millis(150)),
        ))
        .await;
    let made = made.expect("accepted");
    assert_eq!(cloud.everything()[0].phase(jiff::Timestamp::now()), Phase::Creating);
    drop(cloud);

    let (vms, _) = closed(&state);
    assert_eq!(vms, [Arc::clone(&made)], "the record is the same to the last tag");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let cloud = open(&state, NOW);
    assert_eq!(cloud.everything()[0].phase(jiff::Timestamp::now()), Phase::Running);

    assert!(
        !cloud.terminate(&made.id).await.expect("accepted"),
        "its deletion takes a while"
    );
    drop(cloud);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(closed(&state).0.is_empty(), "it is gone though nobody noted it");
    let cloud = open(&state, NOW);
    assert!(cloud.everything().is_empty());
    let removed = cloud.journal().expect("the journal reads").pop().expect("it has lines");
    assert_eq!(removed.event, Event::Removed);
    assert!(
        removed.at < jiff::Timestamp::now() - Duration::from_millis(20),
        "noted at the instant it happened"
    );
}

#[tokio::test]
async fn lookups_and_lists_lag_but_token_and_console_do_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let cloud = open(&dir.path().join("s"), Duration::from_millis(300));
    let vm = cloud.run_vm(launch("m", delays(NOW, NOW))).await.expect("accepted");
    assert!(cloud.find_by_uid("moon", "dev", "uid-of-m").is_none());
    assert!(cloud.find_by_name("moon", "dev", "m").is_empty());
    assert!(cloud.find_by_id("moon", &vm.id).is_none());
    assert!(cloud.list("moon", "dev", None, 10).is_empty());
    assert_eq!(cloud.everything().len(), 1);
    tokio::time::sleep(Duration::from_millis(350)).await;
    assert!(cloud.find_by_uid("moon", "dev", "uid-of-m").is_some());
    assert!(
        cloud.find_by_uid("moon", "other", "uid-of-m").is_none(),
        "another cluster never sees it"
    );
    assert_eq!(cloud.find_by_name("moon", "dev", "m").len(), 1);
    assert_eq!(cloud.list("moon", "dev", None, 10).len(), 1);
    assert!(cloud.list("moon", "other", None, 10).is_empty());
}

#[tokio::test]
async fn a_vm_is_not_gone_before_its_node_registration_has_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let cloud = open(&dir.path().join("s"), NOW);
    let vm = cloud.run_vm(launch("m", delays(NOW, NOW))).await.expect("accepted");
    let registration = cloud.begin_registration(&vm.id).expect("a running VM may register");
    assert!(cloud.begin_registration(&vm.id).is_none(), "one at a time");
    let ended = tokio::spawn({
        let (cloud, id) = (cloud.clone(), vm.id.clone());
        async move { cloud.terminate(&id).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!ended.is_finished());
    assert_eq!(cloud.everything().len(), 1, "it still counts");
    registration.joined().await.expect("noted");
    drop(registration);
    assert!(ended.await.expect("no panic").expect("terminated"));
    assert!(cloud.begin_registration(&vm.id).is_none());
    assert_eq!(
        events(&cloud),
        [Event::Accepted, Event::Deleting, Event::Joined, Event::Removed]
    );
}

#[tokio::test]
async fn the_clock_powers_vms_on_and_ends_deletions() {
    let dir = tempfile::tempdir().expect("a directory");
    let cloud = open(&dir.path().join("s"), NOW);
    let clockwork = tokio::spawn({
        let cloud = cloud.clone();
        async move { cloud.run_clockwork().await }
    });
    let quick = Duration::from_millis(60);
    let vm = cloud.run_vm(launch("m", delays(quick, quick))).await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(200)).await;
    cloud.terminate(&vm.id).await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(cloud.everything().is_empty());
    assert_eq!(
        events(&cloud),
        [Event::Accepted, Event::Booted, Event::Deleting, Event::Removed]
    );
    clockwork.abort();
}

#[tokio::test]
async fn a_thousand_creates_share_a_handful_of_syncs() {
    let dir = tempfile::tempdir().expect("a directory");
    let cloud = open(&dir.path().join("s"), NOW);
    let begun = Instant::now();
    let runs = (0..1000).map(|n| {
        let cloud = cloud.clone();
        tokio::spawn(async move { cloud.run_vm(launch(&format!("m{n}"), delays(NOW, NOW))).await })
    });
    for run in futures::future::join_all(runs).await {
        run.expect("no panic").expect("accepted");
    }
    let together = begun.elapsed();
    let begun = Instant::now();
    for n in 0..50 {
        cloud
            .run_vm(launch(&format!("one{n}"), delays(NOW, NOW)))
            .await
            .expect("accepted");
    }
    eprintln!(
        "1000 creates at once: {together:?}; one after the other: {:?} each",
        begun.elapsed() / 50
    );
    assert_eq!(cloud.everything().len(), 1050);
    assert!(
        together < Duration::from_secs(20),
        "group commit is broken if this takes {together:?}"
    );
}
