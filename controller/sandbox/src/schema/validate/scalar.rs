//! A value by itself: its type, its size, its spelling.

use serde_json::{Number, Value};

use crate::schema::{
    Kind, Schema,
    cause::{Cause, Reason, float_text},
    formats,
    numbers::{Num, is_whole},
    place::Place,
};

/// The value is not of the schema's type. A format's name stands for the type where the value is no text and no list.
pub(super) fn wrong_type(schema: &Schema, value: &Value, place: &Place<'_>) -> Option<Cause> {
    let kind = schema.kind?;
    let (found, found_format) = names(value);
    if value.is_null() {
        return (!schema.nullable).then(|| Cause::wrong_type(place, kind.name(), found));
    }
    let fits = is_of(kind, value);
    if fits {
        return None;
    }
    let is_text_or_list = value.is_string() || value.is_array();
    match &schema.format {
        Some(format) if !is_text_or_list => Some(Cause::wrong_type(place, format, found_format)),
        // The server leaves such a value to the check of the format, which passes over lists.
        Some(_) if !matches!(kind, Kind::Integer | Kind::Number) => None,
        Some(_) | None => Some(Cause::wrong_type(place, kind.name(), found)),
    }
}

fn is_of(kind: Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Object, Value::Object(_))
        | (Kind::Array, Value::Array(_))
        | (Kind::Text | Kind::IntOrText, Value::String(_))
        | (Kind::Number, Value::Number(_))
        | (Kind::Bool, Value::Bool(_)) => true,
        (Kind::Integer | Kind::IntOrText, Value::Number(number)) => match Num::of(number) {
            Num::Int(_) => true,
            Num::Float(float) => is_whole(float),
        },
        (Kind::Object | Kind::Array | Kind::Text | Kind::Integer | Kind::Number | Kind::Bool | Kind::IntOrText, _) => {
            false
        }
    }
}

/// The names of a value's type and of its format.
fn names(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) => match Num::of(number) {
            Num::Int(_) => ("integer", "int64"),
            Num::Float(_) => ("number", "float64"),
        },
    }
}

pub(super) fn not_allowed(schema: &Schema, value: &Value, place: &Place<'_>) -> Option<Cause> {
    if schema.allowed.is_empty() || schema.allowed.iter().any(|allowed| equal(allowed, value)) {
        return None;
    }
    Some(Cause::not_supported(place, value, &schema.allowed))
}

/// Whether the value is the allowed one once it is converted to the latter's type, which cuts fractions off.
fn equal(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Number(allowed), Value::Number(value)) => match (Num::of(allowed), Num::of(value)) {
            (Num::Int(allowed), Num::Int(value)) => allowed == value,
            (allowed @ Num::Int(_), Num::Float(value)) => allowed.as_float() == value.trunc(),
            (Num::Float(allowed), value) => allowed == value.as_float(),
        },
        _ => allowed == value,
    }
}

/// Only the first of what is wrong with a text is told, and its format.
pub(super) fn text(schema: &Schema, text: &str, place: &Place<'_>) -> Vec<Cause> {
    let value = Value::from(text);
    let length = text.chars().count() as u64;
    let mut causes = Vec::new();
    if let Some(most) = schema.bounds.max_length.filter(|most| length > *most) {
        causes.push(Cause::too_long(place, most));
    } else if let Some(least) = schema.bounds.min_length.filter(|least| length < *least) {
        causes.push(Cause::out_of_bounds(
            place,
            &value,
            &format!("should be at least {least} chars long"),
        ));
    } else if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        causes.push(Cause::out_of_bounds(
            place,
            &value,
            &format!("should match '{pattern}'"),
        ));
    }
    if let (Some(format), Some(Kind::Text)) = (&schema.format, schema.kind)
        && !formats::fits(format, text)
    {
        causes.push(Cause::wrong_type(place, format, text));
    }
    causes
}

pub(super) fn number(schema: &Schema, number: &Number, value: &Value, place: &Place<'_>) -> Vec<Cause> {
    let num = Num::of(number);
    let mut causes = Vec::new();
    causes.extend(
        schema
            .bounds
            .factor
            .and_then(|factor| not_a_multiple(num, factor, value, place)),
    );
    if let Some(most) = schema.bounds.maximum {
        let excludes = schema.bounds.excludes_maximum;
        if num.as_float() > most || (excludes && num.as_float() == most) {
            let words = if excludes { "less than" } else { "less than or equal to" };
            causes.push(Cause::out_of_bounds(
                place,
                value,
                &format!("should be {words} {}", float_text(most)),
            ));
        }
    }
    if let Some(least) = schema.bounds.minimum {
        let excludes = schema.bounds.excludes_minimum;
        if num.as_float() < least || (excludes && num.as_float() == least) {
            let words = if excludes {
                "greater than"
            } else {
                "greater than or equal to"
            };
            causes.push(Cause::out_of_bounds(
                place,
                value,
                &format!("should be {words} {}", float_text(least)),
            ));
        }
    }
    causes.extend(beyond_format(schema, num, place));
    causes
}

/// For an integer the server cuts the factor down to an integer too, and then cannot divide by what is left of 0.5.
fn not_a_multiple(num: Num, factor: f64, value: &Value, place: &Place<'_>) -> Option<Cause> {
    if matches!(num, Num::Int(_)) && factor.trunc() == 0.0 {
        let detail = format!("factor MultipleOf declared for {} must be positive: 0", place.in_body());
        return Some(Cause::with_value(Reason::Invalid, place, &Value::from(0), &detail));
    }
    let divides = match num {
        #[expect(clippy::cast_possible_truncation, reason = "as the server does it")]
        Num::Int(int) => int % (factor as i64) == 0,
        Num::Float(float) => is_whole(float / factor),
    };
    (!divides).then(|| Cause::out_of_bounds(place, value, &format!("should be a multiple of {}", float_text(factor))))
}

/// The number does not fit into what the format names.
fn beyond_format(schema: &Schema, num: Num, place: &Place<'_>) -> Option<Cause> {
    let format = schema.format.as_deref().unwrap_or_default();
    let (kind, fits) = match schema.kind? {
        Kind::Integer => {
            let (least, most) = match format {
                "int32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
                "uint32" => (0, i64::from(u32::MAX)),
                "uint64" => (0, i64::MAX),
                _ => (i64::MIN, i64::MAX),
            };
            ("integer", num.fits(least, most))
        }
        Kind::Number => (
            "number",
            format != "float" || num.as_float().abs() <= f64::from(f32::MAX),
        ),
        Kind::Object | Kind::Array | Kind::Text | Kind::Bool | Kind::IntOrText => return None,
    };
    let format = if format.is_empty() {
        "(default format)".to_owned()
    } else {
        format!("with format {format}")
    };
    let detail = format!("Checked value must be of type {kind} {format} in {}", place.in_body());
    (!fits).then(|| Cause::unplaced(place, &detail))
}
