//! The seal around a list's cursor, so that a page is never continued with another question.
//!
//! The token is `HASH.CURSOR`. The hash is of the cluster and of the class; a token that does not fit is answered with
//! `PAGE_TOKEN_EXPIRED`, which makes the manager start over. It guards against mistakes, not against forgery: whoever
//! may list may list everything. Nothing is kept, so tokens survive a restart.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::DriverError;
use crate::reason::Reason;
use crate::types::MachineClass;

/// What a token is good for.
pub(crate) struct Seal(String);

impl Seal {
    /// The question that the list answers.
    pub(crate) fn new(cluster_id: &str, class: &MachineClass) -> Self {
        let mut hash = Sha256::new();
        // Values of a JSON object are sorted by key, so equal specs have equal texts.
        let locator = class
            .locator
            .clone()
            .map_or_else(String::new, |it| Value::Object(it).to_string());
        for part in [
            cluster_id,
            &class.namespace,
            &class.name,
            &class.provider_spec.to_string(),
            &locator,
        ] {
            hash.update(part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(
            hash.finalize()
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    /// The token that goes to the manager. The empty cursor is the end and stays empty.
    pub(crate) fn close(&self, cursor: &str) -> String {
        if cursor.is_empty() {
            String::new()
        } else {
            format!("{}.{cursor}", self.0)
        }
    }

    /// The cursor in a token that came back.
    pub(crate) fn open(&self, token: &str) -> Result<String, DriverError> {
        if token.is_empty() {
            return Ok(String::new());
        }
        match token.split_once('.') {
            Some((hash, cursor)) if hash == self.0 => Ok(cursor.to_owned()),
            _ => Err(DriverError::new(
                Reason::PageTokenExpired,
                "page_token is not of this list: start over",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(size: &str) -> MachineClass {
        MachineClass {
            provider_spec: json!({"size": size}),
            ..MachineClass::default()
        }
    }

    #[test]
    fn a_token_opens_only_under_the_question_that_it_was_made_for() {
        let token = Seal::new("a", &class("small")).close("7.x");
        assert_eq!(Seal::new("a", &class("small")).open(&token).unwrap(), "7.x");
        for other in [Seal::new("b", &class("small")), Seal::new("a", &class("big"))] {
            assert_eq!(other.open(&token).unwrap_err().reason(), &Reason::PageTokenExpired);
        }
        Seal::new("a", &class("small")).open("garbage").unwrap_err();
    }

    #[test]
    fn the_end_of_a_list_has_no_token() {
        let seal = Seal::new("a", &class("small"));
        assert_eq!(seal.close(""), "");
        assert_eq!(seal.open("").unwrap(), "");
    }
}
