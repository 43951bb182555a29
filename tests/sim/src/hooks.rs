//! Where a run can put a mistake into the manager, or into what stands between it and the world, without the manager knowing.
//!
//! Decides nothing: the values of [`Hooks::default`] change nothing. The bug zoo is made of others.

use millwright::env::Planners;
use millwright_core::lease::Terms;
use millwright_sandbox::request::Request;
use serde_json::Value;

use crate::event::Truth;

/// The places.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Who decides in the manager.
    pub planners: Planners,
    /// What changes the requests of managers before they leave.
    pub request: fn(&mut Request, &Truth<'_>),
    /// What changes the events that a watch of this kind has brought before the manager sees them.
    pub watched: fn(&str, &mut Vec<Value>),
    /// Whether a watch that has lost its place goes on from now, as if nothing had happened in between.
    pub skips_gaps: bool,
    /// The epoch of leadership that driver calls carry, made of the one that they should.
    pub epoch: fn(Option<u64>) -> Option<u64>,
    /// On which terms managers elect a leader.
    pub terms: Terms,
    /// Whether they do; none: by choice.
    pub elects: Option<bool>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            planners: Planners::default(),
            request: |_, _| (),
            watched: |_, _| (),
            skips_gaps: false,
            epoch: |epoch| epoch,
            terms: Terms::default(),
            elects: None,
        }
    }
}
