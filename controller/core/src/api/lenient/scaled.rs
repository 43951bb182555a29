//! Numbers that are a count or a share of another number: `maxSurge`, `maxUnavailable`. Decides nothing.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A count, or a text that is expected to be a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// A plain count.
    Int(i32),
    /// A text such as `25%`, or anything else.
    Text(String),
}

/// What to do with half a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// For surge: a share of something is at least one.
    Up,
    /// For unavailability: a share never takes more than asked.
    Down,
}

/// A text that is not a percentage. A text without `%` is refused, as Kubernetes refuses it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither a number nor a percentage such as \"25%\"")]
pub struct BadPercent {
    /// The text as it stands in the object.
    pub text: String,
}

impl IntOrPercent {
    /// How many of `total` this is. Negative values come out negative; whether they make sense is the caller's question.
    pub fn resolve(&self, total: i32, rounding: Rounding) -> Result<i32, BadPercent> {
        match self {
            Self::Int(count) => Ok(*count),
            Self::Text(text) => share(text, total, rounding).ok_or_else(|| BadPercent { text: text.clone() }),
        }
    }
}

fn share(text: &str, total: i32, rounding: Rounding) -> Option<i32> {
    let percent: i32 = text.strip_suffix('%')?.parse().ok()?;
    let hundredths = i64::from(percent) * i64::from(total);
    let whole = match rounding {
        Rounding::Up => -(-hundredths).div_euclid(100),
        Rounding::Down => hundredths.div_euclid(100),
    };
    i32::try_from(whole).ok()
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(count) => count.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl JsonSchema for IntOrPercent {
    fn schema_name() -> Cow<'static, str> {
        "IntOrPercent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}
