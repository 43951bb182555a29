//! What every call meets at the driver's end of the wire, whatever carries it: it is counted, and its answer is told.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use millwright_proto::v1;
use prost::Message as _;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt as _};

use crate::event::{DriverCall, What};
use crate::world::World;

/// Which life of the manager calls, told beside the call.
pub const CALLER: &str = "x-sim-caller";
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The SDK's service around a driver.
pub type Served = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// The recorder in front of it.
#[derive(Clone)]
pub struct CallRecorder {
    served: Served,
    world: Arc<World>,
    /// Listings under way, by the manager's life.
    listings: Arc<Mutex<BTreeMap<u32, Shown>>>,
}

impl CallRecorder {
    /// A recorder in front of this service.
    pub fn new(served: Served, world: Arc<World>) -> Self {
        let listings = Arc::default();
        Self {
            served,
            world,
            listings,
        }
    }

    async fn take(self, request: http::Request<Body>) -> http::Response<Body> {
        let (mut parts, body) = request.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            // The caller went away in the middle of its message.
            Err(status) => return status.into_http(),
        };
        let caller = parts.headers.remove(CALLER);
        let caller = caller.and_then(|caller| caller.to_str().ok().and_then(|caller| caller.parse().ok()));
        let (method, uid) = about(&parts, &body);
        let listing = (method == "ListMachines").then(|| ListsFrom::decode(message(&body)).unwrap_or_default());
        let request = http::Request::from_parts(parts, Body::new(Full::new(body)));
        let answer = match self.served.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let (answer, status, answered) = match read(answer).await {
            Ok(read) => read,
            Err(status) => (status.clone().into_http(), status, Bytes::new()),
        };
        let (caller, code) = (caller.unwrap_or_default(), status.code());
        if let Some(listing) = listing.filter(|_| code == Code::Ok) {
            self.shows(caller, &listing, &answered);
        }
        self.world.tell(What::Driver(DriverCall {
            incarnation: caller,
            method,
            uid,
            code: code.into(),
        }));
        answer
    }

    /// Tells of a listing that has come to its end.
    fn shows(&self, caller: u32, asked: &ListsFrom, answered: &Bytes) {
        let page = v1::ListMachinesResponse::decode(message(answered)).unwrap_or_default();
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = match asked.page_token.is_empty() {
            true => Shown::default(),
            false => listings.remove(&caller).unwrap_or_default(),
        };
        let ids = page.machines.iter().filter_map(|vm| vm.provider_id.rsplit('/').next());
        shown.ids.extend(ids.map(str::to_owned));
        shown.has_gap |= !page.unreachable.is_empty();
        match page.next_page_token.is_empty() {
            false => drop(listings.insert(caller, shown)),
            true if shown.has_gap => {}
            true => self.world.tell(What::Listed {
                incarnation: caller,
                ids: shown.ids,
            }),
        }
    }
}

/// A listing under way.
#[derive(Default)]
struct Shown {
    ids: BTreeSet<String>,
    has_gap: bool,
}

/// The place from which a page is asked for.
#[derive(Clone, PartialEq, prost::Message)]
struct ListsFrom {
    #[prost(string, tag = "5")]
    page_token: String,
}

impl NamedService for CallRecorder {
    const NAME: &'static str = millwright_proto::SERVICE_NAME;
}

impl Service<http::Request<Body>> for CallRecorder {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call_recorder = self.clone();
        Box::pin(async move { Ok(call_recorder.take(request).await) })
    }
}

/// Reads an answer to its end, for its status.
pub async fn read(answer: http::Response<Body>) -> Result<(http::Response<Body>, Status, Bytes), Status> {
    let (head, body) = answer.into_parts();
    let collected = body.collect().await?;
    let told = Status::from_header_map(collected.trailers().unwrap_or(&head.headers));
    let status = told.unwrap_or_else(|| Status::unknown("an answer without a status"));
    let trailers = collected.trailers().cloned();
    let bytes = collected.to_bytes();
    let body = Full::new(bytes.clone()).with_trailers(std::future::ready(trailers.map(Ok)));
    Ok((http::Response::from_parts(head, Body::new(body)), status, bytes))
}

/// The message in a call's body.
fn message(body: &Bytes) -> &[u8] {
    body.get(PREFIX..).unwrap_or_default()
}

/// The method of a call, and the Machine that it is about.
pub fn about(parts: &http::request::Parts, body: &Bytes) -> (String, String) {
    let method = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let has_key = matches!(
        method.as_str(),
        "CreateMachine" | "InitializeMachine" | "DeleteMachine" | "GetMachineStatus"
    );
    let keyed = has_key.then(|| Keyed::decode(message(body)).ok()).flatten();
    let uid = keyed.and_then(|keyed| keyed.key).map(|key| key.uid);
    (method, uid.unwrap_or_default())
}

/// What the requests about one Machine begin with.
#[derive(Clone, PartialEq, prost::Message)]
struct Keyed {
    #[prost(message, optional, tag = "1")]
    key: Option<v1::MachineKey>,
}
