//! TCP with TLS of both sides: who has no certificate of the client CA makes no call.
//!
//! The files are read at the start and looked at again for new connections, so that a rotated certificate needs no restart. Files that are
//! broken, or half written, change nothing: the ones before stay in use, and the log says so.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Connections that come together are served by one look at the files.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A client that does not finish its handshake is let go after this time, which is shorter than the manager waits for a connection.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);
/// Handshakes at once. Beyond that the oldest makes way: clients that only connect must not keep others from being accepted.
const HANDSHAKES: usize = 128;
/// A pause where the kernel has no descriptor left, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The PEM files of an endpoint with TLS. They may be replaced while the driver runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The driver's certificate, and the ones that lead to its CA.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The CA whose certificates callers must have.
    pub client_ca: PathBuf,
}

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} holds no {wanted} in PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
        /// Why.
        source: pem::Error,
    },
    /// The certificate of a CA is no good.
    #[error("the client CA cannot be used")]
    ClientCa(#[source] VerifierBuilderError),
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("the certificate cannot be used")]
    Certificate(#[source] rustls::Error),
}

/// What the files hold.
#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
    client_ca: Vec<u8>,
}

/// The files as they were read last.
pub(crate) struct Tls {
    files: TlsFiles,
    state: Mutex<State>,
}

struct State {
    contents: Contents,
    looked_at: Instant,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let contents = contents(&files)?;
        let acceptor = acceptor(&files, &contents)?;
        let state = Mutex::new(State {
            contents,
            looked_at: Instant::now(),
            acceptor,
        });
        Ok(Self { files, state })
    }

    /// The files as they are now, or as they last were good.
    fn current(&self) -> TlsAcceptor {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked_at.elapsed() < LOOK_AGAIN {
            return state.acceptor.clone();
        }
        state.looked_at = Instant::now();
        let read = contents(&self.files).and_then(|contents| {
            let is_same = contents == state.contents;
            let acceptor = if is_same {
                state.acceptor.clone()
            } else {
                acceptor(&self.files, &contents)?
            };
            Ok((is_same, contents, acceptor))
        });
        match read {
            Ok((true, ..)) => {}
            Ok((false, contents, acceptor)) => {
                tracing::info!(cert = %self.files.cert.display(), "the TLS files have changed; new connections use them");
                (state.contents, state.acceptor) = (contents, acceptor);
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "the TLS files are no good; the ones before stay in use");
            }
        }
        state.acceptor.clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

fn contents(files: &TlsFiles) -> Result<Contents, TlsError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| TlsError::Read {
            path: path.to_owned(),
            source,
        })
    };
    Ok(Contents {
        cert: read(&files.cert)?,
        key: zeroize::Zeroizing::new(read(&files.key)?),
        client_ca: read(&files.client_ca)?,
    })
}

fn acceptor(files: &TlsFiles, contents: &Contents) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.client_ca, &contents.client_ca)? {
        roots.add(root).map_err(TlsError::Certificate)?;
    }
    let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(TlsError::ClientCa)?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|source| TlsError::Pem {
        path: files.key.clone(),
        wanted: "private key",
        source,
    })?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Certificate)?
        .with_client_cert_verifier(callers)
        .with_single_cert(certificates(&files.cert, &contents.cert)?, key)
        .map_err(TlsError::Certificate)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::Pem {
        path: path.to_owned(),
        wanted: "certificate",
        source,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    if found.is_empty() {
        return Err(failed(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// The connections that have shown a good certificate. Ends when the process stops.
pub(crate) fn incoming(
    listener: TcpListener,
    tls: Arc<Tls>,
    stopping: CancellationToken,
) -> ReceiverStream<io::Result<TlsStream<TcpStream>>> {
    let (sender, receiver) = mpsc::channel(HANDSHAKES);
    tokio::spawn(stopping.run_until_cancelled_owned(async move {
        let mut handshakes: VecDeque<AbortHandle> = VecDeque::with_capacity(HANDSHAKES);
        loop {
            let (connection, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            handshakes.retain(|handshake| !handshake.is_finished());
            if handshakes.len() >= HANDSHAKES
                && let Some(oldest) = handshakes.pop_front()
            {
                oldest.abort();
            }
            let (handshake, sender) = (tls.current().accept(connection), sender.clone());
            let task = tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_MAX, handshake).await {
                    // Fails only while the server ends.
                    Ok(Ok(stream)) => drop(sender.send(Ok(stream)).await),
                    Ok(Err(error)) => tracing::info!(%peer, %error, "a connection was refused"),
                    Err(_) => tracing::info!(%peer, "a handshake took too long"),
                }
            });
            handshakes.push_back(task.abort_handle());
        }
    }));
    ReceiverStream::new(receiver)
}
