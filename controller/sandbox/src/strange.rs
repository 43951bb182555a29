//! Fields of a body that are not as they should be: named twice, or known to nobody.
//!
//! Decides which they are and in which order they are told; whether that is a refusal, a warning or silence (`fieldValidation`) is
//! the caller's. What custom kinds do not know is their schema's affair (`schema::prune`).

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::schema::Place;
use crate::topology::Place as Known;

/// Reads a JSON text, and whether it names a field twice. A parsed value keeps the last one and tells no tale.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<(Value, bool)> {
    let mut is_twofold = false;
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Read(&mut is_twofold).deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, is_twofold))
}

struct Read<'a>(&'a mut bool);

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = items.next_element_seed(Read(self.0))? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Read(self.0))?;
            *self.0 |= out.insert(name, value).is_some();
        }
        Ok(Value::Object(out))
    }
}

/// What is told of a field that occurs more than once, each field once, in the order of the text.
pub fn twice(text: &[u8]) -> Vec<String> {
    told(text, None)
}

/// The same, and between them what is told of fields that a kind of the server's own does not know.
pub(crate) fn twice_or_unknown(text: &[u8], known: Known<'_>) -> Vec<String> {
    told(text, Some(known))
}

fn told(text: &[u8], known: Option<Known<'_>>) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let look = Look {
        place: Place::root(),
        known,
        found: &mut found,
    };
    // It has been read before: what is no JSON has been refused, or says nothing here.
    look.deserialize(&mut reader).ok();
    found
}

/// Takes out what a kind of the server's own does not know, and tells it in the order of names.
pub(crate) fn prune(known: Known<'_>, value: &mut Value) -> Vec<String> {
    let mut gone = Vec::new();
    prune_at(known, value, &Place::root(), &mut gone);
    gone
}

fn prune_at(known: Known<'_>, value: &mut Value, place: &Place<'_>, gone: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.retain(|name, below| {
            let at = place.field(name);
            if !known.admits(name) {
                gone.push(unknown(&at));
                return false;
            }
            if !matches!(below, Value::String(_)) {
                prune_at(known.field(name), below, &at, gone);
            }
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(known.items(), item, &place.index(index), gone);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unknown(place: &Place<'_>) -> String {
    format!("unknown field \"{}\"", place.path())
}

/// Each thing is told once.
fn tell(found: &mut Vec<String>, what: String) {
    if !found.contains(&what) {
        found.push(what);
    }
}

struct Look<'a, 'f> {
    place: Place<'a>,
    /// Absent where all fields are let pass.
    known: Option<Known<'a>>,
    found: &'f mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Look<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        while items
            .next_element_seed(Look {
                place: self.place.index(index),
                known: self.known.map(Known::items),
                found: self.found,
            })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let place = self.place.field(&name);
            if self.known.is_some_and(|known| !known.admits(&name)) {
                tell(self.found, unknown(&place));
                // What lies in there is nobody's affair.
                fields.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            if seen.contains(&name) {
                tell(self.found, format!("duplicate field \"{}\"", place.path()));
            }
            fields.next_value_seed(Look {
                place,
                known: self.known.map(|known| known.field(&name)),
                found: self.found,
            })?;
            seen.insert(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::topology::Topology;

    #[test]
    fn a_text_that_names_a_field_twice_says_so_and_keeps_the_last() {
        assert_eq!(
            read(br#"{"a":{"b":1,"b":2},"c":[1,-2,0.5,null,true,"x"]}"#).unwrap(),
            (json!({ "a": { "b": 2 }, "c": [1, -2, 0.5, null, true, "x"] }), true)
        );
        assert!(!read(br#"{"a":{"a":{}},"b":[{"a":1},{"a":1}]}"#).unwrap().1);
        assert!(read(b"{} {}").is_err());
    }

    #[test]
    fn twice_and_unknown_are_told_in_the_order_of_the_text_and_each_once() {
        let pods = Topology::of_builtin("v1", "Pod").unwrap();
        let text = br#"{"zz":1,"spec":{"containers":[{"name":"a","name":"b","imag":{"x":1,"x":2}}]},"zz":1,"kind":"Pod","kind":"Pod","kind":"Pod"}"#;
        assert_eq!(
            twice_or_unknown(text, pods.root()),
            [
                "unknown field \"zz\"",
                "duplicate field \"spec.containers[0].name\"",
                "unknown field \"spec.containers[0].imag\"",
                "duplicate field \"kind\"",
            ]
        );
        let mut value = read(text).unwrap().0;
        assert_eq!(
            prune(pods.root(), &mut value),
            ["unknown field \"spec.containers[0].imag\"", "unknown field \"zz\""]
        );
        assert_eq!(
            value,
            json!({ "kind": "Pod", "spec": { "containers": [{ "name": "b" }] } })
        );
    }
}
