//! Numbers as the server reads, judges and stores them: 64-bit integers, and floats for everything else.

use serde_json::{Number, Value};

/// Beyond this a float has gaps between whole numbers, and the server no longer takes it for one.
const WHOLE_UP_TO: f64 = 9_007_199_254_740_991.0;

/// A number as the server holds it after reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int(i64),
    Float(f64),
}

impl Num {
    pub(crate) fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(int) => Self::Int(int),
            None => Self::Float(number.as_f64().unwrap_or(f64::INFINITY)),
        }
    }

    pub(crate) fn as_float(self) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "bounds are compared as floats, as the server does"
            )]
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }

    /// Whether the number lies between two integers, both included, and is one itself.
    pub(crate) fn fits(self, least: i64, most: i64) -> bool {
        match self {
            Self::Int(int) => (least..=most).contains(&int),
            #[expect(
                clippy::cast_precision_loss,
                reason = "a float cannot be told apart more finely than that"
            )]
            Self::Float(float) => float.fract() == 0.0 && (least as f64..most as f64).contains(&float),
        }
    }
}

/// Whether a float is a whole number and known to be exact.
pub(crate) fn is_whole(float: f64) -> bool {
    float.abs() <= WHOLE_UP_TO && float.fract() == 0.0
}

/// Turns whole floats into integers, which is what is left of them once they were stored.
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let (None, Some(float)) = (number.as_i64(), number.as_f64())
                && float.fract() == 0.0
                && float.abs() < 9.2e18
            {
                #[expect(clippy::cast_possible_truncation, reason = "whole and within 64 bits, as just seen")]
                let int = float as i64;
                *number = Number::from(int);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(fields) => fields.values_mut().for_each(settle_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
