//! Where lists and objects are merged item by item, and where they are one piece.
//!
//! Decides which parts of a kind's objects have an identity of their own: fields, items of sets, items of keyed lists. Read
//! from OpenAPI: for our kinds from their CRDs, for the server's own from what `builtin_schemas` has of a real server. Says nothing about
//! valid values; that is the schema's room.

mod read;
mod settle;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::builtin_schemas;
use crate::fields::{Scalar, Step};
use crate::golang;
use crate::schema;

/// The shape of one kind's objects.
#[derive(Debug, Clone)]
pub struct Topology {
    root: Shape,
    definitions: Arc<BTreeMap<String, Shape>>,
    custom: bool,
}

/// What is known of one place in an object.
#[derive(Debug, Clone)]
enum Shape {
    /// Nothing is known: objects go field by field, lists are one piece.
    Open,
    Scalar(Scalars),
    Object(ObjectShape),
    List(ListShape),
    /// Described among the definitions; this is how shapes may contain themselves.
    Named(String),
}

/// Which scalars a place takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalars {
    Any,
    Texts,
    Numbers,
    Switches,
}

#[derive(Debug, Clone, Default)]
struct ObjectShape {
    fields: BTreeMap<String, Field>,
    /// The shape of fields that have no name in the schema; `None` where there may be none.
    others: Option<Box<Shape>>,
    /// Owned as one piece.
    whole: bool,
}

#[derive(Debug, Clone)]
struct Field {
    shape: Shape,
    default: Option<Value>,
}

#[derive(Debug, Clone)]
struct ListShape {
    items: Box<Shape>,
    identity: Identity,
    /// A strategic merge patch merges this list instead of replacing it.
    merged: bool,
    merge_key: Option<String>,
}

/// What makes an item of a list the same item in another version of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    None,
    Value,
    Keys(Vec<String>),
}

/// How a value is to be walked at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One piece: a scalar, an atomic list or an atomic object.
    Whole,
    ByField,
    ByItem,
}

/// A place in an object of a known shape.
#[derive(Debug, Clone, Copy)]
pub struct Place<'t> {
    shape: &'t Shape,
    definitions: &'t BTreeMap<String, Shape>,
}

/// A list item that cannot be told from others. The text is the server's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    #[error("associative list with keys may not have a null element")]
    NullInKeyed,
    #[error("associative list with keys may not have non-map elements")]
    ScalarInKeyed,
    #[error(
        "associative list with keys has an element that omits all key fields {0} (and doesn't have default values for any key fields)"
    )]
    KeysMissing(String),
    #[error("associative list without keys has an element that's a map type")]
    ObjectInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("invalid indexing of non-associative list")]
    WholeList,
}

static OPEN: Shape = Shape::Open;
static BUILT_IN: LazyLock<Arc<BTreeMap<String, Shape>>> = LazyLock::new(read::built_in);

impl Topology {
    /// The shape of a kind that every kube-apiserver brings itself, if it is served here.
    pub fn of_builtin(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let name = builtin_schemas::built_in(group, version, kind)?;
        Some(Self {
            root: Shape::Named(name.to_owned()),
            definitions: Arc::clone(&BUILT_IN),
            custom: false,
        })
    }

    /// The shape of a custom kind, from the `openAPIV3Schema` of one of its versions.
    pub fn of_custom(schema: &Value) -> Self {
        Self {
            root: read::custom(schema),
            definitions: Arc::clone(&BUILT_IN),
            custom: true,
        }
    }

    pub fn root(&self) -> Place<'_> {
        Place {
            shape: &self.root,
            definitions: &self.definitions,
        }
        .resolved()
    }
}

impl<'t> Place<'t> {
    /// Follows names. A name without a definition is taken as open rather than as an error: the schemas hold what is needed.
    fn resolved(mut self) -> Self {
        while let Shape::Named(name) = self.shape {
            self.shape = self.definitions.get(name).unwrap_or(&OPEN);
        }
        self
    }

    fn at(self, shape: &'t Shape) -> Self {
        Self { shape, ..self }.resolved()
    }

    /// The place of a field. What the schema does not know is open.
    pub fn field(self, name: &str) -> Self {
        match self.shape {
            Shape::Object(object) => match (object.fields.get(name), &object.others) {
                (Some(field), _) => self.at(&field.shape),
                (None, Some(others)) => self.at(others),
                (None, None) => self.at(&OPEN),
            },
            Shape::Open | Shape::Scalar(_) | Shape::List(_) | Shape::Named(_) => self.at(&OPEN),
        }
    }

    /// Whether the schema names this field. Fields of maps and of open places are not named.
    pub fn names(self, field: &str) -> bool {
        match self.shape {
            Shape::Object(object) => object.fields.contains_key(field),
            Shape::Open | Shape::Scalar(_) | Shape::List(_) | Shape::Named(_) => false,
        }
    }

    /// Whether the schema has room for this field.
    pub fn admits(self, field: &str) -> bool {
        match self.shape {
            Shape::Object(object) => object.others.is_some() || object.fields.contains_key(field),
            Shape::Open | Shape::Scalar(_) | Shape::List(_) | Shape::Named(_) => true,
        }
    }

    /// The place of a list's items.
    pub fn items(self) -> Self {
        match self.shape {
            Shape::List(list) => self.at(&list.items),
            Shape::Open | Shape::Scalar(_) | Shape::Object(_) | Shape::Named(_) => self.at(&OPEN),
        }
    }

    /// How this value is walked here. A null takes the form of the place.
    pub fn form(self, value: &Value) -> Form {
        match (self.shape, value) {
            (Shape::Object(object), Value::Object(_) | Value::Null) if !object.whole => Form::ByField,
            (Shape::Open, Value::Object(_)) => Form::ByField,
            (Shape::List(list), Value::Array(_) | Value::Null) if list.identity != Identity::None => Form::ByItem,
            _ => Form::Whole,
        }
    }

    /// What is said of a value that is not what the schema wants here.
    pub fn misfit(self, value: &Value) -> Option<String> {
        let (wanted, found) = match (self.shape, value) {
            (Shape::Open | Shape::Named(_) | Shape::Scalar(Scalars::Any), _) | (_, Value::Null) => return None,
            (Shape::Object(_), Value::Object(_))
            | (Shape::List(_), Value::Array(_))
            | (Shape::Scalar(Scalars::Texts), Value::String(_))
            | (Shape::Scalar(Scalars::Numbers), Value::Number(_))
            | (Shape::Scalar(Scalars::Switches), Value::Bool(_)) => return None,
            (Shape::Object(_), _) => ("map", format!("&{{{}}}", golang::text(&settled(value)))),
            (Shape::List(_), _) => ("list", format!("&{{{}}}", golang::text(&settled(value)))),
            (Shape::Scalar(Scalars::Switches), _) => ("boolean", format!("&{{{}}}", golang::text(&settled(value)))),
            (Shape::Scalar(Scalars::Texts), _) => {
                let found = format!("&value.valueUnstructured{{Value:{}}}", golang::syntax(&settled(value)));
                ("string", found)
            }
            (Shape::Scalar(Scalars::Numbers), _) => ("numeric (int or float)", golang::type_name(value).to_owned()),
        };
        Some(format!("expected {wanted}, got {found}"))
    }

    /// Whether this is a list whose items have an identity.
    pub fn tells_items_apart(self) -> bool {
        matches!(self.shape, Shape::List(list) if list.identity != Identity::None)
    }

    /// What makes an item of this list itself.
    pub fn identity(self, item: &Value) -> Result<Step, NoIdentity> {
        let Shape::List(list) = self.shape else {
            return Err(NoIdentity::WholeList);
        };
        match &list.identity {
            Identity::None => Err(NoIdentity::WholeList),
            Identity::Value => match item {
                Value::Object(_) => Err(NoIdentity::ObjectInSet),
                Value::Array(_) => Err(NoIdentity::ListInSet),
                Value::Null => Err(NoIdentity::NullInSet),
                scalar => Ok(Step::Value(Scalar::new(scalar))),
            },
            Identity::Keys(keys) => self.keyed(keys, item),
        }
    }

    fn keyed(self, names: &[String], item: &Value) -> Result<Step, NoIdentity> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err(NoIdentity::NullInKeyed),
            _ => return Err(NoIdentity::ScalarInKeyed),
        };
        let mut keys: Vec<(String, Scalar)> = names
            .iter()
            .filter_map(|name| {
                let value = fields.get(name).or_else(|| self.items().default(name))?;
                Some((name.clone(), Scalar::new(value)))
            })
            .collect();
        if keys.is_empty() {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            return Err(NoIdentity::KeysMissing(format!("[{}]", names.join(" "))));
        }
        keys.sort();
        Ok(Step::Key(keys))
    }

    fn default(self, field: &str) -> Option<&'t Value> {
        match self.shape {
            Shape::Object(object) => object.fields.get(field)?.default.as_ref(),
            Shape::Open | Shape::Scalar(_) | Shape::List(_) | Shape::Named(_) => None,
        }
    }

    /// Whether a strategic merge patch merges this list, and by which key.
    pub fn strategy(self) -> (bool, Option<&'t str>) {
        match self.shape {
            Shape::List(list) => (list.merged, list.merge_key.as_deref()),
            Shape::Open | Shape::Scalar(_) | Shape::Object(_) | Shape::Named(_) => (false, None),
        }
    }
}

/// A value as an apply tells it. All of an apply is read as YAML, which makes whole numbers of floats that have no fraction.
fn settled(value: &Value) -> Value {
    let mut value = value.clone();
    schema::settle_numbers(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn a_container_port_is_known_by_number_and_protocol_also_where_the_protocol_is_left_out() {
        let pods = Topology::of_builtin("v1", "Pod").expect("pods are built in");
        let ports = pods.root().field("spec").field("containers").items().field("ports");
        let short = ports.identity(&json!({"containerPort": 80}));
        assert_eq!(short, ports.identity(&json!({"containerPort": 80, "protocol": "TCP"})));
        assert_ne!(short, ports.identity(&json!({"containerPort": 80, "protocol": "UDP"})));
    }

    #[test]
    fn every_built_in_kind_has_its_metadata() {
        for kind in Kinds::default().all() {
            let topology = kind.topology.as_deref().expect("it is among the schemas");
            let finalizers = topology.root().field("metadata").field("finalizers");
            assert_eq!(finalizers.form(&json!(["a"])), Form::ByItem, "{}", kind.kind);
        }
    }

    #[test]
    fn a_custom_kind_has_the_metadata_of_all_kinds() {
        let topology = Topology::of_custom(&json!({"type": "object", "properties": {"spec": {"type": "object"}}}));
        let owners = topology.root().field("metadata").field("ownerReferences");
        assert_eq!(
            owners.identity(&json!({"uid": "u"})).map(|step| step.to_string()),
            Ok("[uid=\"u\"]".to_owned())
        );
    }
}
