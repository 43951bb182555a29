//! YAML as it comes from callers, read into what JSON can say.
//!
//! Decides what a plain scalar is and which key is written twice, as the server's reader does: that of YAML 1.1, to which `yes` is
//! true and `010` is eight. Where a text ends to be YAML is the parser's finding, and so are the words for that, which the server's
//! parser says otherwise. Only the first document is read. No text is long in here: a body is bounded before.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};

use crate::golang;

/// As many values as aliases may make of few, which is what a list of lists of lists is bounded by.
const MOST_COPIED: usize = 100_000;

/// A text that was read, with what is wrong with it and yet does not hinder reading.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub value: Value,
    /// The keys that are written twice, each in a sentence.
    pub twice: Vec<String>,
}

/// Reads the first document of a text; none is null.
pub(crate) fn read(text: &[u8]) -> Result<Said, String> {
    let text = std::str::from_utf8(text).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(text, granit_parser::options! { emit_comments: false }),
        anchors: BTreeMap::new(),
        copied: 0,
        twice: Vec::new(),
    };
    let value = reader.document()?;
    Ok(Said {
        value,
        twice: reader.twice,
    })
}

struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// What has a name so far.
    anchors: BTreeMap<usize, Value>,
    /// How many values aliases have repeated.
    copied: usize,
    twice: Vec<String>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), String> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(format!("yaml: line {}: {}", error.marker().line(), error.info())),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Value::Null),
                (event, _) => return self.node(event),
            }
        }
    }

    /// The value that begins with an event. Nested no deeper than the parser allows.
    fn node(&mut self, event: Event<'t>) -> Result<Value, String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref())?;
                Ok(self.named(anchor, value))
            }
            Event::SequenceStart(_, anchor, _) => {
                let items = self.items()?;
                Ok(self.named(anchor, Value::Array(items)))
            }
            Event::MappingStart(_, anchor, _) => {
                let fields = self.fields()?;
                Ok(self.named(anchor, Value::Object(fields)))
            }
            Event::Alias(anchor) => self.copy(anchor),
            other => Err(format!("yaml: {other:?} where a value belongs")),
        }
    }

    fn named(&mut self, anchor: usize, value: Value) -> Value {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        value
    }

    fn copy(&mut self, anchor: usize) -> Result<Value, String> {
        let Some(value) = self.anchors.get(&anchor) else {
            return Err("yaml: anchor contains itself".to_owned());
        };
        self.copied += size(value);
        if self.copied > MOST_COPIED {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        Ok(value.clone())
    }

    fn items(&mut self) -> Result<Vec<Value>, String> {
        let mut items = Vec::new();
        loop {
            match self.next()?.0 {
                Event::SequenceEnd => return Ok(items),
                event => items.push(self.node(event)?),
            }
        }
    }

    fn fields(&mut self) -> Result<Map<String, Value>, String> {
        let mut fields = Map::new();
        loop {
            let key = match self.next()?.0 {
                Event::MappingEnd => return Ok(fields),
                event => event,
            };
            let is_merge = matches!(&key, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.node(key)?;
            let (event, span) = self.next()?;
            let value = self.node(event)?;
            if is_merge {
                merge(&mut fields, value)?;
                continue;
            }
            let (name, shown) = name_of(key, &value)?;
            if fields.insert(name, value).is_some() {
                let line = span.start.line();
                self.twice.push(format!("line {line}: key {shown} already set in map"));
            }
        }
    }
}

/// How many values lie in one.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Takes the fields of other objects over, as `<<` asks.
fn merge(fields: &mut Map<String, Value>, from: Value) -> Result<(), String> {
    match from {
        Value::Object(others) => {
            fields.extend(others);
            Ok(())
        }
        // The first of several has the last word.
        Value::Array(all) if all.iter().all(Value::is_object) => {
            all.into_iter().rev().try_for_each(|one| merge(fields, one))
        }
        _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
    }
}

/// The name of a field, and how Go shows what it is made from.
fn name_of(key: Value, value: &Value) -> Result<(String, String), String> {
    match key {
        Value::String(name) => {
            let shown = golang::quoted(&name);
            Ok((name, shown))
        }
        Value::Bool(_) | Value::Number(_) => Ok((key.to_string(), key.to_string())),
        Value::Null => Err(format!(
            "unsupported map key of type: %!s(<nil>), key: <nil>, value: {}",
            golang::syntax(value)
        )),
        Value::Array(_) | Value::Object(_) => Err(format!("yaml: invalid map key: {}", golang::syntax(&key))),
    }
}

/// What a scalar is. Only one without quotes and without a tag is guessed at.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let plain = style == ScalarStyle::Plain;
    let tagged = tag.and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
    match tagged.as_deref() {
        Some("binary") => {
            let bytes = STANDARD.decode(text.replace(char::is_whitespace, ""));
            let bytes = bytes.map_err(|_| "yaml: !!binary value contains invalid base64 data".to_owned())?;
            Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Some("int" | "float" | "bool" | "null") => guessed(text),
        None if tag.is_none() && plain => guessed(text),
        Some(_) | None => Ok(Value::String(text.to_owned())),
    }
}

fn guessed(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Ok(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Ok(Value::Bool(false)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Err("json: unsupported value: +Inf".to_owned()),
        "-.inf" | "-.Inf" | "-.INF" => Err("json: unsupported value: -Inf".to_owned()),
        ".nan" | ".NaN" | ".NAN" => Err("json: unsupported value: NaN".to_owned()),
        other => Ok(number(other).map_or_else(|| Value::String(other.to_owned()), Value::Number)),
    }
}

/// The number that a plain text is, if it is one.
fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return None;
    }
    let text = text.replace('_', "");
    if let Some(whole) = whole(&text) {
        return Some(whole);
    }
    let is_float = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = text.parse().ok().filter(|_| is_float && !text.ends_with('.'))?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "it is written out and read again, and small"
    )]
    match number {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => Some(Number::from(whole as i64)),
        other => Number::from_f64(other),
    }
}

/// A whole number, in the base that its first digits tell: a zero alone tells eight.
fn whole(text: &str) -> Option<Number> {
    let (sign, digits) = match text.split_at_checked(1) {
        Some(("-", digits)) => ("-", digits),
        Some(("+", digits)) => ("", digits),
        _ => ("", text),
    };
    let (base, digits) = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, digits.get(2..)?),
        Some("0o") => (8, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        Some(_) if digits.starts_with('0') => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), base).ok();
    let large = || u64::from_str_radix(digits, base).ok().filter(|_| sign.is_empty());
    signed.map(Number::from).or_else(|| large().map(Number::from))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        read(text.as_bytes()).unwrap().value
    }

    #[test]
    fn plain_scalars_are_what_yaml_of_the_older_kind_takes_them_for() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("y", json!(true)),
            ("Off", json!(false)),
            ("~", json!(null)),
            ("010", json!(8)),
            ("0o10", json!(8)),
            ("0x1F", json!(31)),
            ("-0b11", json!(-3)),
            ("08", json!(8)),
            ("1_000", json!(1000)),
            ("1e3", json!(1000)),
            ("1.50", json!(1.5)),
            ("-.5", json!(-0.5)),
            ("18446744073709551615", json!(u64::MAX)),
            ("1:30", json!("1:30")),
            ("2001-01-01", json!("2001-01-01")),
            ("1.2.3", json!("1.2.3")),
            ("-", json!([null])),
            ("'yes'", json!("yes")),
            ("\"1\"", json!("1")),
            ("!!str 1", json!("1")),
            ("!mine yes", json!("yes")),
            ("!!binary aGVsbG8=", json!("hello")),
            ("|\n  1\n", json!("1\n")),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn json_is_yaml() {
        let text = r#"{"a":"b","c":[1,2.5,true,null],"d":{"e":"\u00e4\n"},"f":[],"g":{}}"#;
        assert_eq!(value(text), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn only_the_first_document_is_read_and_none_is_null() {
        assert_eq!(value("---\na: b\n---\n[\n"), json!({ "a": "b" }));
        assert_eq!(value("# nothing\n"), json!(null));
        assert_eq!(value(""), json!(null));
    }

    #[test]
    fn a_key_that_comes_again_is_told_with_the_line_of_its_value_and_the_last_one_counts() {
        let said = read(b"a: 1\nb:\n  c: 1\na:\n  c: 2\n  c: 3\n").unwrap();
        assert_eq!(said.value, json!({ "a": { "c": 3 }, "b": { "c": 1 } }));
        let twice = [
            "line 6: key \"c\" already set in map",
            "line 5: key \"a\" already set in map",
        ];
        assert_eq!(said.twice, twice);
    }

    #[test]
    fn what_has_a_name_can_be_had_again_but_not_without_bound() {
        let text = "a: &x\n  b: 1\nc: *x\nd:\n  <<: *x\n  e: 2\n";
        assert_eq!(
            value(text),
            json!({ "a": { "b": 1 }, "c": { "b": 1 }, "d": { "b": 1, "e": 2 } })
        );
        let mut bomb = "a0: &a0 [x]\n".to_owned();
        for level in 1..20 {
            let one = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{one}, {one}, {one}, {one}]\n");
        }
        assert!(read(bomb.as_bytes()).unwrap_err().contains("excessive aliasing"));
    }

    #[test]
    fn what_is_no_yaml_is_refused() {
        for text in [
            "a: [",
            "{",
            "a: b\n  c: d\n",
            "a: \"b\n",
            "a: *none\n",
            "~: a",
            "[a]: b",
            "a: .inf",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
