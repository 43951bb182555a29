//! Go's duration text, which the API uses for every span of time. Decides nothing.

use std::fmt;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration as it is stored: `5m0s`, `1.5h`, `-2s`, or any other text, because the schema is a plain string.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GoDuration(String);

/// A text that is no span of time. Each carries the text as it stands in the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    /// Not a Go duration.
    #[error("{0:?} is not a duration such as \"90s\", \"10m\" or \"1h30m\"")]
    Unread(String),
    /// A Go duration below zero: what takes less than no time cannot be waited for.
    #[error("{0:?} is negative: it must be a duration such as \"90s\", or \"0\" for at once")]
    Negative(String),
}

impl GoDuration {
    /// Keeps the text as it is.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What the text means. Never negative.
    pub fn get(&self) -> Result<SignedDuration, BadDuration> {
        let span = parse(&self.0).ok_or_else(|| BadDuration::Unread(self.0.clone()))?;
        if span.is_negative() {
            return Err(BadDuration::Negative(self.0.clone()));
        }
        Ok(span)
    }

    /// The text as stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<SignedDuration> for GoDuration {
    fn from(duration: SignedDuration) -> Self {
        Self(format(duration))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Units with their length in nanoseconds. Longer spellings come before those that they end in or begin with.
/// Go accepts both characters that look like a micro sign.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// More digits than this after the point are below a nanosecond in every unit.
const FRACTION_DIGITS: u32 = 18;

fn parse(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    // The only number that needs no unit.
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let (part, after) = component(rest)?;
        nanos = nanos.checked_add(part)?;
        rest = after;
    }
    let nanos = if negative { -nanos } else { nanos };
    // Go's durations are 64 bits of nanoseconds; what does not fit is an error there too.
    i64::try_from(nanos).ok().map(SignedDuration::from_nanos)
}

/// One number with its unit, in nanoseconds, and what follows it.
fn component(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, after) = rest.split_at_checked(end)?;
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name)?;
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse::<i64>().ok()?.into()
    };
    Some((
        whole.checked_mul(*unit)?.checked_add(fraction_of(fraction, *unit))?,
        after,
    ))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `0.<digits>` of a unit, cut to whole nanoseconds.
fn fraction_of(digits: &str, unit: i128) -> i128 {
    let (sum, scale) = digits
        .bytes()
        .take(FRACTION_DIGITS as usize)
        .fold((0_i128, 1_i128), |(sum, scale), digit| {
            (sum * 10 + i128::from(digit - b'0'), scale * 10)
        });
    sum * unit / scale
}

/// Writes a duration as Go does, so that a text of ours equals the original's for the same span.
fn format(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{nanos}ns"),
        1_000..1_000_000 => format!("{sign}{}\u{b5}s", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(nanos, 1_000_000)),
        _ => format!("{sign}{}", clock(nanos)),
    }
}

/// Hours and minutes appear from the first one that is not 0.
fn clock(nanos: u128) -> String {
    let minutes = nanos / 60_000_000_000;
    let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `nanos / unit` with as many digits after the point as needed.
fn decimal(nanos: u128, unit: u128) -> String {
    let width = unit.ilog10() as usize;
    let text = format!("{}.{:0width$}", nanos / unit, nanos % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
