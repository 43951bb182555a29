//! Every story once more, with every plan made twice: from the objects as they are, and from the same objects with other sentences in
//! their statuses. Both plans do the same, because nothing is decided from a sentence. The marks that machine-controller-manager keeps at
//! the end of a description are no sentences.

use std::sync::Arc;

use jiff::Timestamp;
use millwright_core::api::{Machine, keys};
use millwright_core::{machine, set};

use crate::stage::Stage;
use crate::{script, stories};

/// The sentence that stands in place of every other.
const OTHER: &str = "These words are another version's, or another language's";

/// The same Machine, with another sentence and the same mark at its end.
fn reworded(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    let operation = machine
        .status
        .as_mut()
        .and_then(|status| status.last_operation.as_mut());
    if let Some(said) = operation.and_then(|operation| operation.description.as_mut()) {
        let marks = keys::DELETION_MARKS.iter();
        let marks = marks.chain([&keys::MARK_INITIALIZE, &keys::MARK_DRAINED_FOR_UPDATE]);
        let mark = marks.copied().find(|mark| said.ends_with(mark)).unwrap_or_default();
        *said = format!("{OTHER}. {mark}");
    }
    machine
}

/// The text of a decision without the sentences in it.
fn unworded(decided: &str) -> String {
    let (mut rest, mut left) = (decided, String::new());
    while let Some((at, field)) = first_sentence(rest) {
        let (before, after) = rest.split_at(at + field.len());
        left.push_str(before);
        rest = after.strip_prefix("Some(").unwrap_or(after);
        let Some(text) = rest.strip_prefix('"') else { continue };
        let mut escaped = false;
        let end = text.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        rest = &text[end.map_or(text.len(), |end| end + 1)..];
    }
    left + rest
}

fn first_sentence(text: &str) -> Option<(usize, &'static str)> {
    let fields = ["description: ", "message: "];
    fields
        .into_iter()
        .filter_map(|field| Some((text.find(field)?, field)))
        .min()
}

/// What a plan does about a Machine. A status that says nothing new but a sentence is no decision, nor is what is told on the Node along
/// with it.
fn decisions(machine: &Machine, plan: &machine::Plan) -> Vec<String> {
    let is_decision = |step: &&machine::Step| match step {
        machine::Step::Record(change) => {
            let mut change = change.clone();
            change.description = machine.last_words().unwrap_or_default().to_owned();
            !change.is_told(machine)
        }
        machine::Step::WriteCondition(_) => false,
        _ => true,
    };
    let steps = plan.steps.iter().filter(is_decision);
    steps.map(|step| unworded(&format!("{step:?}"))).collect()
}

fn plan_machine_twice(seen: &machine::Observed<'_>, now: Timestamp) -> machine::Plan {
    let plan = machine::plan(seen, now);
    let other = reworded(seen.machine);
    let again = machine::plan(
        &machine::Observed {
            machine: &other,
            ..*seen
        },
        now,
    );
    let (decided, mut decided_again) = (decisions(seen.machine, &plan), decisions(&other, &again));
    // A plan that tells its sentence first acts when that is stored.
    if decided_again.len() < again.steps.len() && decided.starts_with(&decided_again) {
        decided_again.clone_from(&decided);
    }
    assert_eq!(decided, decided_again, "a sentence decides: {:#?}", seen.machine.status);
    plan
}

/// What a plan does about a set's Machines. The status repeats their sentences.
fn moves(plan: &set::Plan) -> Vec<String> {
    let steps = plan.steps.iter().filter(|step| !matches!(step, set::Step::Record(_)));
    steps.map(|step| unworded(&format!("{step:?}"))).collect()
}

fn plan_set_twice(seen: &set::Observed<'_>, now: Timestamp) -> set::Plan {
    let plan = set::plan(seen, now);
    let others: Vec<Arc<Machine>> = seen.machines.iter().map(|view| Arc::new(reworded(view))).collect();
    let others = seen.machines.iter().zip(&others);
    let others = others.map(|(view, machine)| set::MachineView {
        machine,
        ..view.clone()
    });
    let others: Vec<set::MachineView<'_>> = others.collect();
    let again = set::plan(
        &set::Observed {
            machines: &others,
            ..*seen
        },
        now,
    );
    assert_eq!(moves(&plan), moves(&again), "a sentence decides about the set");
    plan
}

#[test]
fn no_decision_follows_from_a_sentence() {
    for story in stories() {
        let mut stage = Stage::default();
        (stage.plan_machine, stage.plan_set) = (plan_machine_twice, plan_set_twice);
        let told = script::tell(&mut stage, &story.text, &story.name);
        assert!(told.contains('>'), "{} is played", story.name);
    }
}

#[test]
fn sentences_and_only_sentences_are_left_out_of_what_is_compared() {
    let said = r#"Change { phase: Failed, description: "a \"b\" c", message: Some("d"), code: "e" }"#;
    assert_eq!(
        unworded(said),
        r#"Change { phase: Failed, description: , message: ), code: "e" }"#
    );
}
