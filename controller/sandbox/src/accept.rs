//! In which form an answer is wanted, from the `Accept` header.
//!
//! Decides between plain objects, tables and metadata alone, and refuses where nothing that is wanted is served. JSON is all that is
//! spoken here; the refusals name what the server speaks, except to those who want what only it speaks.

use crate::failure::Failure;
use crate::kinds::Kind;
use crate::request::{Request, Verb};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Plain,
    /// A table of this version.
    Table(&'static str),
    Metadata,
}

const SPOKEN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMED: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The media type of aggregated discovery, as it is asked for and answered.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The form in which a request about a kind is to be answered.
pub fn of_kind(kind: &Kind, request: &Request) -> Result<Wanted, Failure> {
    if !kind.custom && !is_routed(&request.accept) {
        let listed = matches!(request.verb, Verb::List | Verb::Watch);
        let types = if listed {
            format!("{SPOKEN}, {STREAMED}")
        } else {
            SPOKEN.to_owned()
        };
        return Err(unrouted(&types));
    }
    let known = clauses(&request.accept).into_iter().filter_map(read);
    known.into_iter().next().ok_or_else(|| refusal(&request.accept))
}

/// Refuses those who want of discovery what it has not. Of a group and version of the server's own, and of the core group, the
/// server's router asks before discovery does, in its own words.
pub fn of_discovery(accept: &str, routed: bool) -> Result<(), Failure> {
    if routed && !is_routed(accept) {
        return Err(unrouted(SPOKEN));
    }
    if clauses(accept)
        .into_iter()
        .filter_map(read)
        .any(|form| form == Wanted::Plain)
    {
        return Ok(());
    }
    Err(refusal(accept))
}

/// A clause of the header: its media type and the parameters.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(key, _)| *key == name);
        found.map_or("", |(_, value)| value)
    }

    fn weight(&self) -> f64 {
        self.parameter("q").parse().unwrap_or(1.0)
    }
}

/// What is wanted, most wanted first. No header wants anything.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let accept = if accept.trim().is_empty() { "*/*" } else { accept };
    let clause = |text| {
        let mut parts = str::split(text, ';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('=')).collect();
        Clause { media, parameters }
    };
    let mut out: Vec<Clause<'_>> = accept.split(',').map(clause).collect();
    out.sort_by(|one, other| other.weight().total_cmp(&one.weight()));
    out
}

/// The form that a clause names, if there is such a form.
fn read(clause: Clause<'_>) -> Option<Wanted> {
    if !matches!(clause.media, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let version = match clause.parameter("v") {
        "v1" => Some("v1"),
        "v1beta1" => Some("v1beta1"),
        _ => None,
    };
    match (clause.parameter("as"), clause.parameter("g"), version) {
        ("", _, _) => Some(Wanted::Plain),
        ("Table", "meta.k8s.io", Some(version)) => Some(Wanted::Table(version)),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", Some(_)) => Some(Wanted::Metadata),
        _ => None,
    }
}

/// Whether the server's router finds a type that it knows; it knows no parameters, and of patterns only the widest.
fn is_routed(accept: &str) -> bool {
    let known = |media: &str| media == "*/*" || SPOKEN.split(", ").any(|spoken| spoken == media);
    clauses(accept).iter().any(|clause| known(clause.media))
}

fn unrouted(types: &str) -> Failure {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    Failure::NotAcceptable { message, routed: true }
}

fn refusal(accept: &str) -> Failure {
    let spoken_elsewhere = ["application/yaml", "application/vnd.kubernetes.protobuf"];
    let elsewhere = clauses(accept)
        .iter()
        .any(|clause| spoken_elsewhere.contains(&clause.media));
    let types = if elsewhere { "application/json" } else { SPOKEN };
    let message = format!("only the following media types are accepted: {types}");
    Failure::NotAcceptable { message, routed: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(accept: &str) -> Option<Wanted> {
        clauses(accept).into_iter().filter_map(read).next()
    }

    #[test]
    fn the_most_wanted_form_that_is_known_is_taken() {
        for (accept, form) in [
            ("", Some(Wanted::Plain)),
            ("text/html,application/json;q=0.5", Some(Wanted::Plain)),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
                Some(Wanted::Table("v1")),
            ),
            (
                "application/json;as=Table;g=meta.k8s.io;v=v9,application/json",
                Some(Wanted::Plain),
            ),
            (
                "application/json;q=0.1,application/json;as=Table;g=meta.k8s.io;v=v1beta1",
                Some(Wanted::Table("v1beta1")),
            ),
            ("application/json;as=Table;g=other;v=v1", None),
            ("application/yaml", None),
        ] {
            assert_eq!(first(accept), form, "{accept}");
        }
    }
}
