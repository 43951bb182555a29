//! What must hold at the end: the world is as the specs say, and every deletion has ended.
//!
//! One judgement serves several properties, which differ in how the run came there: L1 from an ordinary start, L3 from any state,
//! L4 beside something broken for good, L7 after something outside was repaired. L6 compares two runs and is asked by
//! whoever has both ([`crate::ending`]).

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::Value;

use crate::event::{Act, Event};
use crate::object::{is_deleting, name, text, time};
use crate::settings::Settings;
use crate::truth::Truth;
use crate::wanted;

const KINDS: [&str; 4] = ["machines", "machinesets", "machinedeployments", "machineclasses"];

pub(crate) struct End {
    settings: Settings,
    deletions: u64,
    /// A wall clock was set in this run.
    is_clock_set: bool,
    hits: BTreeMap<&'static str, u64>,
}

impl End {
    pub(crate) fn new(settings: Settings) -> Self {
        let hits = ["L1", "L2", "L3", "L4", "L7"].map(|id| (id, 0)).into();
        Self {
            settings,
            deletions: 0,
            is_clock_set: false,
            hits,
        }
    }

    pub(crate) fn see(&mut self, event: &Event) {
        self.is_clock_set |= matches!(event.act, Act::ClockSet);
        if let Act::Write(write) = &event.act
            && write.accepted
            && KINDS.contains(&write.resource.as_str())
        {
            let began = write.after.as_ref().is_some_and(|after| is_deleting(after));
            let before = write.before.as_ref().is_some_and(|before| is_deleting(before));
            self.deletions += u64::from(began && !before);
        }
    }

    pub(crate) fn judge(&mut self, truth: &dyn Truth) -> Result<(), (&'static str, String)> {
        let property = self.property();
        self.count(property, 1);
        self.count("L2", self.deletions);
        self.deletions_ended(truth).map_err(|what| ("L2", what))?;
        wanted::reached(truth, &self.settings.broken_classes).map_err(|what| (property, what))
    }

    pub(crate) fn hits(&self) -> BTreeMap<&'static str, u64> {
        self.hits.clone()
    }

    /// Under which name the end is judged.
    fn property(&self) -> &'static str {
        let settings = &self.settings;
        match (settings.any_state, settings.beside, settings.repaired) {
            (true, _, _) => "L3",
            (false, true, _) => "L4",
            (false, false, true) => "L7",
            (false, false, false) => "L1",
        }
    }

    fn count(&mut self, id: &'static str, times: u64) {
        *self.hits.entry(id).or_default() += times;
    }

    /// Within which a deletion ends. A drain has its deadline by the manager's wall clock, which was at most an hour off.
    fn limit(&self) -> SignedDuration {
        match self.is_clock_set {
            true => self.settings.deletion + SignedDuration::from_hours(1),
            false => self.settings.deletion,
        }
    }

    fn deletions_ended(&self, truth: &dyn Truth) -> Result<(), String> {
        for kind in KINDS {
            for object in truth.objects(kind).iter().filter(|object| is_deleting(object)) {
                let since = time(object, "/metadata/deletionTimestamp").unwrap_or(truth.now());
                let age = truth.now().duration_since(since);
                if age > self.limit() && !is_needed(truth, kind, object) {
                    return Err(format!("{kind}/{} is being deleted for {age:#}", name(object)));
                }
            }
        }
        Ok(())
    }
}

/// A class stays for as long as a Machine that stays is made of it.
fn is_needed(truth: &dyn Truth, kind: &str, object: &Value) -> bool {
    let of_class = |machine: &Value| text(machine, "/spec/class/name") == name(object);
    kind == "machineclasses"
        && truth
            .objects("machines")
            .iter()
            .any(|machine| of_class(machine) && !is_deleting(machine))
}
