//! URLs in rules: taken apart, not judged beyond what the server refuses to read.

use std::{collections::HashMap, sync::Arc};

use cel::{
    Value as Cel,
    objects::{Key, Map},
};

use crate::schema::formats;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) path: String,
    query: String,
}

impl Url {
    pub(super) fn read(text: &str) -> Option<Self> {
        if !formats::fits("uri", text) {
            return None;
        }
        let (scheme, rest) = text
            .split_once(':')
            .filter(|_| !text.starts_with('/'))
            .unwrap_or(("", text));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at_checked(rest.find('/').unwrap_or(rest.len()))?,
            None => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    /// The host without its port, and without the brackets of an IPv6 address.
    pub(super) fn hostname(&self) -> &str {
        let bare = match self.port() {
            "" => self.host.as_str(),
            port => self
                .host
                .strip_suffix(port)
                .and_then(|host| host.strip_suffix(':'))
                .unwrap_or(&self.host),
        };
        bare.trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => "",
        }
    }

    pub(super) fn query_map(&self) -> Cel {
        let mut values: HashMap<Key, Vec<Cel>> = HashMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = Cel::String(Arc::new(value.to_owned()));
            values
                .entry(Key::String(Arc::new(name.to_owned())))
                .or_default()
                .push(value);
        }
        let values = values
            .into_iter()
            .map(|(name, values)| (name, Cel::List(Arc::new(values))));
        Cel::Map(Map {
            map: Arc::new(values.collect()),
        })
    }
}
