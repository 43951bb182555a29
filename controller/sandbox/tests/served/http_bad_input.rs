//! Bad input is answered as a real kube-apiserver answered it: every line of `tests/bad/questions.txt`, over HTTP.
//!
//! `tests/bad/ask.py` wrote `answers.txt`. What no two servers share is hidden on both sides in the same way.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

use std::sync::LazyLock;
use std::time::Duration;

use millwright_sandbox::api::Api;
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Running, Server};
use regex::Regex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Questions that the sandbox is known to answer otherwise, and why. Counted, so that none goes stale.
const GAPS: &[(&str, &str)] = &[
    (
        "POST MS application/vnd.kubernetes.protobuf | k8s",
        "the server's handler panics and cuts the line",
    ),
    (
        r"PATCH CM?fieldManager=x application/apply-patch+yaml | LINES:\tapiVersion: v1\n",
        "the parser lets tabs stand where they do no harm",
    ),
    (
        r#"PATCH CM?fieldManager=x application/apply-patch+yaml | {"apiVersion":"v1","kind":"ConfigMap","data":{"x":"\/"}}"#,
        "what is JSON is read as such, which has more escapes",
    ),
    (
        r#"PATCH CM application/merge-patch+json | {"apiVersion":"apps/v1","kind":"Deployment"}"#,
        "the server knows more kinds, which these become before they are refused",
    ),
    (
        r#"POST MS | FILL:2300000:{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine","metadata":{"name":"big"},"spec":{"drainTimeout":"@"}}"#,
        "the size that is told is that of etcd's request, which is smaller by some two hundred bytes for a creation",
    ),
    (
        r#"POST /apis/machine.sapcloud.io/v1alpha1/namespaces/default/machinesets | {"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineSet","metadata":{"name":"n"},"spec":{"replicas":3.0}}"#,
        "a float without a fraction becomes a whole number before it is judged, not only before it is stored",
    ),
    (
        r#"PATCH CM application/strategic-merge-patch+json | {"metadata":{"generation":3.0,"labels":{"y":7}}}"#,
        "what a strategic patch leaves may be a float without a fraction where a whole number belongs",
    ),
    ("POST CMS | DEEP:9000", "what is nested deeper than 127 is not read"),
    (
        "POST CMS | CHUNKED:_{}_0__",
        "hyper does not tell an empty length from one that is no number",
    ),
];

const PATIENCE: Duration = Duration::from_secs(20);

const SHORT: [(&str, &str); 6] = [
    ("CMS", "/api/v1/namespaces/default/configmaps"),
    ("CM", "/api/v1/namespaces/default/configmaps/cm"),
    ("MS", "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines"),
    ("M", "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines/m"),
    ("NS", "/api/v1/namespaces"),
    ("NODES", "/api/v1/nodes"),
];

struct Question<'a> {
    text: &'a str,
    method: &'a str,
    path: String,
    media: &'a str,
    body: Option<Vec<u8>>,
    is_chunked: bool,
}

impl<'a> Question<'a> {
    fn of(text: &'a str) -> Self {
        let (asked, body) = match text.split_once(" |") {
            Some((asked, body)) => (asked, Some(body.strip_prefix(' ').unwrap_or(body))),
            None => (text, None),
        };
        let mut words = asked.splitn(3, ' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let usual = if body.is_some() && method != "PATCH" {
            "application/json"
        } else {
            ""
        };
        Self {
            text,
            method,
            path: path_of(path),
            media: words.next().unwrap_or(usual),
            body: body.map(body_of),
            is_chunked: body.is_some_and(|body| body.starts_with("CHUNKED:")),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer t0ken\r\nAccept: application/json\r\nUser-Agent: \
             bad/1\r\nConnection: close\r\n",
            self.method, self.path
        );
        if !self.media.is_empty() {
            head += &format!("Content-Type: {}\r\n", self.media);
        }
        if self.is_chunked {
            head += "Transfer-Encoding: chunked\r\n";
        } else if let Some(body) = &self.body {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut out = (head + "\r\n").into_bytes();
        out.extend(self.body.iter().flatten());
        out
    }
}

fn path_of(word: &str) -> String {
    let word = word.replace("LONG", &"x".repeat(129));
    let end = word.find(['?', '/']).unwrap_or(word.len());
    let (name, rest) = word.split_at(end);
    let found = SHORT.iter().find(|(short, _)| *short == name);
    found.map_or(word.clone(), |(_, path)| format!("{path}{rest}"))
}

fn body_of(text: &str) -> Vec<u8> {
    let (what, rest) = text.split_once(':').unwrap_or((text, ""));
    let number = || rest.parse::<usize>().unwrap();
    let object =
        |name: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":"#);
    match what {
        "BIG" => vec![b'x'; number()],
        "OBJECT" => format!("{}{{\"a\":\"{}\"}}}}", object("big"), "x".repeat(number())).into_bytes(),
        "FILL" => {
            let (number, text) = rest.split_once(':').unwrap();
            text.replace('@', &"x".repeat(number.parse().unwrap())).into_bytes()
        }
        "DEEP" => {
            let (open, close) = ("{\"a\":".repeat(number()), "}".repeat(number()));
            format!("{}{open}1{close}}}", object("deep")).into_bytes()
        }
        "CHUNKED" => rest.replace('_', "\r\n").into_bytes(),
        "LINES" => rest.replace("\\n", "\n").replace("\\t", "\t").into_bytes(),
        "HEX" => {
            let whole = if rest.len() % 2 == 1 {
                format!("{rest}0")
            } else {
                rest.to_owned()
            };
            let pairs = whole
                .as_bytes()
                .chunks(2)
                .map(|pair| std::str::from_utf8(pair).unwrap());
            pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
        }
        _ => text.as_bytes().to_vec(),
    }
}

async fn server() -> (Running, Api) {
    let mut api = Api::new(System.moment().now);
    for definition in millwright_core::api::crds::all() {
        let definition = serde_json::to_value(definition).unwrap();
        api.install(&definition, &System.moment()).unwrap();
    }
    for object in [
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cm", "namespace": "default" }, "data": { "a": "b" } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kube-root-ca.crt", "namespace": "kube-system" },
        }),
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": { "name": "m", "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } },
        }),
    ] {
        api.install(&object, &System.moment()).unwrap();
    }
    let options = Options::new(api, Users::default().with("admin", "t0ken"));
    let running = Server::start(options).await.unwrap();
    let fresh = running.with(|api| api.clone());
    (running, fresh)
}

/// What came back.
#[derive(Default)]
struct Answer {
    code: u16,
    media: String,
    warnings: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn none(why: &str) -> Self {
        Self {
            media: why.to_owned(),
            ..Self::default()
        }
    }
}

async fn ask(server: &Running, question: &Question<'_>) -> Answer {
    let mut line = TcpStream::connect(server.addr()).await.unwrap();
    // Who knows enough need not read on.
    line.write_all(&question.bytes()).await.ok();
    let mut answer = Vec::new();
    match tokio::time::timeout(PATIENCE, line.read_to_end(&mut answer)).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) if !answer.is_empty() => {}
        Ok(Err(error)) => return Answer::none(&error.to_string()),
        Err(_) => return Answer::none("no end"),
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let headers = |name: &str| -> Vec<String> {
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let meant = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        meant.map(|(_, value)| value.to_owned()).collect()
    };
    let mut body = answer[end + 4..].to_vec();
    if headers("transfer-encoding") == ["chunked"] && question.method != "HEAD" {
        body = joined(&body);
    }
    Answer {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        media: headers("content-type").pop().unwrap_or_else(|| "None".to_owned()),
        warnings: headers("warning"),
        body,
    }
}

/// The pieces of a chunked body.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return out;
        }
        out.extend(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
    }
}

/// What no two servers share, and what is shown in its place.
static RULES: LazyLock<[(Regex, &str); 5]> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "*uid*"),
        (r"20[2-9][0-9]-[0-9-]+T[0-9:.]+Z", "*time*"),
        (r"in record \([0-9]+\)", "in record (*)"),
        // The object that a patch made, whose fields come in another order.
        (r#"patch: Invalid value: "\{.*\}": "#, "patch: Invalid value: *: "),
        (r#"^Invalid value: "\{.*\}": "#, "Invalid value: *: "),
    ]
    .map(|(pattern, shown)| (Regex::new(pattern).unwrap(), shown))
});

/// Hides what no two servers share.
fn hidden(text: &str) -> String {
    let text = without_parsers_words(&in_order(text));
    RULES
        .iter()
        .fold(text, |text, (rule, shown)| rule.replace_all(&text, *shown).into_owned())
}

/// Complaints about several fields come in the order of Go's maps, which is none.
fn in_order(text: &str) -> String {
    match text.split_once("errors:\n") {
        Some((before, lines)) if !before.ends_with("unmarshal ") => {
            let mut lines: Vec<&str> = lines.split('\n').collect();
            lines.sort_unstable();
            format!("{before}errors:\n{}", lines.join("\n"))
        }
        _ => text.to_owned(),
    }
}

/// Two parsers of YAML do not stop in the same words. What both read and do not like is ours to say as the server does.
fn without_parsers_words(text: &str) -> String {
    let Some((before, after)) = text.split_once("yaml: ") else {
        return text.to_owned();
    };
    if after.starts_with("unmarshal errors") || after.starts_with("invalid map key") {
        return text.to_owned();
    }
    let body = after.rfind(" (").map_or("", |at| &after[at..]);
    format!("{before}yaml: *{body}")
}

fn all_hidden(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(hidden(text)),
        Value::Array(items) => items.iter().map(all_hidden).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, inner)| (name.clone(), all_hidden(inner)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Good answers are other tests' affair: what matters here is that it is one.
fn shown(answer: &Answer) -> Value {
    let shown = shown_body(&answer.body);
    if answer.warnings.is_empty() {
        return shown;
    }
    json!({ "answer": shown, "warnings": answer.warnings })
}

fn shown_body(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    if !value.is_object() || value["kind"] == "Status" {
        return value;
    }
    match value["items"].as_array() {
        Some(items) => json!({ "kind": value["kind"], "items": items.len() }),
        None => json!({ "kind": value["kind"] }),
    }
}

#[tokio::test]
async fn bad_input_is_answered_as_by_the_server() {
    let (server, fresh) = server().await;
    let questions = include_str!("../bad/questions.txt").lines();
    let questions = questions.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let answers: Vec<&str> = include_str!("../bad/answers.txt").lines().collect();
    let (mut wrong, mut closed, mut asked) = (Vec::new(), Vec::new(), 0);
    for (question, expected) in questions.map(Question::of).zip(&answers) {
        asked += 1;
        server.with(|api| *api = fresh.clone());
        let answer = ask(&server, &question).await;
        let mut words = expected.splitn(3, ' ');
        let expected_code: u16 = words.next().unwrap().parse().unwrap();
        let rest = expected.split_once(' ').unwrap().1;
        let typed = "text/plain; charset=utf-8";
        let at = match rest.starts_with(typed) {
            true => typed.len(),
            false => rest.find(' ').unwrap(),
        };
        let (expected_media, expected_body) = (&rest[..at], &rest[at + 1..]);
        let expected_body: Value = serde_json::from_str(expected_body).unwrap();
        let got = all_hidden(&shown(&answer));
        let (code, media) = (answer.code, &answer.media);
        let is_same = code == expected_code && media == expected_media && got == all_hidden(&expected_body);
        let is_known = GAPS.iter().any(|(known, _)| *known == question.text);
        match (is_same, is_known) {
            (true, true) => closed.push(question.text),
            (false, false) => wrong.push(format!(
                "{}\n  server  {expected}\n  sandbox {code} {media} {got}",
                question.text
            )),
            (true, false) | (false, true) => {}
        }
    }
    assert_eq!(asked, answers.len(), "questions and answers do not go together");
    assert!(
        wrong.is_empty(),
        "{} of {asked} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(closed.is_empty(), "these gaps are closed: {closed:?}");
    server.stop().await.unwrap();
}
