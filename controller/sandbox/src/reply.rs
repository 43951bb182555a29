//! How an answer looks on the wire: code, headers, and JSON for people or for programs.
//!
//! Without any HTTP library, so that a server on a socket and a simulator without one send the same.

use serde_json::Value;

use crate::answer::Answer;
use crate::object;
use crate::request::Query;
use crate::store::Tree;
use crate::watch::Event;

/// How JSON is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// For programs.
    Compact,
    /// For people.
    Indented,
}

impl Style {
    /// As the server does: who asks decides, and without a wish curl, wget and browsers are taken for people.
    pub fn of(agent: &str, query: &str) -> Self {
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
}

/// An answer as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    /// Names in lower case.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// Anything but a watch, which is a stream.
    pub fn of(answer: Answer, style: Style) -> Self {
        let mut headers = head(answer.content_type());
        match answer {
            Answer::Object { code, body, warnings } => {
                headers.extend(
                    warnings
                        .iter()
                        .map(|text| ("warning", format!("299 - {}", quoted(text)))),
                );
                let pause = object::at(&body, "/details/retryAfterSeconds").and_then(Value::as_u64);
                headers.extend(pause.map(|seconds| ("retry-after", seconds.to_string())));
                let body = match style {
                    Style::Compact => line(&body),
                    Style::Indented => indented(&body),
                };
                Self { code, headers, body }
            }
            Answer::List(listing) => {
                let body = match style {
                    Style::Compact => listing.pieces(usize::MAX).flatten().collect(),
                    Style::Indented => indented(&listing.to_value()),
                };
                let code = 200;
                Self { code, headers, body }
            }
            // What says nothing is of no type.
            Answer::Text { code, body } if body.is_empty() => {
                headers.retain(|(name, _)| *name != "content-type");
                Self {
                    code,
                    headers,
                    body: Vec::new(),
                }
            }
            Answer::Text { code, body } => {
                headers.push(("x-content-type-options", "nosniff".to_owned()));
                let body = body.into_bytes();
                Self { code, headers, body }
            }
            Answer::Watch(_) => unreachable!("watches are streams, and are sent as such"),
        }
    }
}

/// An object for people.
fn indented(object: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(object).expect("a Value has string keys, and a vector takes all that is written")
}

/// An object for programs.
fn line(object: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    object.write(&mut out, false);
    out.push(b'\n');
    out
}

/// The headers of every answer of a media type.
pub fn head(content_type: &str) -> Vec<(&'static str, String)> {
    vec![
        ("content-type", content_type.to_owned()),
        ("cache-control", "no-cache, private".to_owned()),
    ]
}

/// Events of a watch as they are sent, one a line.
pub fn lines(events: impl IntoIterator<Item = Event>) -> Vec<u8> {
    let mut out = Vec::new();
    for event in events {
        event.write(&mut out);
        out.push(b'\n');
    }
    out
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
