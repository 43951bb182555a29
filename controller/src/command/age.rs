//! How long ago something was, in kubectl's words.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millwright_core::api::meta;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Time since the object was stored.
pub fn of(metadata: &ObjectMeta, now: Timestamp) -> String {
    meta::created(metadata).map_or_else(|| "<unknown>".to_owned(), |created| text(now.duration_since(created)))
}

/// The longer, the coarser, and two units at most. Clocks may differ: what is not yet counts as now.
pub fn text(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    let two = |unit: i64, sign: char, below: i64, small: char| match seconds % unit / below {
        0 => format!("{}{sign}", seconds / unit),
        rest => format!("{}{sign}{rest}{small}", seconds / unit),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, 'd', HOUR, 'h'),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_that_kubectl_shows() {
        let wanted = [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (600, "10m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR + 61, "8h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR + DAY, "2y1d"),
            (9 * YEAR + DAY, "9y"),
        ];
        for (seconds, text_of_it) in wanted {
            assert_eq!(text(SignedDuration::from_secs(seconds)), text_of_it, "{seconds}");
        }
    }
}
