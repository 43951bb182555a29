//! What is wrong with a field, in the server's words, and what a validation comes to. Decides wording only.

use std::fmt;

use serde_json::Value;

use super::place::Place;

/// Why a field was refused. The name on the wire is [`Reason::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Required,
    Duplicate,
    Invalid,
    TypeInvalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
}

impl Reason {
    /// As `metav1.StatusCause.reason` carries it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    /// How a cause's message begins.
    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// Whether rules are left unasked when a schema error of this sort was found: they might stumble over such a value.
    pub(crate) fn blocks_rules(self) -> bool {
        match self {
            Self::Required | Self::NotSupported | Self::TooLong | Self::TooMany | Self::TypeInvalid => true,
            Self::Duplicate | Self::Invalid | Self::Forbidden => false,
        }
    }
}

/// One thing that is wrong, as `status.details.causes` tells it. As text it is what the Status message says of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    pub reason: Reason,
    pub message: String,
    pub field: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.message)
    }
}

impl Cause {
    pub(crate) fn required(place: &Place<'_>) -> Self {
        Self {
            reason: Reason::Required,
            message: Reason::Required.words().to_owned(),
            field: place.path(),
        }
    }

    /// The value is of another type than asked for; what it is, is told instead of the value.
    pub(crate) fn wrong_type(place: &Place<'_>, wanted: &str, found: &str) -> Self {
        let detail = format!("{} in body must be of type {wanted}: \"{found}\"", place.in_body());
        Self::with_value(Reason::TypeInvalid, place, &Value::from(found), &detail)
    }

    /// "Invalid value: VALUE: PATH in body DETAIL".
    pub(crate) fn out_of_bounds(place: &Place<'_>, value: &Value, detail: &str) -> Self {
        let detail = format!("{} in body {detail}", place.in_body());
        Self::with_value(Reason::Invalid, place, value, &detail)
    }

    pub(crate) fn with_value(reason: Reason, place: &Place<'_>, value: &Value, detail: &str) -> Self {
        let detail = if detail.is_empty() {
            String::new()
        } else {
            format!(": {detail}")
        };
        Self {
            reason,
            message: format!("{}: {}{detail}", reason.words(), shown(value)),
            field: place.path(),
        }
    }

    /// Without the value: there is none to show, or it is too large to be shown.
    pub(crate) fn bare(reason: Reason, field: String, detail: &str) -> Self {
        let message = match reason {
            Reason::Duplicate => reason.words().to_owned(),
            _ => format!("{}: {detail}", reason.words()),
        };
        Self { reason, message, field }
    }

    /// An error that the server does not place more exactly than what was judged.
    pub(crate) fn unplaced(place: &Place<'_>, detail: &str) -> Self {
        Self {
            reason: Reason::Invalid,
            message: format!("Invalid value: \"\": {detail}"),
            field: place.base_path(),
        }
    }

    pub(crate) fn too_long(place: &Place<'_>, most: u64) -> Self {
        Self {
            reason: Reason::TooLong,
            message: format!("Too long: may not be more than {most} bytes"),
            field: place.path(),
        }
    }

    pub(crate) fn too_many(place: &Place<'_>, found: usize, most: u64) -> Self {
        let message = format!("Too many: {found}: must have at most {most} items");
        Self {
            reason: Reason::TooMany,
            message,
            field: place.path(),
        }
    }

    pub(crate) fn not_supported(place: &Place<'_>, value: &Value, allowed: &[Value]) -> Self {
        let allowed: Vec<String> = allowed
            .iter()
            .map(|one| quoted(&one.as_str().map_or_else(|| one.to_string(), str::to_owned)))
            .collect();
        let detail = format!("supported values: {}", allowed.join(", "));
        Self::with_value(Reason::NotSupported, place, value, &detail)
    }
}

/// What came of a validation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the object is refused; nothing if it is not.
    pub causes: Vec<Cause>,
    /// What is told to the author nevertheless: rules that an unchanged value has broken before.
    pub warnings: Vec<String>,
}

/// A value as messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) => float_text(float),
            _ => number.to_string(),
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A text in double quotes. JSON's escapes are the server's for all that names and values are made of.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A float as the server prints it: shortest, with an exponent from 1e21 on and below 1e-4.
pub(crate) fn float_text(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{float:e}");
        return match text.split_once('e') {
            Some((digits, power)) => match power.strip_prefix('-') {
                Some(power) => format!("{digits}e-{power:0>2}"),
                None => format!("{digits}e+{power:0>2}"),
            },
            None => text,
        };
    }
    format!("{float}")
}
