//! Where spans go: the URL of a collector that speaks OTLP over gRPC.
//!
//! Refuses what could never work, with a sentence that says what to write.

use std::fmt;
use std::str::FromStr;

use http::Uri;

/// A collector's URL, or none: an empty one counts as none, as OpenTelemetry has it for the environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector(Option<String>);

/// Why a text is no collector's URL.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectorError {
    /// Not a URL.
    #[error("not a URL: write http://HOST:PORT, as http://localhost:4317, or https://HOST:PORT")]
    Form,
    /// The default port of HTTP is never meant.
    #[error("it names no port: collectors take OTLP over gRPC at 4317")]
    Port,
    /// gRPC has paths of its own.
    #[error("it has a path, as OTLP over HTTP: this is OTLP over gRPC, write http://HOST:PORT, usually with port 4317")]
    Path,
}

impl Collector {
    /// The URL, if there is one.
    pub fn url(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let uri: Uri = text.parse().map_err(|_| CollectorError::Form)?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(_) | None => return Err(CollectorError::Form),
        }
        // Whoever is named before an @ has a password there, and gRPC would not send it.
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        authority
            .ok_or(CollectorError::Form)?
            .port_u16()
            .ok_or(CollectorError::Port)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(CollectorError::Path);
        }
        Ok(Self(Some(text.to_owned())))
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_host_and_port() {
        for text in [
            "http://localhost:4317",
            "http://127.0.0.1:4317/",
            "http://[::1]:4317",
            "http://otel.obs.svc:4317",
            "https://otel.example.org:4317",
        ] {
            let collector: Collector = text.parse().expect(text);
            assert_eq!(collector.url(), Some(text));
        }
    }

    #[test]
    fn an_empty_text_is_no_collector() {
        assert_eq!(
            "".parse::<Collector>().map(|collector| collector.url().is_none()),
            Ok(true)
        );
    }

    #[test]
    fn what_could_never_work_is_refused_with_its_reason() {
        use CollectorError::{Form, Path, Port};
        for (text, wanted) in [
            ("localhost:4317", Form),
            ("localhost", Form),
            ("grpc://localhost:4317", Form),
            ("unix:///run/otel.sock", Form),
            ("http://", Form),
            ("http:// :4317", Form),
            ("http://me:secret@localhost:4317", Form),
            ("https://localhost", Port),
            ("http://localhost", Port),
            ("http://localhost:4318/v1/traces", Path),
            ("http://localhost:4317?a=b", Path),
        ] {
            assert_eq!(text.parse::<Collector>(), Err(wanted), "{text}");
        }
    }
}
