//! A kind of write to Machines that the API server refuses for a while, as a quota or a webhook does.
//!
//! Decides which requests are meant, and the answer to them.

use std::time::Duration;

use millwright_sandbox::api::Answer;
use millwright_sandbox::request::{Request, Verb};
use serde_json::json;

/// A kind of write that is refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Until when.
    pub until: Duration,
    /// The verb of its requests.
    pub verb: Verb,
    /// The one Machine that it is about; none: all of them.
    pub name: Option<String>,
    /// What the API server says.
    pub message: &'static str,
}

impl Refusal {
    /// The answer to a request, where it is refused.
    pub fn answers(&self, request: &Request, now: Duration) -> Option<Answer> {
        let is_meant = now < self.until
            && request.verb == self.verb
            && request.target.resource == "machines"
            && self.name.as_ref().is_none_or(|name| *name == request.target.name);
        is_meant.then(|| {
            let body = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": self.message, "reason": "Forbidden", "code": 403,
            });
            Answer::Object {
                code: 403,
                body: body.into(),
                warnings: Vec::new(),
            }
        })
    }
}
