//! When the caller stops waiting, from its `grpc-timeout`.
//!
//! tonic enforces the deadline itself; here it is only read, for the author.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

/// The caller's deadline. A header that is not of the gRPC form counts as none, as tonic itself takes it.
pub(crate) fn deadline_of(metadata: &MetadataMap, now: Instant) -> Option<Instant> {
    let timeout = timeout(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    now.checked_add(timeout)
}

/// At most 8 digits and one letter for the unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let seconds = |text| timeout(text).map(|timeout| timeout.as_secs_f64());
        assert_eq!(seconds("2H"), Some(7200.0));
        assert_eq!(seconds("3M"), Some(180.0));
        assert_eq!(seconds("4S"), Some(4.0));
        assert_eq!(seconds("1500m"), Some(1.5));
        assert_eq!(seconds("500000u"), Some(0.5));
        assert_eq!(seconds("99999999n"), Some(0.099_999_999));
    }

    #[test]
    fn what_is_no_timeout_is_no_deadline() {
        for text in ["", "S", "5", "-5S", "123456789S", "5s", "5é"] {
            assert_eq!(timeout(text), None, "{text}");
        }
    }
}
