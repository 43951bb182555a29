//! Where a driver listens: the forms of `--driver` and the sockets of `--driver-dir`.
//!
//! Refuses what would send secrets over a network in the clear: without TLS only sockets and loopback are taken. Over TLS both sides show a
//! certificate. Behind a socket listens the manager's own user, root or a user that was named: who may merely make a file in `--driver-dir`
//! gets no credentials. Of a port on loopback nobody can tell who listens.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use millwright_core::ids::DriverName;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::lifeline::{Lifeline, Watched};
use super::tls::TlsFiles;

/// Longest path that the kernel takes for a socket (`sun_path` without its final zero).
const MAX_SOCKET_PATH: usize = 107;

/// Bound of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Who may be a driver: behind a socket by uid, over TLS by certificate.
#[derive(Clone, Debug)]
pub struct Peers {
    uids: Arc<[u32]>,
    tls: Option<Arc<TlsFiles>>,
}

impl Peers {
    /// The process's own user, root and these.
    pub fn new(named: &[u32]) -> Self {
        const ROOT: u32 = 0;
        let own = [rustix::process::geteuid().as_raw(), ROOT];
        Self {
            uids: own.into_iter().chain(named.iter().copied()).collect(),
            tls: None,
        }
    }

    /// The same, and over TLS who is known by these files.
    pub fn with_tls(self, files: Option<TlsFiles>) -> Self {
        Self {
            tls: files.map(Arc::new),
            ..self
        }
    }

    /// Connects to endpoints, behind each of which one of these must listen.
    pub fn connect(self) -> Connect {
        Arc::new(move |endpoint, lifeline| endpoint.wire(self.clone(), lifeline))
    }

    /// Refuses a connection to anyone else. The kernel tells who listens, whoever owns the file.
    fn admit(&self, stream: &UnixStream) -> io::Result<()> {
        let uid = stream.peer_cred()?.uid();
        match self.uids.contains(&uid) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "user {uid} listens on the socket, and only root and the manager's own user may; --driver-uid {uid} would let it"
                ),
            )),
        }
    }
}

/// What carries calls to one driver. A box and not a channel, so that a simulator can put its own in its place; beside a
/// call over a socket it costs nothing.
pub type Wire = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// Makes the wire to an endpoint; it connects at its first call and again after every loss, and tells the lifeline of each.
pub type Connect = Arc<dyn Fn(&Endpoint, &Arc<Lifeline>) -> Wire + Send + Sync>;

/// Address of one driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A unix socket, by its absolute path.
    Unix(String),
    /// A port of this host.
    Loopback {
        /// `127.0.0.0/8`, `::1` or `localhost`, which is taken as `127.0.0.1`.
        ip: IpAddr,
        /// The port.
        port: u16,
    },
    /// A port of any host, over mutual TLS.
    Tls {
        /// The host, for which the driver's certificate must be made.
        host: String,
        /// The port.
        port: u16,
    },
}

/// An endpoint, and which driver must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEndpoint {
    /// The driver. `None`: whichever answers.
    pub name: Option<DriverName>,
    /// Where.
    pub endpoint: Endpoint,
}

impl From<Endpoint> for NamedEndpoint {
    fn from(endpoint: Endpoint) -> Self {
        Self { name: None, endpoint }
    }
}

impl FromStr for NamedEndpoint {
    type Err = EndpointError;

    /// `ENDPOINT` or `NAME=ENDPOINT`. A name has neither `:` nor `/`, and each endpoint has one before its first `=`.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match text.split_once('=') {
            Some((name, endpoint)) if !name.contains([':', '/']) => match name.is_empty() {
                true => Err(EndpointError::Form(text.to_owned())),
                false => Ok(Self {
                    name: Some(DriverName::new(name)),
                    endpoint: endpoint.parse()?,
                }),
            },
            _ => text.parse().map(|endpoint: Endpoint| endpoint.into()),
        }
    }
}

/// Which drivers the manager is told to use.
#[derive(Clone, Debug)]
pub enum Endpoints {
    /// `--driver`, once for each.
    Listed(Vec<NamedEndpoint>),
    /// `--driver-dir`: every `*.sock` of the directory, looked for again and again.
    Directory(PathBuf),
}

/// Why a text names no usable endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Neither of the known forms.
    #[error("driver endpoint {0:?}: write unix:///PATH, tcp://127.0.0.1:PORT or https://HOST:PORT")]
    Form(String),
    /// A socket needs an absolute path: the manager's working directory means nothing to its drivers.
    #[error("driver endpoint {0:?}: the path of a socket must be absolute, as in unix:///run/drivers/virtual.sock")]
    RelativePath(String),
    /// The kernel would refuse it with less to say.
    #[error("driver endpoint {text:?}: the path has {bytes} bytes, a socket takes at most {MAX_SOCKET_PATH}")]
    PathTooLong {
        /// The endpoint.
        text: String,
        /// Length of its path.
        bytes: usize,
    },
    /// No certificate can be for it.
    #[error("driver endpoint {0:?}: write https://HOST:PORT with the name or the address of a host, and its port")]
    NoHost(String),
    /// Another host than this one.
    #[error(
        "driver endpoint {0:?}: without TLS only this host (127.0.0.1, [::1], localhost) is accepted, because calls carry credentials: write https://HOST:PORT"
    )]
    NotLoopback(String),
}

impl Endpoints {
    /// These, whichever drivers are there.
    pub fn listed(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self::Listed(endpoints.into_iter().map(NamedEndpoint::from).collect())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket(text, path.strip_prefix("//").unwrap_or(path));
        }
        if let Some(address) = text.strip_prefix("https://") {
            let (host, port) = host_and_port(text, address)?;
            if port == 0 || ServerName::try_from(host.as_str()).is_err() {
                return Err(EndpointError::NoHost(text.to_owned()));
            }
            return Ok(Self::Tls { host, port });
        }
        let Some(address) = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://")) else {
            return Err(EndpointError::Form(text.to_owned()));
        };
        loopback(text, address)
    }
}

/// A socket's endpoint, its path checked.
fn socket(text: &str, path: &str) -> Result<Endpoint, EndpointError> {
    if !path.starts_with('/') {
        return Err(EndpointError::RelativePath(text.to_owned()));
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(EndpointError::PathTooLong {
            text: text.to_owned(),
            bytes: path.len(),
        });
    }
    Ok(Endpoint::Unix(path.to_owned()))
}

/// `HOST:PORT` and nothing more. An address of version 6 loses its brackets.
fn host_and_port(text: &str, address: &str) -> Result<(String, u16), EndpointError> {
    let form = || EndpointError::Form(text.to_owned());
    let address = address.strip_suffix('/').unwrap_or(address);
    let uri: Uri = format!("http://{address}").parse().map_err(|_| form())?;
    let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !address.contains('@');
    let host = uri.host().filter(|host| !host.is_empty());
    let (Some(host), Some(port), true) = (host, uri.port_u16(), is_bare) else {
        return Err(form());
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

/// The endpoint of `HOST:PORT`, if the host is this one.
fn loopback(text: &str, address: &str) -> Result<Endpoint, EndpointError> {
    let (host, port) = host_and_port(text, address)?;
    let ip = match host.as_str() {
        // Not looked up: what a resolver says may be another host.
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().map_err(|_| EndpointError::NotLoopback(text.to_owned()))?,
    };
    if !ip.is_loopback() {
        return Err(EndpointError::NotLoopback(text.to_owned()));
    }
    Ok(Endpoint::Loopback { ip, port })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Loopback {
                ip: IpAddr::V4(ip),
                port,
            } => write!(f, "tcp://{ip}:{port}"),
            Self::Loopback {
                ip: IpAddr::V6(ip),
                port,
            } => write!(f, "tcp://[{ip}]:{port}"),
            Self::Tls { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Tls { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

impl Endpoint {
    fn wire(&self, peers: Peers, lifeline: &Arc<Lifeline>) -> Wire {
        BoxCloneSyncService::new(
            self.channel(peers, Arc::clone(lifeline))
                .map_err(|error| Status::from_error(error.into())),
        )
    }

    fn channel(&self, peers: Peers, lifeline: Arc<Lifeline>) -> tonic::transport::Channel {
        let endpoint = match self {
            // Of a socket, the address is only what the driver is told as its own name.
            Self::Unix(_) => tonic::transport::Endpoint::from_shared("http://localhost"),
            Self::Loopback {
                ip: IpAddr::V4(ip),
                port,
            } => tonic::transport::Endpoint::from_shared(format!("http://{ip}:{port}")),
            Self::Loopback {
                ip: IpAddr::V6(ip),
                port,
            } => tonic::transport::Endpoint::from_shared(format!("http://[{ip}]:{port}")),
            // The connector below speaks TLS, not tonic, which would refuse this scheme; requests say it all the same.
            Self::Tls { .. } => tonic::transport::Endpoint::from_shared("http://localhost")
                .map(|endpoint| endpoint.origin(self.to_string().parse().expect("a host and a port are a URI"))),
        };
        // No HTTP/2 pings: servers of other languages throw a client off for them.
        let endpoint = endpoint
            .expect("an address with a port is a valid endpoint")
            .connect_timeout(CONNECT_TIMEOUT);
        match self {
            Self::Loopback { ip, port } => {
                let address = (*ip, *port);
                endpoint
                    .connect_with_connector_lazy(tower::service_fn(move |_| port_of(address, Arc::clone(&lifeline))))
            }
            Self::Unix(path) => {
                let path: Arc<str> = path.as_str().into();
                endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
                    socket_of(Arc::clone(&path), peers.clone(), Arc::clone(&lifeline))
                }))
            }
            Self::Tls { host, port } => {
                let address: (Arc<str>, u16) = (host.as_str().into(), *port);
                endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
                    tls_of(address.clone(), peers.tls.clone(), Arc::clone(&lifeline))
                }))
            }
        }
    }
}

/// A connection to a socket behind which one of `peers` listens.
async fn socket_of(path: Arc<str>, peers: Peers, lifeline: Arc<Lifeline>) -> io::Result<TokioIo<Watched<UnixStream>>> {
    let stream = UnixStream::connect(&*path).await?;
    peers.admit(&stream)?;
    Ok(TokioIo::new(Watched::new(stream, lifeline)))
}

/// A connection to a port of this host.
async fn port_of(address: (IpAddr, u16), lifeline: Arc<Lifeline>) -> io::Result<TokioIo<Watched<TcpStream>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(Watched::new(stream, lifeline)))
}

/// A connection to a host that shows a certificate for its name.
async fn tls_of(
    (host, port): (Arc<str>, u16),
    files: Option<Arc<TlsFiles>>,
    lifeline: Arc<Lifeline>,
) -> io::Result<TokioIo<TlsStream<Watched<TcpStream>>>> {
    let files = files.ok_or_else(|| io::Error::other("no --driver-ca, --driver-cert and --driver-key are given"))?;
    let stream = TcpStream::connect((&*host, port)).await?;
    stream.set_nodelay(true)?;
    let stream = files.connect(&host, Watched::new(stream, lifeline)).await?;
    Ok(TokioIo::new(stream))
}

/// The sockets of a directory, in order of their names. A directory that is not there yet has none.
pub(super) fn sockets_of(directory: &Path) -> io::Result<Vec<Endpoint>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let path = std::path::absolute(entry?.path())?;
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match path.to_str().map(|path| socket(path, path)) {
            Some(Ok(endpoint)) => sockets.push(endpoint),
            Some(Err(error)) => tracing::debug!(%error, "socket passed over"),
            None => tracing::debug!(path = %path.display(), "socket passed over: its name is not UTF-8"),
        }
    }
    sockets.sort();
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, EndpointError> {
        text.parse::<Endpoint>().map(|endpoint| endpoint.to_string())
    }

    #[test]
    fn sockets_and_ports_of_this_host_are_taken() {
        for (text, shown) in [
            ("unix:///run/drivers/a.sock", "unix:///run/drivers/a.sock"),
            ("unix:/run/a.sock", "unix:///run/a.sock"),
            ("tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000"),
            ("http://127.1.2.3:7000/", "tcp://127.1.2.3:7000"),
            ("http://localhost:7000", "tcp://127.0.0.1:7000"),
            ("tcp://[::1]:7000", "tcp://[::1]:7000"),
            ("https://drivers.example:7000/", "https://drivers.example:7000"),
            ("https://[2001:db8::1]:7000", "https://[2001:db8::1]:7000"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn another_host_is_refused_because_calls_carry_credentials() {
        for text in [
            "http://10.0.0.1:7000",
            "tcp://drivers.example:7000",
            "tcp://0.0.0.0:7000",
            "tcp://[::]:7000",
        ] {
            assert_eq!(parse(text), Err(EndpointError::NotLoopback(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_endpoint_may_say_which_driver_is_there() {
        let read = |text: &str| {
            text.parse::<NamedEndpoint>()
                .map(|read| (read.name.map(|name| name.to_string()), read.endpoint.to_string()))
        };
        let named = |name: Option<&str>, endpoint: &str| Ok((name.map(str::to_owned), endpoint.to_owned()));
        assert_eq!(
            read("aws=https://a.example:1"),
            named(Some("aws"), "https://a.example:1")
        );
        assert_eq!(read("unix:///run/a=b.sock"), named(None, "unix:///run/a=b.sock"));
        assert_eq!(
            read("aws=unix:///run/a=b.sock"),
            named(Some("aws"), "unix:///run/a=b.sock")
        );
        for wrong in ["=unix:///a.sock", "aws=", "aws"] {
            assert!(matches!(read(wrong), Err(EndpointError::Form(_))), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_told_with_the_form_that_is_one() {
        for text in [
            "",
            "/run/a.sock",
            "127.0.0.1:7000",
            "tcp://127.0.0.1",
            "tcp://:7000",
            "tcp://127.0.0.1:7000/x",
            "tcp://a@127.0.0.1:1",
            "https://drivers.example",
            "https://drivers.example:7000/path",
        ] {
            assert_eq!(parse(text), Err(EndpointError::Form(text.to_owned())), "{text}");
        }
        for text in ["https://drivers.example:0", "https://127.1:7000"] {
            assert_eq!(parse(text), Err(EndpointError::NoHost(text.to_owned())), "{text}");
        }
        assert_eq!(
            parse("unix://a.sock"),
            Err(EndpointError::RelativePath("unix://a.sock".to_owned()))
        );
        let long = format!("unix:///{}", "x".repeat(107));
        assert_eq!(
            parse(&long),
            Err(EndpointError::PathTooLong {
                text: long.clone(),
                bytes: 108
            })
        );
    }

    /// Another user's process cannot be begun by a test that is not root's, so the rule is asked with a manager of another user.
    ///
    /// Rows: O6.
    #[tokio::test]
    async fn a_socket_of_a_user_who_may_be_no_driver_is_refused_and_one_of_a_named_user_is_taken() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a.sock");
        let _listener = tokio::net::UnixListener::bind(&path).expect("a socket");
        let stream = UnixStream::connect(&path).await.expect("it listens");
        let own = rustix::process::geteuid().as_raw();
        let of = |uids: &[u32]| Peers {
            uids: uids.into(),
            tls: None,
        };
        let stranger = of(&[own + 1]);
        let refusal = stranger.admit(&stream).expect_err("it is not named").to_string();
        assert!(refusal.contains(&format!("--driver-uid {own}")), "{refusal}");
        of(&[own + 1, own]).admit(&stream).expect("it is named");
        Peers::new(&[]).admit(&stream).expect("the own user is one");
    }

    #[test]
    fn a_directory_gives_its_sockets_in_order_and_none_while_it_is_absent() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in ["b.sock", "a.sock", "c.txt", ".d"] {
            std::fs::write(directory.path().join(name), b"").expect("a file");
        }
        let names: Vec<String> = sockets_of(directory.path())
            .expect("it is there")
            .iter()
            .map(ToString::to_string)
            .collect();
        let of = |name: &str| format!("unix://{}", directory.path().join(name).display());
        assert_eq!(names, [of("a.sock"), of("b.sock")]);
        assert_eq!(
            sockets_of(&directory.path().join("none")).expect("absence is no error"),
            []
        );
    }
}
