//! What the API says to a request, before it is bytes.
//!
//! Decides under which media type an answer is sent, and what of it becomes a table.

use jiff::Timestamp;
use serde_json::json;

use crate::accept::AGGREGATED;
use crate::failure::Failure;
use crate::kinds::Kind;
use crate::shown::Listing;
use crate::store::Tree;
use crate::table::Form;
use crate::watch::{Event, Started};

/// What the API says.
#[derive(Debug)]
pub enum Answer {
    /// A JSON body, and the texts of `Warning` headers.
    Object {
        code: u16,
        body: Tree,
        warnings: Vec<String>,
    },
    /// Objects as they are stored.
    List(Box<Listing>),
    /// A plain text, where no API lives.
    Text { code: u16, body: String },
    /// A stream of events that has begun; ask [`crate::api::Api::events`] for more.
    Watch(Box<Started>),
}

impl Answer {
    pub(crate) fn ok(body: impl Into<Tree>) -> Self {
        Self::with(200, body)
    }

    /// The media type under which it is sent: clients tell the two forms of discovery apart by it.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Object { body, .. } if body.get("kind") == Some(&json!("APIGroupDiscoveryList")) => AGGREGATED,
            Self::Object { .. } | Self::List(_) | Self::Watch(_) => "application/json",
            Self::Text { .. } => "text/plain; charset=utf-8",
        }
    }

    pub(crate) fn with(code: u16, body: impl Into<Tree>) -> Self {
        Self::Object {
            code,
            body: body.into(),
            warnings: Vec::new(),
        }
    }

    /// The same as a table of this form, where it is about a kind. What is no object of that kind, as a `Status`, stays as it is.
    pub(crate) fn into_table(self, mut form: Form, kind: &Kind, now: Timestamp) -> Self {
        match self {
            Self::Object { code, body, warnings } => {
                let body = form.of_body(kind, &body, now).map_or(body, Tree::from);
                Self::Object { code, body, warnings }
            }
            Self::Watch(mut started) => {
                for event in &mut started.first {
                    *event = Event::Said(form.of_event(kind, &event.to_value(), now));
                    form.told = true;
                }
                started.watch.table = Some(form);
                Self::Watch(started)
            }
            Self::List(listing) => Self::ok(form.of_listing(&listing, now)),
            text @ Self::Text { .. } => text,
        }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoPath => Self::Text {
                code: 404,
                body: failure.to_string(),
            },
            other => Self::with(other.code(), other.status()),
        }
    }
}
