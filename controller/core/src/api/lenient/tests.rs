use jiff::SignedDuration;
use serde_json::{from_value, json, to_value};

use super::*;

fn nanos(text: &str) -> Option<i128> {
    GoDuration::from_text(text)
        .get()
        .ok()
        .map(|duration| duration.as_nanos())
}

#[test]
fn durations_read_as_go_reads_them() {
    for (text, wanted) in [
        ("0", 0),
        ("5s", 5_000_000_000),
        ("+5s", 5_000_000_000),
        ("-0", 0),
        ("-0s", 0),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("5.s", 5_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("96h0m0s", 345_600_000_000_000),
        ("5m0s", 300_000_000_000),
        ("1ns", 1),
        ("3us", 3_000),
        ("3\u{b5}s", 3_000),
        ("3\u{3bc}s", 3_000),
        ("3ms", 3_000_000),
        ("1m1m", 120_000_000_000),
        ("0.3333333333333333333h", 1_199_999_999_999),
        ("9223372036854775807ns", i64::MAX.into()),
        ("2562047h47m16.854775807s", i64::MAX.into()),
    ] {
        assert_eq!(nanos(text), Some(wanted), "{text}");
    }
}

#[test]
fn what_is_no_duration_is_kept_as_text() {
    for text in [
        "",
        "-",
        "+",
        "5",
        "ten minutes",
        "5x",
        ".",
        ".s",
        "s",
        "1h 30m",
        " 1h",
        "1e3s",
        "--5s",
        "1d",
        "5µ",
        "٣s",
    ] {
        let duration: GoDuration = from_value(json!(text)).unwrap();
        assert_eq!(duration.get(), Err(BadDuration::Unread(text.to_owned())), "{text:?}");
        assert_eq!(to_value(&duration).unwrap(), json!(text));
    }
}

#[test]
fn a_duration_below_zero_is_kept_as_text_and_does_not_count() {
    for text in ["-2s", "-1ns", "-1h30m"] {
        let duration: GoDuration = from_value(json!(text)).unwrap();
        assert_eq!(duration.get(), Err(BadDuration::Negative(text.to_owned())), "{text:?}");
        assert_eq!(to_value(&duration).unwrap(), json!(text));
    }
}

#[test]
fn a_duration_beyond_64_bits_of_nanoseconds_is_refused() {
    for text in [
        "9223372036854775808ns",
        "3000000h",
        "99999999999999999999s",
        "2562047h47m16.854775808s",
    ] {
        assert_eq!(nanos(text), None, "{text}");
    }
}

#[test]
fn durations_are_written_as_go_writes_them() {
    for (nanos, wanted) in [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1\u{b5}s"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (300_000_000_000, "5m0s"),
        (245_001_000_000, "4m5.001s"),
        (5_400_000_000_000, "1h30m0s"),
        (345_600_000_000_000, "96h0m0s"),
        (999_999_999, "999.999999ms"),
    ] {
        let text = GoDuration::from(SignedDuration::from_nanos(nanos)).to_string();
        assert_eq!(text, wanted);
        assert_eq!(
            GoDuration::from_text(text).get().unwrap().as_nanos(),
            i128::from(nanos),
            "{wanted} reads back"
        );
    }
}

#[test]
fn a_share_is_rounded_up_for_surge_and_down_for_unavailability() {
    for (value, total, up, down) in [
        (json!(3), 10, 3, 3),
        (json!("25%"), 10, 3, 2),
        (json!("20%"), 200, 40, 40),
        (json!("1%"), 3, 1, 0),
        (json!("0%"), 3, 0, 0),
        (json!("150%"), 3, 5, 4),
        (json!("-50%"), 3, -1, -2),
        (json!("100%"), i32::MAX, i32::MAX, i32::MAX),
    ] {
        let value: IntOrPercent = from_value(value).unwrap();
        assert_eq!(value.resolve(total, Rounding::Up), Ok(up), "{value} of {total}");
        assert_eq!(value.resolve(total, Rounding::Down), Ok(down), "{value} of {total}");
    }
}

#[test]
fn a_text_that_is_no_percentage_is_kept_and_refused() {
    for text in ["5", "", "%", "x%", "5%%", "1.5%", "200%"] {
        let value: IntOrPercent = from_value(json!(text)).unwrap();
        assert_eq!(
            value.resolve(i32::MAX, Rounding::Up),
            Err(BadPercent { text: text.to_owned() }),
            "{text}"
        );
        assert_eq!(to_value(&value).unwrap(), json!(text));
    }
}

words!(
    /// For the tests.
    Colour {
        /// .
        Red,
    }
);

#[test]
fn a_word_that_we_do_not_know_is_kept() {
    let known: Lenient<Colour> = from_value(json!("Red")).unwrap();
    assert_eq!(
        (known.known(), to_value(&known).unwrap()),
        (Some(Colour::Red), json!("Red"))
    );
    let other: Lenient<Colour> = from_value(json!("red")).unwrap();
    assert_eq!((other.known(), to_value(&other).unwrap()), (None, json!("red")));
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Fields {
    #[serde(deserialize_with = "int32")]
    count: i32,
    #[serde(deserialize_with = "optional_int32")]
    limit: Option<i32>,
    #[serde(deserialize_with = "int64")]
    wide: i64,
    #[serde(deserialize_with = "list")]
    texts: Vec<String>,
    #[serde(deserialize_with = "field")]
    word: Option<String>,
}

fn fields(raw: serde_json::Value) -> Fields {
    from_value(raw).expect("nothing fails to decode")
}

#[test]
fn absent_null_and_wrong_types_read_as_nothing() {
    let nothing = Fields::default();
    assert_eq!(fields(json!({})), nothing);
    assert_eq!(
        fields(json!({"count": null, "limit": null, "wide": null, "texts": null, "word": null})),
        nothing
    );
    assert_eq!(
        fields(json!({"count": "3", "limit": 1.5, "wide": {}, "texts": "x", "word": 3})),
        nothing
    );
}

#[test]
fn numbers_beyond_the_range_read_as_its_end() {
    let read = fields(json!({"count": 9_007_199_254_740_993_i64, "limit": -9_007_199_254_740_993_i64, "wide": 1e30}));
    assert_eq!(
        (read.count, read.limit, read.wide),
        (i32::MAX, Some(i32::MIN), i64::MAX)
    );
    assert_eq!(
        fields(json!({"count": 3.0, "wide": 9_007_199_254_740_993_i64})).count,
        3
    );
    assert_eq!(
        fields(json!({"wide": 9_007_199_254_740_993_i64})).wide,
        9_007_199_254_740_993
    );
}

#[test]
fn one_odd_entry_does_not_hide_the_others() {
    assert_eq!(fields(json!({"texts": ["a", 3, null, "b"]})).texts, ["a", "b"]);
}
