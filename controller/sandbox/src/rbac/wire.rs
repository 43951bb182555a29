//! Reviews in protobuf, which is how kubectl asks: it speaks JSON only where the kind may be one that it does not know.
//!
//! Decides what such a body says, as the JSON that it stands for. Numbers of fields are those of the published API; reviews are no
//! kinds that are stored, so that the table of `protobuf` does not have them.

use prost::Message;
use serde_json::{Value, json};

use crate::protobuf::Envelope;

#[derive(Message)]
struct Review {
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
}

#[derive(Message)]
struct Spec {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    path: Option<NoResource>,
}

#[derive(Message)]
struct Resource {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    verb: String,
    #[prost(string, tag = "3")]
    group: String,
    #[prost(string, tag = "5")]
    resource: String,
    #[prost(string, tag = "6")]
    subresource: String,
    #[prost(string, tag = "7")]
    name: String,
}

#[derive(Message)]
struct NoResource {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    verb: String,
}

/// Reads an access review, or another object of which nothing but the kind matters.
pub(super) fn read(envelope: &Envelope) -> Result<Value, String> {
    let mut out = envelope.object()?;
    if envelope.kind == "SelfSubjectAccessReview" {
        let review = Review::decode(envelope.raw.as_slice()).map_err(|error| error.to_string())?;
        if let Some(fields) = out.as_object_mut() {
            fields.insert("spec".to_owned(), spec(review.spec.unwrap_or_default()));
        }
    }
    Ok(out)
}

fn spec(said: Spec) -> Value {
    let mut out = json!({});
    let Some(fields) = out.as_object_mut() else { return out };
    if let Some(asked) = said.resource {
        let mut attributes = json!({
            "namespace": asked.namespace, "verb": asked.verb, "group": asked.group, "resource": asked.resource,
            "subresource": asked.subresource, "name": asked.name,
        });
        if let Some(attributes) = attributes.as_object_mut() {
            attributes.retain(|_, value| value != "");
        }
        fields.insert("resourceAttributes".to_owned(), attributes);
    }
    if let Some(asked) = said.path {
        let attributes = json!({ "path": asked.path, "verb": asked.verb });
        fields.insert("nonResourceAttributes".to_owned(), attributes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_says_in_protobuf_what_it_says_in_json() {
        let review = Review {
            spec: Some(Spec {
                resource: Some(Resource {
                    namespace: "a".to_owned(),
                    verb: "list".to_owned(),
                    resource: "pods".to_owned(),
                    ..Resource::default()
                }),
                path: None,
            }),
        };
        let mut envelope = Envelope {
            api_version: "authorization.k8s.io/v1".to_owned(),
            kind: "SelfSubjectAccessReview".to_owned(),
            raw: review.encode_to_vec(),
        };
        let expected = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "namespace": "a", "verb": "list", "resource": "pods" } },
        });
        assert_eq!(read(&envelope), Ok(expected));
        envelope.raw = b"\xff".to_vec();
        assert!(read(&envelope).is_err());
    }
}
