//! The formats of texts that the server checks. A format that it does not know, or that we do not yet, fits everything.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::LazyLock,
};

use regex::Regex;

/// Whether a text is spelled as its format asks.
pub(crate) fn fits(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => duration_nanos(text).is_some(),
        "byte" => BASE64.is_match(text),
        "ipv4" => text.contains('.') && text.parse::<IpAddr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "uri" => is_uri(text),
        "uuid" => UUID.is_match(text),
        "mac" => MAC.is_match(text),
        "k8sshortname" => is_label(text, 63),
        "k8slongname" => text.len() <= 253 && text.split('.').all(|label| is_label(label, 253)),
        _ => true,
    }
}

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the cases of tests/schema try every pattern of this file")
}

static TIME_OF_DAY: LazyLock<Regex> =
    LazyLock::new(|| fixed("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static BASE64: LazyLock<Regex> =
    LazyLock::new(|| fixed("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
static UUID: LazyLock<Regex> =
    LazyLock::new(|| fixed("^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    let pairs = |mark: &str| format!("(?:[0-9a-f]{{2}}{mark}){{5}}(?:(?:[0-9a-f]{{2}}{mark}){{2}})?[0-9a-f]{{2}}");
    fixed(&format!(
        "^(?i)(?:{}|{}|(?:[0-9a-f]{{4}}\\.){{2,3}}[0-9a-f]{{4}})$",
        pairs(":"),
        pairs("-")
    ))
});
static SPAN: LazyLock<Regex> = LazyLock::new(|| fixed(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµ]+)"));

fn is_date(text: &str) -> bool {
    let Some(parts) = text.split('-').map(digits).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let [(4, year), (2, month), (2, day)] = parts.as_slice() else {
        return false;
    };
    match (i16::try_from(*year), i8::try_from(*month), i8::try_from(*day)) {
        (Ok(year), Ok(month), Ok(day)) => jiff::civil::Date::new(year, month, day).is_ok(),
        _ => false,
    }
}

/// How many digits, and the number that they make.
fn digits(text: &str) -> Option<(usize, u32)> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits
        .then(|| text.parse().ok().map(|number| (text.len(), number)))
        .flatten()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let Some((date, rest)) = text.split_once('t') else {
        return false;
    };
    // What lies behind a second "t" is not looked at.
    let time = rest.split('t').next().unwrap_or_default();
    let Some(parts) = TIME_OF_DAY.captures(time) else {
        return false;
    };
    let at_most = |index: usize, most: &str| parts.get(index).is_some_and(|part| part.as_str() <= most);
    is_date(date) && at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}

/// A length of time: Go's spelling ("-1h30m"), or words ("3 days"). Signs belong to the former only.
pub(crate) fn duration_nanos(text: &str) -> Option<i64> {
    let (is_negative, bare) = match text.strip_prefix('-') {
        Some(bare) => (true, bare),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if bare == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    let mut found = false;
    for span in SPAN.captures_iter(bare) {
        let (_, [count, unit]) = span.extract();
        total += count.parse::<f64>().ok()? * unit_nanos(unit)?;
        found = true;
    }
    if !found || total >= 9.2e18 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "within 64 bits, as just seen")]
    let nanos = total as i64;
    Some(if is_negative { -nanos } else { nanos })
}

fn unit_nanos(unit: &str) -> Option<f64> {
    let nanos = match unit {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1.0,
        "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => 1e3,
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1e6,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e9,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e9,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600e9,
        "d" | "day" | "days" => 86_400e9,
        "w" | "wk" | "week" | "weeks" => 604_800e9,
        _ => return None,
    };
    Some(nanos)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    digits(bits).is_some_and(|(length, bits)| length > 0 && bits <= most)
}

/// An address, bare or behind a name: `Ada <ada@example.org>`.
fn is_email(text: &str) -> bool {
    let bare = match text.split_once('<') {
        Some((_, rest)) => rest.strip_suffix('>').unwrap_or_default(),
        None => text,
    };
    match bare.rsplit_once('@') {
        Some((user, host)) => {
            let is_plain = |part: &str| !part.is_empty() && !part.contains([' ', '@', '<', '>', ',', ';', ':']);
            is_plain(user) && is_plain(host) && !host.starts_with('.') && !host.ends_with('.')
        }
        None => false,
    }
}

fn is_hostname(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    let is_outer = |char: char| char.is_alphanumeric();
    let is_name = |label: &&str| {
        label.len() <= 63
            && label.starts_with(is_outer)
            && label.ends_with(is_outer)
            && label.chars().all(|char| is_outer(char) || char == '-')
    };
    let top_is_word = match labels.as_slice() {
        [_] => true,
        [.., top] => top.chars().count() >= 2 && top.chars().all(char::is_alphabetic),
        [] => false,
    };
    text.len() <= 255 && top_is_word && labels.iter().all(is_name)
}

/// A URI with a scheme, or a path from the root.
fn is_uri(text: &str) -> bool {
    if text.chars().any(|char| char.is_control() || char == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|char: char| char.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char))
        && !rest.is_empty()
}

/// A DNS label in lower case.
pub(crate) fn is_label(text: &str, most: usize) -> bool {
    let is_outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty()
        && text.len() <= most
        && text.bytes().all(|byte| is_outer(byte) || byte == b'-')
        && text.bytes().next().is_some_and(is_outer)
        && text.bytes().last().is_some_and(is_outer)
}

/// The bytes of a text in base64.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u8);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(six)) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.extend(u8::try_from(bits >> held & 0xff));
        }
    }
    Some(bytes)
}
