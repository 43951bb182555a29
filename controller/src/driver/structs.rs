//! JSON into `google.protobuf.Struct`. What may travel at all is decided in `millwright_core::provider_spec`.

use millwright_core::provider_spec::{self, SpecError};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

/// A `providerSpec` as it travels, if it can. Absent (`null`) is an empty object.
pub(super) fn provider_spec(spec: &serde_json::Value) -> Result<Struct, SpecError> {
    provider_spec::check(spec)?;
    match value(spec).kind {
        Some(Kind::StructValue(fields)) => Ok(fields),
        _ => Ok(Struct::default()),
    }
}

/// A `google.protobuf.Struct` as JSON. A number that JSON does not have, as NaN, becomes null.
pub(super) fn json(fields: Struct) -> serde_json::Value {
    let object = fields.fields.into_iter().map(|(name, field)| (name, json_value(field)));
    serde_json::Value::Object(object.collect())
}

fn json_value(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(flag)) => flag.into(),
        Some(Kind::NumberValue(number)) => number.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json_value).collect(),
        Some(Kind::StructValue(fields)) => json(fields),
    }
}

/// One value. Numbers become doubles: the check has seen to it that they are the same numbers.
fn value(json: &serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(prost_types::NullValue::NullValue.into()),
        serde_json::Value::Bool(flag) => Kind::BoolValue(*flag),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(value).collect(),
        }),
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields
                .iter()
                .map(|(name, field)| (name.clone(), value(field)))
                .collect(),
        }),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use millwright_core::provider_spec::MAX_DEPTH;
    use millwright_proto::v1;
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_value_travels() {
        let spec = json!({ "a": null, "b": true, "c": 100, "d": 0.5, "e": "text", "f": [1, "x", {}], "g": { "h": -9_007_199_254_740_991_i64 } });
        let sent = provider_spec(&spec).expect("it can travel");
        let number = |n: f64| Value {
            kind: Some(Kind::NumberValue(n)),
        };
        assert_eq!(sent.fields["c"], number(100.0));
        assert_eq!(sent.fields["d"], number(0.5));
        assert_eq!(sent.fields["a"].kind, Some(Kind::NullValue(0)));
        let Some(Kind::StructValue(inner)) = &sent.fields["g"].kind else {
            panic!("an object")
        };
        assert_eq!(inner.fields["h"], number(-9_007_199_254_740_991.0));
        let Some(Kind::ListValue(list)) = &sent.fields["f"].kind else {
            panic!("a list")
        };
        assert_eq!(list.values.len(), 3);
        assert_eq!(provider_spec(&serde_json::Value::Null), Ok(Struct::default()));
    }

    /// The reason for `MAX_DEPTH`: a spec at the limit is decoded inside the largest request, and the limit is not
    /// chosen far too low.
    #[test]
    fn the_deepest_spec_that_is_accepted_can_be_decoded() {
        let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        let request = |spec: Struct| v1::CreateMachineRequest {
            machine_class: Some(v1::MachineClass {
                provider_spec: Some(spec),
                ..Default::default()
            }),
            ..Default::default()
        };
        let bytes = request(provider_spec(&nested(MAX_DEPTH)).expect("at the limit")).encode_to_vec();
        assert!(v1::CreateMachineRequest::decode(bytes.as_slice()).is_ok());
        let Some(Kind::StructValue(deeper)) = value(&nested(MAX_DEPTH + 5)).kind else {
            panic!("an object")
        };
        let bytes = request(deeper).encode_to_vec();
        assert!(v1::CreateMachineRequest::decode(bytes.as_slice()).is_err());
    }
}
