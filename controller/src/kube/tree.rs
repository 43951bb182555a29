//! JSON as a tree that borrows from its text: what is looked at twice without being parsed twice.
//!
//! `serde_json::Value` does the same and owns every text and sorts every object; where a tree lives only until it is read, that is most
//! of the work. Decides nothing.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::Number;

/// One value.
#[derive(Clone, Debug)]
pub enum Tree<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<Tree<'a>>),
    /// An object, its fields as they stand.
    Object(Vec<(Key<'a>, Tree<'a>)>),
}

/// The name of a field; borrowed unless it is written with escapes.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Key<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Tree<'_> {
    /// The field of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(key, _)| key.0 == name).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Tree<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Growth)
    }
}

struct Growth;

impl<'de> Visitor<'de> for Growth {
    type Value = Tree<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Tree<'de>, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Tree<'de>, E> {
        Ok(Tree::Bool(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree<'de>, E> {
        Ok(Tree::Number(Number::from(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree<'de>, E> {
        Ok(Tree::Number(Number::from(number)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Tree<'de>, E> {
        Ok(Number::from_f64(number).map_or(Tree::Null, Tree::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Tree<'de>, E> {
        Ok(Tree::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Tree<'de>, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<Tree<'de>, E> {
        Ok(Tree::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Tree<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element()? {
            list.push(entry);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Object(fields))
    }
}

/// Reads as the text would: the errors are serde_json's, so that they say the same.
impl<'de> Deserializer<'de> for &'de Tree<'_> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(flag) => visitor.visit_bool(*flag),
            Tree::Number(number) => number.deserialize_any(visitor),
            Tree::Text(text) => visitor.visit_borrowed_str(text),
            Tree::List(entries) => {
                let mut entries = SeqDeserializer::new(entries.iter());
                let read = visitor.visit_seq(&mut entries)?;
                entries.end().map(|()| read)
            }
            Tree::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (key.0.as_ref(), value));
                visitor.visit_map(MapDeserializer::new(fields))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Tree::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self {
            Tree::Text(text) => text
                .as_ref()
                .into_deserializer()
                .deserialize_enum(name, variants, visitor),
            _ => Err(de::Error::custom("no kind that is watched has variants with fields")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for &'de Tree<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;

    /// Reads by way of both trees, which must say the same.
    fn both<T: DeserializeOwned + PartialEq + fmt::Debug>(text: &str) {
        let tree: Tree<'_> = serde_json::from_str(text).unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        match (T::deserialize(&tree), T::deserialize(&value)) {
            (Ok(one), Ok(other)) => assert_eq!(one, other, "{text}"),
            (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string(), "{text}"),
            (one, other) => panic!("{text}: {one:?} but {other:?}"),
        }
    }

    #[test]
    fn every_value_is_the_one_that_was_written() {
        both::<Value>(
            r#"{"a": [null, true, 0, 7, -7, 18446744073709551615, 1.5, 1e3, "t", "\"\u00e9\n"], "b\u0062": {}, "c": []}"#,
        );
    }

    #[test]
    fn an_object_is_read_as_from_the_tree_that_owns_its_texts() {
        both::<ConfigMap>(r#"{"metadata": {"name": "a", "labels": {"\"k\"": "v"}}, "immutable": true, "data": null}"#);
        both::<Node>(
            r#"{"metadata": {"generation": 3}, "spec": {"podCIDRs": ["c"]}, "status": {"images": [{"sizeBytes": 1}]}}"#,
        );
    }

    #[test]
    fn what_is_wrong_with_an_object_is_said_in_the_same_words() {
        both::<ConfigMap>(r#"{"metadata": {}, "data": "no map"}"#);
        both::<ConfigMap>(r#"{"metadata": {"generation": "x"}}"#);
        both::<ConfigMap>(r#"{"metadata": {"generation": 1.5}}"#);
        both::<ConfigMap>(r#"{"metadata": {"labels": {"a": null}}}"#);
        both::<ConfigMap>(r#"{"metadata": {"finalizers": {}}}"#);
        both::<ConfigMap>("[1]");
    }
}
