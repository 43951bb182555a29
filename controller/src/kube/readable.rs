//! An object as a watch brings it: readable as its kind, or at least by its metadata.
//!
//! Without this, one object of a shape that we do not know fails the whole list and the watch never starts.
//! kube's own guard would do, but it asks for whole objects where only metadata is wanted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::bare::{Bare, asked_for_as};

/// One object of a list or a watch.
#[derive(Clone, Debug)]
pub enum Readable<K> {
    /// It is what it should be.
    Yes(K),
    /// It is not.
    No(Box<Unreadable>),
}

/// What is known of an object that cannot be read as its kind.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Its metadata, which has one shape for all kinds.
    pub metadata: ObjectMeta,
    /// What was wrong.
    pub error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Bare(value) = Bare::<Value>::deserialize(deserializer)?;
        let error = match K::deserialize(&value) {
            Ok(object) => return Ok(Self::Yes(object)),
            Err(error) => error.to_string(),
        };
        let metadata = value
            .get("metadata")
            .ok_or_else(|| de::Error::missing_field("metadata"))?;
        let metadata = ObjectMeta::deserialize(metadata).map_err(de::Error::custom)?;
        Ok(Self::No(Box::new(Unreadable { metadata, error })))
    }
}

impl<K: Resource> Resource for Readable<K> {
    asked_for_as!(K);

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Yes(object) => object.meta(),
            Self::No(bad) => &bad.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Yes(object) => object.meta_mut(),
            Self::No(bad) => &mut bad.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::ResourceExt as _;
    use kube::core::PartialObjectMeta;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_another_shape_still_has_its_name() {
        let bad = json!({"metadata": {"name": "a"}, "data": "no map"});
        let read: Readable<ConfigMap> = serde_json::from_value(bad).unwrap();

        assert_eq!(read.name_any(), "a");
        assert!(matches!(read, Readable::No(bad) if bad.error.contains("no map")));
    }

    #[test]
    fn an_object_of_the_right_shape_is_read() {
        let good = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        assert!(matches!(
            serde_json::from_value(good).unwrap(),
            Readable::<ConfigMap>::Yes(_)
        ));
    }

    #[test]
    fn what_is_wanted_by_metadata_is_asked_for_by_metadata() {
        assert!(Readable::<PartialObjectMeta<Secret>>::metadata_api());
        assert!(!Readable::<Secret>::metadata_api());
    }
}
