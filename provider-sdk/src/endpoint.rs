//! Where a driver listens: a unix socket, TCP on loopback, or TCP with TLS of both sides.
//!
//! Decides which addresses are allowed. Without TLS anyone who reaches a TCP port could make VMs, so only loopback is.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// `unix:///path`
    Unix(PathBuf),
    /// `tcp://127.0.0.1:port`; port 0 takes a free one.
    Tcp(SocketAddr),
    /// `https://ip:port`: gRPC with TLS, where callers show a certificate.
    Tls(SocketAddr),
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// None of the schemes.
    #[error("{0:?} is none of unix:///PATH, tcp://127.0.0.1:PORT and https://IP:PORT")]
    Scheme(String),
    /// The path of a socket must be absolute.
    #[error("{0:?} has no absolute path: write unix:///run/drivers/NAME.sock")]
    RelativePath(String),
    /// The kernel keeps at most 107 bytes of a socket's path, and the SDK needs 6 for its own names beside it.
    #[error("the path {0:?} is longer than 101 bytes, too long for a unix socket")]
    PathTooLong(String),
    /// Not `IP:PORT`.
    #[error("{0:?} is not IP:PORT")]
    Address(String),
    /// Reachable from outside.
    #[error(
        "{0} is not a loopback address: tcp:// has no TLS, so only 127.0.0.0/8 and [::1] are allowed; elsewhere use https://{0}"
    )]
    NotLoopback(SocketAddr),
}

/// `sun_path` holds 108 bytes with its final zero; 6 are for `.new/s`, where it is bound first.
const SOCKET_PATH_MAX: usize = 107 - 6;

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(EndpointError::RelativePath(text.to_owned()));
            }
            if path.len() > SOCKET_PATH_MAX {
                return Err(EndpointError::PathTooLong(path.to_owned()));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let socket_addr = |address: &str| {
            let parsed: Result<SocketAddr, _> = address.parse();
            parsed.map_err(|_| EndpointError::Address(address.to_owned()))
        };
        if let Some(address) = text.strip_prefix("https://") {
            return socket_addr(address).map(Self::Tls);
        }
        let Some(address) = text.strip_prefix("tcp://") else {
            return Err(EndpointError::Scheme(text.to_owned()));
        };
        let address = socket_addr(address)?;
        if !address.ip().is_loopback() {
            return Err(EndpointError::NotLoopback(address));
        }
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Tls(address) => write!(f, "https://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_endpoint_survives_a_round_trip() {
        for text in [
            "unix:///run/x.sock",
            "tcp://127.0.0.1:7070",
            "tcp://[::1]:0",
            "https://10.0.0.7:8443",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused_with_the_reason() {
        let error = "tcp://0.0.0.0:7070".parse::<Endpoint>().unwrap_err();
        assert!(matches!(error, EndpointError::NotLoopback(_)));
        assert!(error.to_string().contains("no TLS"), "{error}");
    }

    #[test]
    fn malformed_endpoints_are_told_apart() {
        assert!(matches!(
            "/run/x.sock".parse::<Endpoint>(),
            Err(EndpointError::Scheme(_))
        ));
        assert!(matches!(
            "unix://x.sock".parse::<Endpoint>(),
            Err(EndpointError::RelativePath(_))
        ));
        assert!(matches!(
            "tcp://localhost:1".parse::<Endpoint>(),
            Err(EndpointError::Address(_))
        ));
        let long = format!("unix:///{}", "a".repeat(103));
        assert!(matches!(long.parse::<Endpoint>(), Err(EndpointError::PathTooLong(_))));
    }
}
