//! The faults that runs may have, by name (tests/README.md has the table), each with its usual rate.
//!
//! F15 (reads of an older state) is left out: every GET and every list of the manager asks for the newest state, which no
//! server of this age answers from an older one. Watches may lag, and do: F17 to F19.
//!
//! F39 (a creation that fails
//! half-way) leaves the VM itself behind: the virtual cloud has nothing else.
//!
//! A run enables a few of them by choice (swarm), so that rare pairs meet; a fault that is not enabled asks for no choice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::choices::Choices;

/// One kind of harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// As `F9`.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// How often in a thousand of its points, or deeds of the chaos actor where it is zero.
    pub per_mille: u32,
}

const fn fault(name: &'static str, per_mille: u32, what: &'static str) -> Fault {
    Fault { name, what, per_mille }
}

/// All of them.
pub const ALL: [Fault; 56] = [
    fault("F1", 12, "the manager dies before or after a call"),
    fault("F1r", 0, "the manager dies at any moment"),
    fault(
        "F2",
        6,
        "a manager stands still for seconds to minutes, and goes on where it was",
    ),
    fault(
        "F3",
        500,
        "a second manager lives beside the first and stands for the same lease",
    ),
    fault("F4", 0, "the manager is asked to end and is started again"),
    fault("F5", 300, "a manager is slow to start"),
    fault("F6", 40, "a write is answered 409 Conflict"),
    fault("F7", 40, "a request is answered 429"),
    fault("F8", 40, "a request is answered with a server error"),
    fault("F9", 40, "a request takes effect and its answer is lost"),
    fault("F10", 30, "a request takes effect long after its caller gave up"),
    fault(
        "F10l",
        20,
        "a request takes effect after more minutes than the manager waits for it",
    ),
    fault("F11", 40, "a write is answered 403"),
    fault("F13", 80, "a request takes seconds"),
    fault(
        "F14",
        150,
        "a list comes in pages of few, slowly, and its version may be forgotten on the way",
    ),
    fault("F16", 0, "the API server is away for a while"),
    fault(
        "F16p",
        6,
        "one manager is cut off from the API for a while, and from nothing else",
    ),
    fault(
        "F17",
        150,
        "a watch leads to a replica of the API server that is seconds behind",
    ),
    fault("F18", 60, "a watch lags behind by seconds to a minute"),
    fault("F19", 40, "a watch is held back until other kinds have moved on"),
    fault("F20", 60, "a watch has lost its place: 410"),
    fault("F21", 20, "a watch goes silent until its end"),
    fault("F22", 150, "a watch repeats changes that it told before"),
    fault(
        "F23",
        200,
        "a deletion falls into a gap between a watch and the next list",
    ),
    fault("F24", 60, "a watch tells how far it is and breaks"),
    fault("F25", 0, "the manager's wall clock jumps"),
    fault("F27", 500, "a manager's wall clock is off by seconds for good"),
    fault("F28", 60, "the driver's process dies in the middle of a call"),
    fault("F29", 60, "a driver call outlasts its deadline and takes effect"),
    fault("F30", 100, "the driver fails a call and has done nothing"),
    fault("F31", 80, "a driver call takes effect and its answer is lost"),
    fault("F32", 80, "a driver's answer says no more than it must"),
    fault("F33", 400, "the driver is an older version, without any capability"),
    fault("F34", 60, "a driver call hangs until its deadline and does nothing"),
    fault("F35", 0, "lookups at the cloud lag behind creation"),
    fault("F36", 0, "lookups at the cloud lag behind deletion"),
    fault("F37", 100, "a lookup says falsely that there is no VM"),
    fault("F38", 80, "a creation is accepted and comes to nothing"),
    fault("F39", 80, "a creation fails half-way and leaves its VM behind"),
    fault("F40", 0, "VMs take a minute to go"),
    fault("F41", 0, "a VM dies"),
    fault("F42", 0, "a zone is out of stock, or the account is full, for a while"),
    fault("F43", 0, "the account is throttled for a while"),
    fault(
        "F45",
        250,
        "a kubelet comes late, never, or after its VM's deletion began",
    ),
    fault("F48", 0, "the human edits and deletes"),
    fault("F50", 0, "a VM is deleted at the cloud's console"),
    fault("F51", 0, "an object is deleted and made again under its name"),
    fault("F54", 0, "the Lease is deleted"),
    fault("F55", 0, "the Lease loses its holder by somebody's hand"),
    fault(
        "F56",
        0,
        "a driver speaks of a newer leader that there is not, once or for a while",
    ),
    fault("F57", 400, "the target cluster is away for an hour or a day"),
    fault(
        "F58",
        0,
        "the API server refuses one kind of write for minutes, by quota or webhook",
    ),
    fault(
        "F59",
        0,
        "the wall clock is set by an hour, and the manager is started anew",
    ),
    fault(
        "F60",
        0,
        "the driver's socket goes from the directory of drivers and comes back",
    ),
    fault("F61", 150, "a zone cannot be asked for its VMs, and the driver says so"),
    fault(
        "F49",
        0,
        "a cluster autoscaler changes how many machines are wanted, and says which are to go",
    ),
];

/// Faults that the manager does not stand yet: runs have them only where they are named. Whoever mends the manager takes them out of here.
pub const PENDING: &[&str] = &[];

/// Faults of minutes to hours, which a run has alone.
const OUTAGES: [&str; 2] = ["F57", "F58"];

/// Those that a run may have by choice.
pub fn drawn() -> Vec<Fault> {
    ALL.into_iter().filter(|fault| !PENDING.contains(&fault.name)).collect()
}

/// The faults that one run may have.
#[derive(Clone, Debug, Default)]
pub struct Enabled(BTreeMap<&'static str, u32>);

impl Enabled {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// These, at their usual rates or a multiple of them (`F9`, `F9x3`). Names that are none are given back.
    pub fn these(names: &[String]) -> Result<Self, String> {
        let mut enabled = BTreeMap::new();
        for text in names {
            let (name, times) = text.split_once('x').unwrap_or((text, "1"));
            let known = ALL
                .iter()
                .find(|fault| fault.name == name)
                .zip(times.parse::<u32>().ok());
            let (known, times) = known.ok_or_else(|| format!("{text} is no fault; `sim faults` names all"))?;
            enabled.insert(known.name, known.per_mille.saturating_mul(times).min(500));
        }
        Ok(Self(enabled))
    }

    /// About four, by choice.
    pub fn swarm(choices: &mut Choices) -> Self {
        let (mut enabled, drawn) = (BTreeMap::new(), drawn());
        for _ in 0..choices.choose("swarm-size", 7) {
            let all = u32::try_from(drawn.len()).unwrap_or(u32::MAX);
            let nth = choices.choose("swarm-fault", all) as usize;
            // Rare and frequent: what strikes at every second call hides other things than what strikes once.
            let rate = [1, 3, 8].get(choices.choose("swarm-rate", 3) as usize).copied();
            if let Some(fault) = drawn.get(nth) {
                enabled.insert(fault.name, (fault.per_mille * rate.unwrap_or(1)).min(500));
            }
        }
        // What is demanded while an outage lasts holds only where nothing else strikes meanwhile.
        if let Some(outage) = OUTAGES.into_iter().find(|outage| enabled.contains_key(outage)) {
            enabled.retain(|name, _| *name == outage);
        }
        Self(enabled)
    }

    /// How old a view, and the answer to a read, may be at most on which a manager acts.
    pub fn lags(&self) -> Lags {
        Lags::of(self.0.keys().copied())
    }

    /// The rate of a fault, if it is enabled.
    pub fn rate(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    /// Whether it is enabled at all.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The names of all that are.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.keys().copied().collect()
    }
}

/// How old what a manager acts on may be, by what goes wrong in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lags {
    /// A cache that a watch feeds, and a decision that waits for its turn.
    pub view: Duration,
    /// The answer to a read of the API server itself.
    pub read: Duration,
    /// Whether the manager must get over clocks that are set by an hour.
    pub has_set_clocks: bool,
    /// Whether the target cluster, or the watch of its Nodes, may be away for long.
    pub has_outages: bool,
    /// Writes may be refused for what they are about.
    pub has_refusals: bool,
    /// Whether drivers say falsely that there is no VM.
    pub has_false_lookups: bool,
}

/// Without any fault: watches lag by milliseconds, and a plan waits for the calls before it.
const VIEW: Duration = Duration::from_secs(2);
const READ: Duration = Duration::from_millis(500);

/// Seconds by which each fault makes a view older, and the answer to a read.
const OLDER: [(&str, u64, u64); 26] = [
    // A manager stands still with an answer in its hand, or before it asks.
    ("F2", 95, 95),
    ("F5", 205, 0),
    // What fails is repeated after a pause.
    ("F1", 5, 0),
    ("F6", 30, 0),
    ("F7", 60, 0),
    ("F8", 60, 0),
    ("F9", 60, 30),
    ("F10", 300, 5),
    ("F10l", 620, 5),
    ("F11", 30, 0),
    ("F13", 60, 60),
    ("F14", 90, 0),
    ("F16", 190, 0),
    ("F16p", 190, 0),
    ("F17", 55, 0),
    ("F18", 60, 0),
    ("F19", 60, 0),
    ("F20", 60, 0),
    // To the watch's end.
    ("F21", 310, 0),
    ("F22", 5, 0),
    ("F23", 60, 0),
    ("F24", 30, 0),
    ("F48", 5, 0),
    ("F49", 5, 0),
    ("F57", 60, 60),
    ("F58", 60, 0),
];

impl Lags {
    /// With these faults, which add up where they meet.
    pub fn of(faults: impl Iterator<Item = &'static str>) -> Self {
        let mut lags = Self {
            view: VIEW,
            read: READ,
            has_set_clocks: false,
            has_outages: false,
            has_refusals: false,
            has_false_lookups: false,
        };
        for fault in faults {
            lags.has_set_clocks |= fault == "F59";
            // A first list of Nodes that is never answered is an outage, too.
            lags.has_outages |= ["F9", "F16", "F16p", "F57"].contains(&fault);
            lags.has_refusals |= ["F11", "F58"].contains(&fault);
            lags.has_false_lookups |= fault == "F37";
            for (_, view, read) in OLDER.iter().filter(|(name, ..)| *name == fault) {
                lags.view += Duration::from_secs(*view);
                lags.read += Duration::from_secs(*read);
            }
        }
        lags
    }
}
