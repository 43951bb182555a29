//! Which `providerSpec` can travel to a driver, and the digest that tells two specs apart.
//!
//! Decides what the Driver API cannot carry without loss (CL-3): integers that a double does not
//! hold, specs over the size limit, nesting that protobuf decoders refuse. Never looks at what a spec means: that is
//! the driver's.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::ids::DriverName;
use crate::status::is_unseen;

/// Most bytes of a `providerSpec` as compact JSON.
pub const MAX_BYTES: usize = 256 * 1024;

/// Deepest nesting of objects and lists. Protobuf decoders stop at 100 nested messages, and an object inside a `Struct`
/// costs three: without this guard the driver's decoder would refuse the whole request as broken.
pub const MAX_DEPTH: usize = 30;

/// Most bytes of a `providerSpec` that a Machine keeps for the life of its VM, and the longest text in one with more.
const KEPT_BYTES: usize = 4 * 1024;
const KEPT_TEXT: usize = 256;

/// Largest integer, either sign, that a double holds together with its neighbours: 2^53 − 1.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Why a `providerSpec` cannot be sent to a driver. Its text follows the word "providerSpec".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An integer would arrive as another number.
    #[error("the integer at {pointer} is outside -(2^53-1) .. 2^53-1; write it as a string")]
    IntegerTooLarge {
        /// RFC 6901 pointer of the place.
        pointer: String,
    },
    /// The spec is longer than a driver takes.
    #[error("it has {bytes} bytes as JSON, more than the {limit} that a driver accepts")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The spec is nested deeper than protobuf decoders follow.
    #[error("it is nested deeper than {limit} levels at {pointer}")]
    TooDeep {
        /// RFC 6901 pointer of the place.
        pointer: String,
        /// The limit.
        limit: usize,
    },
    /// The spec is a list, a string, …
    #[error("it is {found}, not an object")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
}

/// Whether the spec can travel to a driver without loss. Absent (`null`) counts as an empty object.
pub fn check(spec: &Value) -> Result<(), SpecError> {
    let found = match spec {
        Value::Object(_) | Value::Null => None,
        Value::Bool(_) => Some("a boolean"),
        Value::Number(_) => Some("a number"),
        Value::String(_) => Some("a string"),
        Value::Array(_) => Some("a list"),
    };
    if let Some(found) = found {
        return Err(SpecError::NotAnObject { found });
    }
    check_inside(spec, &mut Vec::new())?;
    let (bytes, limit) = (canonical(spec).len(), MAX_BYTES);
    match bytes > limit {
        true => Err(SpecError::TooLarge { bytes, limit }),
        false => Ok(()),
    }
}

/// Checks numbers and depth below one value. `path` is the way from the root to it.
fn check_inside(value: &Value, path: &mut Vec<String>) -> Result<(), SpecError> {
    let is_container = value.is_object() || value.is_array();
    if is_container && path.len() >= MAX_DEPTH {
        return Err(SpecError::TooDeep {
            pointer: pointer(path),
            limit: MAX_DEPTH,
        });
    }
    match value {
        Value::Number(number) if !fits_a_double(number) => Err(SpecError::IntegerTooLarge { pointer: pointer(path) }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| below(item, index.to_string(), path)),
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(name, field)| below(field, name.clone(), path)),
    }
}

/// [`check_inside`] one step further down.
fn below(value: &Value, step: String, path: &mut Vec<String>) -> Result<(), SpecError> {
    path.push(step);
    check_inside(value, path)?;
    path.pop();
    Ok(())
}

/// Whether the number arrives unchanged. An integer beyond 64 bits has already become a double when JSON was read, so an
/// integral double beyond the limit is refused like an integer.
fn fits_a_double(number: &serde_json::Number) -> bool {
    if let Some(signed) = number.as_i64() {
        return signed.unsigned_abs() <= MAX_INTEGER;
    }
    if number.is_u64() {
        return false;
    }
    number
        .as_f64()
        .is_some_and(|double| double.fract() != 0.0 || double.abs() <= MAX_INTEGER as f64)
}

/// RFC 6901 text of a path.
fn pointer(path: &[String]) -> String {
    path.iter()
        .map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1")))
        .collect()
}

/// `spec_digest` of a create request: SHA-256, lower-case hex, of everything that the user chose for the VM. Two requests
/// with one digest ask for the same VM. Taken from canonical JSON because a `Struct` loses `1` versus `1.0`.
pub fn digest(class_name: &str, provider: &DriverName, spec: &Value, user_data_template: &[u8]) -> String {
    let mut sha = Sha256::new();
    for part in [
        class_name.as_bytes(),
        provider.as_str().as_bytes(),
        canonical(spec).as_bytes(),
        user_data_template,
    ] {
        // The length before each part: no two different requests make the same stream of bytes.
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    hex(&sha.finalize())
}

/// Bytes in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a Machine keeps of the spec that its VM was asked for with: all of it, and of one that is too long as much as fits, without long
/// texts and from the outside in. Fields without a value are left out, as a merge patch cannot store them.
pub fn essentials(spec: &Value) -> Value {
    let fits = |kept: &Value| canonical(kept).len() <= KEPT_BYTES;
    let cuts = (1..=MAX_DEPTH).rev().map(|depth| (depth, KEPT_TEXT));
    let mut kept = std::iter::once((MAX_DEPTH, usize::MAX))
        .chain(cuts)
        .filter_map(|(depth, text)| cut(spec, depth, text));
    kept.find(fits).unwrap_or_else(|| {
        let mut fields: Vec<_> = spec.as_object().into_iter().flatten().collect();
        fields.sort_by_key(|(_, value)| canonical(value).len());
        let mut kept = serde_json::Map::new();
        for (name, value) in fields
            .into_iter()
            .filter(|(_, value)| !value.is_object() && !value.is_array())
        {
            let mut more = kept.clone();
            more.insert(name.clone(), value.clone());
            if fits(&Value::Object(more.clone())) {
                kept = more;
            }
        }
        Value::Object(kept)
    })
}

/// What a driver says of where its VMs are, as it is stored: without fields that have no value, with whole numbers alone, so that it
/// comes back from the API server as it was, and with texts that a terminal shows as they are.
pub fn locator(told: &Value) -> Result<Value, String> {
    check(told).map_err(|error| error.to_string())?;
    let kept = cut(&storable(told)?, MAX_DEPTH, usize::MAX).unwrap_or_default();
    match canonical(&kept).len() {
        ..=KEPT_BYTES => Ok(kept),
        bytes => Err(format!("it has {bytes} bytes as JSON; at most {KEPT_BYTES} are kept")),
    }
}

/// Numbers travel as doubles. The API server stores those without a fraction as integers; a fraction may come back as its neighbour.
fn storable(value: &Value) -> Result<Value, String> {
    let seen = |text: &String| match text.contains(is_unseen) {
        true => Err("a text holds a control character".to_owned()),
        false => Ok(text.clone()),
    };
    match value {
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|number| number.fract() == 0.0 && number.abs() <= MAX_INTEGER as f64);
            let whole = whole.map(|whole| Value::from(whole as i64));
            whole.ok_or_else(|| format!("the number {number} is not a whole one: write it as a text"))
        }
        Value::Array(items) => items.iter().map(storable).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| Ok((seen(name)?, storable(field)?)));
            fields.collect::<Result<_, String>>().map(Value::Object)
        }
        Value::String(text) => seen(text).map(Value::String),
        Value::Null | Value::Bool(_) => Ok(value.clone()),
    }
}

/// The value to that depth, without longer texts.
fn cut(value: &Value, depth: usize, longest: usize) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.len() > longest => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
        Value::Array(_) | Value::Object(_) if depth == 0 => None,
        Value::Array(items) => Some(items.iter().filter_map(|item| cut(item, depth - 1, longest)).collect()),
        Value::Object(fields) => {
            let kept = |(name, field): (&String, &Value)| Some((name.clone(), cut(field, depth - 1, longest)?));
            Some(Value::Object(fields.iter().filter_map(kept).collect()))
        }
    }
}

/// Compact JSON with sorted keys. Sorted here and not by `serde_json`: its maps keep the order of insertion as soon as
/// any crate of the build turns that feature on.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

/// Appends one value. Text and numbers are written as `serde_json` writes them.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| name.as_str());
            text.push('{');
            for (index, (name, field)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(field, text);
            }
            text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_that_a_double_holds_pass_and_their_neighbours_do_not() {
        for fine in [
            json!(9_007_199_254_740_991_u64),
            json!(-9_007_199_254_740_991_i64),
            json!(0.5),
            json!(1e-300),
        ] {
            assert_eq!(check(&json!({ "n": fine })), Ok(()), "{fine}");
        }
        for wrong in [
            json!(9_007_199_254_740_992_u64),
            json!(-9_007_199_254_740_992_i64),
            json!(u64::MAX),
            json!(i64::MIN),
        ] {
            assert_eq!(
                check(&json!({ "n": wrong })),
                Err(SpecError::IntegerTooLarge { pointer: "/n".into() }),
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_integer_beyond_64_bits_is_refused_though_json_reads_it_as_a_double() {
        let spec: Value = serde_json::from_str(r#"{"n": 100000000000000000000}"#).expect("it is JSON");
        assert_eq!(check(&spec), Err(SpecError::IntegerTooLarge { pointer: "/n".into() }));
    }

    #[test]
    fn the_pointer_names_the_place_by_rfc_6901() {
        let spec = json!({ "disks": [{ "a/b~c": 1 }, { "a/b~c": u64::MAX }] });
        let Err(error) = check(&spec) else {
            panic!("the integer is too large")
        };
        assert_eq!(
            error,
            SpecError::IntegerTooLarge {
                pointer: "/disks/1/a~1b~0c".into()
            }
        );
        assert!(
            error
                .to_string()
                .starts_with("the integer at /disks/1/a~1b~0c is outside "),
            "{error}"
        );
    }

    #[test]
    fn a_spec_of_300_kib_is_refused_with_both_numbers() {
        let spec = json!({ "blob": "x".repeat(300 * 1024) });
        let error = SpecError::TooLarge {
            bytes: 300 * 1024 + r#"{"blob":""}"#.len(),
            limit: 262_144,
        };
        assert_eq!(check(&spec), Err(error));
        let brim = MAX_BYTES - r#"{"blob":""}"#.len();
        assert_eq!(check(&json!({ "blob": "x".repeat(brim) })), Ok(()));
        assert!(check(&json!({ "blob": "x".repeat(brim + 1) })).is_err());
    }

    #[test]
    fn only_objects_and_nothing_at_all_are_specs() {
        assert_eq!(check(&json!({})), Ok(()));
        assert_eq!(check(&Value::Null), Ok(()));
        for wrong in [json!([]), json!("text"), json!(1), json!(true)] {
            assert!(matches!(check(&wrong), Err(SpecError::NotAnObject { .. })), "{wrong}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        let Err(SpecError::TooDeep { pointer, limit }) = check(&nested(MAX_DEPTH + 1)) else {
            panic!("too deep")
        };
        assert_eq!((pointer.len(), limit), (2 * MAX_DEPTH, MAX_DEPTH));
    }

    #[test]
    fn of_a_spec_that_is_too_long_what_stands_outside_is_kept_and_a_long_text_is_not() {
        let whole = json!({ "location": { "region": "a", "zones": ["a1"] }, "count": 3 });
        assert_eq!(essentials(&whole), whole);
        assert_eq!(essentials(&Value::Null), json!({}));
        let script = json!({ "location": { "region": "a" }, "script": "x".repeat(5000) });
        assert_eq!(essentials(&script), json!({ "location": { "region": "a" } }));
        let many: Vec<_> = (0..2000).collect();
        let deep = json!({ "location": { "region": "a", "numbers": many }, "count": 3 });
        assert_eq!(essentials(&deep), json!({ "location": { "region": "a" }, "count": 3 }));
        let wide: serde_json::Map<_, _> = (0..100)
            .map(|n| (format!("field{n}"), json!("x".repeat(200))))
            .chain([("region".to_owned(), json!("a"))])
            .collect();
        let kept = essentials(&Value::Object(wide));
        assert_eq!(kept["region"], json!("a"));
        assert!(canonical(&kept).len() <= KEPT_BYTES);
    }

    /// Stored as tags on VMs: another value here means that every running VM looks changed.
    #[test]
    fn digests_are_as_they_were_when_the_first_vm_was_tagged() {
        let provider = DriverName::new("virtual");
        let spec = json!({ "zone": "a", "instanceType": "small", "disks": [{ "size": 10, "ratio": 1.0 }] });
        assert_eq!(
            digest("c", &provider, &spec, b"#cloud-config"),
            "357754a61151e56f031ed87ff84a815d7277df5875a76711de068288bcaf6a94"
        );
        assert_eq!(
            digest("c", &provider, &json!({}), b""),
            "92ac2050d05e6c2260c5b82e4a0d214d17572188b6393d8a425db3102496abc9"
        );
    }

    #[test]
    fn every_part_counts_and_none_runs_into_the_next() {
        let provider = DriverName::new("virtual");
        let base = digest("c", &provider, &json!({ "n": 1 }), b"x");
        assert_ne!(base, digest("d", &provider, &json!({ "n": 1 }), b"x"));
        assert_ne!(base, digest("c", &DriverName::new("aws"), &json!({ "n": 1 }), b"x"));
        assert_ne!(base, digest("c", &provider, &json!({ "n": 1.0 }), b"x"));
        assert_ne!(base, digest("c", &provider, &json!({ "n": 1 }), b"y"));
        assert_ne!(
            digest("ab", &DriverName::new("c"), &json!({}), b""),
            digest("a", &DriverName::new("bc"), &json!({}), b"")
        );
    }

    #[test]
    fn the_order_of_keys_does_not_count() {
        let one: Value = serde_json::from_str(r#"{"b":{"y":1,"x":2},"a":3}"#).expect("it is JSON");
        let other: Value = serde_json::from_str(r#"{"a":3,"b":{"x":2,"y":1}}"#).expect("it is JSON");
        assert_eq!(canonical(&one), r#"{"a":3,"b":{"x":2,"y":1}}"#);
        assert_eq!(canonical(&one), canonical(&other));
    }
}
