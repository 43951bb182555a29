//! The real kubectl against the server, word by word as against a real kube-apiserver.
//!
//! Each file of `tests/kubectl` is a session: a command behind `$ `, continued behind `> `, then what kubectl said. The words were
//! captured by `tests/kubectl/capture.sh` from a real server; ages, times, ids and versions are hidden on both sides.
//!
//! A timeout that is meant to pass is ten seconds long. It counts from before kubectl gets and lists what it then waits for: on a busy
//! machine a second is over by then, and kubectl complains of that where it should say what it waited for.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, as it should; it asks its environment what may be skipped"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use millwright_sandbox::api::Api;
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Running, Server};
use regex::Regex;
use serde_json::json;

/// For one command: kubectl itself takes parts of a second, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command and what came of it.
struct Step {
    command: String,
    said: String,
}

impl Step {
    fn written(&self) -> String {
        format!("$ {}\n{}", self.command.replace('\n', "\n> "), self.said)
    }
}

fn read(session: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in session.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                said: String::new(),
            });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix("> ") {
                Some(more) if step.said.is_empty() => step.command += &format!("\n{more}"),
                _ => step.said += &format!("{line}\n"),
            }
        }
    }
    steps
}

/// A home for kubectl, with the file that leads it to a server and to a namespace of the session's own.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new(name: &str, kubeconfig: &str) -> Self {
        let home = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::write(home.kubeconfig(), kubeconfig).unwrap();
        home.run(&format!("kubectl config set-context --current --namespace={name}"));
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let made = home.run(&format!("echo '{namespace}' | kubectl create -f -"));
        assert!(made.ends_with("created\n"), "{made}");
        home
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// What a command says, errors too, and how it ended if not well.
    fn run(&self, command: &str) -> String {
        let output = Command::new("timeout")
            .arg(PATIENCE.as_secs().to_string())
            .args(["bash", "-c", &format!("exec 2>&1\n{command}")])
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !said.is_empty() && !said.ends_with('\n') {
            said.push('\n');
        }
        if !output.status.success() {
            said += &format!("({})\n", output.status);
        }
        said
    }
}

/// What no two servers share, and what is shown in its place.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (
            r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20\d\d \d\d:\d\d:\d\d [+-]\d{4}",
            "TIME",
        ),
        (r#"([rR]esource ?[vV]ersion"?: *)"?\d+"?"#, "${1}VERSION"),
        (r"(^|\s)(\d+[smhd])+(\s|$)", "${1}AGE${3}"),
        (r"(^|\s)(\d+[smhd])+(\s|$)", "${1}AGE${3}"),
        (r"over \d+[smhd]", "over AGE"),
        (r"kubectl-edit-\d+", "kubectl-edit-NUMBER"),
        (r"https?://127\.0\.0\.1:\d+", "URL"),
        (r"\+millwright", ""),
        // The client's own log of a watch that ended within its first second, as one may that began late, on either side.
        (r"(?m)^W\d{4} .* very short watch: .*\n", ""),
        // The client's own log of the watch that its own deadline cut, which it may begin anew before it ends: a matter of luck on a
        // busy machine, over HTTP/1 (a real server without HTTP/2 gets it as often). Only beside the error that tells the deadline.
        (
            r#"(?m)^E\d{4} .* err="[^"]*: Failed to watch \*unstructured\.Unstructured: context deadline exceeded"\n(error: timed out waiting )"#,
            "${1}",
        ),
        (
            r#"(?m)^(error: timed out waiting .*\n)E\d{4} .* err="[^"]*: Failed to watch \*unstructured\.Unstructured: context deadline exceeded"\n"#,
            "${1}",
        ),
        ("(?m)[ \t]+$", ""),
        ("([^ \n])  +", "${1}  "),
    ]
    .map(|(pattern, word)| (Regex::new(pattern).unwrap(), word))
    .into()
});

/// Hides what no two servers share.
fn plain(said: &str) -> String {
    RULES.iter().fold(said.to_owned(), |said, (rule, word)| {
        rule.replace_all(&said, *word).into_owned()
    })
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/kubectl")
        .join(format!("{name}.session"))
}

fn is_there() -> bool {
    let asked = Command::new("kubectl").args(["version", "--client"]).output();
    if asked.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let required = std::env::var("MILLWRIGHT_REQUIRE_APISERVER").is_ok_and(|value| !value.is_empty() && value != "0");
    assert!(
        !required,
        "there is no kubectl, and MILLWRIGHT_REQUIRE_APISERVER says that nothing may be skipped"
    );
    eprintln!("SKIPPED: there is no kubectl on this machine, so nobody knows whether it speaks to the sandbox");
    false
}

async fn server() -> Running {
    let mut api = Api::new(System.moment().now);
    for definition in millwright_core::api::crds::all() {
        let definition = serde_json::to_value(definition).unwrap();
        api.install(&definition, &System.moment()).unwrap();
    }
    // kubectl sends no token to a server without TLS.
    let users = Users::default().with("admin", "t0ken").with_unnamed("admin");
    Server::start(Options::new(api, users)).await.unwrap()
}

/// Plays a session, or captures it where a kubeconfig of a real server is given.
async fn play(name: &'static str) {
    if !is_there() {
        return;
    }
    let steps = read(&std::fs::read_to_string(file(name)).unwrap());
    assert!(!steps.is_empty(), "the session {name} has no commands");
    if let Ok(real) = std::env::var("MILLWRIGHT_KUBECTL_CAPTURE") {
        let home = Home::new(name, &std::fs::read_to_string(real).unwrap());
        let said = steps.iter().map(|step| Step {
            command: step.command.clone(),
            said: plain(&home.run(&step.command)),
        });
        let session: String = said.map(|step| step.written()).collect();
        return std::fs::write(file(name), session).unwrap();
    }
    let server = server().await;
    let kubeconfig = server.kubeconfig("admin").unwrap();
    let wrong = tokio::task::spawn_blocking(move || differences(&Home::new(name, &kubeconfig), &steps))
        .await
        .unwrap();
    server.stop().await.unwrap();
    assert!(
        wrong.is_empty(),
        "{} answers differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn differences(home: &Home, steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in steps {
        let said = plain(&home.run(&step.command));
        if said != step.said {
            wrong.push(format!(
                "$ {}\n--- a kube-apiserver\n{}--- the sandbox\n{said}",
                step.command, step.said
            ));
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_gets_objects_in_columns_and_whole() {
    play("get").await;
}

/// Which is where kubectl speaks protobuf.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_objects_from_words() {
    play("create").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_watches_objects_change() {
    play("watch").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_on_its_own_side_and_on_the_servers() {
    play("apply").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_edits_patches_scales_labels_and_annotates() {
    play("change").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_deletes_and_waits() {
    play("delete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_kinds_and_lists_them() {
    play("explain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_describes_objects_and_their_events() {
    play("describe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_is_refused_what_is_wrong() {
    play("refuse").await;
}
