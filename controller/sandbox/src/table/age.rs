//! How long ago something was, as people read it: precise when young, coarse when old.

use jiff::Timestamp;
use serde_json::Value;

/// The time since a moment that a text names; none if it names no moment.
pub fn since(text: &str, now: Timestamp) -> Option<String> {
    let then: Timestamp = text.parse().ok()?;
    Some(told(now.as_second() - then.as_second()))
}

/// The time since a moment that a field holds.
pub fn of(field: Option<&Value>, now: Timestamp) -> String {
    field
        .and_then(Value::as_str)
        .and_then(|text| since(text, now))
        .unwrap_or_else(|| "<unknown>".to_owned())
}

/// A length of time with at most two units, the second left out where it is nothing.
fn told(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{part}"),
    };
    if seconds < -1 {
        "<invalid>".to_owned()
    } else if seconds < 120 {
        format!("{}s", seconds.max(0))
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else if days < 730 {
        format!("{days}d")
    } else if days < 2920 {
        pair(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_length_of_time_loses_precision_as_it_grows() {
        let minute = 60;
        let hour = 60 * minute;
        let day = 24 * hour;
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (10 * minute + 1, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (5 * hour + 35 * minute, "5h35m"),
            (8 * hour + 1, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (3 * day + 4 * hour, "3d4h"),
            (8 * day + 4 * hour, "8d"),
            (729 * day, "729d"),
            (731 * day, "2y1d"),
            (3000 * day, "8y"),
        ] {
            assert_eq!(told(seconds), expected);
        }
    }
}
