//! Which Machines are a set's own. Source: `spec/machineset.md` §3, without its defects: a release removes our owner
//! reference, an adoption keeps everybody else's.

use std::sync::Arc;

use crate::api::{Machine, MachineSet, meta};
use crate::selector::Matcher;

/// The outcome of claiming.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Machines that count as the set's.
    pub machines: Vec<Arc<Machine>>,
    /// Machines to adopt.
    pub adopts: Vec<Arc<Machine>>,
    /// Machines to release.
    pub releases: Vec<Arc<Machine>>,
}

/// Sorts the Machines that the set controls or could control.
pub fn claim(set: &MachineSet, selector: &Matcher, machines: &[Arc<Machine>]) -> Claimed {
    let own = meta::uid(&set.metadata);
    let leaving = meta::is_deleting(&set.metadata);
    let mut claimed = Claimed::default();
    for machine in machines {
        let matches = selector.selects(&machine.metadata);
        let controlled = meta::controller_uid(&machine.metadata).map(|owner| Some(owner) == own);
        match (controlled, matches) {
            (Some(true), true) => claimed.machines.push(Arc::clone(machine)),
            (Some(true), false) if !leaving => claimed.releases.push(Arc::clone(machine)),
            (None, true) if !leaving && !meta::is_deleting(&machine.metadata) => {
                claimed.adopts.push(Arc::clone(machine));
            }
            (Some(_) | None, _) => {}
        }
    }
    claimed
}
