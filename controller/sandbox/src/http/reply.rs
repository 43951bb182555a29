//! How an answer looks on the wire: headers, and JSON for people or for programs.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use futures::Stream;
use serde_json::Value;

use crate::api::Answer;
use crate::request::Query;

/// How JSON is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Compact,
    Indented,
}

impl Style {
    /// As the server does: who asks decides, and without a wish curl, wget and browsers are taken for people.
    pub(super) fn of(agent: &str, query: &str) -> Self {
        let query = Query::parse(query);
        let people = ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|name| agent.starts_with(name));
        let wanted = match query.all("pretty").next() {
            Some(_) => query.is_set("pretty"),
            None => people,
        };
        if wanted { Self::Indented } else { Self::Compact }
    }

    fn write(self, body: &Value) -> Vec<u8> {
        let written = match self {
            Self::Compact => serde_json::to_vec(body).map(|mut text| {
                text.push(b'\n');
                text
            }),
            Self::Indented => serde_json::to_vec_pretty(body),
        };
        written.expect("a Value has string keys, and a vector takes all that is written")
    }
}

pub(super) fn of(answer: Answer, style: Style) -> Response<Body> {
    let kind = answer.content_type();
    match answer {
        Answer::Object { code, body, warnings } => {
            let mut response = response(code, kind, Body::from(style.write(&body)));
            let headers = response.headers_mut();
            let texts = warnings.iter().map(|text| format!("299 - {}", quoted(text)));
            for warning in texts.filter_map(|text| HeaderValue::from_str(&text).ok()) {
                headers.append(header::WARNING, warning);
            }
            if let Some(seconds) = body.pointer("/details/retryAfterSeconds").and_then(Value::as_u64) {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            response
        }
        Answer::Text { code, body } => {
            let mut response = response(code, kind, Body::from(body));
            let headers = response.headers_mut();
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        }
        Answer::Watch(_) => unreachable!("watches are streams, and ask.rs sends them as such"),
    }
}

/// Events as they come, one a line.
pub(super) fn stream(
    events: impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static,
) -> Response<Body> {
    response(200, "application/json", Body::from_stream(events))
}

fn response(code: u16, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("the API's codes are those of HTTP");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A quoted string as headers have them.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace(['\r', '\n'], " ");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_indented_json_and_programs_do_not() {
        assert_eq!(Style::of("curl/8.5", ""), Style::Indented);
        assert_eq!(Style::of("curl/8.5", "pretty=false"), Style::Compact);
        assert_eq!(Style::of("kubectl/v1.36", ""), Style::Compact);
        assert_eq!(Style::of("kubectl/v1.36", "pretty=true"), Style::Indented);
    }

    #[test]
    fn a_warning_is_quoted() {
        assert_eq!(quoted("unknown field \"foo\""), r#""unknown field \"foo\"""#);
    }
}
