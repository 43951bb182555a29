//! Fields that a JSON body names twice. Decides nothing else about it: a parsed value keeps the last one and tells no tale.

use std::{collections::BTreeSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::place::Place;

/// The paths of all fields that occur more than once, each once, in the order of the body.
pub fn duplicates(body: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    Look {
        place: Place::root(),
        found: &mut found,
    }
    .deserialize(&mut reader)?;
    reader.end()?;
    Ok(found)
}

struct Look<'a, 'f> {
    place: Place<'a>,
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
            if seen.contains(&name) {
                let path = place.path();
                if !self.found.contains(&path) {
                    self.found.push(path);
                }
            }
            fields.next_value_seed(Look {
                place,
                found: self.found,
            })?;
            seen.insert(name);
        }
        Ok(())
    }
}
