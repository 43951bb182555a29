//! How a strategic merge patch merges lists, and in which order their items end up.
//!
//! Decides for one list at a time. Items of objects are told apart by the merge key, scalars by themselves.

use serde_json::Value;

use super::{DIRECTIVE, ELEMENT_ORDER, Fields, merge_fields, unknown_directive, without_directives};
use crate::golang;
use crate::patch::PatchError;
use crate::topology::Place;

/// One list of the target with its counterpart in the patch; `deletes` when that names items to take away.
pub(super) fn merge(
    place: Place<'_>,
    target: Vec<Value>,
    patch: Vec<Value>,
    deletes: bool,
) -> Result<Vec<Value>, PatchError> {
    let (merged, key) = place.strategy();
    if !merged && !deletes {
        return Ok(patch);
    }
    let Some(sample) = target.first().or(patch.first()) else {
        return Ok(target);
    };
    check_alike(sample, &target, &patch)?;
    let (target, patch, both) = if sample.is_object() {
        let key = key.ok_or_else(|| refuse("cannot merge lists without merge key"))?;
        let (target, patch) = carry_out_directives(target, patch, key)?;
        let both = merge_objects(place, target.clone(), &patch, key)?;
        (target, patch, both)
    } else if deletes {
        return Ok(target.into_iter().filter(|item| !patch.contains(item)).collect());
    } else {
        let mut both: Vec<Value> = Vec::new();
        for item in target.iter().chain(&patch) {
            if !both.contains(item) {
                both.push(item.clone());
            }
        }
        (target, patch, both)
    };
    order(both, &patch, &target, key.filter(|_| sample_is_object(&patch, &target)))
}

fn sample_is_object(patch: &[Value], target: &[Value]) -> bool {
    target.first().or(patch.first()).is_some_and(Value::is_object)
}

fn refuse(text: &str) -> PatchError {
    PatchError::Directive(text.to_owned())
}

fn check_alike(sample: &Value, target: &[Value], patch: &[Value]) -> Result<(), PatchError> {
    if sample.is_array() {
        return Err(refuse("lists of lists are not supported"));
    }
    let kind = std::mem::discriminant(sample);
    if target
        .iter()
        .chain(patch)
        .any(|item| std::mem::discriminant(item) != kind)
    {
        return Err(refuse(&format!(
            "list element types are not identical: [{} {}]",
            golang::list_text(target),
            golang::list_text(patch)
        )));
    }
    Ok(())
}

/// Items with a `$patch` say what happens to others: one goes, or all do.
fn carry_out_directives(
    mut target: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut replaces = false;
    for item in patch {
        let Some(fields) = item.as_object() else {
            continue;
        };
        match fields.get(DIRECTIVE) {
            None => plain.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                let gone = key_of(fields, key)?;
                target.retain(|held| held.get(key) != Some(gone));
            }
            Some(Value::String(directive)) if directive == "replace" => replaces = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(refuse("merging lists cannot yet be specified in the patch"));
            }
            Some(other) => return Err(unknown_directive(other, fields)),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (target, plain) })
}

fn key_of<'v>(fields: &'v Fields, key: &str) -> Result<&'v Value, PatchError> {
    fields.get(key).ok_or_else(|| {
        PatchError::Directive(format!(
            "map: {} does not contain declared merge key: {key}",
            golang::map_text(fields)
        ))
    })
}

fn key_in<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, PatchError> {
    match (key, item) {
        (None, item) => Ok(item),
        (Some(key), Value::Object(fields)) => key_of(fields, key),
        (Some(_), other) => Err(not_a("map[string]interface {}", other)),
    }
}

fn merge_objects(
    place: Place<'_>,
    mut target: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<Vec<Value>, PatchError> {
    for item in patch {
        let Value::Object(fields) = item else {
            continue;
        };
        let wanted = key_of(fields, key)?;
        match target.iter_mut().find(|held| held.get(key) == Some(wanted)) {
            Some(Value::Object(held)) => {
                *held = merge_fields(place.items(), std::mem::take(held), fields.clone())?;
            }
            _ => target.push(item.clone()),
        }
    }
    Ok(target)
}

/// The merged items: those of the patch in the patch's order, the others in the target's, and each other item before the
/// first one of the patch that it stood before.
fn order(merged: Vec<Value>, patch: &[Value], target: &[Value], key: Option<&str>) -> Result<Vec<Value>, PatchError> {
    let (mut mine, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let side = if position(patch, &item, key)?.is_some() {
            &mut mine
        } else {
            &mut others
        };
        side.push(item);
    }
    let mine = sorted(mine, patch, key)?;
    let others = sorted(others, target, key)?;
    let mut ordered = Vec::new();
    let mut others = others.into_iter().peekable();
    for item in mine {
        let at = position(target, &item, key)?;
        while let (Some(other), Some(at)) = (others.peek(), at) {
            if position(target, other, key)?.is_none_or(|before| before >= at) {
                break;
            }
            ordered.extend(others.next());
        }
        ordered.push(item);
    }
    ordered.extend(others);
    Ok(ordered)
}

/// Sorted by their places in `order`. An item without a place goes before all that it is compared with, as it does in the
/// server's sort, which walks each item down from the end.
fn sorted(items: Vec<Value>, order: &[Value], key: Option<&str>) -> Result<Vec<Value>, PatchError> {
    let mut sorted: Vec<(Option<usize>, Value)> = Vec::new();
    for item in items {
        let place = position(order, &item, key)?;
        let goes_before = |(held, _): &&(Option<usize>, Value)| match (place, held) {
            (Some(mine), Some(theirs)) => mine < *theirs,
            _ => true,
        };
        let passed = sorted.iter().rev().take_while(goes_before).count();
        sorted.insert(sorted.len() - passed, (place, item));
    }
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Result<Option<usize>, PatchError> {
    let wanted = key_in(item, key)?;
    for (place, held) in list.iter().enumerate() {
        if key_in(held, key)? == wanted {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Carries out every `$setElementOrder/NAME` with the list it belongs to, and takes both out of the patch.
pub(super) fn set_orders(place: Place<'_>, target: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let Some(wanted) = patch.remove(&directive) else {
            continue;
        };
        let name = directive.trim_start_matches(ELEMENT_ORDER);
        let wanted = into_list(wanted)?;
        let held = target.get(name).cloned().map(into_list).transpose()?;
        let new = patch.remove(name).map(into_list).transpose()?;
        let field = place.field(name);
        let key = field.strategy().1;
        check_order(new.as_deref().unwrap_or_default(), &wanted, key)?;
        let known = known_order(
            held.as_deref().unwrap_or_default(),
            new.as_deref().unwrap_or_default(),
            key,
        );
        let empty = |list: &Option<Vec<Value>>| list.as_ref().is_none_or(Vec::is_empty);
        let nothing = empty(&held) && empty(&new);
        let merged = match (held.clone(), new) {
            (None, None) => continue,
            (Some(_), _) | (_, Some(_)) if nothing => return Err(refuse("no elements in any of the given slices")),
            (Some(held), None) => held,
            (None, Some(new)) => new.iter().filter_map(without_directives).collect(),
            (Some(held), Some(new)) => merge(field, held, new, false)?,
        };
        let ordered = order(merged, &wanted, &known, key)?;
        target.insert(name.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

/// The order of the target's list as the server sees it when it sorts. It deletes and appends in place, so that new items
/// take the places of deleted ones there, as long as there are any.
fn known_order(target: &[Value], patch: &[Value], key: Option<&str>) -> Vec<Value> {
    let Some(key) = key else {
        return target.to_vec();
    };
    let (directives, plain): (Vec<&Value>, Vec<&Value>) = patch.iter().partition(|item| item.get(DIRECTIVE).is_some());
    let is_gone = |item: &Value| {
        directives
            .iter()
            .any(|gone| gone.get(DIRECTIVE).is_some_and(|it| it == "delete") && gone.get(key) == item.get(key))
    };
    let mut known: Vec<Value> = target.iter().filter(|item| !is_gone(item)).cloned().collect();
    if directives
        .iter()
        .any(|item| item.get(DIRECTIVE).is_some_and(|it| it == "replace"))
    {
        return known;
    }
    let new = plain.into_iter().filter(|item| {
        !target
            .iter()
            .any(|held| !is_gone(held) && held.get(key) == item.get(key))
    });
    known.extend(new.take(target.len() - known.len()).cloned());
    known
}

fn into_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(not_a("[]interface {}", &other)),
    }
}

fn not_a(wanted: &str, found: &Value) -> PatchError {
    let found = match found {
        Value::Null => "unknown",
        known => golang::type_name(known),
    };
    PatchError::Directive(format!("expected a {wanted}, but received a {found}"))
}

/// The patch's items stand in the directive in the same order.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut left = patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).peekable();
    for place in order {
        let Some(next) = left.peek() else {
            break;
        };
        if key_in(next, key)? == key_in(place, key)? {
            left.next();
        }
    }
    if left.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (golang::list_text(patch), golang::list_text(order));
    Err(refuse(&format!(
        "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
    )))
}
