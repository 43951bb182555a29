//! Letters as Go quotes them, also bytes that make none.

use std::sync::LazyLock;

use regex::Regex;

/// A letter as Go writes it between quotes.
pub(crate) fn escaped(letter: char) -> String {
    match letter {
        '\\' => "\\\\".to_owned(),
        '"' => "\\\"".to_owned(),
        '\u{7}' => "\\a".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\u{b}' => "\\v".to_owned(),
        control if u32::from(control) < 0x20 || control == '\u{7f}' => format!("\\x{:02x}", u32::from(control)),
        ascii if ascii.is_ascii() => ascii.to_string(),
        odd if odd_byte(odd).is_some() => odd_byte(odd).map_or(String::new(), |byte| format!("\\x{byte:02x}")),
        shown if PRINTED.is_match(shown.encode_utf8(&mut [0; 4])) => shown.to_string(),
        hidden if u32::from(hidden) < 0x10000 => format!("\\u{:04x}", u32::from(hidden)),
        hidden => format!("\\U{:08x}", u32::from(hidden)),
    }
}

/// The letters that Go prints as they are: those that leave ink.
static PRINTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("the classes are those of Unicode"));

/// The first of the letters that stand for bytes which are none. They are nobody's: the last ones for private use.
const ODD: u32 = 0x0010_ff00;

/// A text in which bytes that make no letter are kept apart from those that do, so that they can be told.
pub(crate) fn with_odd_bytes(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        let odd = chunk.invalid().iter();
        out.extend(odd.filter_map(|byte| char::from_u32(ODD + u32::from(*byte))));
    }
    out
}

/// The byte for which a letter of [`with_odd_bytes`] stands.
fn odd_byte(letter: char) -> Option<u8> {
    u32::from(letter)
        .checked_sub(ODD)
        .and_then(|byte| u8::try_from(byte).ok())
}

/// The same with the mark for what cannot be read, as it goes out.
pub(crate) fn without_odd_bytes(text: String) -> String {
    if !text.contains(|letter| odd_byte(letter).is_some()) {
        return text;
    }
    text.replace(|letter| odd_byte(letter).is_some(), "\u{fffd}")
}

/// A text as Go quotes it.
pub(crate) fn quoted(text: &str) -> String {
    let letters: String = text.chars().map(escaped).collect();
    format!("\"{letters}\"")
}
