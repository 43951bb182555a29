//! Drivers on other hosts: both sides show a certificate, and one that was renewed counts without a restart.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test says by its panic what went wrong, and what it starts ends with its runtime"
)]

mod stub;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millwright::driver::{DriverState, Endpoint, Endpoints, NamedEndpoint, Pauses, Peers, TlsFiles};
use millwright_core::driver::Code;
use millwright_core::ids::DriverName;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use stub::{Desk, Stub, pauses};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// An authority, and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
struct Signed {
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no name is wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("it signs itself").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        Signed {
            cert: params.signed_by(&key, &self.issuer).expect("it signs").pem(),
            key: key.serialize_pem(),
        }
    }

    /// What a driver is that shows `own`, and whose callers must be signed by this authority.
    fn server(&self, own: &Signed) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        let callers = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let chain = vec![CertificateDer::from_pem_slice(own.cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(callers.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

/// Takes TLS off each connection and passes it on to a driver's socket. Gives the port, and what stops the connections that are open: they
/// stay so, and nothing goes through them any more.
async fn front(tls: Arc<ServerConfig>, socket: PathBuf) -> (u16, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let cut = Arc::new(Notify::new());
    let of_all = Arc::clone(&cut);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, socket) = (TlsAcceptor::from(Arc::clone(&tls)), socket.clone());
            let cut = Arc::clone(&of_all);
            tokio::spawn(async move {
                let mut outer = acceptor.accept(stream).await?;
                let mut inner = UnixStream::connect(socket).await?;
                tokio::select! {
                    copied = tokio::io::copy_bidirectional(&mut outer, &mut inner) => copied,
                    () = cut.notified() => std::future::pending().await,
                }
            });
        }
    });
    (port, cut)
}

fn write(directory: &Path, ca: &str, own: &Signed) -> TlsFiles {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    TlsFiles {
        ca: file("ca.pem", ca),
        cert: file("cert.pem", &own.cert),
        key: file("key.pem", &own.key),
    }
}

fn desk(endpoint: &NamedEndpoint, files: &TlsFiles) -> Desk {
    let connect = Peers::new(&[]).with_tls(Some(files.clone())).connect();
    Desk::connecting(Endpoints::Listed(vec![endpoint.clone()]), pauses(), connect)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_on_another_host_is_used_where_both_sides_prove_who_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("x.sock");
    let _running = Stub::named("x").serve(&socket);
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (port, _) = front(authority.server(&authority.sign("localhost")), socket).await;
    let named: NamedEndpoint = format!("x=https://localhost:{port}").parse().unwrap();
    let health = |desk: &Desk| desk.health(&named.endpoint);

    let files = write(directory.path(), &authority.pem, &authority.sign("manager"));
    desk(&named, &files).ready("x").await;

    let elsewhere: NamedEndpoint = format!("https://127.0.0.1:{port}").parse().unwrap();
    let wrong_host = desk(&elsewhere, &files);
    let why = stub::until("refused", || {
        Some(wrong_host.health(&elsewhere.endpoint)).filter(|why| why.contains("certificate"))
    });
    let why = why.await;
    assert!(why.contains("not valid for name"), "{why}");

    let other: NamedEndpoint = format!("y=https://localhost:{port}").parse().unwrap();
    let other_name = desk(&other, &files);
    let why = stub::until("refused", || {
        Some(health(&other_name)).filter(|why| why.contains("--driver"))
    });
    let why = why.await;
    assert!(why.contains("calls itself x") && why.contains("y is here"), "{why}");

    let files = write(directory.path(), &stranger.pem, &authority.sign("manager"));
    let distrusts = desk(&named, &files);
    // A driver that refuses says so by an alert of TLS, without a word of its own.
    let says = |why: &String| why.contains("ertificate") || why.contains("fatal alert");
    let refused = |desk: &Desk| Some(health(desk)).filter(says);
    stub::until("the manager refuses a driver of another authority", || {
        refused(&distrusts)
    })
    .await;

    let files = write(directory.path(), &authority.pem, &stranger.sign("manager"));
    let distrusted = desk(&named, &files);
    stub::until("the driver refuses a manager of another authority", || {
        refused(&distrusted)
    })
    .await;

    // The files are read for each connection.
    write(directory.path(), &authority.pem, &authority.sign("manager"));
    distrusted.ready("x").await;
    distrusts.ready("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_dead_without_a_word_is_given_up_for_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("x.sock");
    let _running = Stub::named("x").serve(&socket);
    let authority = Authority::new();
    let (port, cut) = front(authority.server(&authority.sign("localhost")), socket).await;
    let files = write(directory.path(), &authority.pem, &authority.sign("manager"));
    let pauses = Pauses {
        ready: Duration::from_millis(50),
        handshake: Duration::from_millis(500),
        ..pauses()
    };
    let endpoint: Endpoint = format!("https://localhost:{port}").parse().unwrap();
    let connect = Peers::new(&[]).with_tls(Some(files)).connect();
    let desk = Desk::connecting(Endpoints::listed([endpoint]), pauses, connect);
    let before = desk.ready("x").await;
    cut.notify_waiters();
    let name = DriverName::new("x");
    let renewed = stub::until("the driver is reached by another connection", || {
        match desk.pool.get(&name) {
            DriverState::Ready(driver) if !Arc::ptr_eq(&driver, &before) => Some(driver),
            DriverState::Ready(_) | DriverState::Away { .. } | DriverState::Missing { .. } => None,
        }
    });
    // The stub has no such call: its answer shows that the call went through.
    let answer = renewed.await.get_machine_status(&stub::target()).await;
    assert_eq!(answer.expect_err("the stub cannot").code, Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_certificate_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = write(directory.path(), "nothing", &authority.sign("manager"));
    let named: NamedEndpoint = "https://localhost:1".parse().unwrap();
    let error = files.check().await.expect_err("there is none in it").to_string();
    assert!(error.contains("ca.pem: there is no certificate"), "{error}");
    let files = TlsFiles {
        key: directory.path().join("none.pem"),
        ..write(directory.path(), &authority.pem, &authority.sign("manager"))
    };
    let error = files.check().await.expect_err("it is not there").to_string();
    assert!(error.contains("none.pem: No such file"), "{error}");
    drop(desk(&named, &files));
}
