//! Any API server over HTTP as the other side: many sequences share one, each in a namespace of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{AsyncBufRead, AsyncBufReadExt as _, TryStreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::kinds::Kind;
use super::memory::{Memory, Reply, Said, warned};
use super::script::Step;
use super::value::AGENT;
use crate::service;

/// An API server.
#[derive(Clone)]
pub struct Wire {
    client: Client,
}

impl Wire {
    /// The server of a kubeconfig. Nothing is asked twice: an answer that tells to come again is an answer.
    ///
    /// # Errors
    /// The kubeconfig is not usable.
    pub async fn new(kubeconfig: Kubeconfig) -> anyhow::Result<Self> {
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Self {
            client: Client::try_from(config)?,
        })
    }

    /// Waits until all kinds are served: those that were defined a moment ago are refused at first.
    ///
    /// # Panics
    /// They are not within a minute.
    pub async fn ready(&self) {
        for kind in &super::kinds::KINDS {
            let list = Step {
                method: "GET".to_owned(),
                path: kind.everywhere(),
                ..Step::default()
            };
            let served = async || match self.send(&list).await {
                Ok(Reply { code: 200, .. }) => Ok(()),
                Ok(reply) => Err(format!("{reply:?}")),
                Err(error) => Err(error.to_string()),
            };
            service::eventually(kind.plural, Duration::from_secs(60), &[], served).await;
        }
    }

    /// A namespace for a sequence.
    ///
    /// # Errors
    /// The server does not make it.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<Memory> {
        let body = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let step = Step {
            method: "POST".to_owned(),
            path: "/api/v1/namespaces".to_owned(),
            media: "application/json".to_owned(),
            body: Some(body.to_string()),
            ..Step::default()
        };
        let reply = self.send(&step).await?;
        let Said::Object(made) = reply.said else {
            bail!("namespace {name}: {reply:?}")
        };
        let start = made["metadata"]["resourceVersion"].as_str();
        let start = start
            .filter(|_| reply.code == 201)
            .with_context(|| format!("namespace {name}: {made}"))?;
        Ok(Memory::new(name, start))
    }

    /// Asks one request of a sequence.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask(&self, memory: &mut Memory, step: &Step) -> anyhow::Result<Reply> {
        let filled = memory.filled(step);
        if step.method == "GET" && !step.is_watch() && step.path.contains("resourceVersion=") {
            // The server may answer such a read from a cache that is behind. Reading the newest state brings it up.
            if let Some(kind) = super::kinds::of_path(&step.path) {
                let newest = Step {
                    method: "GET".to_owned(),
                    path: format!("{}?limit=1", kind.everywhere()),
                    ..Step::default()
                };
                self.send(&newest).await?;
            }
        }
        let reply = self.send(&filled).await?;
        memory.remember(&reply);
        Ok(reply)
    }

    /// Asks one request.
    ///
    /// # Errors
    /// There is no answer, or a stream that holds no events.
    pub async fn send(&self, step: &Step) -> anyhow::Result<Reply> {
        let answer = self.client.send(request(step)?).await?;
        let code = answer.status().as_u16();
        let warnings = answer.headers().get_all("warning").iter();
        let warnings: Vec<String> = warnings.filter_map(|header| told(header.to_str().ok()?)).collect();
        let bytes = answer.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        // A watch that was refused is answered by one object.
        if code == 200 && step.is_watch() {
            let events: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
            let events = events.with_context(|| format!("{step}: {text}"))?;
            return Ok(Reply {
                code,
                said: Said::Events(events),
            });
        }
        let said = match serde_json::from_str(&text) {
            Ok(object @ Value::Object(_)) => Said::Object(warned(code, object, &warnings)),
            Ok(_) | Err(_) => Said::Text(text.into_owned()),
        };
        Ok(Reply { code, said })
    }

    /// Makes etcd forget all history up to now; `dir` is the control plane's, in which its socket lies.
    ///
    /// # Errors
    /// etcd does not.
    pub async fn compact(&self, dir: &Path) -> anyhow::Result<()> {
        let list = Step {
            method: "GET".to_owned(),
            path: "/api/v1/namespaces".to_owned(),
            ..Step::default()
        };
        let Said::Object(listed) = self.send(&list).await?.said else {
            bail!("namespaces are not listed")
        };
        let version = listed["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let body = serde_json::json!({ "revision": version, "physical": true }).to_string();
        let mut socket = UnixStream::connect(dir.join("etcd:1")).await?;
        let head = format!(
            "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all((head + &body).as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "etcd says {answer}");
        Ok(())
    }

    async fn follow(&self, kind: &Kind) -> anyhow::Result<impl AsyncBufRead + use<>> {
        let list = Step {
            method: "GET".to_owned(),
            path: format!("{}?limit=1", kind.everywhere()),
            ..Step::default()
        };
        let reply = self.send(&list).await?;
        let Said::Object(listed) = reply.said else {
            bail!("{}: {reply:?}", kind.plural)
        };
        let version = listed["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let path = format!("{}?watch=true&resourceVersion={version}", kind.everywhere());
        let request = Request::get(path).header("user-agent", AGENT).body(Vec::new())?;
        Ok(self.client.request_stream(request).await?)
    }
}

fn request(step: &Step) -> anyhow::Result<Request<Body>> {
    let mut request = Request::builder()
        .method(step.method.as_str())
        .uri(step.path.replace(' ', "%20"))
        .header("accept", step.accept())
        .header("user-agent", AGENT);
    if !step.media.is_empty() {
        request = request.header("content-type", step.media.as_str());
    }
    let body = step.body.clone().unwrap_or_default().into_bytes();
    request.body(Body::from(body)).with_context(|| step.to_string())
}

/// All that happens to some kinds, of all sequences, told apart by namespace.
pub struct Followed {
    streams: BTreeMap<&'static str, Arc<Stream>>,
    tasks: JoinSet<anyhow::Result<()>>,
    wire: Wire,
    mark: String,
}

struct Stream {
    events: Mutex<Vec<Value>>,
    /// Whether the mark has been seen, behind which nothing is missing.
    marked: watch::Sender<bool>,
}

impl Followed {
    /// Follows from now on. `mark` names what ends it: a namespace that nobody else uses.
    ///
    /// # Errors
    /// The server does not tell.
    pub async fn begin(wire: &Wire, kinds: &[&'static Kind], mark: &str) -> anyhow::Result<Self> {
        wire.namespace(mark).await?;
        let mut followed = Self {
            streams: BTreeMap::new(),
            tasks: JoinSet::new(),
            wire: wire.clone(),
            mark: mark.to_owned(),
        };
        for kind in kinds {
            let stream = Arc::new(Stream {
                events: Mutex::default(),
                marked: watch::channel(false).0,
            });
            followed.streams.insert(kind.kind, stream.clone());
            let lines = wire.follow(kind).await?;
            followed.tasks.spawn(keep(lines, stream, mark.to_owned()));
        }
        Ok(followed)
    }

    /// Waits until all that was done before has been told, and gives it by kind and namespace.
    ///
    /// # Errors
    /// A stream ended too early.
    pub async fn end(
        mut self,
        kinds: &[&'static Kind],
    ) -> anyhow::Result<BTreeMap<(&'static str, String), Vec<Value>>> {
        let memory = Memory::new(&self.mark, "");
        for kind in kinds {
            let reply = self.wire.send(&memory.filled(&kind.mark())).await?;
            if reply.code != 201 {
                bail!("no mark for {}: {reply:?}", kind.kind);
            }
        }
        let mut out: BTreeMap<_, Vec<Value>> = BTreeMap::new();
        for kind in kinds {
            let Some(stream) = self.streams.get(kind.kind) else {
                bail!("{} was not followed", kind.kind)
            };
            let mut marked = stream.marked.subscribe();
            tokio::select! {
                seen = marked.wait_for(|marked| *marked) => { seen?; }
                Some(ended) = self.tasks.join_next() => bail!("{}: a stream ended too early: {ended:?}", kind.kind),
            }
            let events = std::mem::take(&mut *stream.events.lock().unwrap_or_else(PoisonError::into_inner));
            for event in events {
                out.entry((kind.kind, room(kind, &event["object"])))
                    .or_default()
                    .push(event);
            }
        }
        Ok(out)
    }
}

/// The namespace of the sequence to which an object belongs.
fn room(kind: &Kind, object: &Value) -> String {
    let metadata = &object["metadata"];
    if kind.namespaced {
        return metadata["namespace"].as_str().unwrap_or_default().to_owned();
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    name.rsplit_once('-').map_or(name, |(room, _)| room).to_owned()
}

async fn keep(lines: impl AsyncBufRead, stream: Arc<Stream>, mark: String) -> anyhow::Result<()> {
    let mut lines = std::pin::pin!(lines.lines());
    while let Some(line) = lines.try_next().await? {
        let event: Value = serde_json::from_str(&line)?;
        let metadata = &event["object"]["metadata"];
        let is_mark = metadata["namespace"] == mark.as_str()
            || metadata["name"].as_str().is_some_and(|name| name.starts_with(&mark));
        stream.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        if is_mark {
            stream.marked.send_replace(true);
        }
    }
    Ok(())
}

/// What a header warns of, without its quotes.
fn told(header: &str) -> Option<String> {
    serde_json::from_str(header.strip_prefix("299 - ")?).ok()
}
