//! What is asked: an HTTP request read as verb, target, query and body.
//!
//! Decides how a path and a method name a verb and a resource; knows neither which resources exist nor what is stored.

use std::borrow::Cow;
use std::num::{IntErrorKind, ParseIntError};

use percent_encoding::percent_decode_str;

use crate::failure::Failure;
use crate::golang::{quoted, with_odd_bytes};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// A method that stands for none of these.
    Other,
}

/// On what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// API group, empty for the core group.
    pub group: String,
    /// API version, as `v1`.
    pub version: String,
    /// Plural of the kind.
    pub resource: String,
    /// Empty for what has no namespace, and for all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty for the object itself. With all that follows it: only custom kinds look no further than its first part.
    pub subresource: String,
}

/// The query of a URL, decoded, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads `a=b&c=d`; a plus is a space and `%41` an A.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        });
        Self(pairs.collect())
    }

    /// The first value of a key, also where it is empty.
    pub(crate) fn said(&self, key: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        Some(value)
    }

    /// The first value of a key for those who take an empty one and none alike.
    pub fn first(&self, key: &str) -> &str {
        self.said(key).unwrap_or_default()
    }

    /// The first value of a key as a number; none if there is no such key.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Failure> {
        let Some(said) = self.said(key) else {
            return Ok(None);
        };
        said.parse().map(Some).map_err(|error: ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Failure::BadRequest(format!("strconv.ParseInt: parsing {}: {why}", quoted(said)))
        })
    }

    /// All values of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Whether a switch is set: `1`, `true`, but also a key without a value.
    pub fn is_set(&self, key: &str) -> bool {
        self.0.iter().any(|(name, value)| name == key && is_switch_on(value))
    }

    /// Whether a switch is set, or off, or not spoken of.
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        self.said(key).map(is_switch_on)
    }
}

/// What does not say no says yes.
fn is_switch_on(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// Replaces `%XX` by the byte it stands for; what is no valid escape stays as it is.
pub(crate) fn decode(text: &str) -> String {
    let bytes: Cow<'_, [u8]> = percent_decode_str(text).into();
    match bytes {
        Cow::Borrowed(_) => text.to_owned(),
        Cow::Owned(bytes) => String::from_utf8(bytes).unwrap_or_else(|odd| with_odd_bytes(odd.as_bytes())),
    }
}

/// The parts of a path, decoded before it is taken apart. Roles are asked about these very parts.
pub(crate) fn parts(path: &str) -> Vec<String> {
    let path = decode(path);
    let path = path.strip_prefix('/').unwrap_or(&path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

/// A request to the API.
#[derive(Debug, Clone)]
pub struct Request {
    pub verb: Verb,
    /// Whether only the head of the answer is wanted: custom kinds take that for the verb, the server's own take it for none.
    pub is_head: bool,
    /// As it was asked, for what the API says of itself.
    pub path: String,
    /// Empty if the path names no object and no collection.
    pub target: Target,
    pub query: Query,
    /// Media type of the body without its parameters; empty if there is none.
    pub content_type: String,
    /// What the caller wants back.
    pub accept: String,
    pub body: Vec<u8>,
    /// Who asks; authorisation has been done.
    pub user: String,
    /// The `User-Agent`, from which managers of fields are named.
    pub agent: String,
}

/// The parts of an HTTP request that an API server looks at.
#[derive(Debug, Clone, Default)]
pub struct Http<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub content_type: &'a str,
    pub accept: &'a str,
    pub agent: &'a str,
    pub user: &'a str,
    pub body: &'a [u8],
}

impl Request {
    /// Reads a request. A path too short for a collection, or outside of `/api` and `/apis`, gives an empty target.
    pub fn parse(http: &Http<'_>) -> Result<Self, Failure> {
        let target = Target::parse(http.path)?;
        let query = Query::parse(http.query);
        Ok(Self {
            verb: verb(http.method, &target, &query),
            is_head: http.method == "HEAD",
            path: http.path.to_owned(),
            target,
            query,
            content_type: media(http.content_type),
            accept: http.accept.to_owned(),
            body: http.body.to_vec(),
            user: http.user.to_owned(),
            agent: http.agent.to_owned(),
        })
    }
}

/// The media type of a header without its parameters. One whose parameters make no sense is no media type.
fn media(header: &str) -> String {
    let mut parts = header.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let mut parameters: Vec<&str> = parts.collect();
    if parameters.last() == Some(&"") {
        parameters.pop(); // one semicolon may end it
    }
    let makes_sense = parameters.iter().all(|parameter| parameter.contains('='));
    if makes_sense { media } else { header.to_owned() }
}

impl Target {
    /// Reads `/api/v1/…` and `/apis/GROUP/VERSION/…`.
    fn parse(path: &str) -> Result<Self, Failure> {
        let parts = parts(path);
        let mut parts = parts.iter().map(String::as_str);
        let group = match parts.next() {
            Some("api") => "",
            Some("apis") => parts.next().unwrap_or_default(),
            Some("") if parts.len() > 0 => return Err(Failure::NoPath),
            _ => return Ok(Self::default()),
        };
        let version = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        // A namespace is a place and a thing: with at most two parts after it, or its own subresources, it is the thing.
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", _, "status" | "finalize"] => ("", rest.as_slice()),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            whole => ("", whole),
        };
        if rest.contains(&"") {
            return Err(Failure::NoResource);
        }
        let (resource, name, subresource) = match rest {
            [] => return Ok(Self::default()),
            [resource] => (*resource, "", String::new()),
            [resource, name] => (*resource, *name, String::new()),
            [resource, name, subresource @ ..] => (*resource, *name, subresource.join("/")),
        };
        if matches!(name, "." | "..") && rest.len() > 3 {
            return Err(Failure::NoResource);
        }
        if matches!(name, "." | "..") {
            let why = format!("Name parameter invalid: \"{name}\": may not be '{name}'");
            return Err(Failure::BadRequest(why));
        }
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource,
        })
    }
}

fn verb(method: &str, target: &Target, query: &Query) -> Verb {
    let named = !target.name.is_empty();
    match (method, named) {
        // Asking to watch one object by its path gives the object: the server ignores the switch there.
        ("GET" | "HEAD", true) => Verb::Get,
        ("GET" | "HEAD", false) if query.is_set("watch") => Verb::Watch,
        ("GET" | "HEAD", false) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}
