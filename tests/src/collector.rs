//! A collector of traces, as `--otlp-endpoint` wants one: keeps every span that it is sent. It may not judge them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// The name that a certificate is for.
const HOST: &str = "localhost";

/// A span, and who sent it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub service: String,
    pub span: Span,
}

impl Seen {
    /// An attribute that is a text.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        text(&self.span.attributes, name)
    }
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()? {
        AnyValue {
            value: Some(Value::StringValue(text)),
        } => Some(text),
        AnyValue { .. } => None,
    }
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Seen>>>);

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut kept = self.0.lock().expect("no holder of this lock panics");
        for resource in request.into_inner().resource_spans {
            let who = resource
                .resource
                .map(|resource| resource.attributes)
                .unwrap_or_default();
            let service = text(&who, "service.name").unwrap_or_default();
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let service = service.to_owned();
                kept.push(Seen { service, span });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector at a free port of loopback, until it is dropped.
pub struct Collector {
    address: SocketAddr,
    certificate: Option<NamedTempFile>,
    kept: Kept,
    _server: JoinSet<()>,
}

impl Collector {
    /// Begins to listen.
    ///
    /// # Panics
    /// Loopback has no free port.
    pub async fn start() -> Self {
        Self::begin(Server::builder(), None).await
    }

    /// Begins to listen with TLS, under a certificate of its own.
    ///
    /// # Panics
    /// Loopback has no free port, or there is no place for temporary files.
    pub async fn start_with_tls() -> Self {
        let own = rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).expect("a name makes a certificate");
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), own.cert.pem()).expect("a temporary file takes a certificate");
        let identity = Identity::from_pem(own.cert.pem(), own.signing_key.serialize_pem());
        let server = Server::builder().tls_config(ServerTlsConfig::new().identity(identity));
        Self::begin(server.expect("the certificate serves"), Some(file)).await
    }

    async fn begin(mut builder: Server, certificate: Option<NamedTempFile>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let kept = Kept::default();
        let service = TraceServiceServer::new(kept.clone());
        let mut server = JoinSet::new();
        server.spawn(async move {
            let router = builder.add_service(service);
            let served = router.serve_with_incoming(TcpListenerStream::new(listener)).await;
            served.expect("the collector serves");
        });
        Self {
            address,
            certificate,
            kept,
            _server: server,
        }
    }

    /// What `--otlp-endpoint` takes.
    #[must_use]
    pub fn url(&self) -> String {
        match self.certificate {
            None => format!("http://{}", self.address),
            Some(_) => format!("https://{HOST}:{}", self.address.port()),
        }
    }

    /// The file with the certificate of one that has TLS, for who is to trust it.
    #[must_use]
    pub fn certificate(&self) -> Option<&Path> {
        self.certificate.as_ref().map(NamedTempFile::path)
    }

    /// All spans so far.
    ///
    /// # Panics
    /// Never: no holder of the lock panics.
    #[must_use]
    pub fn spans(&self) -> Vec<Seen> {
        self.kept.0.lock().expect("no holder of this lock panics").clone()
    }
}
