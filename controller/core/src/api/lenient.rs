//! Scalars that accept what the CRD schemas let in. Decides nothing: a value that makes no sense stays readable as text.
//!
//! The rule for every field of ours: a value whose *type* the schema would have refused reads as absent (only an object stored under
//! another schema can hold one); a value whose *content* makes no sense is kept and reported by whoever needs it.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

pub use duration::{BadDuration, GoDuration};
pub use scaled::{BadPercent, IntOrPercent, Rounding};

mod duration;
mod scaled;

/// Reads a field; a value of a type that the schema refuses reads as the default.
pub fn field<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let raw = Value::deserialize(input)?;
    Ok(T::deserialize(raw).unwrap_or_default())
}

/// As [`field`], for objects that are kept raw: what is read is kept as it is, not read a second time.
pub fn raw<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Map<String, Value>> + Default,
{
    Ok(match Value::deserialize(input)? {
        Value::Object(fields) => T::from(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => T::default(),
    })
}

/// Reads a list entry by entry, so that one odd entry does not hide the others.
pub fn list<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(entries(Value::deserialize(input)?).unwrap_or_default())
}

/// As [`list`], for fields where "no list" and "an empty list" are different things.
pub fn optional_list<'de, D, T>(input: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(entries(Value::deserialize(input)?))
}

fn entries<T: DeserializeOwned>(raw: Value) -> Option<Vec<T>> {
    match raw {
        Value::Array(raw) => Some(raw.into_iter().filter_map(|entry| T::deserialize(entry).ok()).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}

/// Reads an integer that Go writers leave out where it is 0. A number outside of the range reads as the nearest end.
pub fn int32<'de, D: Deserializer<'de>>(input: D) -> Result<i32, D::Error> {
    Ok(clamp(integer(&Value::deserialize(input)?).unwrap_or(0)))
}

/// As [`int32`], for fields where absent and 0 are different things.
pub fn optional_int32<'de, D: Deserializer<'de>>(input: D) -> Result<Option<i32>, D::Error> {
    Ok(integer(&Value::deserialize(input)?).map(clamp))
}

/// As [`int32`], for 64 bits.
pub fn int64<'de, D: Deserializer<'de>>(input: D) -> Result<i64, D::Error> {
    Ok(integer(&Value::deserialize(input)?).unwrap_or(0))
}

fn clamp(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

/// The integer in a JSON value. `3.0` counts: JSON does not tell it from `3`, and the API server admits it.
fn integer(raw: &Value) -> Option<i64> {
    let number = raw.as_number()?;
    if let Some(whole) = number.as_i64() {
        return Some(whole);
    }
    let wide = number.as_f64()?;
    // `as` saturates, which is the wanted reading of a number beyond 64 bits.
    (wide.fract() == 0.0).then_some(wide as i64)
}

/// Gives a type a `Deserialize` that reads an absent or null value as the default. For `spec`, which the schema does not require.
/// The type derives with `#[serde(remote = "Self")]`, so that the derived code is still there to be called.
macro_rules! absent_is_default {
    ($name:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> ::serde::de::Visitor<'de> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str(concat!(stringify!($name), " or nothing"))
                    }

                    fn visit_none<E>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }

                    fn visit_unit<E>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }

                    fn visit_some<D: ::serde::Deserializer<'de>>(self, input: D) -> Result<$name, D::Error> {
                        // The inherent function that `remote = "Self"` makes, not this trait's.
                        $name::deserialize(input)
                    }
                }
                input.deserialize_option(Visitor)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, output)
            }
        }
    };
}
pub(crate) use absent_is_default;

/// An enum that is a closed list of words on the wire.
pub trait Word: Copy {
    /// The variant that a text names.
    fn parse(text: &str) -> Option<Self>;
    /// The text on the wire.
    fn as_str(self) -> &'static str;
}

/// Declares an enum whose variants are spelled on the wire as in Rust.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $crate::api::lenient::Word for $name {
            fn parse(text: &str) -> Option<Self> {
                match text {
                    $(stringify!($variant) => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str($crate::api::lenient::Word::as_str(*self))
            }
        }
    };
}
pub(crate) use words;

/// A word of a closed list, or whatever else stands there: the schemas of the original name no enums.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String", bound = "")]
pub enum Lenient<T> {
    /// A word we know.
    Known(T),
    /// Any other text, kept as it is.
    Other(String),
}

impl<T: Word> Lenient<T> {
    /// Reads a text; every text has a reading.
    pub fn from_text(text: &str) -> Self {
        T::parse(text).map_or_else(|| Self::Other(text.to_owned()), Self::Known)
    }

    /// The word, where it is one that we know.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Other(_) => None,
        }
    }

    /// The text on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Other(text) => text,
        }
    }
}

impl<T> From<T> for Lenient<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: Word> fmt::Display for Lenient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: Word> Serialize for Lenient<T> {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_str(self.as_str())
    }
}

impl<'de, T: Word> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input).map(|text| Self::from_text(&text))
    }
}

#[cfg(test)]
mod tests;
