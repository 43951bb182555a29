//! What protobuf calls the fields of the server's own kinds: numbers, which `numbers.txt` has from the published API.
//!
//! `tests/face/numbers.py` writes that file. Of what a number means, only the name is here; types are those of OpenAPI.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    /// Whether its zero is not the same as nothing.
    pub counts_zero: bool,
}

/// The fields of a message.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// By number, behind the number of what they are embedded in, or else zero.
    fields: BTreeMap<(u64, u64), Field>,
    embeds: BTreeSet<u64>,
}

impl Message {
    pub(super) fn field(&self, embedded: u64, number: u64) -> Option<&Field> {
        self.fields.get(&(embedded, number))
    }

    /// Whether what bears a number is no field of its own: its fields are this message's.
    pub(super) fn embeds(&self, number: u64) -> bool {
        self.embeds.contains(&number)
    }

    fn read(line: &'static str) -> Option<Self> {
        let mut out = Self::default();
        for said in line.split_whitespace() {
            let (name, number) = said.split_once('=')?;
            let plain = number.trim_end_matches('?');
            let (embedded, inner) = plain.split_once('.').unwrap_or(("0", plain));
            let (embedded, inner) = (embedded.parse().ok()?, inner.parse().ok()?);
            let counts_zero = plain != number;
            out.fields.insert((embedded, inner), Field { name, counts_zero });
            if embedded != 0 {
                out.embeds.insert(embedded);
            }
        }
        Some(out)
    }
}

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = include_str!("numbers.txt").lines();
    lines
        .map(|line| {
            let read = line
                .split_once(": ")
                .and_then(|(name, fields)| Some((name, Message::read(fields)?)));
            read.expect("numbers.txt is part of this crate and a test reads all of it")
        })
        .collect()
});

/// The message that a schema stands for, as `io.k8s.api.core.v1.Pod`.
pub(super) fn of(schema: &str) -> Option<&'static Message> {
    MESSAGES.get(schema.strip_prefix("io.k8s.")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin_schemas;

    #[test]
    fn every_number_has_a_field_that_the_api_knows() {
        for (name, message) in MESSAGES.iter() {
            let schema = builtin_schemas::schema(&format!("io.k8s.{name}")).expect(name);
            for field in message.fields.values() {
                assert!(schema["properties"][field.name].is_object(), "{name}.{}", field.name);
            }
        }
    }
}
