//! The least that still differs: requests, then parts of bodies and queries, are left out as long as the difference stays.

use serde_json::Value;

use super::run::{Bench, Mismatch};
use super::script::{Sequence, Step};

/// One way to make a sequence smaller: leave out a request, or put a simpler one in its place.
#[derive(Debug, Clone)]
struct Cut {
    at: usize,
    step: Option<Step>,
}

/// Rounds of simplifying; what is left after so many is small enough.
const ROUNDS: usize = 8;

/// The smallest sequence found that differs in the same way.
///
/// # Errors
/// The server does not answer.
pub async fn least(bench: &Bench, found: Mismatch) -> anyhow::Result<Mismatch> {
    let mut best = found;
    for _ in 0..ROUNDS {
        let shorter = round(bench, &best, removals(&best.sequence)).await?;
        let is_shortest = shorter.is_none();
        best = shorter.unwrap_or(best);
        if is_shortest {
            break;
        }
    }
    for _ in 0..ROUNDS {
        let cuts = best.sequence.steps.iter().enumerate().flat_map(|(at, step)| {
            simplifications(step)
                .into_iter()
                .map(move |step| Cut { at, step: Some(step) })
        });
        let simpler = round(bench, &best, cuts.collect()).await?;
        let is_simplest = simpler.is_none();
        best = simpler.unwrap_or(best);
        if is_simplest {
            break;
        }
    }
    Ok(best)
}

fn removals(sequence: &Sequence) -> Vec<Cut> {
    (0..sequence.steps.len()).map(|at| Cut { at, step: None }).collect()
}

/// Tries all cuts at once, then those that keep the difference together, as many of them as will do.
async fn round(bench: &Bench, best: &Mismatch, cuts: Vec<Cut>) -> anyhow::Result<Option<Mismatch>> {
    let alone = still(bench, best, cuts.iter().map(std::slice::from_ref)).await?;
    let good: Vec<Cut> = cuts
        .into_iter()
        .zip(&alone)
        .filter(|(_, still)| still.is_some())
        .map(|(cut, _)| cut)
        .collect();
    // All of them, the first half, the first quarter…
    let sizes = std::iter::successors(Some(good.len()), |size| (*size > 1).then_some(size / 2));
    let together = still(bench, best, sizes.filter_map(|size| good.get(..size))).await?;
    Ok(together.into_iter().chain(alone).flatten().next())
}

/// Which of these cuts keep the difference.
async fn still<'a>(
    bench: &Bench,
    best: &Mismatch,
    cuts: impl Iterator<Item = &'a [Cut]>,
) -> anyhow::Result<Vec<Option<Mismatch>>> {
    let sequences: Vec<Sequence> = cuts.map(|cuts| cut(&best.sequence, cuts)).collect();
    let outcomes = if best.is_in_answer() {
        bench.asked(sequences).await?
    } else {
        bench.wave(sequences).await?
    };
    let same = |mismatch: &Mismatch| mismatch.signature == best.signature;
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.mismatch.filter(same))
        .collect())
}

fn cut(sequence: &Sequence, cuts: &[Cut]) -> Sequence {
    let mut steps: Vec<Option<Step>> = sequence.steps.iter().cloned().map(Some).collect();
    // Two simplifications of one request do not add up: the first counts.
    for cut in cuts.iter().rev() {
        if let Some(place) = steps.get_mut(cut.at) {
            place.clone_from(&cut.step);
        }
    }
    Sequence {
        title: sequence.title.clone(),
        steps: steps.into_iter().flatten().collect(),
    }
}

fn simplifications(step: &Step) -> Vec<Step> {
    let mut out = Vec::new();
    if let Some((path, query)) = step.path.split_once('?') {
        let parts: Vec<&str> = query.split('&').collect();
        for left_out in 0..parts.len() {
            let kept: Vec<&str> = parts
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != left_out)
                .map(|(_, part)| *part)
                .collect();
            let path = if kept.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?{}", kept.join("&"))
            };
            out.push(Step { path, ..step.clone() });
        }
    }
    if step.metadata {
        out.push(Step {
            metadata: false,
            ..step.clone()
        });
    }
    let body = step
        .body
        .as_deref()
        .and_then(|body| serde_json::from_str::<Value>(body).ok());
    for smaller in body.iter().flat_map(without_one) {
        out.push(Step {
            body: Some(smaller.to_string()),
            ..step.clone()
        });
    }
    out
}

/// The value without any one of its parts, the largest first.
fn without_one(value: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    match value {
        Value::Object(fields) => {
            for key in fields.keys() {
                let mut less = fields.clone();
                less.remove(key);
                out.push(Value::Object(less));
            }
            for (key, inner) in fields {
                for smaller in without_one(inner) {
                    let mut less = fields.clone();
                    less.insert(key.clone(), smaller);
                    out.push(Value::Object(less));
                }
            }
        }
        Value::Array(items) => {
            for at in 0..items.len() {
                let mut less = items.clone();
                less.remove(at);
                out.push(Value::Array(less));
            }
            for (at, inner) in items.iter().enumerate() {
                for smaller in without_one(inner) {
                    let mut less = items.clone();
                    less[at] = smaller;
                    out.push(Value::Array(less));
                }
            }
        }
        _ => {}
    }
    out
}
