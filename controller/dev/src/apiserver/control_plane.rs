//! Decides how etcd and kube-apiserver are started, and when a control plane counts as started. It may not look for
//! the programs nor install anything of ours into the API.
//!
//! Several control planes never meet: etcd listens on a unix socket in its own directory, and the API server's port is
//! held by a bound socket of ours (SO_REUSEPORT) for the whole life of the control plane, so nobody else is given it,
//! not even while the API server is stopped in between.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;

use super::access::{self, AccessError};
use super::binaries::{self, Binaries, FindError};
use crate::process::Process;
use crate::workdir::WorkDir;

/// Far above the 2 s it takes alone: on a small machine many may be starting while other tests run.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(50);

/// What may differ between control planes.
#[derive(Clone)]
pub struct Settings {
    /// The bearer token of the one user, who may do everything. A random one by default, because loopback is shared by
    /// all users of the machine; `bench/measure.py` expects `admintoken`.
    pub admin_token: String,
    /// Flags of kube-apiserver beside those that all have.
    pub flags: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            admin_token: uuid::Uuid::new_v4().simple().to_string(),
            // On in OpenShift: asks for more rights of whoever makes a child that holds up the deletion of its owner.
            flags: vec!["--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned()],
        }
    }
}

/// Why no control plane was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("cannot {doing}")]
    Io {
        doing: &'static str,
        #[source]
        error: io::Error,
    },
    #[error("{program} ended while the control plane was starting; the end of its log:\n{tail}")]
    Ended { program: String, tail: String },
    #[error("no API server that is ready after {waited} s ({last}); the end of its log:\n{tail}", waited = .waited.as_secs())]
    NotReady {
        waited: Duration,
        last: String,
        tail: String,
    },
}

/// A running kube-apiserver with its etcd. Dropping it ends both and removes their files.
pub struct ControlPlane {
    // Fields are dropped in this order: the server first, then its store, then the directory.
    apiserver: Process,
    etcd: Process,
    binaries: Binaries,
    address: SocketAddr,
    flags: Vec<String>,
    /// Bound, never listening: keeps the port ours.
    _port: TcpSocket,
    dir: WorkDir,
}

impl ControlPlane {
    /// Finds the programs (building them if need be), starts both and waits until the API is ready.
    ///
    /// # Errors
    /// There are no programs, one of them ends, or readiness does not come within three minutes.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Settings::default()).await
    }

    /// [`ControlPlane::start`] with settings.
    ///
    /// # Errors
    /// As for `start`.
    pub async fn start_with(settings: Settings) -> Result<Self, StartError> {
        let binaries = tokio::task::spawn_blocking(binaries::find)
            .await
            .map_err(|error| StartError::Io {
                doing: "look for the programs",
                error: error.into(),
            })??;
        let dir = WorkDir::make().map_err(|error| StartError::Io {
            doing: "make a directory for the control plane",
            error,
        })?;
        let (port, address) = reserve_port().map_err(|error| StartError::Io {
            doing: "reserve a port",
            error,
        })?;
        access::write_credentials(dir.path(), address, &settings.admin_token).map_err(|error| StartError::Io {
            doing: "write the credentials",
            error,
        })?;
        let etcd = start_etcd(&binaries, dir.path()).map_err(|error| StartError::Io {
            doing: "start etcd",
            error,
        })?;
        let apiserver =
            start_apiserver(&binaries, dir.path(), address, &settings.flags).map_err(|error| StartError::Io {
                doing: "start kube-apiserver",
                error,
            })?;
        let mut plane = Self {
            apiserver,
            etcd,
            binaries,
            address,
            flags: settings.flags,
            _port: port,
            dir,
        };
        plane.ready().await?;
        Ok(plane)
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The API server's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A kubeconfig (mode 0600) for a user who may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        access::kubeconfig(self.dir.path())
    }

    /// The directory of this control plane; removed with it. Its path is short enough for unix sockets.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id of kube-apiserver.
    #[must_use]
    pub fn apiserver_pid(&self) -> u32 {
        self.apiserver.pid()
    }

    /// Ends the API server as a power cut would; etcd keeps the objects.
    pub fn stop_apiserver(&mut self) {
        self.apiserver.kill();
    }

    /// Starts the API server again after [`ControlPlane::stop_apiserver`], at the same address.
    ///
    /// # Errors
    /// As for `start`.
    pub async fn restart_apiserver(&mut self) -> Result<(), StartError> {
        self.apiserver.kill();
        self.apiserver =
            start_apiserver(&self.binaries, self.dir.path(), self.address, &self.flags).map_err(|error| {
                StartError::Io {
                    doing: "start kube-apiserver",
                    error,
                }
            })?;
        self.ready().await
    }

    async fn ready(&mut self) -> Result<(), StartError> {
        let began = Instant::now();
        loop {
            for process in [&mut self.etcd, &mut self.apiserver] {
                if !process.is_running() {
                    return Err(StartError::Ended {
                        program: process.name().to_owned(),
                        tail: process.log_tail(20),
                    });
                }
            }
            let last = match self.probe().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if began.elapsed() > PATIENCE {
                let tail = self.apiserver.log_tail(20);
                return Err(StartError::NotReady {
                    waited: began.elapsed(),
                    last: last.to_string(),
                    tail,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ready is: `/readyz` says so over a connection that proves to be this server's (its certificate is in our
    /// directory), and the namespace that everybody uses is there, which `/readyz` does not wait for.
    async fn probe(&self) -> Result<(), AccessError> {
        let client = self.client().await?;
        client.request_text(http_get("/readyz")).await?;
        client.request_text(http_get("/api/v1/namespaces/default")).await?;
        Ok(())
    }
}

fn http_get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path)
        .body(Vec::new())
        .expect("a constant path makes a valid request")
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane")
            .field("address", &self.address)
            .field("dir", &self.dir.path())
            .finish()
    }
}

fn reserve_port() -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Where etcd listens: a socket file of this name in the working directory of both programs. Relative, because etcd
/// takes only the host part of a unix URL for the path.
const ETCD_SOCKET: &str = "unix://etcd:1";

fn start_etcd(binaries: &Binaries, dir: &Path) -> io::Result<Process> {
    let mut command = Command::new(&binaries.etcd);
    command
        .current_dir(dir)
        .args(["--name=default", "--data-dir=data", "--log-level=warn"])
        .arg("--unsafe-no-fsync") // these data live as long as the process
        .args([
            format!("--listen-client-urls={ETCD_SOCKET}"),
            format!("--advertise-client-urls={ETCD_SOCKET}"),
        ])
        // One member has no peers: the socket is never dialled and the http address is only a name.
        .args([
            "--listen-peer-urls=unix://etcd:2",
            "--initial-advertise-peer-urls=http://localhost:2380",
        ])
        .arg("--initial-cluster=default=http://localhost:2380");
    Process::start("etcd", command, &dir.join("etcd.log"))
}

fn start_apiserver(binaries: &Binaries, dir: &Path, address: SocketAddr, flags: &[String]) -> io::Result<Process> {
    let mut command = Command::new(&binaries.kube_apiserver);
    command
        .current_dir(dir)
        .arg(format!("--etcd-servers={ETCD_SOCKET}"))
        .args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
        ])
        .arg(format!("--secure-port={}", address.port()))
        .arg("--permit-port-sharing") // with the socket that holds the port
        .arg("--service-cluster-ip-range=10.0.0.0/24")
        // The server makes its own key and certificate on its first start; the same key signs service account tokens.
        .args([
            format!("--cert-dir={}", access::CERTIFICATES),
            "--service-account-issuer=https://localhost".to_owned(),
        ])
        .arg(format!("--service-account-key-file={}", access::SERVER_KEY))
        .arg(format!("--service-account-signing-key-file={}", access::SERVER_KEY))
        .arg(format!("--token-auth-file={}", access::TOKENS))
        .arg("--enable-bootstrap-token-auth") // so that a token made for a machine can be tried
        .args([
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ])
        .args(flags)
        // The settings under which the figures of the benchmark (tests/README.md) were measured.
        .args(["--enable-priority-and-fairness=false", "--max-requests-inflight=4000"])
        .arg("--max-mutating-requests-inflight=2000");
    Process::start("kube-apiserver", command, &dir.join("kube-apiserver.log"))
}
