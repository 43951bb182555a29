//! Server-side apply: an object stated by one of its owners.
//!
//! Decides what the object becomes when an owner states all that it wants of it, what of its former wishes goes, and with
//! whom it then disagrees. May not judge the result; defaults and validation come after.

mod check;
mod combine;
mod conflict;
mod last_applied;

use serde_json::Value;

pub use conflict::{ApplyError, Conflict};

use crate::fields::{FieldSet, compare::Comparison, extract};
use crate::managers::{self, BEFORE_FIRST_APPLY, Entry, Manager, Managers, Operation, Write, blank};
use crate::topology::Place;

/// The object that an apply leaves behind, with its owners. `live` is `None` where the apply creates it; `force` takes fields
/// from other owners instead of refusing. The result may equal the live object: then there is nothing to store.
pub fn apply(live: Option<&Value>, stated: &Value, force: bool, write: &Write<'_>) -> Result<Value, ApplyError> {
    check::whole(stated, write)?;
    let mut owners = live.and_then(|live| Managers::read(live).ok()).unwrap_or_default();
    let before = live.map_or_else(|| blank::blank(write.api_version, write.kind), managers::without_owners);
    if let (Some(_), true) = (live, owners.is_empty()) {
        // Nobody was recorded: all that is there belongs to a name of its own, so that it can be disputed.
        let nobody = blank::blank(write.api_version, write.kind);
        let write = Write {
            manager: BEFORE_FIRST_APPLY,
            ..*write
        };
        owners = managers::after_update(owners, &nobody, &before, &write);
    }
    let applied = match state(&before, stated, owners.clone(), force, write) {
        Err(ApplyError::Conflict(conflicts)) if write.manager == last_applied::KUBECTL => {
            let disputed = last_applied::disputed(conflicts, &before, write);
            if !disputed.is_empty() {
                return Err(ApplyError::Conflict(disputed));
            }
            state(&before, stated, owners, true, write)
        }
        outcome => outcome,
    };
    applied.map(|object| last_applied::kept(object, stated, write))
}

/// One attempt.
fn state(
    before: &Value,
    stated: &Value,
    mut owners: Managers,
    force: bool,
    write: &Write<'_>,
) -> Result<Value, ApplyError> {
    let root = write.topology.root();
    let merged = combine::combine(root, before, stated);
    let wanted = fields_of(root, stated, write)?.without(write.reset);
    let me = write.as_manager(Operation::Apply);
    let last = owners.take(&me);
    let mine = Entry {
        fields: wanted.into(),
        api_version: write.api_version.to_owned(),
        time: last.as_ref().and_then(|last| last.time.clone()),
    };
    owners.put(me.clone(), mine);
    let after = match &last {
        Some(last) if !last.fields.is_empty() => pruned(root, merged, &owners, &last.fields, write)?,
        Some(_) | None => merged,
    };
    let owners = settle_owners(before, &after, owners, &me, force, write)?;
    Ok(owners.write_into(if after == *before { before.clone() } else { after }))
}

/// Takes what the apply changed from everybody else, or says who objects.
fn settle_owners(
    before: &Value,
    after: &Value,
    mut owners: Managers,
    me: &Manager,
    force: bool,
    write: &Write<'_>,
) -> Result<Managers, ApplyError> {
    let comparison = Comparison::of(write.topology.root(), before, after).without(write.reset);
    let touched = comparison.touched();
    let others = owners.iter().filter(|(manager, _)| *manager != me);
    let conflicts: Vec<Conflict> = others
        .flat_map(|(manager, entry)| {
            let paths = entry.fields.intersection(&touched).paths();
            paths.into_iter().map(|path| Conflict {
                manager: manager.clone(),
                path,
            })
        })
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflict(conflicts));
    }
    for (manager, entry) in owners.iter_mut() {
        if manager == me {
            entry.fields.subtract(managers::never_owned());
            // The time is that of the last change, not of the last apply.
            if after != before {
                entry.time = Some(write.stamp());
            }
        } else {
            entry.fields.subtract(&touched);
            entry.fields.subtract(&comparison.removed);
        }
    }
    owners.drop_empty();
    Ok(owners)
}

fn fields_of(root: Place<'_>, value: &Value, write: &Write<'_>) -> Result<FieldSet, ApplyError> {
    extract::fields_of(root, value).map_err(|(path, why)| check::refusal(value, write, &[(path, why.to_string())]))
}

/// The object without what the applier stated last time and nobody states now.
fn pruned(
    root: Place<'_>,
    merged: Value,
    owners: &Managers,
    last: &FieldSet,
    write: &Write<'_>,
) -> Result<Value, ApplyError> {
    let last = last.with_named_parents(root);
    let all = fields_of(root, &merged, write)?.with_named_parents(root);
    let fields = |value: &Value| fields_of(root, value, write).map(|set| set.with_named_parents(root));
    let without_last = extract::remove(root, &merged, &last);
    // What somebody owns comes back, also if it is the applier itself.
    let owned = owners
        .iter()
        .fold(FieldSet::default(), |all, (_, entry)| all.union(&entry.fields));
    let kept = fields(&without_last)?.union(&owned.with_named_parents(root));
    let without_orphans = extract::remove(root, &merged, &all.difference(&kept));
    // And so does what went only because it lay inside of something that went.
    let gone = all.difference(&fields(&without_orphans)?).intersection(&last);
    Ok(extract::remove(root, &merged, &gone))
}
