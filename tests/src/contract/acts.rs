//! What one request of a sequence may be, and how it changes the guess.

use serde_json::{Value, json};

use super::changes;
use super::generate::{Guess, Maker, Subject};
use super::script::Step;

/// A way to make a request about a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Create,
    CreateWrong,
    CreateOdd,
    Get,
    List,
    Continue,
    Watch,
    Update,
    Json,
    Merge,
    Strategic,
    Apply,
    Status,
    Scale,
    Delete,
    DeleteAll,
    Evict,
    Release,
    Bad,
}

/// Weights where the subject is likely not to be there.
pub const ABSENT: [(usize, Act); 16] = [
    (48, Act::Create),
    (6, Act::CreateWrong),
    (3, Act::CreateOdd),
    (3, Act::Get),
    (4, Act::List),
    (1, Act::Continue),
    (1, Act::Watch),
    (2, Act::Update),
    (2, Act::Json),
    (2, Act::Merge),
    (1, Act::Strategic),
    (12, Act::Apply),
    (2, Act::Status),
    (2, Act::Delete),
    (1, Act::Evict),
    (1, Act::Bad),
];

/// Weights where it is likely to be there.
pub const PRESENT: [(usize, Act); 19] = [
    (5, Act::Create),
    (1, Act::CreateWrong),
    (1, Act::CreateOdd),
    (3, Act::Get),
    (7, Act::List),
    (4, Act::Continue),
    (1, Act::Watch),
    (9, Act::Update),
    (12, Act::Json),
    (18, Act::Merge),
    (6, Act::Strategic),
    (14, Act::Apply),
    (10, Act::Status),
    (5, Act::Scale),
    (12, Act::Delete),
    (1, Act::DeleteAll),
    (5, Act::Evict),
    (2, Act::Release),
    (2, Act::Bad),
];

/// Weights where it is likely to be deleted but held.
pub const LEAVING: [(usize, Act); 11] = [
    (8, Act::Create),
    (4, Act::Get),
    (6, Act::List),
    (8, Act::Update),
    (10, Act::Json),
    (14, Act::Merge),
    (8, Act::Apply),
    (6, Act::Status),
    (12, Act::Delete),
    (2, Act::DeleteAll),
    (18, Act::Release),
];

impl Act {
    /// The request.
    pub fn step(self, maker: &mut Maker, subject: Subject) -> Step {
        match self {
            Self::Create => create(maker, subject),
            Self::CreateWrong => create_wrong(maker, subject),
            Self::CreateOdd => create_odd(maker, subject),
            Self::Get => get(maker, subject),
            Self::List => list(maker, subject),
            Self::Continue => page(maker, subject),
            Self::Watch => watch(maker, subject),
            Self::Update => changes::update(maker, subject),
            Self::Json => changes::json_patch(maker, subject),
            Self::Merge => changes::merge(maker, subject),
            Self::Strategic => changes::strategic(maker, subject),
            Self::Apply => changes::apply(maker, subject),
            Self::Status => changes::status(maker, subject),
            Self::Scale => changes::scale(maker, subject),
            Self::Delete => delete(maker, subject),
            Self::DeleteAll => delete_all(maker, subject),
            Self::Evict => evict(maker, subject),
            Self::Release => changes::release(maker, subject),
            Self::Bad => bad(maker, subject),
        }
    }
}

/// A request with a JSON body.
pub fn with_body(method: &str, path: String, body: &Value) -> Step {
    Step {
        method: method.to_owned(),
        path,
        media: "application/json".to_owned(),
        body: Some(body.to_string()),
        ..Step::default()
    }
}

fn plain(method: &str, path: String) -> Step {
    Step {
        method: method.to_owned(),
        path,
        ..Step::default()
    }
}

/// A path with a query, if any of it is not empty.
pub fn with_query(path: String, parts: &[&str]) -> String {
    let query: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    if query.is_empty() {
        path
    } else {
        format!("{path}?{}", query.join("&"))
    }
}

/// What writers may add to any write.
pub fn write_options(maker: &mut Maker) -> [&'static str; 3] {
    let dice = &mut maker.dice;
    [
        dice.weighed(&[(12, ""), (5, "fieldManager=one"), (3, "fieldManager=two")]),
        dice.weighed(&[(60, ""), (2, "dryRun=All"), (1, "dryRun=Some")]),
        dice.weighed(&[
            (24, ""),
            (3, "fieldValidation=Strict"),
            (2, "fieldValidation=Ignore"),
            (2, "fieldValidation=Warn"),
            (1, "fieldValidation=Maybe"),
        ]),
    ]
}

/// Whether a write with these options leaves something behind.
pub fn is_real(options: &[&str]) -> bool {
    !options
        .iter()
        .any(|option| option.starts_with("dryRun") || *option == "fieldValidation=Maybe")
}

/// Labels by which lists select.
pub fn labels(maker: &mut Maker) -> Value {
    let all = [
        json!({ "app": "x" }),
        json!({ "app": "y" }),
        json!({ "app": "x", "tier": "z" }),
        json!({ "example.com/long-name": "" }),
    ];
    maker.dice.of(&all).clone()
}

/// Lays labels over those that an object has.
pub fn add_labels(object: &mut Value, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        object["metadata"]["labels"][key] = value.clone();
    }
}

/// The whole object with something in its metadata, and whether it is held.
pub fn decorated(maker: &mut Maker, subject: Subject, content: Value) -> (Value, bool) {
    let mut body = subject.kind.whole(subject.name, 0);
    let head = body["metadata"].take();
    let (api_version, kind) = (body["apiVersion"].take(), body["kind"].take());
    body = content;
    body["apiVersion"] = api_version;
    body["kind"] = kind;
    body["metadata"] = head;
    if maker.dice.percent(50) {
        let labels = labels(maker);
        add_labels(&mut body, &labels);
    }
    if maker.dice.percent(15) {
        body["metadata"]["annotations"] = json!({ "example.com/note": "told" });
    }
    let held = maker.dice.percent(25);
    if held {
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    }
    if maker.dice.percent(6) {
        body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "11111111-1111-4111-8111-111111111111",
            "controller": true, "blockOwnerDeletion": true,
        }]);
    }
    (body, held)
}

fn create(maker: &mut Maker, subject: Subject) -> Step {
    let content = subject.kind.content(maker.dice.below(3));
    let (body, held) = decorated(maker, subject, content);
    let options = write_options(maker);
    if subject.guess == Guess::Absent && is_real(&options) {
        maker.expect(subject, if held { Guess::Held } else { Guess::Present });
    }
    with_body("POST", with_query(subject.kind.here(), &options), &body)
}

fn create_wrong(maker: &mut Maker, subject: Subject) -> Step {
    if !subject.kind.custom {
        return create_odd(maker, subject);
    }
    let content = subject.kind.wrong(maker.dice.below(super::kinds::Kind::WRONGS));
    let (body, _) = decorated(maker, subject, content);
    let options = write_options(maker);
    with_body("POST", with_query(subject.kind.here(), &options), &body)
}

/// Bodies whose metadata, kind or place is not in order.
fn create_odd(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    let mut body = kind.whole(subject.name, 0);
    let mut path = kind.here();
    match maker.dice.below(15) {
        0 => body["metadata"]["resourceVersion"] = json!("7"),
        1 => body["metadata"]["name"] = json!("Not_A_Name"),
        2 => body["metadata"] = json!({}),
        3 => body["metadata"]["labels"] = json!({ "app": "not a value!" }),
        4 => body["metadata"]["finalizers"] = json!(["not a name"]),
        5 => body["kind"] = json!("Bogus"),
        6 => body["apiVersion"] = json!("bogus/v9"),
        7 => body["metadata"]["namespace"] = json!("elsewhere"),
        8 if kind.namespaced => path = path.replace("{{ns}}", "nowhere"),
        9 => {
            body["metadata"]["uid"] = json!("22222222-2222-4222-8222-222222222222");
            body["metadata"]["generation"] = json!(9);
            body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
            body["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
        }
        10 => body["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o" }]),
        11 => body["metadata"]["annotations"] = json!({ "bad key!": "x" }),
        12 => body["metadata"]["finalizers"] = json!(["foregroundDeletion", "orphan"]),
        13 => body["metadata"]["name"] = json!(kind.full(&"n".repeat(260))),
        _ => body["metadata"]["namespace"] = json!("{{ns}}"),
    }
    with_body("POST", path, &body)
}

fn get(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    let mut path = kind.path(subject.name);
    if kind.status && maker.dice.percent(20) {
        path += "/status";
    } else if kind.custom && maker.dice.percent(20) {
        path += "/scale";
    }
    if maker.dice.percent(20) {
        path += &format!("?resourceVersion={}", kind.said("since", subject.name));
    }
    let mut step = plain("GET", path);
    step.metadata = maker.dice.percent(15);
    step
}

/// Selectors of labels and fields. What has no namespace is always selected by the sequence's label.
fn selectors(maker: &mut Maker, subject: Subject) -> [String; 2] {
    let by_label = maker.dice.weighed(&[
        (24, ""),
        (4, "app=x"),
        (2, "app!=x"),
        (2, "app in (x,y)"),
        (2, "app notin (x)"),
        (2, "tier"),
        (2, "!tier,app"),
        (1, "app=="),
        (1, "app in x"),
        (1, "app="),
        (1, "a b"),
        (1, "tier=z,app=x"),
    ]);
    let mut by_label = by_label.to_owned();
    if !subject.kind.namespaced {
        by_label = if by_label.is_empty() {
            "room={{ns}}".to_owned()
        } else {
            format!("room={{{{ns}}}},{by_label}")
        };
    }
    let by_field = if maker.dice.percent(15) {
        maker.dice.of(subject.kind.fields)
    } else {
        ""
    };
    let part = |key: &str, value: &str| {
        if value.is_empty() {
            String::new()
        } else {
            format!("{key}={}", value.replace(' ', "%20"))
        }
    };
    [part("labelSelector", &by_label), part("fieldSelector", by_field)]
}

fn list(maker: &mut Maker, subject: Subject) -> Step {
    let [by_label, by_field] = selectors(maker, subject);
    let limit = maker
        .dice
        .weighed(&[(8, ""), (4, "limit=1"), (3, "limit=2"), (1, "limit=x")]);
    // Pages are made before labels are looked at, so they tell of others' objects where there is no namespace.
    let limit = if subject.kind.namespaced { limit } else { "" };
    let since = subject.kind.said("since", subject.name);
    let version = match maker.dice.below(16) {
        0 => format!("resourceVersion={since}"),
        1 => format!("resourceVersion={since}&resourceVersionMatch=NotOlderThan"),
        2 | 3 => format!("resourceVersion={since}&resourceVersionMatch=Exact"),
        4 => "resourceVersion={{start}}&resourceVersionMatch=Exact".to_owned(),
        5 => "resourceVersion=x".to_owned(),
        6 => "resourceVersionMatch=Exact".to_owned(),
        7 => "resourceVersion={{start}}&resourceVersionMatch=Bogus".to_owned(),
        _ => String::new(),
    };
    let mut step = plain(
        "GET",
        with_query(subject.kind.here(), &[&by_label, &by_field, limit, &version]),
    );
    step.metadata = maker.dice.percent(10);
    step
}

fn page(maker: &mut Maker, subject: Subject) -> Step {
    if !subject.kind.namespaced {
        return list(maker, subject);
    }
    let limit = maker.dice.weighed(&[(3, "limit=1"), (2, "limit=2"), (2, "")]);
    plain(
        "GET",
        with_query(subject.kind.here(), &[limit, "continue={{continue}}"]),
    )
}

fn watch(maker: &mut Maker, subject: Subject) -> Step {
    let [by_label, by_field] = selectors(maker, subject);
    let since = subject.kind.said("since", subject.name);
    let version = match maker.dice.below(8) {
        0 | 1 => "resourceVersion={{start}}".to_owned(),
        2 | 3 => format!("resourceVersion={since}"),
        4 => "resourceVersion={{listrv}}".to_owned(),
        5 => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".to_owned(),
        6 => "resourceVersion=x".to_owned(),
        _ => "resourceVersion={{start}}&resourceVersionMatch=Exact".to_owned(),
    };
    let parts = ["watch=true", "timeoutSeconds=1", &version, &by_label, &by_field];
    let mut step = plain("GET", with_query(subject.kind.here(), &parts));
    step.metadata = maker.dice.percent(15);
    step
}

fn delete(maker: &mut Maker, subject: Subject) -> Step {
    let kind = subject.kind;
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    let mut holds = true;
    match maker.dice.below(8) {
        0..=2 => options["preconditions"] = json!({ "uid": kind.said("uid", subject.name) }),
        3 => {
            options["preconditions"] = json!({ "uid": kind.said("olduid", subject.name) });
            holds = false;
        }
        4 => options["preconditions"] = json!({ "resourceVersion": kind.said("rv", subject.name) }),
        5 => {
            options["preconditions"] =
                json!({ "uid": kind.said("uid", subject.name), "resourceVersion": kind.said("oldrv", subject.name) });
        }
        _ => {}
    }
    let propagation = maker.dice.weighed(&[
        (8, ""),
        (6, "Background"),
        (2, "Foreground"),
        (2, "Orphan"),
        (1, "Bogus"),
    ]);
    if !propagation.is_empty() {
        options["propagationPolicy"] = json!(propagation);
    }
    if maker.dice.percent(if kind.kind == "Pod" { 40 } else { 5 }) {
        options["gracePeriodSeconds"] = json!(*maker.dice.of(&[0, 0, 1, 30, -1]));
    }
    let [manager, dry, _] = write_options(maker);
    if holds && is_real(&[dry]) && propagation != "Bogus" {
        let next = match (subject.guess, propagation) {
            (Guess::Absent, _) => Guess::Absent,
            (Guess::Held | Guess::Leaving, _) | (_, "Foreground" | "Orphan") => Guess::Leaving,
            (Guess::Present, _) => Guess::Absent,
        };
        maker.expect(subject, next);
    }
    let path = with_query(kind.path(subject.name), &[manager, dry]);
    if maker.dice.percent(15) {
        return plain("DELETE", path);
    }
    with_body("DELETE", path, &options)
}

fn delete_all(maker: &mut Maker, subject: Subject) -> Step {
    let [by_label, by_field] = selectors(maker, subject);
    let path = with_query(subject.kind.here(), &[&by_label, &by_field]);
    if maker.dice.percent(60) {
        return plain("DELETE", path);
    }
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
    with_body("DELETE", path, &options)
}

fn evict(maker: &mut Maker, subject: Subject) -> Step {
    if subject.kind.kind != "Pod" {
        return delete(maker, subject);
    }
    let mut body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": subject.name, "namespace": "{{ns}}" },
    });
    match maker.dice.below(6) {
        0 => body["deleteOptions"] = json!({ "preconditions": { "uid": subject.kind.said("uid", subject.name) } }),
        1 => body["deleteOptions"] = json!({ "preconditions": { "uid": subject.kind.said("olduid", subject.name) } }),
        2 => body["deleteOptions"] = json!({ "gracePeriodSeconds": 0 }),
        3 => body["metadata"]["name"] = json!("other"),
        _ => {}
    }
    maker.expect(
        subject,
        if subject.guess == Guess::Held {
            Guess::Leaving
        } else {
            Guess::Absent
        },
    );
    with_body("POST", format!("{}/eviction", subject.kind.path(subject.name)), &body)
}

/// Requests that are wrong before anything is looked up.
fn bad(maker: &mut Maker, subject: Subject) -> Step {
    let (path, whole) = (subject.kind.path(subject.name), subject.kind.whole(subject.name, 0));
    let typed = |method: &str, path: String, media: &str, body: &str| Step {
        method: method.to_owned(),
        path,
        media: media.to_owned(),
        body: Some(body.to_owned()),
        ..Step::default()
    };
    match maker.dice.below(10) {
        0 => typed("POST", subject.kind.here(), "text/plain", "hello"),
        1 => typed("POST", subject.kind.here(), "application/json", "{\"apiVersion\":"),
        2 => typed("PATCH", path, "application/json", "{}"),
        3 => typed("PATCH", path, "application/merge-patch+json", "{\"metadata\":"),
        4 => typed("PATCH", path, "application/json-patch+json", "{\"op\":\"add\"}"),
        5 => plain("GET", format!("{path}/bogus")),
        6 => plain("POST", path),
        7 => plain("GET", subject.kind.here().replace(subject.kind.plural, "bogus")),
        8 => with_body(
            "PUT",
            path,
            &json!({ "apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": { "name": "other" } }),
        ),
        _ => typed("PUT", path, "application/json", "[]"),
    }
}
