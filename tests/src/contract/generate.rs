//! Sequences from a seed.
//!
//! A guess of the state leads the choice: what is likely to be there is changed, deleted and read more often, what is likely to
//! be gone is created again. The guess may be wrong; then the request meets the other outcome, which is as welcome.
//!
//! # Left out, each with its reason
//! - `generateName`, lists over all namespaces, deletions of namespaces: their answers depend on chance or on other sequences.
//! - Wrong bodies of built-in kinds, and replacing pods, claims, volumes, attachments and events: the sandbox does not judge those.
//! - Several bad labels at once: the server tells them in an order of chance. Pages of kinds without namespaces: others' objects
//!   show in them. A status of a wrong type in a create: the server then gives up recording owners.
//! - Claims of volumes: the server stores each write to them anew, also one that changes nothing. Scales set to what they are:
//!   likewise. Strict patches with unknown fields: the server's refusal quotes the whole object.
//! - Applies that leave out parts of what they said of our kinds before, and applies to pods, volumes and events: where nothing is
//!   left of a free-form field the server makes it null, and refuses that.
//! - `$retainKeys` where a kind's fields are no objects.
//! - Reads of any version (`resourceVersion=0`): a server may answer with an old state. Versions from the future: a server waits
//!   three seconds for them. `tests/contract/*.cases` and the sandbox's own cases ask these by hand.
//! - YAML and protobuf bodies, fields that are named twice, tables: other suites compare them.

use std::collections::BTreeMap;

use super::acts;
use super::dice::Dice;
use super::kinds::{KINDS, Kind};
use super::script::{Sequence, Step};

/// What is likely to have become of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guess {
    #[default]
    Absent,
    Present,
    /// With a finalizer.
    Held,
    /// Deleted, but held.
    Leaving,
}

/// What a sequence is made from.
#[derive(Debug)]
pub struct Maker {
    pub dice: Dice,
    guesses: BTreeMap<(&'static str, &'static str), Guess>,
    given: usize,
}

/// One object that a request is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    pub kind: &'static Kind,
    pub name: &'static str,
    pub guess: Guess,
}

const NAMES: [&str; 6] = ["a", "a", "a", "b", "b", "c"];

/// The sequence of a seed.
#[must_use]
pub fn sequence(seed: u64) -> Sequence {
    let mut maker = Maker {
        dice: Dice::new(seed),
        guesses: BTreeMap::new(),
        given: 10,
    };
    let cast = maker.cast();
    let length = 5 + maker.dice.below(26);
    let mut steps = Vec::with_capacity(length);
    while steps.len() < length {
        let kind = *maker.dice.of(&cast);
        let name = *maker.dice.of(&NAMES);
        let guess = maker.guesses.get(&(kind.kind, name)).copied().unwrap_or_default();
        steps.push(maker.step(Subject { kind, name, guess }));
    }
    Sequence {
        title: format!("seed {seed}"),
        steps,
    }
}

impl Maker {
    fn cast(&mut self) -> Vec<&'static Kind> {
        let weighed: Vec<(usize, &'static Kind)> = KINDS.iter().map(|kind| (kind.weight, kind)).collect();
        let mut cast: Vec<&'static Kind> = (0..=self.dice.below(3)).map(|_| self.dice.weighed(&weighed)).collect();
        // A budget without pods has nothing to say.
        if cast.iter().any(|kind| kind.kind == "PodDisruptionBudget") {
            cast.extend(super::kinds::named("Pod"));
        }
        cast
    }

    fn step(&mut self, subject: Subject) -> Step {
        let table: &[(usize, acts::Act)] = match subject.guess {
            Guess::Absent => &acts::ABSENT,
            Guess::Present | Guess::Held => &acts::PRESENT,
            Guess::Leaving => &acts::LEAVING,
        };
        let act = self.dice.weighed(table);
        act.step(self, subject)
    }

    /// A number of replicas that nobody else asks for.
    pub fn fresh(&mut self) -> i64 {
        self.given += 1;
        if self.dice.percent(10) {
            -1
        } else {
            i64::try_from(self.given).unwrap_or(0)
        }
    }

    /// Sets the guess.
    pub fn expect(&mut self, subject: Subject, guess: Guess) {
        self.guesses.insert((subject.kind.kind, subject.name), guess);
    }
}
