//! The structural schema of a custom resource: what it fills in, throws away and refuses.
//!
//! Everything is a pure function of a schema and of values. Nothing here knows of requests, versions or stores, and nothing looks at
//! `metadata` beyond its field names. The judge of every rule and word is the real server: `tests/schema` holds what it answered.
//!
//! The order for an object that comes in: [`fill_defaults`], [`prune`], [`validate`] (and
//! [`validate_scale`] where there is a scale subresource), and [`settle_numbers`] before it is stored.
//!
//! # Not yet
//! - `metadata` of embedded resources is pruned but its labels, annotations and types are not judged.
//! - The formats `uuid3`…`uuid5`, `isbn…`, `creditcard`, `ssn`, `hexcolor`, `rgbcolor`, `bsonobjectid` are let pass.
//! - Which branch of a failed `anyOf`/`oneOf` is told in detail is the server's guess by a count that is only approximated here.
//! - Rules: no type check and no cost limits when a CRD is read; a field of a wrong type that an older schema let in makes the server
//!   say "invalid data", here the rule sees the value as it is. Missing: comprehensions with two variables, lenient `semver`,
//!   `format.named` and the formats that are not named in `rules::library`, `authorizer`. Rules that go through a map meet its keys in
//!   no fixed order, which shows only where a message is made from it.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use self::rules::Rule;
pub use self::{
    cause::{Cause, Reason, Verdict},
    defaults::fill_defaults,
    numbers::settle_numbers,
    prune::prune,
    read::ReadError,
    validate::{RULES_UNCHECKED, Scale, validate, validate_scale, validate_status},
};

mod cause;
mod defaults;
mod formats;
mod numbers;
mod place;
mod prune;
mod read;
mod rules;
mod validate;

pub(crate) use self::place::Place;

/// A node of a structural schema, made by [`Schema::read`] from a version's `openAPIV3Schema`.
#[derive(Debug, Default)]
pub struct Schema {
    kind: Option<Kind>,
    format: Option<String>,
    nullable: bool,
    default: Option<Value>,
    allowed: Vec<Value>,
    properties: BTreeMap<String, Schema>,
    additional: Additional,
    required: Vec<String>,
    items: Option<Box<Schema>>,
    list: ListKind,
    bounds: Bounds,
    pattern: Option<Regex>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    keeps_unknown: bool,
    is_embedded: bool,
    rules: Vec<Rule>,
    /// Whether this node or one below has rules.
    pub(crate) has_rules: bool,
}

/// What a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    Text,
    Integer,
    Number,
    Bool,
    IntOrText,
}

impl Kind {
    /// The type's name, as sentences give it.
    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Bool => "boolean",
            Self::IntOrText => "integer,string",
        }
    }
}

/// What is known of fields that are not among the properties.
#[derive(Debug, Default)]
enum Additional {
    #[default]
    None,
    /// `additionalProperties: true`
    Any,
    Of(Box<Schema>),
}

/// How the items of a list are told apart.
#[derive(Debug, Default)]
enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Numbers that bound a value.
#[derive(Debug, Default)]
struct Bounds {
    minimum: Option<f64>,
    excludes_minimum: bool,
    maximum: Option<f64>,
    excludes_maximum: bool,
    factor: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
}

impl Schema {
    /// What is known of a field: a property of its own, or what all further ones share.
    fn child(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Of(shared) => Some(shared),
            Additional::Any => Some(&ANYTHING),
            Additional::None => None,
        })
    }

    /// The item of an older list that is the same item as this one; only keyed lists can tell.
    fn same_item<'v>(&self, old: Option<&'v Value>, item: &Value) -> Option<&'v Value> {
        let (ListKind::Map(keys), Some(Value::Array(old))) = (&self.list, old) else {
            return None;
        };
        old.iter()
            .find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
    }
}

/// The schema of whatever comes.
static ANYTHING: Schema = Schema {
    kind: None,
    format: None,
    nullable: true,
    default: None,
    allowed: Vec::new(),
    properties: BTreeMap::new(),
    additional: Additional::None,
    required: Vec::new(),
    items: None,
    list: ListKind::Atomic,
    bounds: Bounds {
        minimum: None,
        excludes_minimum: false,
        maximum: None,
        excludes_maximum: false,
        factor: None,
        min_length: None,
        max_length: None,
        min_items: None,
        max_items: None,
        min_properties: None,
        max_properties: None,
    },
    pattern: None,
    all_of: Vec::new(),
    any_of: Vec::new(),
    one_of: Vec::new(),
    not: None,
    keeps_unknown: true,
    is_embedded: false,
    rules: Vec::new(),
    has_rules: false,
};
