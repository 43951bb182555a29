//! `x-kubernetes-validations`: rules in CEL that a value, and its change, has to keep.
//!
//! Decides when a rule is asked and how its failure is told. The language is the `cel` crate's; Kubernetes' own functions are in
//! `library`, the view that a rule has of an object is in `view`.

use std::sync::LazyLock;

use cel::{Context, ExecutionError, Program, Value as Cel, objects::OptionalValue};
use serde_json::Value;

use super::{
    Additional, ReadError, Schema,
    cause::{Cause, Reason, Verdict},
    place::Place,
};

mod library;
mod sight;
mod things;
mod url;
mod view;

/// One rule of a schema node, compiled.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Program,
    source: String,
    message: Option<String>,
    made_message: Option<Program>,
    field_path: String,
    reason: Reason,
    /// The rule is asked without an old value too, and sees it as an optional.
    takes_missing_old: bool,
    /// The rule speaks of the change. It is asked only when there is one, and unchanged values are no excuse.
    is_of_change: bool,
    sight: sight::Sight,
}

/// What every rule may call. It is the same for all, so it is built once and each rule adds its variables in a scope of its own.
static LIBRARY: LazyLock<Context<'static, 'static>> = LazyLock::new(library::context);

impl Rule {
    pub(crate) fn read(source: &Value, path: &str) -> Result<Self, ReadError> {
        let text = |name: &str| source.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let compile = |rule: &str| {
            let unread = |problem: cel::ParseErrors| ReadError::Rule {
                path: path.to_owned(),
                rule: rule.to_owned(),
                problem: problem.to_string(),
            };
            library::compile(rule).map_err(unread)
        };
        let rule = text("rule").unwrap_or_default();
        let program = compile(rule)?;
        let made_message = text("messageExpression").map(compile).transpose()?;
        Ok(Self {
            sight: sight::Sight::of(std::iter::once(&program).chain(&made_message)),
            is_of_change: program.references().has_variable("oldSelf"),
            program,
            source: rule.trim().to_owned(),
            message: text("message").map(|text| text.trim().to_owned()),
            made_message,
            field_path: text("fieldPath")
                .unwrap_or_default()
                .replace("['", "[")
                .replace("']", "]"),
            reason: match text("reason") {
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            takes_missing_old: source
                .get("optionalOldSelf")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
        })
    }

    /// How the rule is named where its own message has to do: the message, or the rule itself.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source)
    }

    fn ask(&self, context: &Context<'_, 'static>, at: &Asked<'_>) -> Option<Cause> {
        match self.program.execute(context) {
            Ok(Cel::Bool(true)) => None,
            Ok(Cel::Bool(false)) => Some(self.broken(context, at)),
            Ok(_) => Some(self.failed("the rule did not answer yes or no", at)),
            Err(error) => Some(self.failed(&words(&error), at)),
        }
    }

    fn broken(&self, context: &Context<'_, 'static>, at: &Asked<'_>) -> Cause {
        let made = self.made_message.as_ref().and_then(|made| made.execute(context).ok());
        let made = match &made {
            Some(Cel::String(text)) if !text.trim().is_empty() && !text.contains('\n') => Some(text.trim()),
            _ => None,
        };
        let plain = || {
            self.message
                .clone()
                .unwrap_or_else(|| format!("failed rule: {}", self.source))
        };
        let detail = made.map_or_else(plain, str::to_owned);
        let shows_value = matches!(self.reason, Reason::Invalid | Reason::Duplicate)
            && !matches!(at.value, Value::Array(_) | Value::Object(_));
        if shows_value {
            let detail = if self.reason == Reason::Duplicate { "" } else { &detail };
            return Cause::with_value(self.reason, at.place, at.value, detail);
        }
        let whole = at.place.path();
        let field = match (whole.as_str(), self.field_path.as_str()) {
            (_, "") => whole,
            ("<nil>", below) => below.trim_start_matches('.').to_owned(),
            (above, below) => format!("{above}{below}"),
        };
        Cause::bare(self.reason, field, &detail)
    }

    /// The rule itself came to grief. The value's type is told, not the value.
    fn failed(&self, problem: &str, at: &Asked<'_>) -> Cause {
        let detail = format!("{problem} evaluating rule: {}", self.name());
        let kind = at.schema.kind.map(|kind| kind.name()).unwrap_or_default();
        Cause::with_value(Reason::Invalid, at.place, &Value::from(kind), &detail)
    }
}

/// Of what a rule is asked.
struct Asked<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    place: &'a Place<'a>,
    /// Whether the value is as it was, by itself or as part of something that is.
    is_unchanged: bool,
}

impl<'a> Asked<'a> {
    /// A part of what is asked of, and what it was before. The part of an unchanged whole is unchanged, matched or not.
    fn part(&self, schema: &'a Schema, value: &'a Value, old: Option<&'a Value>, place: &'a Place<'a>) -> Self {
        let is_unchanged = self.is_unchanged || old == Some(value);
        Self {
            schema,
            value,
            old,
            place,
            is_unchanged,
        }
    }
}

/// Asks all rules of the schema about the object.
pub(crate) fn apply(schema: &Schema, new: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    let place = Place::root();
    let is_unchanged = old == Some(new);
    walk(
        &Asked {
            schema,
            value: new,
            old,
            place: &place,
            is_unchanged,
        },
        true,
        verdict,
    );
}

fn walk(at: &Asked<'_>, is_root: bool, verdict: &mut Verdict) {
    let Asked {
        schema,
        value,
        old,
        place,
        ..
    } = *at;
    if !schema.has_rules || value.is_null() {
        return;
    }
    if !schema.rules.is_empty() {
        ask_all(at, is_root, verdict);
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(below) = schema.child(name) else { continue };
                let place = match schema.additional {
                    Additional::None => place.field(name),
                    Additional::Any | Additional::Of(_) => place.key(name),
                };
                let old = old.and_then(|old| old.get(name));
                walk(&at.part(below, value, old, &place), false, verdict);
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                let place = place.index(index);
                walk(
                    &at.part(below, item, schema.same_item(old, item), &place),
                    false,
                    verdict,
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn ask_all(at: &Asked<'_>, is_root: bool, verdict: &mut Verdict) {
    let looks_back = at.schema.rules.iter().any(|rule| rule.is_of_change);
    let old = at.old.filter(|old| looks_back && !old.is_null());
    let sees = |field: &str| at.schema.rules.iter().any(|rule| rule.sight.has(field));
    let myself = view::of_subject(at.schema, at.value, is_root, &sees);
    let before = old.map(|old| {
        let old = view::aligned(at.schema, old, at.value, &sees);
        view::of_subject(at.schema, &old, is_root, &sees)
    });
    for rule in &at.schema.rules {
        let mut context = LIBRARY.new_inner_scope();
        context.add_variable_from_value("self", myself.clone());
        match (rule.is_of_change, rule.takes_missing_old, &before) {
            (true, false, None) => continue,
            (false, ..) => {}
            (true, false, Some(before)) => context.add_variable_from_value("oldSelf", before.clone()),
            (true, true, before) => {
                let optional = before.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", Cel::Opaque(std::sync::Arc::new(optional)));
            }
        }
        let Some(cause) = rule.ask(&context, at) else { continue };
        if !rule.is_of_change && at.is_unchanged {
            verdict.warnings.push(cause.to_string());
        } else {
            verdict.causes.push(cause);
        }
    }
}

/// An error of the language in the server's words, where it is one that a well-typed rule can meet.
fn words(error: &ExecutionError) -> String {
    let shown = |value: &Cel| match value {
        Cel::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    match error {
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", shown(index)),
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::NoSuchOverload(_) => "no such overload".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
