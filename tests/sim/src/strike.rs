//! What may become of one call of the manager to the API or to a driver.

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

/// What may become of a request to the API that reads.
pub const OF_READS: [(&str, Blow); 7] = [
    ("F1", Blow::DieBefore),
    ("F1", Blow::DieAfter),
    ("F7", Blow::Refuse(429)),
    ("F8", Blow::Refuse(500)),
    ("F9", Blow::LoseAnswer),
    ("F9", Blow::Silence),
    ("F13", Blow::Slow),
];

/// What may become of a request to the API that writes.
pub const OF_WRITES: [(&str, Blow); 12] = [
    ("F1", Blow::DieBefore),
    ("F1", Blow::DieDuring),
    ("F1", Blow::DieAfter),
    ("F6", Blow::Refuse(409)),
    ("F7", Blow::Refuse(429)),
    ("F8", Blow::Refuse(500)),
    ("F8", Blow::Refuse(504)),
    ("F9", Blow::LoseAnswer),
    ("F9", Blow::Silence),
    ("F10", Blow::Late),
    ("F11", Blow::Refuse(403)),
    ("F13", Blow::Slow),
];

/// What may become of any driver call.
const OF_CALLS: [(&str, Blow); 9] = [
    ("F1", Blow::DieBefore),
    ("F1", Blow::DieDuring),
    ("F1", Blow::DieAfter),
    ("F28", Blow::DriverDiesBefore),
    ("F28", Blow::DriverDiesAfter),
    ("F29", Blow::Silence),
    ("F30", Blow::Fail),
    ("F31", Blow::LoseAnswer),
    ("F34", Blow::Hang),
];

/// What may become of a creation besides.
const OF_CREATIONS: [(&str, Blow); 7] = [
    ("F30", Blow::Excuse),
    ("F32", Blow::Bare),
    ("F38", Blow::NeverBoots),
    ("F38", Blow::FailsLater),
    ("F39", Blow::Partial),
    ("F42", Blow::NoStock),
    ("F43", Blow::Throttle),
];

/// What may become of a lookup besides.
const OF_LOOKUPS: [(&str, Blow); 3] = [("F32", Blow::Bare), ("F37", Blow::Blind), ("F43", Blow::Throttle)];

/// What may become of a deletion besides.
const OF_DELETIONS: [(&str, Blow); 2] = [("F32", Blow::Bare), ("F43", Blow::Throttle)];

/// What may become of a call of this method.
pub fn of_call(method: &str) -> Vec<(&'static str, Blow)> {
    let besides: &[_] = match method {
        "CreateMachine" => &OF_CREATIONS,
        "GetMachineStatus" => &OF_LOOKUPS,
        "DeleteMachine" => &OF_DELETIONS,
        _ => &[],
    };
    OF_CALLS.iter().chain(besides).copied().collect()
}

/// Every kind of blow that there is, each once.
pub fn all() -> Vec<(&'static str, Blow)> {
    let calls = [OF_CALLS.as_slice(), &OF_CREATIONS, &OF_LOOKUPS, &OF_DELETIONS];
    let mut kinds = Vec::new();
    for kind in OF_READS.iter().chain(&OF_WRITES).chain(calls.into_iter().flatten()) {
        if !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    kinds
}
