//! Waves of sequences on both sides, and where their answers part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::coverage::Coverage;
use super::kinds::{self, Kind};
use super::normal::{Names, difference};
use super::script::{Sequence, Step};
use super::value::{Base, Sandbox};
use super::wire::{Followed, Wire};

/// Sequences under way at once: enough to keep two cores of an API server busy.
const AT_ONCE: usize = 48;

/// Both sides, and names that were never used.
pub struct Bench {
    wire: Wire,
    base: Arc<Base>,
    rooms: AtomicU64,
    /// Begins the names of namespaces, so that two benches can share a server.
    prefix: &'static str,
}

/// Where the two sides part, and what they said.
#[derive(Debug, Clone)]
pub struct Mismatch {
    pub sequence: Sequence,
    /// The request, or the kind whose stream differs.
    pub at: String,
    pub server: Value,
    pub sandbox: Value,
    /// Alike for mismatches that are likely to have one cause.
    pub signature: String,
}

/// What became of a sequence.
#[derive(Debug)]
pub struct Outcome {
    pub mismatch: Option<Mismatch>,
    pub coverage: Coverage,
    pub requests: usize,
}

/// A sequence that has been asked.
struct Asked {
    sequence: Sequence,
    room: String,
    sandbox: Sandbox,
    names: [Names; 2],
    outcome: Outcome,
}

impl Mismatch {
    /// Whether it shows before the streams are compared.
    #[must_use]
    pub fn is_in_answer(&self) -> bool {
        self.at.starts_with("request")
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = difference(&self.server, &self.sandbox).unwrap_or_default();
        let part = |whole: &Value| whole.pointer(&at).cloned().unwrap_or_default();
        writeln!(f, "{}", self.sequence)?;
        writeln!(f, "differs at {} {at}", self.at)?;
        writeln!(f, "  server  {}\n  sandbox {}", part(&self.server), part(&self.sandbox))?;
        writeln!(f, "whole\n  server  {}\n  sandbox {}", self.server, self.sandbox)
    }
}

impl Bench {
    /// A bench on a server.
    #[must_use]
    pub fn new(wire: Wire, prefix: &'static str) -> Self {
        Self {
            wire,
            base: Arc::new(Base::new()),
            rooms: AtomicU64::new(0),
            prefix,
        }
    }

    fn room(&self) -> String {
        format!("{}{}", self.prefix, self.rooms.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks all sequences of both sides.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn wave(&self, sequences: Vec<Sequence>) -> anyhow::Result<Vec<Outcome>> {
        let used: Vec<&'static Kind> = used(sequences.iter().flat_map(|sequence| &sequence.steps));
        let followed = Followed::begin(&self.wire, &used, &self.room()).await?;
        let asked = self.ask_all(sequences).await?;
        let told = followed.end(&used).await?;
        Ok(asked.into_iter().map(|asked| asked.outcome(&told)).collect())
    }

    /// [`Bench::wave`] without the streams.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn asked(&self, sequences: Vec<Sequence>) -> anyhow::Result<Vec<Outcome>> {
        let asked = self.ask_all(sequences).await?;
        Ok(asked.into_iter().map(|asked| asked.outcome).collect())
    }

    /// In the order of the sequences.
    async fn ask_all(&self, sequences: Vec<Sequence>) -> anyhow::Result<Vec<Asked>> {
        futures::stream::iter(sequences)
            .map(|sequence| {
                let (wire, base, room) = (self.wire.clone(), self.base.clone(), self.room());
                async move { tokio::spawn(ask(wire, base, room, sequence)).await? }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }
}

fn used<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<&'static Kind> {
    let names: BTreeSet<&str> = steps
        .filter_map(|step| kinds::of_path(&step.path))
        .map(|kind| kind.kind)
        .collect();
    kinds::KINDS.iter().filter(|kind| names.contains(kind.kind)).collect()
}

async fn ask(wire: Wire, base: Arc<Base>, room: String, sequence: Sequence) -> anyhow::Result<Asked> {
    let mut memory = wire.namespace(&room).await?;
    let mut asked = Asked {
        sandbox: base.sandbox(&room),
        names: [Names::default(), Names::default()],
        outcome: Outcome {
            mismatch: None,
            coverage: Coverage::default(),
            requests: 0,
        },
        room,
        sequence,
    };
    for (number, step) in asked.sequence.steps.iter().enumerate() {
        let server = wire.ask(&mut memory, step).await?;
        let sandbox = asked.sandbox.ask(step);
        asked.outcome.requests += 1;
        let before = asked.names[0].known();
        let (one, other) = (asked.names[0].reply(&server), asked.names[1].reply(&sandbox));
        if let Some(at) = difference(&one, &other) {
            asked.outcome.mismatch = Some(Mismatch {
                sequence: Sequence {
                    title: asked.sequence.title.clone(),
                    steps: asked.sequence.steps.iter().take(number + 1).cloned().collect(),
                },
                at: format!("request {} ({step})", number + 1),
                signature: signature(step, &one, &other, &at),
                server: one,
                sandbox: other,
            });
            break;
        }
        asked
            .outcome
            .coverage
            .count(step, &server, before == asked.names[0].known());
    }
    Ok(asked)
}

impl Asked {
    /// Compares what watches were told, now that all of it is there.
    fn outcome(mut self, told: &BTreeMap<(&'static str, String), Vec<Value>>) -> Outcome {
        if self.outcome.mismatch.is_some() {
            return self.outcome;
        }
        for kind in used(self.sequence.steps.iter()) {
            let events = told
                .get(&(kind.kind, self.room.clone()))
                .map(Vec::as_slice)
                .unwrap_or_default();
            let one = self.names[0].events(events);
            let other = self.names[1].events(&self.sandbox.events(kind));
            self.outcome.coverage.count_stream(kind, events);
            if let Some(at) = difference(&one, &other) {
                self.part(format!("stream of {}", kind.plural), one, other, &at);
                return self.outcome;
            }
        }
        let ranks = [self.names[0].ranks(), self.names[1].ranks()].map(|ranks| serde_json::json!(ranks));
        if ranks[0] != ranks[1] {
            let [one, other] = ranks;
            self.part("order of versions".to_owned(), one, other, "");
        }
        self.outcome
    }

    fn part(&mut self, at: String, server: Value, sandbox: Value, pointer: &str) {
        self.outcome.mismatch = Some(Mismatch {
            sequence: self.sequence.clone(),
            signature: format!("{at} {}", blurred(pointer)),
            at,
            server,
            sandbox,
        });
    }
}

fn signature(step: &Step, server: &Value, sandbox: &Value, at: &str) -> String {
    let kind = kinds::of_path(&step.path);
    let whose = match kind {
        Some(kind) if kind.custom => "ours",
        Some(kind) => kind.kind,
        None => "none",
    };
    let path = step.path.split('?').next().unwrap_or_default();
    let part = ["status", "scale", "eviction"]
        .into_iter()
        .find(|part| path.ends_with(&format!("/{part}")))
        .unwrap_or_default();
    format!(
        "{} {} {whose} {part} {}/{} {}",
        step.method,
        step.media.rsplit('/').next().unwrap_or_default(),
        server["code"],
        sandbox["code"],
        blurred(at)
    )
}

/// A pointer without numbers of items.
fn blurred(pointer: &str) -> String {
    let part = |part: &str| {
        if part.parse::<usize>().is_ok() {
            "*".to_owned()
        } else {
            part.to_owned()
        }
    };
    pointer.split('/').map(part).collect::<Vec<_>>().join("/")
}
