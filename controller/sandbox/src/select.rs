//! Label and field selectors: how they are written, and what they match.
//!
//! Pure. The words of refusals are the server's, token by token, because people read them.

#![allow(
    clippy::indexing_slicing,
    reason = "a Value read by a key gives null; what is written to is an object"
)]

use serde_json::Value;

use crate::failure::Failure;
use crate::kinds::Kind;

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wants {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// A label selector: all requirements hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<(String, Wants)>);

/// A field selector: all fields are (or are not) as said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, bool, String)>);

/// What a list or watch looks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    pub labels: Labels,
    pub fields: Fields,
}

impl Selection {
    /// Reads both selectors of a request on a kind.
    pub fn read(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        Ok(Self {
            labels: Labels::read(labels)?,
            fields: Fields::read(kind, fields)?,
        })
    }

    /// Whether everything is looked for.
    pub fn is_empty(&self) -> bool {
        self.labels.0.is_empty() && self.fields.0.is_empty()
    }

    /// Whether an object is looked for.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}

/// A token of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tokens {
    tokens: Vec<String>,
    at: usize,
}

impl Tokens {
    fn of(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let symbol = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"]
                .iter()
                .find(|symbol| rest.starts_with(**symbol));
            let word = rest
                .find(|c: char| c.is_whitespace() || "=!(),<>".contains(c))
                .unwrap_or(rest.len());
            let length = symbol.map_or(word.max(first.len_utf8()), |symbol| symbol.len());
            let (token, tail) = rest.split_at(length);
            tokens.push(token.to_owned());
            rest = tail.trim_start();
        }
        Self { tokens, at: 0 }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !["==", "!=", "=", "!", "(", ")", ",", "<", ">"].contains(&token)
}

fn unparsed(why: String) -> Failure {
    Failure::BadRequest(format!("unable to parse requirement: {why}"))
}

impl Labels {
    /// Reads `a=b,c in (d,e),!f`.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let mut tokens = Tokens::of(text);
        let mut wants = Vec::new();
        if tokens.peek().is_empty() {
            return Ok(Self::default());
        }
        loop {
            if !is_word(tokens.peek()) && tokens.peek() != "!" {
                let found = tokens.peek();
                return Err(Failure::BadRequest(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                )));
            }
            wants.push(requirement(&mut tokens)?);
            match tokens.next().as_str() {
                "" => return Ok(Self(wants)),
                "," if is_word(tokens.peek()) || tokens.peek() == "!" => {}
                "," => {
                    let found = tokens.peek();
                    return Err(Failure::BadRequest(format!(
                        "found '{found}', expected: identifier after ','"
                    )));
                }
                found => {
                    return Err(Failure::BadRequest(format!(
                        "found '{found}', expected: ',' or 'end of string'"
                    )));
                }
            }
        }
    }

    /// Reads a `metav1.LabelSelector` value; an empty one selects everything.
    pub fn of(selector: &Value) -> Self {
        let mut wants = Vec::new();
        let same = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in same.into_iter().flatten() {
            wants.push((
                key.clone(),
                Wants::In(vec![value.as_str().unwrap_or_default().to_owned()]),
            ));
        }
        let more = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in more.into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let want = match expression["operator"].as_str() {
                Some("In") => Wants::In(values),
                Some("NotIn") => Wants::NotIn(values),
                Some("Exists") => Wants::Exists,
                _ => Wants::Absent,
            };
            wants.push((key, want));
        }
        Self(wants)
    }

    /// Whether an object's labels are as wanted.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.0.iter().all(|(key, wants)| {
            let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            let number = value.and_then(|value| value.parse::<i64>().ok());
            match wants {
                Wants::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
                Wants::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
                Wants::Exists => value.is_some(),
                Wants::Absent => value.is_none(),
                Wants::Above(bound) => number.is_some_and(|number| number > *bound),
                Wants::Below(bound) => number.is_some_and(|number| number < *bound),
            }
        })
    }
}

/// One requirement; its first token is a word or an exclamation mark.
fn requirement(tokens: &mut Tokens) -> Result<(String, Wants), Failure> {
    if tokens.peek() == "!" {
        tokens.next();
        if tokens.peek().is_empty() {
            return Err(unparsed("found '', expected: identifier".to_owned()));
        }
        return Ok((label_key(tokens.next())?, Wants::Absent));
    }
    let key = label_key(tokens.next())?;
    let wants = match tokens.peek().to_owned().as_str() {
        "" | "," => Wants::Exists,
        "=" | "==" => {
            tokens.next();
            Wants::In(vec![exact(tokens)?])
        }
        "!=" => {
            tokens.next();
            Wants::NotIn(vec![exact(tokens)?])
        }
        "in" => {
            tokens.next();
            Wants::In(set(tokens)?)
        }
        "notin" => {
            tokens.next();
            Wants::NotIn(set(tokens)?)
        }
        sign @ (">" | "<" | "gt" | "lt") => {
            tokens.next();
            let bound = tokens.next();
            let Ok(bound) = bound.parse() else {
                return Err(unparsed(format!(
                    "values[0]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )));
            };
            if sign == ">" || sign == "gt" {
                Wants::Above(bound)
            } else {
                Wants::Below(bound)
            }
        }
        found => {
            return Err(unparsed(format!(
                "found '{found}', expected: in, notin, =, ==, !=, gt, lt"
            )));
        }
    };
    if let Wants::In(values) | Wants::NotIn(values) = &wants {
        for (number, value) in values.iter().enumerate() {
            if let Some(why) = crate::metadata::value_complaint(value) {
                return Err(unparsed(format!(
                    "values[{number}][{key}]: Invalid value: \"{value}\": {why}"
                )));
            }
        }
    }
    Ok((key, wants))
}

fn label_key(key: String) -> Result<String, Failure> {
    match crate::metadata::key_complaint(&key) {
        None => Ok(key),
        Some(why) => Err(unparsed(format!("<nil>: Invalid value: \"{key}\": {why}"))),
    }
}

/// The value after an equals sign, which may be nothing at all.
fn exact(tokens: &mut Tokens) -> Result<String, Failure> {
    match tokens.peek() {
        "" | "," => Ok(String::new()),
        word if is_word(word) => Ok(tokens.next()),
        found => Err(unparsed(format!("found '{found}', expected: identifier"))),
    }
}

/// A value in brackets, which may be nothing at all.
fn one_of(tokens: &mut Tokens) -> String {
    if is_word(tokens.peek()) {
        tokens.next()
    } else {
        String::new()
    }
}

fn set(tokens: &mut Tokens) -> Result<Vec<String>, Failure> {
    let open = tokens.next();
    if open != "(" {
        return Err(unparsed(format!("found '{open}' expected: '('")));
    }
    let mut values = vec![one_of(tokens)];
    loop {
        match tokens.next().as_str() {
            ")" => return Ok(values),
            "," => values.push(one_of(tokens)),
            found => return Err(unparsed(format!("found '{found}', expected: ',' or ')'"))),
        }
    }
}

/// Events are stored under the names of the core group.
fn stored_name(kind: &Kind, field: &str) -> String {
    if kind.is("Event") {
        let field = field.replace("reportingController", "reportingComponent");
        return field.replace("regarding.", "involvedObject.");
    }
    field.to_owned()
}

/// Kinds that know their fields say so in words of their own.
fn unknown_field(kind: &Kind, field: &str) -> String {
    let has_words = ["Pod", "Node", "Secret", "Event", "Namespace"]
        .iter()
        .any(|known| kind.is(known));
    if kind.custom || has_words || kind.is("CustomResourceDefinition") {
        format!("field label not supported: {field}")
    } else {
        format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}

/// The terms of a field selector: a comma behind a backslash is part of a value.
pub(crate) fn terms(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == ',' && !is_escaped {
            out.push(text.get(start..at).unwrap_or_default());
            start = at + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    out.push(text.get(start..).unwrap_or_default());
    out
}

/// The value that is meant: a backslash stands before itself, commas and equals signs, and before nothing else.
fn unescaped(text: &str) -> Result<String, Failure> {
    let bad = |why: String| Failure::BadRequest(format!("invalid field selector: {why}"));
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(meant @ ('\\' | ',' | '=')) => out.push(meant),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(bad(format!("invalid escape sequence: \\{other}")));
                }
            },
            ',' | '=' => return Err(bad(format!("unescaped character in value: {}", u32::from(letter)))),
            other => out.push(other),
        }
    }
    Ok(out)
}

impl Fields {
    /// Reads `metadata.name=a,spec.nodeName!=b`, of the fields that the kind lets select.
    pub fn read(kind: &Kind, text: &str) -> Result<Self, Failure> {
        let mut out = Vec::new();
        for part in terms(text).into_iter().filter(|part| !part.is_empty()) {
            let (field, same, value) = if let Some((field, value)) = part.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, true, value)
            } else {
                return Err(Failure::BadRequest(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let known = field == "metadata.name"
                || (field == "metadata.namespace" && (kind.namespaced || kind.custom))
                || kind.selectable.iter().any(|name| name == field);
            if !known {
                return Err(Failure::BadRequest(unknown_field(kind, field)));
            }
            out.push((stored_name(kind, field), same, unescaped(value)?));
        }
        Ok(Self(out))
    }

    /// Whether an object's fields are as wanted; what is missing counts as empty, or as false for a switch.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(field, same, wanted)| {
            let found = object.pointer(&format!("/{}", field.replace('.', "/")));
            let found = match found {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None if wanted == "false" || wanted == "true" => "false".to_owned(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            (found == *wanted) == *same
        })
    }

    /// The one name that can match, which spares looking at all objects.
    pub fn only_name(&self) -> Option<&str> {
        self.only("metadata.name")
    }

    /// The one value of a field that can match.
    pub fn only(&self, field: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(asked, same, _)| asked == field && *same)
            .map(|(_, _, value)| value.as_str())
    }
}
