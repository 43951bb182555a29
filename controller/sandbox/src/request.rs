//! What is asked: an HTTP request read as verb, target, query and body.
//!
//! Decides how a path and a method name a verb and a resource; knows neither which resources exist nor what is stored.

use crate::failure::Failure;

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
    /// Empty for the object itself.
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

    /// The first value of a key; empty if there is none, which the server treats alike.
    pub fn first(&self, key: &str) -> &str {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map_or("", |(_, value)| value)
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
        self.0
            .iter()
            .any(|(name, value)| name == key && value != "false" && value != "0")
    }
}

/// Replaces `%XX` by the byte it stands for; what is no valid escape stays as it is.
pub(crate) fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = tail
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(meant) => {
                out.push(meant);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A request to the API.
#[derive(Debug, Clone)]
pub struct Request {
    pub verb: Verb,
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
        let verb = verb(http.method, &target, &query)?;
        let media = http
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        Ok(Self {
            verb,
            path: http.path.to_owned(),
            target,
            query,
            content_type: media,
            accept: http.accept.to_owned(),
            body: http.body.to_vec(),
            user: http.user.to_owned(),
            agent: http.agent.to_owned(),
        })
    }
}

impl Target {
    /// Reads `/api/v1/…` and `/apis/GROUP/VERSION/…`.
    fn parse(path: &str) -> Result<Self, Failure> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(decode);
        let group = match parts.next().as_deref() {
            Some("api") => String::new(),
            Some("apis") => parts.next().unwrap_or_default(),
            _ => return Ok(Self::default()),
        };
        let version = parts.next().unwrap_or_default();
        let rest: Vec<String> = parts.collect();
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        // A namespace is a place and a thing: with at most two parts after it, or its own subresources, it is the thing.
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", _, "status" | "finalize"] => ("", rest.as_slice()),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            whole => ("", whole),
        };
        let (resource, name, subresource) = match rest {
            [] => return Ok(Self::default()),
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource] => (*resource, *name, *subresource),
            _ => return Err(Failure::NoResource),
        };
        Ok(Self {
            group,
            version,
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }
}

fn verb(method: &str, target: &Target, query: &Query) -> Result<Verb, Failure> {
    let named = !target.name.is_empty();
    match (method, named) {
        // Asking to watch one object by its path gives the object: the server ignores the switch there.
        ("GET", true) => Ok(Verb::Get),
        ("GET", false) if query.is_set("watch") => Ok(Verb::Watch),
        ("GET", false) => Ok(Verb::List),
        ("POST", _) => Ok(Verb::Create),
        ("PUT", true) => Ok(Verb::Update),
        ("PATCH", true) => Ok(Verb::Patch),
        ("DELETE", true) => Ok(Verb::Delete),
        ("DELETE", false) => Ok(Verb::DeleteCollection),
        _ => Err(Failure::NoMethod),
    }
}
