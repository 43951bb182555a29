//! JSON as it comes from callers, and what is said of what is none.
//!
//! Decides which texts are JSON and in which words others are refused: those of Go's decoder, which counts no columns but names the
//! letter. Texts that the server reads although they are no good UTF-8 are read as it reads them.
//!
//! # Not yet
//! - What is nested deeper than 127 is refused; the server reads 10,000 levels.

use serde::Serialize;
use serde_json::Value;

use crate::{golang, strange};

/// As deep as Go's decoder goes.
const DEEPEST: usize = 10_000;

/// Reads a text, or says what is wrong with it.
pub(crate) fn read(text: &[u8]) -> Result<Value, String> {
    let error = match serde_json::from_slice(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    Scanner::new(text).check()?;
    // Go puts a mark in place of what is no text.
    let text = without_lone_surrogates(&String::from_utf8_lossy(text));
    serde_json::from_str(&text).map_err(|_| error.to_string())
}

/// [`read`], and whether a field is named twice.
pub(crate) fn read_noting(text: &[u8]) -> Result<(Value, bool), String> {
    strange::read(text).or_else(|_| read(text).map(|value| (value, false)))
}

/// Writes what always can be written.
pub(crate) fn write_json(to: &mut Vec<u8>, what: &impl Serialize) {
    serde_json::to_writer(to, what).expect("what the API says has string keys, and a vector takes all that is written");
}

/// Replaces `\ud800` and its like by the mark for what cannot be read, unless two of them make a letter.
fn without_lone_surrogates(text: &str) -> String {
    let unit = |text: &str| {
        let hex = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(hex, 16).ok()
    };
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let length = match unit(escape) {
            Some(0xd800..=0xdbff) if matches!(escape.get(6..).and_then(unit), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.push('\u{fffd}');
                rest = escape.get(6..).unwrap_or_default();
                continue;
            }
            Some(_) => 6,
            None => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        let (kept, after) = escape.split_at(length);
        out.push_str(kept);
        rest = after;
    }
    out + rest
}

/// Goes through a text until something is wrong with it.
struct Scanner<'a> {
    rest: &'a [u8],
    /// What is open, by its first letter.
    open: Vec<u8>,
}

impl<'a> Scanner<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest, open: Vec::new() }
    }

    /// Without recursion: who nests ten thousand levels must not get at our stack.
    fn check(mut self) -> Result<(), String> {
        loop {
            if self.begin()? {
                continue;
            }
            while !self.goes_on()? {
                if self.open.pop().is_none() {
                    return Ok(());
                }
            }
        }
    }

    /// Reads a value, or the beginning of one that has a value inside, which is told.
    fn begin(&mut self) -> Result<bool, String> {
        match self.next_sign().ok_or_else(end)? {
            open @ (b'{' | b'[') => return self.enter(open),
            b'"' => self.text(),
            b'-' => match self.next().ok_or_else(end)? {
                byte @ b'0'..=b'9' => self.number(byte),
                byte => Err(wrong(byte, "in numeric literal")),
            },
            byte @ b'0'..=b'9' => self.number(byte),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            byte => Err(wrong(byte, "looking for beginning of value")),
        }?;
        Ok(false)
    }

    fn enter(&mut self, open: u8) -> Result<bool, String> {
        if self.open.len() >= DEEPEST {
            return Err(wrong(open, "exceeded max depth"));
        }
        self.skip_spaces();
        let close = if open == b'{' { b'}' } else { b']' };
        if self.peek() == Some(close) {
            self.next();
            return Ok(false);
        }
        self.open.push(open);
        if open == b'{' {
            self.key()?;
        }
        Ok(true)
    }

    /// Behind a value: whether another one follows at the same place. If not, the place is closed.
    fn goes_on(&mut self) -> Result<bool, String> {
        let (close, place) = match self.open.last() {
            None => match self.next_sign() {
                None => return Ok(false),
                Some(byte) => return Err(wrong(byte, "after top-level value")),
            },
            Some(b'{') => (b'}', "after object key:value pair"),
            Some(_) => (b']', "after array element"),
        };
        match self.next_sign().ok_or_else(end)? {
            b',' if close == b'}' => self.key().map(|()| true),
            b',' => Ok(true),
            byte if byte == close => Ok(false),
            byte => Err(wrong(byte, place)),
        }
    }

    fn key(&mut self) -> Result<(), String> {
        match self.next_sign().ok_or_else(end)? {
            b'"' => self.text()?,
            byte => return Err(wrong(byte, "looking for beginning of object key string")),
        }
        match self.next_sign().ok_or_else(end)? {
            b':' => Ok(()),
            byte => Err(wrong(byte, "after object key")),
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The next byte that is no space.
    fn next_sign(&mut self) -> Option<u8> {
        self.skip_spaces();
        self.next()
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.next();
        }
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// A text behind its first quote.
    fn text(&mut self) -> Result<(), String> {
        loop {
            match self.next().ok_or_else(end)? {
                b'"' => return Ok(()),
                b'\\' => match self.next().ok_or_else(end)? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next().ok_or_else(end)?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(wrong(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(wrong(byte, "in string escape code")),
                },
                byte if byte < b' ' => return Err(wrong(byte, "in string literal")),
                _ => {}
            }
        }
    }

    /// A number behind its first digit.
    fn number(&mut self, first: u8) -> Result<(), String> {
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.next();
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.next();
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.next();
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Result<(), String> {
        match self.next().ok_or_else(end)? {
            b'0'..=b'9' => {
                self.digits();
                Ok(())
            }
            byte => Err(wrong(byte, place)),
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.next();
        }
    }

    /// A word behind its first letter.
    fn literal(&mut self, word: &str) -> Result<(), String> {
        for wanted in word.bytes().skip(1) {
            let byte = self.next().ok_or_else(end)?;
            if byte != wanted {
                let place = format!("in literal {word} (expecting '{}')", char::from(wanted));
                return Err(wrong(byte, &place));
            }
        }
        Ok(())
    }
}

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

/// Each byte is taken for a letter of its own, whatever letters the text is made of.
fn wrong(byte: u8, place: &str) -> String {
    let letter = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        other => golang::escaped(char::from(other)),
    };
    format!("invalid character '{letter}' {place}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_json_is_refused_in_the_servers_words() {
        for (text, why) in [
            ("", "unexpected end of JSON input"),
            (" [1, 2", "unexpected end of JSON input"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            ("{} tail", "invalid character 't' after top-level value"),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            (
                "{'a':1}",
                "invalid character '\\'' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            (
                "\"\\u00g0\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\u{1f}", "invalid character '\\x1f' looking for beginning of value"),
            (
                "\u{feff}{}",
                "invalid character '\u{ef}' looking for beginning of value",
            ),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err(), why, "{text}");
        }
        assert_eq!(
            read("[".repeat(DEEPEST + 1).as_bytes()).unwrap_err(),
            "invalid character '[' exceeded max depth"
        );
    }

    #[test]
    fn texts_that_are_no_good_letters_are_read_with_marks_in_their_place() {
        assert_eq!(read(b"{\"a\xff\":1}").unwrap(), json!({ "a\u{fffd}": 1 }));
        assert_eq!(
            read(br#"["\ud800", "\ud83d\ude00", "\\ud800", "\ud800\u0041"]"#).unwrap(),
            json!(["\u{fffd}", "\u{1f600}", "\\ud800", "\u{fffd}A"])
        );
    }
}
