//! S12: when everything has converged and nothing changes, nothing is written, and no kind is listed more than once a
//! resync period.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::event::{Act, By, Event, Write};
use crate::object::name;
use crate::oracle::Oracle;
use crate::truth::Truth;

pub(crate) struct Calm {
    resync: SignedDuration,
    /// Since when there is rest, and how often each kind was listed since then.
    rest: Option<(Timestamp, BTreeMap<String, i64>)>,
    /// Who wrote the Lease last.
    leader: Option<By>,
    hits: u64,
}

impl Calm {
    pub(crate) fn new(resync: SignedDuration) -> Self {
        Self {
            resync,
            rest: None,
            leader: None,
            hits: 0,
        }
    }
}

/// The parts of the object that the write changed, before and after.
fn changed(write: &Write) -> String {
    let part = |object: &Option<Arc<Value>>, key: &str| object.as_ref().and_then(|object| object.get(key)).cloned();
    let differ = ["spec", "status"].into_iter().filter_map(|key| {
        let (before, after) = (part(&write.before, key), part(&write.after, key));
        (before != after).then(|| format!("{key} {} → {}", json!(before), json!(after)))
    });
    differ.collect::<Vec<_>>().join(", ")
}

impl Oracle for Calm {
    fn id(&self) -> &'static str {
        "S12"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        match &event.act {
            Act::Rest => {
                self.hits += 1;
                self.rest = Some((event.at, BTreeMap::new()));
            }
            // A manager that begins lists everything once.
            Act::Unrest | Act::Started(_) | Act::Crashed(_) => self.rest = None,
            // One that takes the lead over tells what it finds, as one that begins.
            Act::Write(write) if write.resource == "leases" && self.leader != Some(write.by) => {
                self.leader = Some(write.by);
                self.rest = None;
            }
            Act::Write(write)
                if self.rest.is_some() && matches!(write.by, By::Manager(_)) && write.resource != "leases" =>
            {
                return Err(format!(
                    "at rest the manager wrote {}/{} ({:?}): {}",
                    write.resource,
                    write.object().map_or("?", |object| name(object)),
                    write.verb,
                    changed(write)
                ));
            }
            Act::List {
                by: By::Manager(_),
                resource,
            } => {
                let Some((since, lists)) = &mut self.rest else {
                    return Ok(());
                };
                let count = lists.entry(resource.clone()).or_default();
                *count += 1;
                let periods = event.at.duration_since(*since).as_secs() / self.resync.as_secs().max(1);
                if *count > periods + 1 {
                    return Err(format!(
                        "at rest the manager listed {resource} {count} times in {periods} periods"
                    ));
                }
            }
            Act::Write(_)
            | Act::List { .. }
            | Act::Call(_)
            | Act::Heard(_)
            | Act::Listed { .. }
            | Act::Foreign { .. }
            | Act::Vm { .. }
            | Act::Said { .. }
            | Act::TargetAway
            | Act::TargetBack
            | Act::ClockSet => {}
        }
        Ok(())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
