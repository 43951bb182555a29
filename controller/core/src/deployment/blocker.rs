//! What a rollout waits for that does not move, in the words of its condition: the machine that is not well, who refuses what, or the
//! rule that lets nothing go.
//!
//! MD-12; the rules are those of MD-6 and MD-7. What only a person can mend is told before what may pass. Decides
//! only words.

use jiff::Timestamp;

use super::budget::Mode;
use super::group::Group;
use super::in_place;
use super::members::{Members, Stand, length};
use crate::api::{Phase, keys, meta};
use crate::set::facts::{counts_as_available, is_kept, is_leaving};
use crate::set::growth::unanswered;
use crate::set::{MachineView, Observed, freeze, repair};

/// Why nothing moves.
pub(super) fn blocker(members: &Members<'_>, stand: &Stand, now: Timestamp) -> String {
    let new = members.new_member();
    let wanted = stand.group.current().map_or(0, |row| row.number);
    new.and_then(|new| uncreated(new, wanted, now))
        .or_else(|| new.and_then(|new| unavailable(new, "its machines", now)))
        .or_else(|| undeleted(members))
        .or_else(|| members.old().iter().find_map(|old| kept(old, now)))
        .or_else(|| not_updated(members, stand.mode))
        .unwrap_or_else(|| match holder(members, stand, now) {
            Some(holder) => format!("{} {holder}", rule(stand.mode, &stand.group)),
            None => rule(stand.mode, &stand.group),
        })
}

/// Who is meant first by the rule of a rolling update that lets nothing move: a Machine that leaves, else an old one that is not available.
fn holder(members: &Members<'_>, stand: &Stand, now: Timestamp) -> Option<String> {
    let own = members.sets.iter().flat_map(|member| member.owned());
    let leaving = own.filter(|machine| is_leaving(machine)).map(|machine| {
        let said = machine.last_words().unwrap_or_default();
        format!("First {}: {said}", meta::name(&machine.metadata))
    });
    let old = members.old().iter().find_map(|old| {
        let whose = format!("the machines of MachineSet \"{}\"", meta::name(&old.set.metadata));
        unavailable(old, &whose, now)
    });
    match stand.mode {
        Mode::Rolling => leaving.into_iter().next().or(old),
        Mode::Scaling | Mode::Recreating | Mode::InPlace { .. } | Mode::Holding => None,
    }
}

/// Why Machines of the new template are not made.
fn uncreated(new: &Observed<'_>, wanted: i64, now: Timestamp) -> Option<String> {
    let missing = wanted - length(new.owned().filter(|machine| !is_leaving(machine)).count());
    if missing <= 0 {
        return None;
    }
    let metadata = &new.set.metadata;
    let name = meta::name(metadata);
    let sent = unanswered(new, now);
    let why = if new.is_frozen {
        "the deployment is frozen, so none is created".to_owned()
    } else if freeze::is_labelled(new.set) {
        format!("MachineSet \"{name}\" is frozen, so none is created")
    } else if meta::label(metadata, keys::SCALE_UP_DISABLED).is_some() {
        format!(
            "MachineSet \"{name}\" carries the label {}, so none is created",
            keys::SCALE_UP_DISABLED
        )
    } else if let Some(fault) = new.refusal {
        format!("no machine can be made of the class: {fault}")
    } else if let Some(refusal) = &new.notes.create_refused {
        format!("the API server refuses to create them: {}", refusal.message)
    } else if sent > 0 {
        format!("{sent} creations were not answered and may still arrive")
    } else if new.class_unchecked {
        "their class has not been checked yet".to_owned()
    } else {
        return None;
    };
    Some(format!("{missing} of its machines are missing: {why}."))
}

/// Which Machine of a set is not available, and what it says itself.
fn unavailable(member: &Observed<'_>, whose: &str, now: Timestamp) -> Option<String> {
    let waits = |machine: &&MachineView<'_>| !is_leaving(machine) && !counts_as_available(member, machine, now);
    let pending: Vec<&MachineView<'_>> = member.owned().filter(waits).collect();
    let first = pending.first()?;
    let operation = first.last_operation();
    let operation = operation.and_then(|operation| operation.description.clone());
    let said = match (first.phase(), first.provider_id()) {
        (Phase::Pending, Some(_)) => "its VM is made, and its node has not joined".to_owned(),
        (Phase::Failed, _) if is_kept(first, now) => match first.preserved_until() {
            Some(until) => {
                format!("it is preserved until {until:.0}, as somebody asks, and keeps its place until then")
            }
            None => "it is about to be preserved".to_owned(),
        },
        (Phase::Running, _) => format!("it has not been ready for {} s yet", member.set.spec.min_ready_seconds),
        _ => operation.unwrap_or_default(),
    };
    let told = format!(
        "{} of {whose} are not available, first {} ({}): {said}",
        pending.len(),
        meta::name(&first.metadata),
        first.phase().as_str()
    );
    Some(match kept(member, now) {
        Some(kept) => format!("{}. {kept}", told.trim_end_matches('.')),
        None => told,
    })
}

/// Whose Machines the API server lets nobody delete.
fn undeleted(members: &Members<'_>) -> Option<String> {
    members.sets.iter().find_map(|member| {
        let refusal = member.notes.delete_refused.as_ref()?;
        let name = meta::name(&member.set.metadata);
        let message = &refusal.message;
        Some(format!(
            "The API server refuses to delete machines of MachineSet \"{name}\": {message}."
        ))
    })
}

/// Why unhealthy Machines of a set are not replaced.
fn kept(member: &Observed<'_>, now: Timestamp) -> Option<String> {
    repair::held_back(member, member.owned(), now).map(|held| format!("{held}."))
}

/// Which Machine's update in place does not end, and what it says itself.
fn not_updated(members: &Members<'_>, mode: Mode) -> Option<String> {
    if !matches!(mode, Mode::InPlace { .. }) {
        return None;
    }
    let begun: Vec<&MachineView<'_>> = in_place::under_way(members).collect();
    let first = begun.first()?;
    let said = first.last_words().map(str::to_owned);
    Some(format!(
        "{} machines are being updated in place, first {} ({}): {}",
        begun.len(),
        meta::name(&first.metadata),
        first.phase().as_str(),
        said.unwrap_or_default()
    ))
}

/// The rule of the budget that lets nothing move, as everybody does what they should.
fn rule(mode: Mode, group: &Group) -> String {
    let leaving: i64 = group.rows.iter().map(|row| row.leaving).sum();
    match mode {
        Mode::Holding | Mode::InPlace { is_paused: true } => "The deployment is paused.".to_owned(),
        Mode::Rolling | Mode::Recreating if leaving > 0 && group.room() <= 0 => {
            format!("{leaving} machines are leaving and hold their place until their VMs are gone.")
        }
        Mode::Rolling | Mode::Recreating if group.unseen > 0 => format!(
            "A set with {} machines may still arrive by a creation that was not answered.",
            group.unseen
        ),
        Mode::Rolling | Mode::InPlace { .. } if !group.is_in_sight => {
            "The target cluster is away: nobody can see whether machines are available.".to_owned()
        }
        Mode::Rolling | Mode::InPlace { .. } if group.may_fall() <= 0 && group.on_the_way() > 0 => format!(
            "{} machines are asked for, {} must be available, and {} new ones are not yet: no older one can be given up.",
            group.numbers(),
            group.floor(),
            group.on_the_way()
        ),
        Mode::Rolling | Mode::InPlace { .. } if group.slack() == 0 => format!(
            "{} machines are available and {} must be (maxUnavailable {}): no more can be taken off.",
            group.available(),
            group.floor(),
            group.unavailable
        ),
        Mode::Recreating => {
            let left: i64 = group.old().iter().map(|row| row.present + row.leaving).sum();
            format!("{left} machines of older templates must be gone before new ones come.")
        }
        Mode::InPlace { .. } => format!(
            "{} machines of older templates await their update in place.",
            group.old().iter().map(|row| row.present).sum::<i64>()
        ),
        Mode::Scaling | Mode::Rolling => "Its next machines are about to be made or taken off.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::group::Row;

    /// Three are wanted, one more may be, none may be missing.
    fn group(old: [i64; 3], new: [i64; 3]) -> Group {
        let row = |is_new, [number, available, leaving]: [i64; 3]| Row {
            is_new,
            number,
            present: number,
            leaving,
            available,
            named: 0,
        };
        Group {
            rows: vec![row(false, old), row(true, new)],
            wanted: 3,
            surge: 1,
            unavailable: 0,
            is_in_sight: true,
            ..Group::default()
        }
    }

    #[test]
    fn a_rule_that_lets_nothing_move_is_told_with_its_numbers() {
        let told = |group: &Group| rule(Mode::Rolling, group);
        let leaving = group([2, 2, 1], [1, 1, 0]);
        assert_eq!(
            told(&leaving),
            "1 machines are leaving and hold their place until their VMs are gone."
        );
        let on_the_way = group([3, 3, 0], [1, 0, 0]);
        assert_eq!(
            told(&on_the_way),
            "4 machines are asked for, 3 must be available, and 1 new ones are not yet: no older one can be given up."
        );
        let short = group([3, 2, 0], [1, 1, 0]);
        assert_eq!(
            told(&short),
            "3 machines are available and 3 must be (maxUnavailable 0): no more can be taken off."
        );
        let unseen = Group {
            unseen: 2,
            ..group([3, 3, 0], [0, 0, 0])
        };
        assert_eq!(
            told(&unseen),
            "A set with 2 machines may still arrive by a creation that was not answered."
        );
        let blind = Group {
            is_in_sight: false,
            ..group([3, 3, 0], [1, 1, 0])
        };
        assert_eq!(
            told(&blind),
            "The target cluster is away: nobody can see whether machines are available."
        );
    }

    #[test]
    fn what_holds_and_what_recreates_has_words_of_its_own() {
        let group = group([2, 2, 0], [0, 0, 0]);
        assert_eq!(rule(Mode::Holding, &group), "The deployment is paused.");
        assert_eq!(
            rule(Mode::Recreating, &group),
            "2 machines of older templates must be gone before new ones come."
        );
    }
}
