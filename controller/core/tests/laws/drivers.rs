//! Drivers that say the same for ever, whatever it is: no Machine asks them without pause, and no law is broken.

use jiff::SignedDuration;
use millwright_core::driver::{Call, Deletion, Failure, Vm};
use millwright_core::ledger::Answer;
use millwright_core::machine::Pacing;
use millwright_core::narrate;
use millwright_laws as laws;
use proptest::prelude::*;

use crate::dice::{Dice, now, tapes};
use crate::machines::Scene;

/// What a driver always says.
#[derive(Debug)]
struct Habit {
    create: Result<Vm, Failure>,
    initialize: Result<Vm, Failure>,
    status: Result<Vm, Failure>,
    delete: Result<Deletion, Failure>,
}

impl Habit {
    fn throw(dice: &mut Dice) -> Self {
        let vm = |dice: &mut Dice| {
            if dice.flag() {
                Err(dice.failure())
            } else {
                Ok(dice.vm())
            }
        };
        let delete = |dice: &mut Dice| Deletion {
            gone: dice.flag(),
            poll_after: dice.maybe(|dice| SignedDuration::from_secs(dice.pick(&[1, 0, 60]))),
            last_known_state: None,
        };
        Self {
            create: vm(dice),
            initialize: vm(dice),
            status: vm(dice),
            delete: if dice.flag() {
                Err(dice.failure())
            } else {
                Ok(delete(dice))
            },
        }
    }

    fn answer(&self, call: Call) -> Answer {
        match call {
            Call::Create => Answer::Vm(call, self.create.clone()),
            Call::Initialize => Answer::Vm(call, self.initialize.clone()),
            Call::Status => Answer::Vm(call, self.status.clone()),
            Call::Delete => Answer::Deletion(self.delete.clone()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_driver_with_a_habit_is_asked_at_a_pace_and_no_law_is_broken(tape in tapes()) {
        let mut dice = Dice::new(tape);
        let habit = Habit::throw(&mut dice);
        let mut scene = Scene::served(&mut dice);
        let pacing = Pacing { resource_exhausted: SignedDuration::from_mins(10), jitter: 1.0 };
        let (mut at, mut calls, mut told) = (now(), 0, Vec::new());
        let end = now() + SignedDuration::from_mins(2);
        // Two minutes hold at most two calls a second, where the driver itself advises a second, and a few plans for each.
        for _ in 0..1500 {
            let plan = scene.plan(at);
            let broken = laws::machine(&scene.seen(), &plan, at);
            told.push(format!("{at} {}", narrate::plan(&plan, at)));
            prop_assert!(broken.is_empty(), "{broken:?}\n{}\n{scene:#?}", told.join("\n"));
            if !scene.apply(&plan.steps) {
                return Ok(());
            }
            if let Some(call) = scene.calls.running {
                calls += 1;
                scene.calls.absorb(habit.answer(call), Some("a"), pacing, at);
            } else if plan.steps.is_empty() {
                match plan.wake {
                    Some(wake) if wake < end => at = wake,
                    Some(_) | None => return Ok(()),
                }
            }
            prop_assert!(calls <= 260, "{calls} calls by {at}\n{}\n{habit:#?}", told[told.len() - 12..].join("\n"));
        }
        prop_assert!(false, "no rest by {at}\n{}\n{habit:#?}", told[told.len() - 12..].join("\n"));
    }
}
