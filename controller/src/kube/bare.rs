//! An object as the API server sends it, read without its `managedFields`.
//!
//! Who wrote which field is most of a small object's text, and no plan reads it: the store cuts it off before it keeps anything.
//! Here it is passed over while the text is read, so that it costs neither memory nor a second look. Decides nothing else.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};

/// An object that was read without its `managedFields`.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Bare<K>(pub K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Bare<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(Object(deserializer)).map(Self)
    }
}

/// What asks for objects of a kind asks for them in this form in the same way.
macro_rules! asked_for_as {
    ($kind:ident) => {
        type DynamicType = $kind::DynamicType;
        type Scope = $kind::Scope;

        fn metadata_api() -> bool {
            $kind::metadata_api()
        }

        fn kind(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::kind(kind)
        }

        fn group(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::group(kind)
        }

        fn version(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::version(kind)
        }

        fn plural(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::plural(kind)
        }
    };
}
pub(super) use asked_for_as;

impl<K: Resource> Resource for Bare<K> {
    asked_for_as!(K);

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// The name of a field; borrowed unless it is written with escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Hands on the name of a field that was read to see which it is.
fn hand<'de, S, E>(Key(name): Key<'de>, seed: S) -> Result<S::Value, E>
where
    S: DeserializeSeed<'de>,
    E: de::Error,
{
    match name {
        Cow::Borrowed(name) => seed.deserialize(BorrowedStrDeserializer::new(name)),
        Cow::Owned(name) => seed.deserialize(name.into_deserializer()),
    }
}

/// Stands between an object and what reads it: the source, its visitor, or the seed of a field.
struct Object<T>(T);

/// The same for the object's metadata, the one place where something is passed over.
struct Metadata<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Object<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Object(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Object<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(ObjectFields {
            fields,
            at_metadata: false,
        })
    }
}

struct ObjectFields<A> {
    fields: A,
    at_metadata: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ObjectFields<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(field) = self.fields.next_key::<Key<'de>>()? else {
            return Ok(None);
        };
        self.at_metadata = field.0 == "metadata";
        hand(field, seed).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.at_metadata {
            self.fields.next_value_seed(Metadata(seed))
        } else {
            self.fields.next_value_seed(seed)
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Metadata<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Metadata(deserializer))
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Metadata<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Metadata(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Metadata(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Metadata<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Metadata(deserializer))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(MetadataFields(fields))
    }
}

struct MetadataFields<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for MetadataFields<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        while let Some(field) = self.0.next_key::<Key<'de>>()? {
            if field.0 != "managedFields" {
                return hand(field, seed).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde_json::{Value, json};

    use super::*;

    fn written_by_many() -> Value {
        json!({
            "data": {"managedFields": "v", "metadata": "w"},
            "metadata": {
                "name": "a",
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:k": {}}}}],
                "labels": {"managedFields": "mine"},
            },
        })
    }

    #[test]
    fn who_wrote_which_field_is_passed_over_and_all_else_is_read() {
        let Bare(read) = serde_json::from_str::<Bare<ConfigMap>>(&written_by_many().to_string()).unwrap();

        let mut whole: ConfigMap = serde_json::from_value(written_by_many()).unwrap();
        assert!(whole.metadata.managed_fields.take().is_some());
        assert_eq!(read, whole);
    }

    #[test]
    fn a_field_of_that_name_elsewhere_is_a_field_like_any_other() {
        let Bare(read) = serde_json::from_value::<Bare<Value>>(written_by_many()).unwrap();

        assert_eq!(read["data"]["managedFields"], "v");
        assert_eq!(read["metadata"]["labels"]["managedFields"], "mine");
        assert_eq!(read["metadata"].get("managedFields"), None);
    }

    #[test]
    fn an_object_without_metadata_or_with_none_is_read_as_it_would_be() {
        for text in [r#"{"spec": {"podCIDR": "c"}}"#, r#"{"metadata": null}"#] {
            let Bare(read) = serde_json::from_str::<Bare<Node>>(text).unwrap();
            assert_eq!(read, serde_json::from_str::<Node>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_in_the_same_words() {
        for text in ["3", r#"{"metadata": 3}"#, r#"{"metadata": {"name": 3}}"#] {
            let refused = serde_json::from_str::<Bare<ConfigMap>>(text).unwrap_err();
            let plainly = serde_json::from_str::<ConfigMap>(text).unwrap_err();
            assert_eq!(refused.to_string(), plainly.to_string(), "{text}");
        }
    }
}
