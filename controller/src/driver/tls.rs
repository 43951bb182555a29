//! Mutual TLS with drivers on other hosts: calls carry credentials, so each side proves who it is.
//!
//! Decides nothing: who may be a driver is whoever shows a certificate of the given authority for the host that was named.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The files by which the manager and drivers over TLS know each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authority that signs those of drivers.
    pub ca: PathBuf,
    /// The manager's own certificate, with its chain.
    pub cert: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Shakes hands over a connection. The files are read for each, so a certificate that was renewed counts from the next connection on.
    pub(super) async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config().await?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Whether the files can be used, for whoever wants to know before the first connection.
    pub async fn check(&self) -> io::Result<()> {
        self.config().await.map(drop)
    }

    async fn config(&self) -> io::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca).await? {
            roots.add(certificate).map_err(|error| in_file(&self.ca, &error))?;
        }
        let chain = certificates(&self.cert).await?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key).await?).map_err(|error| in_file(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key);
        let mut config = config.map_err(|error| in_file(&self.cert, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

async fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = read(path).await?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| in_file(path, &error))?;
    match found.is_empty() {
        true => Err(in_file(path, &"there is no certificate in it, as PEM")),
        false => Ok(found),
    }
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let text = tokio::fs::read(path).await;
    text.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn in_file(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}
