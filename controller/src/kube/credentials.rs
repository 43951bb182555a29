//! What the requests to a cluster are signed with: read once for all its clients, and read again before it ends or when it is refused.
//!
//! kube does less. It reads a kubeconfig once, runs a credential plugin several times at the start and never again if the plugin tells no
//! expiry, never renews a plugin's client certificate, uses a token file's old token for up to a minute after the file was replaced, and sends
//! the newline at the file's end along. So plugins and token files are read here, and kube gets what they gave. When that changes, kube's
//! whole service under each client is made anew; requests go on with the old one meanwhile.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, StatusCode};
use kube::Config;
use kube::client::{Body, ClientBuilder};
use kube::config::AuthInfo;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tower::util::BoxService;
use tower::{BoxError, Layer, Service};
use zeroize::Zeroizing;

use super::access::{Access, AccessError, origin, prepared, read};
use super::call::Answer;
use super::plugin;
use crate::env::{Outside as _, System};
use crate::kube::error::plain;

/// The least pause between two readings: a credential plugin may cost its provider something.
const PAUSE: Duration = Duration::from_secs(5);
/// How often a token file is looked at. A kubelet replaces it long before the old token ends.
const LOOK: Duration = Duration::from_secs(50);
/// How long reading a token file may take.
const FILE_LIMIT: Duration = Duration::from_secs(10);
/// How long before they end, credentials are read again.
const AHEAD: Duration = Duration::from_secs(60);

/// The credentials of one cluster.
pub struct Credentials {
    access: Access,
    state: Mutex<State>,
    /// The reading that is under way. Nobody waits for it at the end of the process.
    tasks: TaskTracker,
}

struct State {
    read: Read,
    /// Counts the readings that brought something new.
    generation: u64,
    is_under_way: bool,
    /// When they were last read.
    at: Instant,
    /// When they are to be read again. `None`: only if they are refused.
    due: Option<Instant>,
}

/// What a reading brought. kube is told tokens and certificates only, no file and no plugin.
struct Read {
    config: Box<Config>,
    /// The text of the token file, where there is one.
    token: Option<Zeroizing<String>>,
    is_from_plugin: bool,
    /// When a plugin's credentials end, if it tells.
    ends: Option<jiff::Timestamp>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", origin(&self.access))
    }
}

impl Credentials {
    /// Reads them.
    pub async fn read(access: &Access) -> Result<Arc<Self>, AccessError> {
        let read = read_once(access).await?;
        let at = Instant::now();
        let due = read.due(at);
        Ok(Arc::new(Self {
            access: access.clone(),
            state: Mutex::new(State {
                read,
                generation: 0,
                is_under_way: false,
                at,
                due,
            }),
            tasks: TaskTracker::new(),
        }))
    }

    /// A client's service that is signed with them.
    pub(super) fn service(self: &Arc<Self>) -> Result<ClientBuilder<Signed>, AccessError> {
        let (config, generation) = {
            let state = self.state();
            (Config::clone(&state.read.config), state.generation)
        };
        let namespace = config.default_namespace.clone();
        let stack = stack(config).map_err(|error| AccessError::Unusable {
            origin: origin(&self.access),
            reason: plain(&error),
        })?;
        let credentials = Arc::clone(self);
        let service = Signed {
            stack,
            generation,
            credentials,
        };
        Ok(ClientBuilder::new(service, namespace))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is newer than that generation. Begins to read again, where that is due.
    fn newer(self: &Arc<Self>, than: u64) -> Option<(u64, Config)> {
        let mut state = self.state();
        if state.due.is_some_and(|due| due <= Instant::now()) {
            self.begin(&mut state, false);
        }
        (state.generation > than).then(|| (state.generation, Config::clone(&state.read.config)))
    }

    /// The API server refused those of that generation.
    fn refused(self: &Arc<Self>, generation: u64) {
        let mut state = self.state();
        if state.generation == generation && state.at.elapsed() >= PAUSE {
            self.begin(&mut state, true);
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, are_refused: bool) {
        if std::mem::replace(&mut state.is_under_way, true) {
            return;
        }
        let credentials = Arc::clone(self);
        self.tasks.spawn(async move {
            let read = read_once(&credentials.access).await;
            credentials.absorb(read, are_refused);
        });
    }

    fn absorb(&self, read: Result<Read, AccessError>, are_refused: bool) {
        let mut state = self.state();
        state.is_under_way = false;
        state.at = Instant::now();
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                state.due = state.due.map(|_| state.at + PAUSE);
                tracing::warn!(%error, "credentials could not be read again");
                return;
            }
        };
        state.due = read.due(state.at);
        if are_refused || read.is_from_plugin || read.token != state.read.token {
            state.read = read;
            state.generation += 1;
            tracing::info!(
                origin = origin(&self.access),
                are_refused,
                "credentials were read again"
            );
        }
    }
}

impl Read {
    fn due(&self, now: Instant) -> Option<Instant> {
        if self.token.is_some() {
            return Some(now + LOOK);
        }
        let left = self.ends?.duration_since(System.now());
        // What has ended already, by the plugin's word or by our clock, is not asked for in a circle.
        let Some(left) = Duration::try_from(left).ok().filter(|left| !left.is_zero()) else {
            return Some(now + LOOK);
        };
        Some(now + left.saturating_sub(AHEAD).max(PAUSE))
    }
}

async fn read_once(access: &Access) -> Result<Read, AccessError> {
    let mut config = Box::new(read(access).await?);
    let unusable = |reason: String| AccessError::Unusable {
        origin: origin(access),
        reason,
    };
    let token = match config.auth_info.token_file.take() {
        Some(path) => {
            let token = token_of(&path).await;
            let token = token.map_err(|reason| unusable(format!("the token file {path}: {reason}")))?;
            sign(&mut config.auth_info, &json!({ "token": token }));
            Some(Zeroizing::new(token))
        }
        None => None,
    };
    let (mut is_from_plugin, mut ends) = (false, None);
    if token.is_none()
        && config.auth_info.token.is_none()
        && let Some(exec) = config.auth_info.exec.take()
    {
        let given = plugin::run(&exec).await.map_err(unusable)?;
        sign(&mut config.auth_info, &given.signs);
        (is_from_plugin, ends) = (true, given.ends);
    }
    Ok(Read {
        config,
        token,
        is_from_plugin,
        ends,
    })
}

/// Reads a token file. One that hangs, as on a file system that is away, is given up.
async fn token_of(path: &str) -> Result<String, String> {
    let read = async {
        // To open a pipe would wait for its writer, in a thread that nobody can end.
        match tokio::fs::metadata(path).await?.is_file() {
            true => tokio::fs::read_to_string(path).await,
            false => Err(std::io::Error::other("not a file")),
        }
    };
    let text = tokio::time::timeout(FILE_LIMIT, read).await;
    let text = text.map_err(|_| format!("not read within {} s", FILE_LIMIT.as_secs()))?;
    let token = text.map_err(|error| error.to_string())?.trim().to_owned();
    plugin::sendable(&token)?;
    Ok(token)
}

/// Puts a token or a client certificate into what kube signs with. The fields are those of a kubeconfig's user.
fn sign(user: &mut AuthInfo, with: &serde_json::Value) {
    let given: AuthInfo = serde_json::from_value(with.clone()).expect("a user of texts");
    user.token = given.token.or(user.token.take());
    user.client_certificate_data = given.client_certificate_data.or(user.client_certificate_data.take());
    user.client_key_data = given.client_key_data.or(user.client_key_data.take());
}

/// kube's service for one set of credentials, with connections of its own.
type Stack = BoxService<Request<Body>, Answer, BoxError>;

fn stack(config: Config) -> Result<Stack, kube::Error> {
    let taken = Taken::default();
    ClientBuilder::try_from(prepared(config))?.with_layer(&taken);
    Ok(taken.0.into_inner().expect("a builder hands its service to the layer"))
}

/// Takes the service out of a builder, which hands it to layers only.
#[derive(Default)]
struct Taken(Cell<Option<Stack>>);

impl Layer<Stack> for Taken {
    type Service = ();

    fn layer(&self, stack: Stack) {
        self.0.set(Some(stack));
    }
}

/// The service of one client, whatever the credentials are at the time.
pub(super) struct Signed {
    stack: Stack,
    generation: u64,
    credentials: Arc<Credentials>,
}

impl Service<Request<Body>> for Signed {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some((generation, config)) = self.credentials.newer(self.generation) {
            self.generation = generation;
            match stack(config) {
                Ok(stack) => self.stack = stack,
                Err(error) => tracing::warn!(error = plain(&error), "credentials that were read again cannot be used"),
            }
        }
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.stack.call(request);
        let (credentials, generation) = (Arc::clone(&self.credentials), self.generation);
        Box::pin(async move {
            let answer = answer.await;
            if answer
                .as_ref()
                .is_ok_and(|answer| answer.status() == StatusCode::UNAUTHORIZED)
            {
                credentials.refused(generation);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::kube::client::{Cluster, Policy, Role};
    use crate::telemetry::Metrics;

    /// A server that takes one token and answers every request with a Namespace.
    async fn server(token: watch::Receiver<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = TaskTracker::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut asked = vec![0; 4096];
                let Ok(length) = stream.read(&mut asked).await else {
                    continue;
                };
                let asked = String::from_utf8_lossy(asked.get(..length).unwrap_or_default()).to_lowercase();
                let is_known = asked.contains(&format!("authorization: bearer {}\r\n", *token.borrow()));
                let (status, body) = match is_known {
                    true => (
                        "200 OK",
                        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#,
                    ),
                    false => (
                        "401 Unauthorized",
                        r#"{"kind":"Status","code":401,"message":"Unauthorized"}"#,
                    ),
                };
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}");
                let answer = format!("{head}\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}")
    }

    fn kubeconfig(directory: &Path, server: &str, user: serde_json::Value) -> Access {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
        });
        let kubeconfig = directory.join("config");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        Access::File(kubeconfig)
    }

    async fn cluster(directory: &Path, server: &str, user: serde_json::Value) -> Cluster {
        let policy = Policy {
            role: Role::Control,
            leadership: None,
            budget: None,
            metrics: Metrics::default(),
        };
        Cluster::open(&kubeconfig(directory, server, user), policy)
            .await
            .unwrap()
    }

    async fn is_let_in(cluster: &Cluster) -> bool {
        Api::<Namespace>::all(cluster.client.clone()).get("a").await.is_ok()
    }

    /// Within the pause between two readings, and a moment more.
    async fn is_let_in_soon(cluster: &Cluster) -> bool {
        for _ in 0..100 {
            if is_let_in(cluster).await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }

    /// Rows: O14, O15.
    #[tokio::test]
    async fn a_token_file_may_end_with_a_newline_and_is_read_again_when_its_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "one\n").unwrap();
        let (accepted, token) = watch::channel("one".to_owned());
        let server = server(token).await;
        let cluster = cluster(directory.path(), &server, json!({"tokenFile": file})).await;
        assert!(is_let_in(&cluster).await, "the newline is not sent");
        std::fs::write(&file, "two\n").unwrap();
        accepted.send_replace("two".to_owned());
        assert!(!is_let_in(&cluster).await);
        assert!(is_let_in_soon(&cluster).await);
    }

    /// kube panics at a token that no header can have, and no request of the client has an answer from then on.
    #[tokio::test]
    async fn a_token_that_cannot_be_sent_is_not_taken_and_the_next_one_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "one").unwrap();
        let (accepted, token) = watch::channel("one".to_owned());
        let server = server(token).await;
        let cluster = cluster(directory.path(), &server, json!({"tokenFile": file})).await;
        assert!(is_let_in(&cluster).await);
        accepted.send_replace("two".to_owned());
        for bad in ["t\nwo", "", "two\u{1}"] {
            std::fs::write(&file, bad).unwrap();
            let read = read_once(&Access::File(directory.path().join("config"))).await;
            let error = read.err().expect("it is refused").to_string();
            assert!(error.contains("token") && !error.contains("two"), "{error}");
        }
        for _ in 0..60 {
            assert!(!is_let_in(&cluster).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        std::fs::write(&file, "two").unwrap();
        assert!(is_let_in_soon(&cluster).await);
    }

    /// Rows: O14.
    #[tokio::test]
    async fn a_plugin_runs_once_at_the_start_and_again_when_its_token_is_refused_that_told_no_expiry() {
        let directory = tempfile::tempdir().unwrap();
        let (file, runs) = (directory.path().join("token"), directory.path().join("runs"));
        std::fs::write(&file, "one").unwrap();
        let (accepted, token) = watch::channel("one".to_owned());
        let server = server(token).await;
        let version = "client.authentication.k8s.io/v1";
        let say = format!(
            r#"echo run >> {}; echo '{{"apiVersion":"{version}","kind":"ExecCredential","status":{{"token":"'$(cat {})'"}}}}'"#,
            runs.display(),
            file.display()
        );
        let plugin = json!({"exec": {"apiVersion": version, "command": "/bin/sh", "args": ["-c", say], "interactiveMode": "Never"}});
        let cluster = cluster(directory.path(), &server, plugin).await;
        assert!(is_let_in(&cluster).await);
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 1);
        std::fs::write(&file, "two").unwrap();
        accepted.send_replace("two".to_owned());
        assert!(is_let_in_soon(&cluster).await);
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 2);
    }

    /// A token that ends a minute from now is renewed at once, which is after the least pause.
    ///
    /// Rows: O14.
    #[tokio::test]
    async fn a_plugins_token_is_renewed_before_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs");
        let (_accepted, token) = watch::channel("one".to_owned());
        let server = server(token).await;
        let version = "client.authentication.k8s.io/v1";
        let ends = System.now() + jiff::SignedDuration::from_secs(61);
        let given = json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "one", "expirationTimestamp": ends}});
        let say = format!("echo run >> {}; echo '{given}'", runs.display());
        let plugin = json!({"exec": {"apiVersion": version, "command": "/bin/sh", "args": ["-c", say], "interactiveMode": "Never"}});
        let cluster = cluster(directory.path(), &server, plugin).await;
        for _ in 0..80 {
            assert!(is_let_in(&cluster).await, "requests go on meanwhile");
            if std::fs::read_to_string(&runs).unwrap().lines().count() > 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the plugin was not run again");
    }

    /// Where a plugin gives client certificates, clients are made anew with each new one.
    ///
    /// Rows: O14.
    #[tokio::test]
    async fn a_plugins_client_certificate_is_renewed_before_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let version = "client.authentication.k8s.io/v1";
        let ends = System.now() + jiff::SignedDuration::from_secs(61);
        let given = |name: &str| {
            let rcgen::CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            let status = json!({"clientCertificateData": cert.pem(), "clientKeyData": signing_key.serialize_pem(), "expirationTimestamp": ends});
            json!({"apiVersion": version, "kind": "ExecCredential", "status": status}).to_string()
        };
        let file = directory.path().join("given");
        std::fs::write(&file, given("one")).unwrap();
        let plugin =
            json!({"exec": {"apiVersion": version, "command": "cat", "args": [file], "interactiveMode": "Never"}});
        let access = kubeconfig(directory.path(), "https://127.0.0.1:1", plugin);
        let credentials = Credentials::read(&access).await.unwrap();
        let signs = |config: &Config| config.auth_info.client_certificate_data.clone().expect("a certificate");
        let first = signs(&credentials.state().read.config);
        std::fs::write(&file, given("two")).unwrap();
        for _ in 0..80 {
            if let Some((_, config)) = credentials.newer(0) {
                assert_ne!(signs(&config), first);
                stack(config).expect("a client can be made with it");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the plugin was not run again");
    }
}
