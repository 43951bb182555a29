//! Where a run can put a mistake into the manager, or into what stands between it and the world, without the manager knowing.
//!
//! Decides nothing: the values of [`Hooks::default`] change nothing. The bug zoo is made of others.

use std::sync::Arc;

use futures::future::BoxFuture;
use millwright::env::Planners;
use millwright_core::lease::Terms;
use millwright_laws::LAWS;
use millwright_provider_virtual::cloud::{Cloud, Launch};
use millwright_sandbox::request::Request;
use millwright_sandbox::watch::Event;

use crate::event::Truth;
use crate::process::Process;
use crate::world::World;

/// The places.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Who decides in the manager.
    pub planners: Planners,
    /// What changes the requests of managers before they leave.
    pub request: fn(&mut Request, &Truth<'_>),
    /// What changes the events that a watch of this kind has brought before the manager sees them.
    pub watched: fn(&str, &mut Vec<Event>),
    /// Whether a watch that has lost its place goes on from now, as if nothing had happened in between.
    pub skips_gaps: bool,
    /// The epoch of leadership that driver calls carry, made of the one that they should.
    pub epoch: fn(Option<u64>) -> Option<u64>,
    /// A second order for a machine's VM that is made beside the first, if any.
    pub second_order: fn(&Cloud, &str) -> Option<Launch>,
    /// What else a manager does as long as it lives.
    pub beside: fn(Arc<World>, Arc<Process>) -> BoxFuture<'static, ()>,
    /// On which terms managers elect a leader.
    pub terms: Terms,
    /// Whether they do; none: by choice.
    pub elects: Option<bool>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            planners: planners(),
            request: |_, _| (),
            watched: |_, _| (),
            skips_gaps: false,
            epoch: |epoch| epoch,
            second_order: |_, _| None,
            beside: |_, _| Box::pin(std::future::ready(())),
            terms: Terms::default(),
            elects: None,
        }
    }
}

/// Core's planners. In debug builds their plans are held against the laws.
pub fn planners() -> Planners {
    Planners {
        laws: cfg!(debug_assertions).then_some(LAWS),
        ..Planners::default()
    }
}
