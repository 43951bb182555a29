//! What may become of one call of the manager to the API or to a driver.

use std::sync::LazyLock;

/// What may become of a call, with the name of its fault.
pub type Kind = (&'static str, CallFault);

/// The harm done to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
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
    /// It names a zone that could not be asked, and shows nothing of it or, falsely, all.
    Unreachable,
    /// It ends before its end.
    Truncated,
    /// It shows nothing.
    Empty,
    /// It shows what is gone.
    Stale,
    /// It comes in pages of one.
    SmallPages,
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
    /// The manager stands still with the call at its process; when it goes on, the call leaves.
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

/// The one fault of a run of the exhaustive campaign: this, at this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The fault that it stands for.
    pub fault: &'static str,
    /// The call's number, from zero, over API and driver.
    pub call: u64,
    /// What becomes of it.
    pub call_fault: CallFault,
}

/// What may become of any request to the API that reads, besides a manager that is cut off.
const OF_ALL_READS: [Kind; 8] = [
    ("F1", CallFault::DieBefore),
    ("F1", CallFault::DieAfter),
    ("F2", CallFault::Freeze),
    ("F7", CallFault::Refuse(429)),
    ("F8", CallFault::Refuse(500)),
    ("F9", CallFault::LoseAnswer),
    ("F9", CallFault::Silence),
    ("F13", CallFault::Slow),
];

fn of_reads(besides: &[Kind]) -> Vec<Kind> {
    OF_ALL_READS.iter().chain(besides).copied().collect()
}

/// What may become of a request to the API that reads one object.
pub static OF_READS: LazyLock<Vec<Kind>> = LazyLock::new(|| of_reads(&[("F16p", CallFault::Cut)]));

/// What may become of a list.
pub static OF_LISTS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    of_reads(&[
        ("F14", CallFault::PagesLost),
        ("F14", CallFault::Pages),
        ("F16p", CallFault::Cut),
    ])
});

/// What may become of a watch that is opened.
pub static OF_WATCHES: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    of_reads(&[
        ("F16p", CallFault::Cut),
        ("F17", CallFault::Behind),
        ("F18", CallFault::Lag),
        ("F19", CallFault::Hold),
        ("F20", CallFault::LostPlace),
        ("F20", CallFault::Expire),
        ("F21", CallFault::Stall),
        ("F22", CallFault::Replay),
        ("F23", CallFault::Gap),
    ])
});

/// What may become of a request to the API that writes.
pub const OF_WRITES: [Kind; 15] = [
    ("F1", CallFault::DieBefore),
    ("F1", CallFault::DieDuring),
    ("F1", CallFault::DieAfter),
    ("F2", CallFault::Freeze),
    ("F6", CallFault::Refuse(409)),
    ("F7", CallFault::Refuse(429)),
    ("F8", CallFault::Refuse(500)),
    ("F8", CallFault::Refuse(504)),
    ("F9", CallFault::LoseAnswer),
    ("F9", CallFault::Silence),
    ("F10", CallFault::Late),
    ("F11", CallFault::Refuse(403)),
    ("F13", CallFault::Slow),
    ("F16p", CallFault::Cut),
    ("F10l", CallFault::VeryLate),
];

/// What may become of any driver call.
const OF_CALLS: [Kind; 11] = [
    ("F1", CallFault::DieBefore),
    ("F1", CallFault::DieDuring),
    ("F1", CallFault::DieAfter),
    ("F2", CallFault::Freeze),
    ("F16p", CallFault::Cut),
    ("F28", CallFault::DriverDiesBefore),
    ("F28", CallFault::DriverDiesAfter),
    ("F29", CallFault::Silence),
    ("F30", CallFault::Fail),
    ("F31", CallFault::LoseAnswer),
    ("F34", CallFault::Hang),
];

/// What may become of a creation besides.
const OF_CREATIONS: [Kind; 7] = [
    ("F30", CallFault::Excuse),
    ("F32", CallFault::Bare),
    ("F38", CallFault::NeverBoots),
    ("F38", CallFault::FailsLater),
    ("F39", CallFault::Partial),
    ("F42", CallFault::NoStock),
    ("F43", CallFault::Throttle),
];

/// What may become of a lookup besides.
const OF_LOOKUPS: [Kind; 3] = [
    ("F32", CallFault::Bare),
    ("F37", CallFault::Blind),
    ("F43", CallFault::Throttle),
];

/// What may become of a deletion besides.
const OF_DELETIONS: [Kind; 2] = [("F32", CallFault::Bare), ("F43", CallFault::Throttle)];

/// What may become of a listing of VMs besides.
const OF_LISTINGS: [Kind; 6] = [
    ("F61", CallFault::Unreachable),
    ("F32", CallFault::Truncated),
    ("F32", CallFault::Empty),
    ("F32", CallFault::SmallPages),
    ("F32", CallFault::Stale),
    ("F43", CallFault::Throttle),
];

/// What may become of a call of each method that has call faults of its own.
static BY_METHOD: LazyLock<[(&str, Vec<Kind>); 4]> = LazyLock::new(|| {
    let all = |besides: &[Kind]| OF_CALLS.iter().chain(besides).copied().collect();
    [
        ("CreateMachine", all(&OF_CREATIONS)),
        ("GetMachineStatus", all(&OF_LOOKUPS)),
        ("DeleteMachine", all(&OF_DELETIONS)),
        ("ListMachines", all(&OF_LISTINGS)),
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
