//! Which fields of an object a rule looks at: the others need not be shown to it.
//!
//! Decides from the rule's text alone, and in doubt that it looks at all.

use std::collections::BTreeSet;

use cel::Program;
use cel::common::ast::{CallExpr, Expr};

/// What a rule sees of `self` and `oldSelf`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    is_whole: bool,
    /// As rules spell them.
    fields: BTreeSet<String>,
}

impl Sight {
    pub(super) fn of<'p>(programs: impl IntoIterator<Item = &'p Program>) -> Self {
        let mut sight = Self::default();
        for program in programs {
            sight.follow(&program.expression().expr);
        }
        sight
    }

    /// Whether a field, as rules spell it, is looked at.
    pub(super) fn has(&self, field: &str) -> bool {
        self.is_whole || self.fields.contains(field)
    }

    fn follow(&mut self, expression: &Expr) {
        match expression {
            Expr::Select(select) if is_subject(&select.operand.expr) => {
                self.fields.insert(select.field.clone());
            }
            Expr::Select(select) => self.follow(&select.operand.expr),
            Expr::Call(call) if is_about_old(call, "hasValue") => {}
            Expr::Call(call) => {
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.follow(&part.expr);
                }
            }
            Expr::Ident(name) => self.is_whole |= is_name(name),
            Expr::Literal(_) | Expr::Unspecified => {}
            Expr::Comprehension(_) | Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => self.is_whole = true,
        }
    }
}

fn is_name(name: &str) -> bool {
    matches!(name, "self" | "oldSelf")
}

/// `self`, `oldSelf`, `oldSelf.value()`.
fn is_subject(expression: &Expr) -> bool {
    match expression {
        Expr::Ident(name) => is_name(name),
        Expr::Call(call) => is_about_old(call, "value"),
        _ => false,
    }
}

fn is_about_old(call: &CallExpr, what: &str) -> bool {
    let target = call.target.as_deref().map(|target| &target.expr);
    call.func_name == what && call.args.is_empty() && matches!(target, Some(Expr::Ident(name)) if name == "oldSelf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::rules::library;

    fn seen(rule: &str) -> Option<Vec<String>> {
        let program = library::compile(rule).expect("a rule");
        let sight = Sight::of([&program]);
        (!sight.is_whole).then(|| sight.fields.into_iter().collect())
    }

    #[test]
    fn a_rule_sees_the_fields_that_it_names() {
        let rule = "has(self.selector) || (oldSelf.hasValue() && !has(oldSelf.value().selector))";
        assert_eq!(seen(rule), Some(vec!["selector".to_owned()]));
        assert_eq!(
            seen("self.a.b > 1 ? self.c == 'x' : size(self.d) < 3"),
            Some(["a", "c", "d"].map(str::to_owned).to_vec())
        );
        assert_eq!(seen("1 < 2"), Some(Vec::new()));
    }

    #[test]
    fn a_rule_that_could_look_anywhere_sees_all() {
        for rule in [
            "self == oldSelf",
            "size(self) < 3",
            "self['a'] == 1",
            "self.items.all(item, item in oldSelf)",
            "oldSelf.orValue(self).a == 1",
            "[self].size() == 1",
        ] {
            assert_eq!(seen(rule), None, "{rule}");
        }
    }
}
