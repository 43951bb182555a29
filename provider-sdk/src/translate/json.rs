//! `google.protobuf.Struct` to JSON and back.
//!
//! The wire has only doubles, and serde refuses 100.0 for a `u32`: an integral number within the range that doubles
//! hold exactly becomes an integer again.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as Wire};
use serde_json::{Map, Number, Value};

/// 2^53 - 1: beyond it a double may stand for several integers.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// The object as JSON; `None` if it holds a number that JSON cannot say (NaN, infinity).
pub(crate) fn json_object(object: &Struct) -> Option<Map<String, Value>> {
    let fields = object.fields.iter();
    fields.map(|(key, value)| Some((key.clone(), json(value)?))).collect()
}

fn json(value: &Wire) -> Option<Value> {
    Some(match &value.kind {
        // A value without a kind is what a sender makes that knows a kind we do not.
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        Some(Kind::NumberValue(value)) => Value::Number(number(*value)?),
        Some(Kind::StringValue(value)) => Value::String(value.clone()),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(json).collect::<Option<_>>()?),
        Some(Kind::StructValue(object)) => Value::Object(json_object(object)?),
    })
}

fn number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() <= EXACT_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "integral and within 2^53")]
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

/// A JSON object for the wire; anything but an object is `None`.
pub(super) fn wire_object(value: &Value) -> Option<Struct> {
    value.as_object().map(wire_fields)
}

/// The fields of a JSON object for the wire.
pub(super) fn wire_fields(object: &Map<String, Value>) -> Struct {
    Struct {
        fields: object.iter().map(|(key, value)| (key.clone(), wire(value))).collect(),
    }
}

fn wire(value: &Value) -> Wire {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        // Every JSON number has a nearest double; serde_json has no other kind without its own feature for it.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(value) => Kind::StringValue(value.clone()),
        Value::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(wire).collect(),
        }),
        Value::Object(object) => Kind::StructValue(wire_fields(object)),
    };
    Wire { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_survive_the_way_through_doubles() {
        let spec = json!({"n": 100, "big": 9_007_199_254_740_991_i64, "neg": -3, "half": 0.5, "zero": 0});
        let back = Value::Object(json_object(&wire_object(&spec).unwrap()).unwrap());
        assert_eq!(back, spec);
        assert!(back["n"].is_u64() && back["half"].is_f64());
    }

    #[test]
    fn structure_survives_the_way_through_the_wire() {
        let spec = json!({"a": [true, null, {"b": "c"}, []], "o": {}});
        let back = json_object(&wire_object(&spec).unwrap());
        assert_eq!(back.as_ref(), spec.as_object());
    }

    #[test]
    fn numbers_that_json_cannot_say_are_refused() {
        for bad in [f64::NAN, f64::INFINITY] {
            let value = Wire {
                kind: Some(Kind::NumberValue(bad)),
            };
            let object = Struct {
                fields: [("deep".to_owned(), value)].into(),
            };
            assert_eq!(json_object(&object), None);
        }
    }

    #[test]
    fn only_an_object_is_a_struct() {
        assert!(wire_object(&json!([1])).is_none());
        assert!(wire_object(&Value::Null).is_none());
    }
}
