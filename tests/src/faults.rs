//! An HTTP proxy in front of an API server that spoils answers as proxies and overloaded servers do, and counts what it is asked. It may
//! not judge. What happens to whole connections is [`proxy`](crate::proxy)'s.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures::{Stream, StreamExt as _};
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use millwright_dev::apiserver::ControlPlane;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// What is wrong with the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Watches are answered with 200, and nothing follows, as by a proxy that buffers answers until they end.
    SilentWatches,
    /// Watches are answered with 200 and a page of HTML, as by a proxy that wants people to log in.
    HtmlWatches,
    /// Watches end as soon as they begin.
    EndedWatches,
    /// The version that a watch begins at is of the past, which is told by the status of the answer and, every second time, by an event.
    ExpiredWatches,
    /// Everything is answered with 429 and the number of seconds after which it may be tried again.
    TooManyRequests(u32),
}

/// A port of loopback that speaks plain HTTP before a server that speaks TLS. Dropping it ends all connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    requests: Requests,
    serving: JoinHandle<()>,
}

/// How many requests there were, by `VERB resource`.
type Requests = Arc<Mutex<BTreeMap<String, u32>>>;

#[derive(Clone)]
struct Passage {
    server: Client,
    fault: watch::Receiver<Fault>,
    requests: Requests,
}

impl FaultProxy {
    /// A proxy of the API server of `plane`, without a fault. Who asks is told by the requests' own tokens.
    ///
    /// # Panics
    /// The machine has no free port, or the admin's kubeconfig cannot be used.
    pub async fn before(plane: &ControlPlane) -> Self {
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).expect("the admin's kubeconfig");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("a usable kubeconfig");
        config.auth_info = AuthInfo::default();
        config.read_timeout = None;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let (fault, faults) = watch::channel(Fault::None);
        let requests = Requests::default();
        let passage = Passage {
            server: Client::try_from(config).expect("a client"),
            fault: faults,
            requests: Arc::clone(&requests),
        };
        let address = listener.local_addr().expect("a bound socket has an address");
        let app = Router::new().fallback(answer).with_state(passage);
        let serving = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("loopback can be served");
        });
        Self {
            address,
            fault,
            requests,
            serving,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Spoils answers in another way from now on. Watches that there are fall silent or end.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many requests there were since this was asked last, by `VERB resource[/subresource]`, where the verb of a watch is WATCH.
    pub async fn requests(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut *self.requests.lock().await)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(mut passage): State<Passage>, request: Request) -> Response {
    let is_watch = is_watch(&request);
    let nth = {
        let mut requests = passage.requests.lock().await;
        let count = requests.entry(name(&request, is_watch)).or_default();
        *count += 1;
        *count
    };
    let fault = *passage.fault.borrow_and_update();
    match fault {
        Fault::TooManyRequests(seconds) => too_many(seconds),
        Fault::SilentWatches if is_watch => {
            let silence = futures::stream::once(over(passage.fault, fault)).map(|()| Ok::<_, Infallible>(Bytes::new()));
            json_of(Body::from_stream(silence))
        }
        Fault::HtmlWatches if is_watch => {
            let page = "<!doctype html><title>Log in</title><p>Please log in.</p>\n";
            ([(CONTENT_TYPE, "text/html")], page).into_response()
        }
        Fault::EndedWatches if is_watch => json_of(Body::empty()),
        Fault::ExpiredWatches if is_watch && nth % 2 == 0 => json_of(Body::from(format!(
            "{}\n",
            json!({ "type": "ERROR", "object": gone() })
        ))),
        Fault::ExpiredWatches if is_watch => {
            (StatusCode::GONE, json_of(Body::from(gone().to_string()))).into_response()
        }
        Fault::None | Fault::SilentWatches | Fault::HtmlWatches | Fault::EndedWatches | Fault::ExpiredWatches => {
            pass(passage, request, is_watch).await
        }
    }
}

fn is_watch(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::GET && query.split('&').any(|pair| matches!(pair, "watch=1" | "watch=true"))
}

/// What is asked for, without names of objects and namespaces.
fn name(request: &Request, is_watch: bool) -> String {
    let verb = if is_watch { "WATCH" } else { request.method().as_str() };
    let mut path: Vec<&str> = request
        .uri()
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    // /api/VERSION/… or /apis/GROUP/VERSION/…
    path.drain(..path.len().min(if path.first() == Some(&"api") { 2 } else { 3 }));
    if path.first() == Some(&"namespaces") && path.len() > 2 {
        path.drain(..2);
    }
    let subresource = path.get(2).map_or_else(String::new, |name| format!("/{name}"));
    format!("{verb} {}{subresource}", path.first().unwrap_or(&"-"))
}

fn too_many(seconds: u32) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "too many requests, please try again later",
    });
    let after = [(RETRY_AFTER, seconds.to_string())];
    (
        StatusCode::TOO_MANY_REQUESTS,
        after,
        json_of(Body::from(status.to_string())),
    )
        .into_response()
}

fn gone() -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version",
    })
}

fn json_of(body: Body) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Passes a request on, and the answer back. A watch ends with the next change of the fault.
async fn pass(passage: Passage, request: Request, is_watch: bool) -> Response {
    let Passage { server, fault, .. } = passage;
    let (mut head, body) = request.into_parts();
    head.headers.remove(HOST);
    let Ok(body) = body.collect().await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let request = http::Request::from_parts(head, kube::client::Body::from(body.to_bytes().to_vec()));
    match server.send(request).await {
        Ok(answer) if is_watch => {
            let (head, body) = answer.into_parts();
            Response::from_parts(head, Body::from_stream(until_changed(body.into_data_stream(), fault)))
        }
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// A watch until the fault changes. Then it ends, or is silent as long as that is the fault.
fn until_changed<E>(
    stream: impl Stream<Item = Result<Bytes, E>>,
    fault: watch::Receiver<Fault>,
) -> impl Stream<Item = Result<Bytes, E>> {
    let mut changes = fault.clone();
    let end = async move {
        // An error means that there is no proxy any more.
        let _ = changes.changed().await;
    };
    let silence = futures::stream::once(over(fault, Fault::SilentWatches)).map(|()| Ok(Bytes::new()));
    stream.take_until(end).chain(silence)
}

/// Waits until the fault is another one, or the proxy is gone.
async fn over(mut fault: watch::Receiver<Fault>, what: Fault) {
    let _ = fault.wait_for(|now| *now != what).await;
}
