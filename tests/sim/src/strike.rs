//! What may become of one call of the manager to the API or to a driver.

use std::sync::LazyLock;

/// A kind of blow, with the name of its fault.
pub type Kind = (&'static str, Blow);

/// The harm done to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The manager dies before the call leaves it.
    DieBefore,
    /// The manager dies when the call's answer has come, before anybody heard of it.
    DieAfter,
    /// The manager dies while the call is on its way; it arrives.
    DieDuring,
    /// It is answered with this code and not carried out.
    Refuse(u16),
    /// It is carried out; the caller hears that the connection broke.
    LoseAnswer,
    /// It is carried out; the caller hears nothing.
    Silence,
    /// The caller hears that the connection broke; long after that it is carried out.
    Late,
    /// The same, after longer than anybody reckons with.
    VeryLate,
    /// It takes seconds.
    Slow,
    /// The driver's process dies before the work.
    DriverDiesBefore,
    /// The driver's process dies after the work.
    DriverDiesAfter,
    /// It is not carried out, and the caller hears nothing.
    Hang,
    /// It is not carried out, and answered with a gRPC code.
    Fail,
    /// It is not carried out, and answered with a reason of the driver's own.
    Excuse,
    /// It is carried out, and answered with no more than must be said.
    Bare,
    /// It says falsely that there is no VM.
    Blind,
    /// It is accepted, and the VM never boots.
    NeverBoots,
    /// It is accepted, and told as failed some time later.
    FailsLater,
    /// It fails half-way and leaves its VM behind.
    Partial,
    /// The zone is out of stock.
    NoStock,
    /// The account has spent its calls.
    Throttle,
    /// The manager stands still with the call at its gate; when it goes on, the call leaves.
    Freeze,
    /// A list comes in pages, one after the other.
    Pages,
    /// A list comes in pages, and behind the first its version is forgotten.
    PagesLost,
    /// A watch is refused: its place in history is forgotten.
    LostPlace,
    /// A watch leads to a replica that is behind the others.
    Behind,
    /// A watch begins with changes that were told before.
    Replay,
    /// A watch is slow with its first change.
    Lag,
    /// A watch tells its first change only after others of other kinds.
    Hold,
    /// A watch loses its place when it should tell its first change.
    Expire,
    /// A watch tells nothing to its end.
    Stall,
    /// A watch loses its place without having told of a deletion.
    Gap,
    /// The manager, and no other, is cut off from the API from this call on, for a while.
    Cut,
}

/// The one fault of a run of the exhaustive campaign: this blow to the nth call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// The fault that it stands for.
    pub fault: &'static str,
    /// The call's number, from zero, over API and driver.
    pub call: u64,
    /// What becomes of it.
    pub blow: Blow,
}

/// What may become of any request to the API that reads, besides a manager that is cut off.
const OF_ALL_READS: [Kind; 8] = [
    ("F1", Blow::DieBefore),
    ("F1", Blow::DieAfter),
    ("F2", Blow::Freeze),
    ("F7", Blow::Refuse(429)),
    ("F8", Blow::Refuse(500)),
    ("F9", Blow::LoseAnswer),
    ("F9", Blow::Silence),
    ("F13", Blow::Slow),
];

fn of_reads(besides: &[Kind]) -> Vec<Kind> {
    OF_ALL_READS.iter().chain(besides).copied().collect()
}

/// What may become of a request to the API that reads one object.
pub static OF_READS: LazyLock<Vec<Kind>> = LazyLock::new(|| of_reads(&[("F16p", Blow::Cut)]));

/// What may become of a list.
pub static OF_LISTS: LazyLock<Vec<Kind>> =
    LazyLock::new(|| of_reads(&[("F14", Blow::PagesLost), ("F14", Blow::Pages), ("F16p", Blow::Cut)]));

/// What may become of a watch that is opened.
pub static OF_WATCHES: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    of_reads(&[
        ("F16p", Blow::Cut),
        ("F17", Blow::Behind),
        ("F18", Blow::Lag),
        ("F19", Blow::Hold),
        ("F20", Blow::LostPlace),
        ("F20", Blow::Expire),
        ("F21", Blow::Stall),
        ("F22", Blow::Replay),
        ("F23", Blow::Gap),
    ])
});

/// What may become of a request to the API that writes.
pub const OF_WRITES: [Kind; 15] = [
    ("F1", Blow::DieBefore),
    ("F1", Blow::DieDuring),
    ("F1", Blow::DieAfter),
    ("F2", Blow::Freeze),
    ("F6", Blow::Refuse(409)),
    ("F7", Blow::Refuse(429)),
    ("F8", Blow::Refuse(500)),
    ("F8", Blow::Refuse(504)),
    ("F9", Blow::LoseAnswer),
    ("F9", Blow::Silence),
    ("F10", Blow::Late),
    ("F11", Blow::Refuse(403)),
    ("F13", Blow::Slow),
    ("F16p", Blow::Cut),
    ("F10l", Blow::VeryLate),
];

/// What may become of any driver call.
const OF_CALLS: [Kind; 11] = [
    ("F1", Blow::DieBefore),
    ("F1", Blow::DieDuring),
    ("F1", Blow::DieAfter),
    ("F2", Blow::Freeze),
    ("F16p", Blow::Cut),
    ("F28", Blow::DriverDiesBefore),
    ("F28", Blow::DriverDiesAfter),
    ("F29", Blow::Silence),
    ("F30", Blow::Fail),
    ("F31", Blow::LoseAnswer),
    ("F34", Blow::Hang),
];

/// What may become of a creation besides.
const OF_CREATIONS: [Kind; 7] = [
    ("F30", Blow::Excuse),
    ("F32", Blow::Bare),
    ("F38", Blow::NeverBoots),
    ("F38", Blow::FailsLater),
    ("F39", Blow::Partial),
    ("F42", Blow::NoStock),
    ("F43", Blow::Throttle),
];

/// What may become of a lookup besides.
const OF_LOOKUPS: [Kind; 3] = [("F32", Blow::Bare), ("F37", Blow::Blind), ("F43", Blow::Throttle)];

/// What may become of a deletion besides.
const OF_DELETIONS: [Kind; 2] = [("F32", Blow::Bare), ("F43", Blow::Throttle)];

/// What may become of a call of each method that has blows of its own.
static BY_METHOD: LazyLock<[(&str, Vec<Kind>); 3]> = LazyLock::new(|| {
    let all = |besides: &[Kind]| OF_CALLS.iter().chain(besides).copied().collect();
    [
        ("CreateMachine", all(&OF_CREATIONS)),
        ("GetMachineStatus", all(&OF_LOOKUPS)),
        ("DeleteMachine", all(&OF_DELETIONS)),
    ]
});

/// What may become of a call of this method.
pub fn of_call(method: &str) -> &'static [Kind] {
    let own = BY_METHOD.iter().find(|(name, _)| *name == method);
    own.map_or(&OF_CALLS, |(_, kinds)| kinds)
}

/// All that may become of a call.
pub fn all() -> impl Iterator<Item = &'static Kind> {
    let reads = OF_READS.iter().chain(OF_LISTS.iter()).chain(OF_WATCHES.iter());
    let calls = BY_METHOD.iter().flat_map(|(_, kinds)| kinds);
    reads.chain(&OF_WRITES).chain(&OF_CALLS).chain(calls)
}
