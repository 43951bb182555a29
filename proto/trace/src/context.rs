//! The two headers of <https://www.w3.org/TR/trace-context/>, as a caller sent them.
//!
//! A header that is not of that form counts as none: what a caller got wrong about tracing never costs it the call.

use std::fmt;

use tonic::metadata::MetadataMap;

/// Names the caller's span.
pub const TRACEPARENT: &str = "traceparent";
/// What vendors add to it; passed on as it is.
pub const TRACESTATE: &str = "tracestate";

/// The W3C's bound on what has to be passed on.
const STATE_MAX: usize = 512;

/// One trace, as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub(crate) u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The caller's span, under which that of the call belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) flags: u8,
    pub(crate) state: String,
}

impl Parent {
    /// What the metadata of a call says.
    pub fn of(metadata: &MetadataMap) -> Option<Self> {
        // Two of them contradict each other.
        let mut parents = metadata.get_all(TRACEPARENT).iter();
        let (parent, None) = (parents.next()?, parents.next()) else {
            return None;
        };
        let parent = Self::parse(parent.to_str().ok()?)?;
        let states = metadata.get_all(TRACESTATE).iter();
        let states: Vec<&str> = states.filter_map(|state| state.to_str().ok()).collect();
        let state = states.join(",");
        Some(Self {
            state: if state.len() <= STATE_MAX { state } else { String::new() },
            ..parent
        })
    }

    /// The trace it belongs to.
    pub fn trace_id(&self) -> TraceId {
        TraceId(self.trace)
    }

    /// `00-<32 digits>-<16 digits>-<2 digits>`; a later version may add more after a further `-`.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('-');
        let version: u8 = hex(fields.next()?, 2)?.try_into().ok()?;
        let trace = hex(fields.next()?, 32)?;
        let span = hex(fields.next()?, 16)?.try_into().ok()?;
        let flags = hex(fields.next()?, 2)?.try_into().ok()?;
        let has_more = fields.next().is_some();
        if version == u8::MAX || (version == 0 && has_more) || trace == 0 || span == 0 {
            return None;
        }
        Some(Self {
            trace,
            span,
            flags,
            state: String::new(),
        })
    }

    /// As it is sent.
    #[cfg(feature = "otlp")]
    pub(crate) fn header(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// So many hexadecimal digits, none of them a capital.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn with(headers: &[(&'static str, &str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (name, value) in headers {
            metadata.append(*name, value.parse().expect("a legal value"));
        }
        metadata
    }

    #[test]
    fn the_example_of_the_standard_is_read() {
        let parent = Parent::of(&with(&[(TRACEPARENT, GIVEN), (TRACESTATE, "a=1"), (TRACESTATE, "b=2")]));
        let parent = parent.expect("it is of the form");
        assert_eq!(parent.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((parent.span, parent.flags), (0x00f0_67aa_0ba9_02b7, 1));
        assert_eq!(parent.state, "a=1,b=2");
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = GIVEN.replacen("00", "cc", 1);
        for text in [later.clone(), format!("{later}-what-comes")] {
            assert!(Parent::parse(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn what_is_not_of_the_form_counts_as_none() {
        let wrong = [
            "",
            "00",
            "garbage",
            &GIVEN.to_uppercase(),
            &GIVEN.replacen("00", "ff", 1),
            &format!("{GIVEN}-more"),
            &GIVEN.replace('-', ""),
            &GIVEN.replace("01", "1"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ];
        for text in wrong {
            assert_eq!(Parent::of(&with(&[(TRACEPARENT, text)])), None, "{text:?}");
        }
        let twice = with(&[(TRACEPARENT, GIVEN), (TRACEPARENT, GIVEN)]);
        assert_eq!(Parent::of(&twice), None, "two parents");
        assert_eq!(
            Parent::of(&with(&[(TRACESTATE, "a=1")])),
            None,
            "a state without a parent"
        );
    }

    #[test]
    fn a_state_that_is_too_long_is_left_out() {
        let long = "x".repeat(STATE_MAX + 1);
        let parent = Parent::of(&with(&[(TRACEPARENT, GIVEN), (TRACESTATE, &long)]));
        assert_eq!(parent.expect("it is of the form").state, "");
    }
}
