//! What must hold in every step: one module a property. Only acts of the manager are charged to it.

mod adoption;
mod calm;
mod drain;
mod fenced;
mod finalizer;
mod guarded;
mod in_place;
mod join_patience;
mod kept;
mod live_read;
mod named_victims;
mod one_at_a_time;
mod one_life;
mod one_vm;
mod orphan;
mod own_fields;
mod polite;
mod restart;
mod rollout_budget;
mod secrecy;
mod set_budget;
mod tokens;
mod wrong_kill;

use crate::oracle::Oracle;
use crate::settings::Settings;

/// Every safety property that exists so far, S1 first.
pub(crate) fn all(settings: &Settings) -> Vec<Box<dyn Oracle>> {
    vec![
        Box::new(one_vm::OneVm::default()),
        Box::new(finalizer::Proof::default()),
        Box::new(wrong_kill::WrongKill::new(settings.max_lag)),
        Box::new(orphan::Orphan::new(settings)),
        Box::new(set_budget::SetBudget::new(settings)),
        Box::new(rollout_budget::RolloutBudget::new(settings.max_lag)),
        Box::new(join_patience::JoinPatience::new(
            settings.creation_timeout,
            settings.max_lag,
            settings.judges_set_clocks,
        )),
        Box::new(one_at_a_time::OneAtATime::new(settings.max_lag)),
        Box::new(drain::Drain::new(settings)),
        Box::new(own_fields::OwnFields::default()),
        Box::new(one_life::OneLife::default()),
        Box::new(guarded::Guarded::default()),
        Box::new(secrecy::Secrecy::new(settings.canaries.clone())),
        Box::new(calm::Calm::new(settings.resync)),
        Box::new(polite::Polite::default()),
        Box::new(fenced::Fenced::new(settings.elects, settings.margin)),
        Box::new(restart::Restart::default()),
        Box::new(named_victims::NamedVictims::new(settings.max_lag)),
        Box::new(tokens::Tokens::new(settings.max_lag, settings.target_may_be_away)),
        Box::new(live_read::LiveRead::new(settings.read_lag)),
        Box::new(adoption::Adoption::new(settings.max_lag)),
        Box::new(kept::Kept::new(settings.max_lag)),
        Box::new(in_place::InPlace::new(settings.max_lag)),
    ]
}
