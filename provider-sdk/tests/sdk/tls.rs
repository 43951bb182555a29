//! TCP with TLS of both sides: who is served, who is not, and what a rotation of the files does.

use std::path::Path;
use std::time::Duration;

use crate::support::{Scripted, create};
use millwright_proto::v1;
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use millwright_provider_sdk::{Endpoint, ServeError, ServeOptions, Server, TlsError, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

const HOST: &str = "driver.test";

/// A certificate authority.
struct Ca(Issuer<'static, KeyPair>, String);

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// A certificate and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// The driver's files, of its CA and for callers of another.
fn write(dir: &Path, (cert, key): &(String, String), callers: &Ca) -> TlsFiles {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        cert: file("tls.crt", cert),
        key: file("tls.key", key),
        client_ca: file("ca.crt", &callers.1),
    }
}

struct Served {
    address: std::net::SocketAddr,
    dir: TempDir,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Served {
    async fn start(server_ca: &Ca, callers: &Ca) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = ServeOptions::new("https://127.0.0.1:0".parse().unwrap());
        options.tls = Some(write(dir.path(), &server_ca.issue(HOST), callers));
        let server = Server::bind(Scripted::default(), options).await.unwrap();
        let &Endpoint::Tls(address) = server.endpoint() else {
            panic!("asked for TLS")
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run_until(async { stopped.await.unwrap_or_default() }));
        Self {
            address,
            dir,
            stop: Some(stop),
            task,
        }
    }

    /// One call over a new connection.
    async fn call(&self, trusted: &Ca, own: Option<&(String, String)>) -> Result<(), String> {
        let mut tls = ClientTlsConfig::new()
            .domain_name(HOST)
            .ca_certificate(Certificate::from_pem(&trusted.1));
        if let Some((cert, key)) = own {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        let endpoint = Channel::from_shared(format!("https://{}", self.address)).unwrap();
        let endpoint = endpoint.timeout(Duration::from_secs(5)).tls_config(tls).unwrap();
        let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
        let request = v1::GetDriverInfoRequest::default();
        let answer = DriverServiceClient::new(channel).get_driver_info(request).await;
        answer.map(drop).map_err(|error| format!("{error:?}"))
    }
}

#[tokio::test]
async fn without_a_certificate_of_the_client_ca_there_is_no_call() {
    let (server, callers, foreign) = (Ca::new(), Ca::new(), Ca::new());
    let served = Served::start(&server, &callers).await;
    served.call(&server, None).await.expect_err("no certificate");
    served
        .call(&server, Some(&foreign.issue("manager")))
        .await
        .expect_err("a foreign CA");
    served
        .call(&server, Some(&server.issue("manager")))
        .await
        .expect_err("the driver's own CA is not that of its callers");
    let plain = format!("http://{}", served.address);
    match DriverServiceClient::connect(plain).await {
        Err(_) => {}
        Ok(mut client) => drop(client.create_machine(create(1)).await.expect_err("no TLS")),
    }
}

#[tokio::test]
async fn a_certificate_of_the_client_ca_is_served_and_the_end_is_orderly() {
    let (server, callers) = (Ca::new(), Ca::new());
    let mut served = Served::start(&server, &callers).await;
    served
        .call(&server, Some(&callers.issue("manager")))
        .await
        .expect("it is served");
    served.stop.take().unwrap().send(()).unwrap();
    served.task.await.unwrap().expect("it ends well");
}

#[tokio::test]
async fn idle_clients_without_a_certificate_do_not_shut_the_manager_out() {
    let (server, callers) = (Ca::new(), Ca::new());
    let served = Served::start(&server, &callers).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(served.address).await.unwrap());
    }
    let manager = callers.issue("manager");
    tokio::time::timeout(Duration::from_secs(5), served.call(&server, Some(&manager)))
        .await
        .expect("within the manager's connect timeout")
        .expect("it is served");
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_is_let_go_within_3_s() {
    let (server, callers) = (Ca::new(), Ca::new());
    let served = Served::start(&server, &callers).await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), idle.read_u8()).await;
    end.expect("the driver has closed it").expect_err("nothing was sent");
}

#[tokio::test]
async fn new_connections_use_rotated_files_without_a_restart_and_broken_files_change_nothing() {
    let (old, new, callers) = (Ca::new(), Ca::new(), Ca::new());
    let manager = callers.issue("manager");
    let served = Served::start(&old, &callers).await;
    served.call(&old, Some(&manager)).await.expect("the first certificate");

    std::fs::write(served.dir.path().join("tls.crt"), "half a certif").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    served.call(&old, Some(&manager)).await.expect("the first one still");

    let next_callers = Ca::new();
    write(served.dir.path(), &new.issue(HOST), &next_callers);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    served
        .call(&old, Some(&next_callers.issue("manager")))
        .await
        .expect_err("the old CA has not made the new certificate");
    served
        .call(&new, Some(&manager))
        .await
        .expect_err("the callers have a new CA");
    served
        .call(&new, Some(&next_callers.issue("manager")))
        .await
        .expect("the new files");
}

#[tokio::test]
async fn tls_without_files_or_with_bad_ones_does_not_start() {
    let bind = |files| {
        let mut options = ServeOptions::new("https://127.0.0.1:0".parse().unwrap());
        options.tls = files;
        Server::bind(Scripted::default(), options)
    };
    assert!(matches!(bind(None).await, Err(ServeError::NoTlsFiles)));
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new();
    let (cert, key) = ca.issue(HOST);
    let missing = TlsFiles {
        cert: dir.path().join("none"),
        ..write(dir.path(), &(cert.clone(), key.clone()), &ca)
    };
    assert!(matches!(
        bind(Some(missing)).await,
        Err(ServeError::Tls(TlsError::Read { .. }))
    ));
    let empty = write(dir.path(), &(String::new(), key), &ca);
    assert!(matches!(
        bind(Some(empty)).await,
        Err(ServeError::Tls(TlsError::Pem { .. }))
    ));
    let (_, other_key) = ca.issue(HOST);
    let mixed = write(dir.path(), &(cert, other_key), &ca);
    assert!(matches!(
        bind(Some(mixed)).await,
        Err(ServeError::Tls(TlsError::Certificate(_)))
    ));
}
