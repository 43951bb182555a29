//! A sequence of requests as text.
//!
//! `== TITLE` begins a sequence, `> METHOD PATH [type=MEDIA] [accept=metadata]` a request, `| BODY` is its body. In paths and
//! bodies `{{…}}` stands for what the side's own answers said: `ns`, `start` (the version before the first request), `listrv`,
//! `continue`, and of an object by kind and name `uid:Machine/a`, `rv:…`, and the oldest known `olduid:…` and `oldrv:…`.

use std::fmt;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Step {
    pub method: String,
    /// With the query.
    pub path: String,
    pub media: String,
    /// Only metadata is wanted back.
    pub metadata: bool,
    pub body: Option<String>,
}

/// Requests that follow each other, in a namespace of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    pub title: String,
    pub steps: Vec<Step>,
}

impl Sequence {
    /// All sequences of a text.
    ///
    /// # Errors
    /// A line that is none of those above.
    pub fn read_all(text: &str) -> Result<Vec<Self>, String> {
        let mut all: Vec<Self> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let bad = || format!("line {}: {line}", number + 1);
            if let Some(title) = line.strip_prefix("== ") {
                all.push(Self {
                    title: title.to_owned(),
                    steps: Vec::new(),
                });
            } else if let Some(request) = line.strip_prefix("> ") {
                let step = Step::read(request).ok_or_else(bad)?;
                all.last_mut().ok_or_else(bad)?.steps.push(step);
            } else if let Some(body) = line.strip_prefix("| ") {
                let step = all.last_mut().and_then(|all| all.steps.last_mut()).ok_or_else(bad)?;
                step.body = Some(body.to_owned());
                if step.media.is_empty() {
                    "application/json".clone_into(&mut step.media);
                }
            } else if !line.is_empty() && !line.starts_with('#') {
                return Err(bad());
            }
        }
        Ok(all)
    }
}

impl Step {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut step = Self {
            method: words.next()?.to_owned(),
            path: words.next().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        for word in words {
            match word.split_once('=')? {
                ("type", media) => media.clone_into(&mut step.media),
                ("accept", "metadata") => step.metadata = true,
                _ => return None,
            }
        }
        Some(step)
    }

    /// Whether it asks for a stream.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.method == "GET" && (self.path.contains("?watch=") || self.path.contains("&watch="))
    }

    /// What is sent as `Accept`.
    #[must_use]
    pub fn accept(&self) -> &'static str {
        if !self.metadata {
            return "application/json";
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let is_list = super::kinds::of_path(path).is_some_and(|kind| path.ends_with(kind.plural));
        if is_list && self.method == "GET" && !self.is_watch() {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "> {} {}", self.method, self.path)?;
        let is_plain = self.media == "application/json" && self.body.is_some();
        if !self.media.is_empty() && !is_plain {
            write!(f, " type={}", self.media)?;
        }
        if self.metadata {
            write!(f, " accept=metadata")?;
        }
        match &self.body {
            Some(body) => write!(f, "\n| {body}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "== {}", self.title)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
