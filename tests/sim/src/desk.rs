//! What every call meets at the driver's end of the wire, whatever carries it: it is counted, and its answer is told.

use std::convert::Infallible;
use std::sync::Arc;
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

/// The desk in front of it.
#[derive(Clone)]
pub struct Desk {
    served: Served,
    world: Arc<World>,
}

impl Desk {
    /// A desk in front of this service.
    pub fn new(served: Served, world: Arc<World>) -> Self {
        Self { served, world }
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
        let request = http::Request::from_parts(parts, Body::new(Full::new(body)));
        let answer = match self.served.oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let (answer, code) = match read(answer).await {
            Ok(read) => read,
            Err(status) => (status.clone().into_http(), status.code()),
        };
        self.world.tell(What::Driver(DriverCall {
            incarnation: caller.unwrap_or_default(),
            method,
            uid,
            code: code.into(),
        }));
        answer
    }
}

impl NamedService for Desk {
    const NAME: &'static str = millwright_proto::SERVICE_NAME;
}

impl Service<http::Request<Body>> for Desk {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let desk = self.clone();
        Box::pin(async move { Ok(desk.take(request).await) })
    }
}

/// Reads an answer to its end, for its code.
pub async fn read(answer: http::Response<Body>) -> Result<(http::Response<Body>, Code), Status> {
    let (head, body) = answer.into_parts();
    let collected = body.collect().await?;
    let told = collected.trailers().unwrap_or(&head.headers).get("grpc-status");
    let code = told.map_or(Code::Unknown, |code| Code::from_bytes(code.as_bytes()));
    Ok((http::Response::from_parts(head, Body::new(collected)), code))
}

/// The method of a call, and the Machine that it is about.
pub fn about(parts: &http::request::Parts, body: &Bytes) -> (String, String) {
    let method = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let message = body.get(PREFIX..).unwrap_or_default();
    let has_key = matches!(
        method.as_str(),
        "CreateMachine" | "InitializeMachine" | "DeleteMachine" | "GetMachineStatus"
    );
    let keyed = has_key.then(|| Keyed::decode(message).ok()).flatten();
    let uid = keyed.and_then(|keyed| keyed.key).map(|key| key.uid);
    (method, uid.unwrap_or_default())
}

/// What the requests about one Machine begin with.
#[derive(Clone, PartialEq, prost::Message)]
struct Keyed {
    #[prost(message, optional, tag = "1")]
    key: Option<v1::MachineKey>,
}
