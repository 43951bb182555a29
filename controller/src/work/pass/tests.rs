//! What a step that failed means to those after it, and what the log says of each.

use std::sync::Mutex;

use jiff::SignedDuration;
use millwright_core::api::{Machine, MachineSet, OperationState, OperationType, keys};
use millwright_core::change::Change;
use millwright_core::ids::Uid;
use millwright_core::machine;
use millwright_core::refusal::Refusal;
use serde_json::json;

use super::*;
use crate::env::Planners;
use crate::kube::error::WriteError;
use crate::work::machine::Machines;
use crate::work::scripted::{Scripted, failure};
use crate::work::set::Sets;

/// A kind whose steps go as they say. The object keeps which were tried.
struct Errands;

#[derive(Debug)]
struct Errand {
    name: &'static str,
    bearing: Bearing,
    fate: Fate,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Takes,
    Refused,
    Conflicts,
    ConflictsAtAChild,
    Fenced,
}

const fn stops(name: &'static str, fate: Fate) -> Errand {
    let bearing = Bearing::Stops;
    Errand { name, bearing, fate }
}

const fn free(name: &'static str, fate: Fate) -> Errand {
    let bearing = Bearing::Independent;
    Errand { name, bearing, fate }
}

impl Step for Errand {
    fn bearing(&self) -> Bearing {
        self.bearing
    }
}

impl Narrate for Errand {
    fn narrate(&self) -> String {
        format!("go for {}", self.name)
    }
}

impl Reconciler for Errands {
    const KIND: &'static str = "errand";
    type Object = Mutex<Vec<&'static str>>;
    type Step = Errand;
    type Why = &'static str;
    type Carry = ();

    fn plan(_: &Shared, _: &World, _: &Name, _: Timestamp) -> Option<Planned<Self>> {
        None
    }

    async fn step(_: &Arc<Shared>, run: &mut Run<Self>, step: Errand, _: &&'static str) -> Result<(), StepError> {
        run.object.lock().unwrap().push(step.name);
        match step.fate {
            Fate::Takes => Ok(()),
            Fate::Refused => Err(WriteError::Refused {
                reason: step.name.to_owned(),
            }
            .into()),
            Fate::Conflicts => Err(WriteError::Stale.into()),
            Fate::ConflictsAtAChild => Err(StepError::of_another(WriteError::Stale)),
            Fate::Fenced => Err(StepError::of_another(WriteError::Fenced)),
        }
    }
}

/// Which steps were tried, and the failure in words.
async fn run(steps: Vec<Errand>) -> (Vec<&'static str>, Option<String>) {
    let scripted = Scripted::new(|_, _, _| failure(404, "NotFound"));
    let tried = Arc::new(Mutex::new(Vec::new()));
    let plan = Plan::act(steps, "somebody asked");
    let done = execute::<Errands>(&scripted.shared, &Name::new("e"), Arc::clone(&tried), plan).await;
    let tried = tried.lock().unwrap().clone();
    (tried, done.err().map(|error| error.to_string()))
}

#[tokio::test]
async fn after_a_step_that_stops_the_plan_has_failed_only_independent_ones_are_carried_out() {
    let (tried, failure) = run(vec![
        stops("a", Fate::Refused),
        stops("b", Fate::Takes),
        free("c", Fate::Takes),
        stops("d", Fate::Takes),
        free("e", Fate::Takes),
    ])
    .await;
    assert_eq!(tried, ["a", "c", "e"]);
    assert!(failure.is_some());
}

#[tokio::test]
async fn a_failed_independent_step_holds_nobody_up_and_is_told_all_the_same() {
    for (fate, told) in [
        (
            Fate::Refused,
            WriteError::Refused { reason: "a".to_owned() }.to_string(),
        ),
        (Fate::ConflictsAtAChild, WriteError::Stale.to_string()),
    ] {
        let (tried, failure) = run(vec![free("a", fate), stops("b", Fate::Takes), free("c", Fate::Takes)]).await;
        assert_eq!(tried, ["a", "b", "c"], "{fate:?}");
        assert_eq!(failure, Some(told));
    }
}

#[tokio::test]
async fn after_a_conflict_nothing_more_is_carried_out() {
    for (met, error) in [
        (stops("b", Fate::Conflicts), WriteError::Stale),
        (stops("b", Fate::ConflictsAtAChild), WriteError::Stale),
        (free("b", Fate::Conflicts), WriteError::Stale),
        (free("b", Fate::Fenced), WriteError::Fenced),
    ] {
        let case = format!("{met:?}");
        let (tried, failure) = run(vec![
            stops("a", Fate::Takes),
            met,
            stops("c", Fate::Takes),
            free("d", Fate::Takes),
        ])
        .await;
        assert_eq!(tried, ["a", "b"], "{case}");
        assert_eq!(failure, Some(error.to_string()), "{case}");
    }
}

#[tokio::test]
async fn a_set_whose_report_meets_a_newer_one_makes_nothing_of_what_was_planned_for_the_old() {
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {"name": "s", "namespace": "default", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [keys::FINALIZER]},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"pool": "workers"}},
            "template": {
                "metadata": {"labels": {"pool": "workers"}},
                "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            },
        },
    });
    let stored: MachineSet = serde_json::from_value(set.clone()).unwrap();
    // Only the report, which tells of the refusal, meets somebody else's write.
    let scripted = Scripted::new(
        move |_, _, body| match body["status"]["machineSetCondition"].is_array() {
            true => failure(409, "Conflict"),
            false => (200, set.clone()),
        },
    );
    let (shared, name) = (&scripted.shared, Name::new("s"));
    shared.change(|world, uptime| world.observe(Change::Applied(stored), uptime));
    shared.quietly(|world| {
        world.note_owner::<MachineSet>(&name, &Uid::new("u"), |notes| {
            let refused = Refusal::after(None, "no".to_owned(), Timestamp::UNIX_EPOCH);
            notes.create_refused = Some(refused);
        });
    });
    let planned = shared.look(|world| Sets::plan(shared, world, &name, shared.env.now()));
    let told = narrate::plan(&planned.unwrap().plan, shared.env.now());
    assert!(told.contains("- record") && told.contains("- create"), "{told}");
    pass::<Sets>(shared, &name).await;
    assert_eq!(scripted.heard("PATCH").len(), 1, "the report and nothing after it");
    assert_eq!(scripted.heard("POST").len(), 0);
}

#[tokio::test]
async fn the_first_failure_is_the_one_that_counts() {
    let first = WriteError::Refused { reason: "a".to_owned() }.to_string();
    for last in [Fate::Refused, Fate::Conflicts] {
        let (tried, failure) = run(vec![
            free("a", Fate::Refused),
            stops("b", last),
            stops("c", Fate::Takes),
        ])
        .await;
        assert_eq!(tried, ["a", "b"]);
        assert_eq!(failure.as_ref(), Some(&first), "{last:?}");
    }
}

/// What is logged on this thread while the guard lives.
fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines_with(&self, words: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(words));
        lines.map(str::to_owned).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_has_one_line_for_each_step_that_took_effect_and_none_for_another() {
    let (log, _guard) = logged();
    run(vec![
        free("bread", Fate::Takes),
        free("milk", Fate::Refused),
        stops("salt", Fate::Takes),
        stops("beer", Fate::Refused),
        stops("wine", Fate::Takes),
    ])
    .await;
    let lines = log.lines_with("go for");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, told) in lines.iter().zip(["go for bread", "go for salt"]) {
        for words in ["INFO", told, "errand", "name=e", "somebody asked"] {
            assert!(line.contains(words), "{words}: {line}");
        }
    }
}

const CRUMB: &str = "canary-of-the-driver";

/// Stores what the driver wants to see again.
fn stores_a_crumb(seen: &machine::Observed<'_>, now: Timestamp) -> machine::Plan {
    let (operation, state) = (OperationType::Create, OperationState::Processing);
    let change = machine::StatusChange::told(seen.machine, operation, state, "words".to_owned(), now);
    let change = change.with_crumb(Some(&CRUMB.to_owned()));
    let step = machine::Step::Record(Box::new(change));
    machine::Plan::act(vec![step], machine::Why::CrumbChanged).or_at(Some(now + SignedDuration::from_secs(9)), now)
}

#[tokio::test]
async fn the_log_tells_of_a_plan_that_there_is_a_breadcrumb_and_never_what_it_says() {
    let (log, _guard) = logged();
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m-1", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    });
    let planners = Planners {
        machine: stores_a_crumb,
        ..Planners::default()
    };
    let stored: Machine = serde_json::from_value(machine.clone()).unwrap();
    let scripted = Scripted::with(move |_, _, _| (200, machine.clone()), planners, None);
    let shared = &scripted.shared;
    shared.change(|world, uptime| world.observe(Change::Applied(stored), uptime));
    let ended = pass::<Machines>(shared, &Name::new("m-1")).await;

    assert_eq!(ended.result, "done");
    assert_eq!(scripted.heard("PATCH").len(), 1, "it was stored");
    // The plan, a line for each step, and the step that took effect.
    let told = log.lines_with("(with breadcrumb)");
    assert_eq!(told.len(), 2, "{}", log.text());
    assert!(told[0].starts_with("- record") && told[1].contains("INFO"), "{told:?}");
    assert!(!log.text().contains(CRUMB), "{}", log.text());
}
