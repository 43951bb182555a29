//! S9: a Machine's life goes one way: phases follow each other as the seeds say, and its VM's id is written once.

use crate::event::{Act, By, Event, Write};
use crate::object::{is_deleting, name, phase, text};
use crate::oracle::Oracle;
use crate::truth::Truth;

#[derive(Default)]
pub(crate) struct OneLife {
    hits: u64,
}

/// Which phase may follow which, deletion apart (MC-27; nothing is left in place of `Terminating`).
const EDGES: &[(&str, &[&str])] = &[
    ("", &["Pending", "Available", "CrashLoopBackOff", "Failed", "Running"]),
    ("CrashLoopBackOff", &["Pending", "Available", "Failed", "Running"]),
    ("Pending", &["Available", "CrashLoopBackOff", "Failed", "Running"]),
    ("Available", &["Running", "InPlaceUpdating"]),
    ("Running", &["Unknown", "InPlaceUpdating"]),
    ("Unknown", &["Running", "Failed", "InPlaceUpdating"]),
    ("Failed", &["Running", "Unknown", "Available"]),
    ("InPlaceUpdating", &["InPlaceUpdateSuccessful", "InPlaceUpdateFailed"]),
    (
        "InPlaceUpdateFailed",
        &["InPlaceUpdateSuccessful", "InPlaceUpdating", "Failed"],
    ),
    ("InPlaceUpdateSuccessful", &["Running", "Unknown", "InPlaceUpdating"]),
];

impl Oracle for OneLife {
    fn id(&self) -> &'static str {
        "S9"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        let Act::Write(write) = &event.act else { return Ok(()) };
        let (By::Manager(_), "machines", true) = (write.by, write.resource.as_str(), write.accepted) else {
            return Ok(());
        };
        self.phase(write)?;
        self.identity(write)
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

impl OneLife {
    fn phase(&mut self, write: &Write) -> Result<(), String> {
        let Some(after) = &write.after else { return Ok(()) };
        let (from, to) = (write.before.as_ref().map_or("", |before| phase(before)), phase(after));
        if from == to {
            return Ok(());
        }
        self.hits += 1;
        let right = match to {
            "Terminating" => is_deleting(after),
            // Somebody else wrote it; it is judged anew.
            _ if !EDGES.iter().any(|(phase, _)| *phase == from) => !is_deleting(after),
            _ => EDGES.iter().any(|(phase, next)| *phase == from && next.contains(&to)) && !is_deleting(after),
        };
        match right {
            true => Ok(()),
            false => Err(format!("machine {} went from {from:?} to {to:?}", name(after))),
        }
    }

    fn identity(&mut self, write: &Write) -> Result<(), String> {
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return Ok(());
        };
        let (old, new) = (text(before, "/spec/providerID"), text(after, "/spec/providerID"));
        self.hits += u64::from(old != new);
        match old.is_empty() || old == new {
            true => Ok(()),
            false => Err(format!(
                "the VM of machine {} was {old} and became {new:?}",
                name(after)
            )),
        }
    }
}
