use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::{Body, ClientBuilder, DynBody};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use super::memory::{BURST, COUNT_EVERY, KEPT_FOR_NEW_WORDS, LIFE_REMEMBERED, REFILL, REMEMBERED};
use super::*;
use crate::kube::client::{Cluster, Policy, Role};

/// One request that reached the server.
#[derive(Clone, Debug)]
struct Seen {
    is_patch: bool,
    path: String,
    body: Value,
    at: Instant,
}

type Kept = Arc<Mutex<Vec<Seen>>>;

/// A server that keeps what it is sent, and answers with it or with this code.
fn server_saying(code: u16) -> (Client, Kept) {
    let kept = Kept::default();
    let sink = Arc::clone(&kept);
    let service = service_fn(move |request: Request<Body>| {
        let sink = Arc::clone(&sink);
        async move {
            let is_patch = request.method() == Method::PATCH;
            let path = request.uri().path().to_owned();
            let bytes = request.into_body().collect().await?.to_bytes();
            let body: Value = serde_json::from_slice(&bytes)?;
            let at = Instant::now();
            let answer = match code {
                200 if is_patch => json!({"metadata": {"name": "m1"}, "eventTime": null}),
                200 => body.clone(),
                code => json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"}),
            };
            sink.lock().unwrap().push(Seen {
                is_patch,
                path,
                body,
                at,
            });
            let body: Box<DynBody> = Box::new(Full::from(answer.to_string()).map_err(|never| match never {}));
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    let policy = Policy {
        role: Role::Control,
        leadership: None,
        budget: None,
        metrics: Metrics::default(),
    };
    let client = Cluster::over(ClientBuilder::new(service, "default"), policy).client;
    (client, kept)
}

fn server() -> (Client, Kept) {
    server_saying(200)
}

/// A publisher whose postman is at work.
struct Office {
    publisher: Publisher,
    metrics: Metrics,
    kept: Kept,
    stop: CancellationToken,
    postman: JoinHandle<()>,
}

impl Office {
    #[allow(clippy::disallowed_methods, reason = "the test ends with it")]
    fn open(code: u16) -> Self {
        let (client, kept) = server_saying(code);
        let metrics = Metrics::default();
        let (publisher, postman) = channel(client, Load::default(), metrics.clone(), "host_1", Env::begin());
        let stop = CancellationToken::new();
        let postman = tokio::spawn(postman.run(stop.clone()));
        Self {
            publisher,
            metrics,
            kept,
            stop,
            postman,
        }
    }

    fn say(&self, note: &str) {
        self.publisher.publish(&object("u1"), Severity::Normal, "Told", note);
    }

    fn seen(&self) -> Vec<Seen> {
        self.kept.lock().unwrap().clone()
    }

    fn notes(&self) -> Vec<String> {
        let seen = self.seen();
        let created = seen.iter().filter(|seen| !seen.is_patch);
        created
            .map(|seen| seen.body["message"].as_str().unwrap().to_owned())
            .collect()
    }

    fn patches(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.is_patch).collect()
    }

    fn counted(&self, lane: &str, result: &str, times: usize) {
        let text = self.metrics.render().unwrap();
        let line = format!(r#"millwright_events_total{{lane="{lane}",result="{result}"}} {times}"#);
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }

    async fn close(self) -> Vec<Seen> {
        self.stop.cancel();
        self.postman.await.unwrap();
        self.kept.lock().unwrap().clone()
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

const MOMENT: Duration = Duration::from_millis(100);

fn object(uid: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "m1", "namespace": "shop", "uid": uid}})).unwrap()
}

/// Ends the postman and gives what reached the server.
async fn delivered(postman: EventWriter, kept: &Mutex<Vec<Seen>>) -> Vec<Value> {
    let stop = CancellationToken::new();
    stop.cancel();
    postman.run(stop).await;
    let seen = std::mem::take(&mut *kept.lock().unwrap());
    seen.into_iter().map(|seen| seen.body).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_reaches_the_server_with_what_it_is_about() {
    let (client, kept) = server();
    let (publisher, postman) = channel(client, Load::default(), Metrics::default(), "host_1", Env::begin());

    publisher.publish(&object("u1"), Severity::Warning, "CreationFailed", "no capacity");

    let events = delivered(postman, &kept).await;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(event["involvedObject"]["uid"], "u1");
    assert_eq!(event["metadata"]["namespace"], "shop");
    assert_eq!(
        (&event["type"], &event["reason"], &event["message"]),
        (&json!("Warning"), &json!("CreationFailed"), &json!("no capacity"))
    );
    assert_eq!(event["reportingInstance"], "host_1");
}

/// Rows: pains 67.
#[tokio::test(start_paused = true)]
async fn words_that_are_repeated_are_counted_on_the_event_that_was_written_and_not_too_often() {
    let office = Office::open(200);
    for _ in 0..100 {
        office.say("no capacity");
        pass(Duration::from_secs(1)).await;
    }
    pass(COUNT_EVERY).await;

    assert_eq!(office.notes(), ["no capacity"]);
    let (seen, patches) = (office.seen(), office.patches());
    assert!(patches.len() <= 11, "{}", patches.len());
    let gaps = seen.windows(2).map(|pair| pair[1].at - pair[0].at);
    assert!(
        gaps.clone().all(|gap| gap >= COUNT_EVERY),
        "{:?}",
        gaps.collect::<Vec<_>>()
    );
    let name = seen[0].body["metadata"]["name"].as_str().unwrap();
    let last = patches.last().unwrap();
    assert_eq!(last.path, format!("/api/v1/namespaces/shop/events/{name}"));
    assert_eq!(last.body["series"]["count"], 100);
    assert!(last.body["series"]["lastObservedTime"].is_string());
    office.counted("prompt", "repeated", 99);
    office.counted("prompt", "counted", patches.len());
}

#[tokio::test(start_paused = true)]
async fn words_after_five_minutes_without_them_are_a_new_event() {
    let office = Office::open(200);
    office.say("one");
    pass(REMEMBERED).await;
    office.say("one");
    pass(MOMENT).await;

    assert_eq!(office.notes(), ["one", "one"]);
    assert!(office.patches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_said_last_stands_last_though_it_was_said_before() {
    let office = Office::open(200);
    for note in ["down to 3", "up to 3000", "down to 3"] {
        office.say(note);
        pass(MOMENT).await;
    }

    assert_eq!(office.notes(), ["down to 3", "up to 3000", "down to 3"]);
    let names: Vec<String> = office
        .seen()
        .iter()
        .map(|seen| seen.body["metadata"]["name"].to_string())
        .collect();
    assert!(names.is_sorted(), "kubectl describe lists by name: {names:?}");
}

#[tokio::test(start_paused = true)]
async fn who_says_two_things_in_turn_leaves_room_for_a_third_and_every_word_is_counted() {
    let office = Office::open(200);
    for _ in 0..50 {
        office.say("up");
        office.say("down");
        pass(MOMENT).await;
    }
    office.say("news");
    pass(COUNT_EVERY).await;

    let notes = office.notes();
    assert_eq!(notes.len(), usize::try_from(BURST - KEPT_FOR_NEW_WORDS).unwrap() + 1);
    assert_eq!(notes.last().unwrap(), "news");
    let mut told: std::collections::BTreeMap<String, i64> = std::collections::BTreeMap::new();
    for seen in office.seen() {
        let count = seen.body["series"]["count"].as_i64();
        let name = match seen.is_patch {
            true => seen.path.rsplit('/').next().unwrap().to_owned(),
            false => seen.body["metadata"]["name"].as_str().unwrap().to_owned(),
        };
        told.insert(name, count.unwrap_or(1));
    }
    assert_eq!(told.values().sum::<i64>(), 101);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_talks_too_much_silences_only_itself_and_says_later_how_much_was_left_out() {
    let office = Office::open(200);
    let burst = usize::try_from(BURST).unwrap();
    for n in 0..100 {
        office.say(&format!("try {n}"));
    }
    office
        .publisher
        .publish(&object("calm"), Severity::Normal, "Created", "here I am");
    pass(MOMENT).await;
    assert_eq!(office.notes().len(), burst + 1);

    pass(REFILL).await;

    let notes = office.notes();
    assert_eq!(notes.len(), burst + 2);
    assert_eq!(
        notes.last().unwrap(),
        "try 99 (74 earlier events about this object were left out)"
    );
    office.counted("prompt", "throttled", 74);
}

#[tokio::test(start_paused = true)]
async fn what_waits_at_the_end_is_written_counts_and_held_words_too() {
    let office = Office::open(200);
    for n in 0..BURST + 1 {
        office.say(&format!("try {n}"));
    }
    office
        .publisher
        .life(&object("u2"), Severity::Normal, "Joined", "as node a");
    pass(MOMENT).await;
    office
        .publisher
        .life(&object("u2"), Severity::Normal, "Joined", "as node a");

    let seen = office.close().await;

    let last: Vec<&Value> = seen.iter().rev().take(2).map(|seen| &seen.body).collect();
    assert_eq!(last[0]["series"]["count"], 2);
    assert_eq!(last[1]["message"], format!("try {BURST}"));
}

#[tokio::test(start_paused = true)]
async fn publishing_never_waits_and_the_oldest_that_finds_no_place_is_counted() {
    let (client, kept) = server();
    let metrics = Metrics::default();
    let (publisher, postman) = channel(client, Load::default(), metrics.clone(), "host_1", Env::begin());

    for n in 0..Lane::Life.places() + 7 {
        publisher.life(&object(&format!("u{n}")), Severity::Normal, "Created", "here I am");
    }
    for n in 0..Lane::Prompt.places() + 3 {
        publisher.publish(&object(&format!("p{n}")), Severity::Normal, "Created", "here I am");
    }
    publisher.life(&object("u0"), Severity::Normal, "Joined", "as node a");

    let text = metrics.render().unwrap();
    let full = |lane: &str, times: u32| format!(r#"millwright_events_total{{lane="{lane}",result="full"}} {times}"#);
    assert!(text.contains(&full("life", 8)), "{text}");
    assert!(text.contains(&full("prompt", 3)), "{text}");
    let events = delivered(postman, &kept).await;
    assert_eq!(events.len(), Lane::Life.places() + Lane::Prompt.places());
    assert_eq!(events[0]["involvedObject"]["uid"], "p3");
    assert_eq!(
        events.last().unwrap()["message"],
        "as node a (1 earlier event about this object was left out)"
    );
}

#[tokio::test(start_paused = true)]
async fn the_life_of_machines_waits_while_many_requests_are_under_way() {
    let (client, kept) = server();
    let load = Load::default();
    let (publisher, writer) = channel(client, load.clone(), Metrics::default(), "host_1", Env::begin());
    let stop = CancellationToken::new();
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn(writer.run(stop.clone()));
    let mut busy = Vec::new();
    while !load.is_high() {
        busy.push(load.enter().await);
    }
    publisher.life(&object("m"), Severity::Normal, "Created", "the VM is made");
    publisher.publish(&object("s"), Severity::Normal, "Scaled", "to 3");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let reasons = || -> Vec<Value> {
        kept.lock()
            .unwrap()
            .iter()
            .map(|seen| seen.body["reason"].clone())
            .collect()
    };
    assert_eq!(reasons(), ["Scaled"], "what is prompt does not wait");

    busy.clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reasons(), ["Scaled", "Created"]);
    stop.cancel();
    writing.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_life_of_machines_costs_at_most_fifty_requests_a_second_and_waits_for_all_else() {
    let office = Office::open(200);
    for n in 0..2000 {
        let machine = object(&format!("u{n}"));
        office
            .publisher
            .life(&machine, Severity::Normal, "Created", "the VM is made");
        office
            .publisher
            .life(&machine, Severity::Normal, "Created", "the VM is made");
    }
    for n in 0..100 {
        office
            .publisher
            .publish(&object(&format!("p{n}")), Severity::Normal, "Told", "at once");
    }
    office
        .publisher
        .life(&object("bad"), Severity::Warning, "Unknown", "no heartbeat");
    pass(Duration::from_secs(50)).await;

    let seen = office.seen();
    let life: Vec<Instant> = seen
        .iter()
        .filter(|seen| seen.body["reason"] == "Created")
        .map(|seen| seen.at)
        .collect();
    assert_eq!(life.len(), 2000);
    assert!(seen[..100].iter().all(|seen| seen.body["message"] == "at once"));
    let warned = seen.iter().position(|seen| seen.body["reason"] == "Unknown").unwrap();
    assert!(warned < 103, "a warning waits for no life: {warned}");
    let most = (0..life.len())
        .map(|i| {
            life[i..]
                .iter()
                .take_while(|at| **at - life[i] < Duration::from_secs(1))
                .count()
        })
        .max();
    assert_eq!(most, Some(50), "life events within any second");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_could_not_be_written_is_told_by_the_next_one_and_its_words_are_new_again() {
    let office = Office::open(503);
    office.say("one");
    pass(MOMENT).await;
    office.say("one");
    pass(MOMENT).await;

    let notes = office.notes();
    assert_eq!(notes, ["one", "one (1 earlier event about this object was left out)"]);
    office.counted("prompt", "failed", 2);
}

#[tokio::test(start_paused = true)]
async fn a_note_beyond_the_limit_is_cut_between_letters() {
    let (client, kept) = server();
    let (publisher, postman) = channel(client, Load::default(), Metrics::default(), "host_1", Env::begin());

    publisher.publish(&object("u1"), Severity::Normal, "Long", &"ü".repeat(1000));

    let events = delivered(postman, &kept).await;
    assert_eq!(events[0]["message"].as_str().map(str::len), Some(LONGEST_NOTE));
}

#[tokio::test(start_paused = true)]
async fn a_note_that_is_cut_still_says_what_was_left_out() {
    let office = Office::open(503);
    office.say("one");
    pass(MOMENT).await;
    office.say(&"x".repeat(2000));
    pass(MOMENT).await;

    let note = &office.notes()[1];
    assert_eq!(note.len(), LONGEST_NOTE);
    assert!(
        note.ends_with("x (1 earlier event about this object was left out)"),
        "{note}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_does_not_stay_in_memory() {
    let office = Office::open(200);
    office.say("one");
    pass(REMEMBERED * 2).await;

    office
        .publisher
        .publish(&object("u2"), Severity::Normal, "Created", "here I am");

    assert_eq!(office.publisher.memory.lock().unwrap().objects(), 1);
}

/// Machines come and go by the thousand, and each tells its life once.
#[tokio::test(start_paused = true)]
async fn what_machines_told_of_their_lives_is_forgotten_within_a_minute_also_where_it_was_never_written() {
    for status in [200, 503] {
        lives_are_forgotten(Office::open(status)).await;
    }
}

async fn lives_are_forgotten(office: Office) {
    for number in 0..100 {
        let machine = object(&format!("u{number}"));
        office.publisher.life(&machine, Severity::Normal, "VMCreated", "made");
        office
            .publisher
            .life(&machine, Severity::Normal, "MachineDeleted", "gone");
    }
    pass(LIFE_REMEMBERED * 2).await;
    office
        .publisher
        .publish(&object("another"), Severity::Normal, "Created", "here I am");
    assert_eq!(office.publisher.memory.lock().unwrap().objects(), 1);
}
