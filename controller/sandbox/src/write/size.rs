//! Whether an object is small enough for etcd to keep it.
//!
//! Decides by the length of its JSON, which is that of etcd's request within a few hundred bytes. The server keeps its own kinds in
//! protobuf, which is a little shorter.

use crate::failure::Failure;
use crate::store::Tree;

/// The most that etcd takes in one request, in bytes.
const MOST: usize = 1536 * 1024;
/// The most that its client sends it.
const SENT: usize = 2 * 1024 * 1024;
/// What a request holds beside the object: its key three times, and the heads of its parts. As measured of one update.
const BESIDE: usize = 154;

/// Refuses what is too large.
pub(crate) fn admit(object: &Tree) -> Result<(), Failure> {
    let size = object.size() + BESIDE;
    if size <= MOST {
        return Ok(());
    }
    let why = if size <= SENT {
        "etcdserver: request is too large".to_owned()
    } else {
        format!("rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {SENT})")
    };
    Err(Failure::Internal(why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(letters: usize) -> Option<String> {
        let object = json!({ "a": "x".repeat(letters) });
        admit(&object.into()).err().map(|failure| failure.to_string())
    }

    #[test]
    fn what_etcd_does_not_take_is_refused_in_its_words() {
        assert_eq!(said(MOST - BESIDE - 8), None);
        assert_eq!(
            said(MOST - BESIDE - 7).as_deref(),
            Some("etcdserver: request is too large")
        );
        assert!(said(SENT).is_some_and(|why| why.contains("larger than max")));
    }
}
