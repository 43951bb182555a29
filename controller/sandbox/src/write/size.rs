//! Whether an object is small enough for etcd to keep it.
//!
//! Decides by the length of its JSON, which is that of etcd's request within a few hundred bytes. The server keeps its own kinds in
//! protobuf, which is a little shorter.

use serde_json::Value;

use crate::failure::Failure;
use crate::list::write_json;

/// The most that etcd takes in one request, in bytes.
const MOST: usize = 1536 * 1024;
/// The most that its client sends it.
const SENT: usize = 2 * 1024 * 1024;
/// What a request holds beside the object: its key three times, and the heads of its parts. As measured of one update.
const BESIDE: usize = 154;

/// Refuses what is too large.
pub(super) fn admit(object: &Value) -> Result<(), Failure> {
    // Most are far smaller, which is seen without writing them.
    if bound(object) + BESIDE <= MOST {
        return Ok(());
    }
    let mut text = Vec::new();
    write_json(&mut text, object);
    let size = text.len() + BESIDE;
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

/// What the JSON of a value cannot be longer than: a letter takes six where it is escaped.
fn bound(value: &Value) -> usize {
    let text = |text: &str| 6 * text.len() + 4;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 32,
        Value::String(said) => text(said),
        Value::Array(items) => items.iter().map(|item| bound(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields
                .iter()
                .map(|(name, field)| text(name) + bound(field))
                .sum::<usize>()
                + 2
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(letters: usize) -> Option<String> {
        let object = json!({ "a": "x".repeat(letters) });
        admit(&object).err().map(|failure| failure.to_string())
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

    #[test]
    fn no_text_is_longer_than_its_bound() {
        for value in [
            json!(null),
            json!([]),
            json!({}),
            json!(f64::MIN_POSITIVE),
            json!(i64::MIN),
            json!(["\u{1}\u{1}", [true, "\u{e4}"], { "": {}, "\u{2}": [[]] }]),
        ] {
            assert!(value.to_string().len() <= bound(&value), "{value}");
        }
    }
}
