//! The gates before the calls about Machines of a class: an answer that every other Machine of the class would get too shuts one, one
//! Machine at a time tries for all, and its success opens it (`user-pains.md` F and M, `driver-api.md` §5).
//!
//! Decides who may ask a driver now, from what drivers have said and from when on they may be asked again. Starts no call and keeps no
//! time. A class stands for an account and a place: its credentials are refused, its calls are forbidden and its size is sold out for
//! all its Machines at once.
//!
//! Not before calls about Machines that live: there are few of them at a time, and what they ask decides about a VM that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::api::{Machine, keys, meta};
use crate::driver::{Code, Failure, Reason};
use crate::ids::Uid;
use crate::machine::Call;
use crate::sight::later;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Errand {
    /// A VM is to be made.
    Make,
    /// A VM is to be removed, or looked for in order to be removed.
    Remove,
}

impl Errand {
    /// What a call about a Machine is for. `None`: there is no gate before it.
    pub fn of(machine: &Machine, call: Call) -> Option<Self> {
        match call {
            Call::Status | Call::Delete if meta::is_deleting(&machine.metadata) => Some(Self::Remove),
            Call::Create => Some(Self::Make),
            Call::Initialize | Call::Status | Call::Delete => None,
        }
    }
}

/// Why a gate is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The provider refused the credentials.
    Credentials,
    /// The credentials are good and may not do this.
    Access,
    /// No capacity or no quota is left.
    Stock,
}

impl Cause {
    /// What a failure means for others than the Machine that met it. `None`: nothing.
    pub fn of(failure: &Failure) -> Option<Self> {
        match failure.reason? {
            Reason::CredentialsRejected => Some(Self::Credentials),
            Reason::AccessDenied => Some(Self::Access),
            Reason::CapacityUnavailable | Reason::QuotaExceeded => Some(Self::Stock),
            Reason::InvalidField
            | Reason::OperationInProgress
            | Reason::RateLimited
            | Reason::ProviderUnavailable
            | Reason::StaleLeader
            | Reason::MachineNotFound
            | Reason::NameConflict
            | Reason::SpecConflict
            | Reason::DependencyMissing
            | Reason::MachineDeleted
            | Reason::VmInconsistent
            | Reason::NotOwned
            | Reason::DeleteBlocked
            | Reason::SpecOutOfRange
            | Reason::DuplicateVms
            | Reason::InitializationFailed
            | Reason::PageTokenExpired
            | Reason::ResumeTokenExpired
            | Reason::DriverFault => None,
        }
    }

    /// What is waited for.
    fn text(self) -> &'static str {
        match self {
            Self::Credentials => {
                "the provider refused the credentials of the class; one machine tries them again for all, and at once when the Secret \
                 or the class changes"
            }
            Self::Access => {
                "the provider does not let the credentials of the class do this; one machine tries again for all, and at once when \
                 the Secret or the class changes"
            }
            Self::Stock => "the provider has no capacity or quota left for the class; one machine asks again for all",
        }
    }

    /// One word, for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Access => "access",
            Self::Stock => "stock",
        }
    }
}

/// Whether only a provider that has let the caller in says so.
fn was_let_in(failure: &Failure) -> bool {
    match failure.reason {
        None => false,
        Some(reason) => match reason {
            Reason::MachineNotFound
            | Reason::NameConflict
            | Reason::SpecConflict
            | Reason::CapacityUnavailable
            | Reason::QuotaExceeded
            | Reason::DependencyMissing
            | Reason::VmInconsistent
            | Reason::NotOwned
            | Reason::DeleteBlocked
            | Reason::DuplicateVms
            | Reason::InitializationFailed
            | Reason::AccessDenied => true,
            Reason::InvalidField
            | Reason::CredentialsRejected
            | Reason::OperationInProgress
            | Reason::RateLimited
            | Reason::ProviderUnavailable
            | Reason::StaleLeader
            | Reason::MachineDeleted
            | Reason::SpecOutOfRange
            | Reason::PageTokenExpired
            | Reason::ResumeTokenExpired
            | Reason::DriverFault => false,
        },
    }
}

/// How much later than whoever has tried last the others look: it tries first, and the others find it at it.
const AFTER_THE_LAST: SignedDuration = SignedDuration::from_secs(10);
/// How often a waiting Machine looks while another tries. Its answer wakes them all; this is the net under it.
const WHILE_ANOTHER_TRIES: SignedDuration = SignedDuration::from_mins(1);
/// How long a turn that was taken waits for its call: a live read and a write or two lie between.
const TURN_LASTS: SignedDuration = SignedDuration::from_secs(30);

/// A gate that is shut, or opens little by little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shut {
    /// Why.
    pub cause: Cause,
    /// The word for `lastOperation.errorCode`.
    pub word: &'static str,
    /// What the provider said when it was shut. Later words for the same are not taken over: each Machine that waits would be written anew.
    pub message: String,
    /// From when on one may try.
    until: Timestamp,
    /// Who has tried last.
    by: Uid,
    /// How many may be at it together, once one has succeeded. Zero: none has.
    batch: usize,
    /// Successes of this batch.
    went: usize,
    /// Who is at it.
    turns: BTreeMap<Uid, Turn>,
}

/// A turn that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    at: Timestamp,
    is_called: bool,
}

/// How a Machine stands before a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// There is nothing in its way.
    Open,
    /// It may try for all, if it takes the turn before anybody else does.
    Turn,
    /// It waits, and looks again at that time at the latest.
    Shut(&'a Shut, Timestamp),
}

impl Shut {
    fn by(uid: &Uid, cause: Cause, failure: &Failure, until: Timestamp) -> Self {
        Self {
            cause,
            word: failure.word(),
            message: failure.message.clone(),
            until,
            by: uid.clone(),
            batch: 0,
            went: 0,
            turns: BTreeMap::new(),
        }
    }

    fn way(&self, uid: &Uid, now: Timestamp) -> Way<'_> {
        let lives = |turn: &Turn| turn.is_called || now < later(turn.at, TURN_LASTS);
        let taken = self.turns.iter().filter(|(of, turn)| *of != uid && lives(turn)).count();
        let places = match self.batch {
            0 => usize::from(now >= self.until),
            batch => batch,
        };
        if taken < places {
            return Way::Turn;
        }
        let look = match places {
            0 if self.by == *uid => self.until,
            0 => later(self.until, AFTER_THE_LAST),
            _ => later(now, WHILE_ANOTHER_TRIES),
        };
        Way::Shut(self, look)
    }

    /// It is shut again, for the same reason as before or another.
    fn again(&mut self, uid: &Uid, cause: Cause, failure: &Failure, until: Timestamp) {
        if self.cause != cause {
            (self.cause, self.word) = (cause, failure.word());
            self.message.clone_from(&failure.message);
        }
        (self.until, self.batch, self.went) = (until, 0, 0);
        self.by = uid.clone();
    }

    /// One who tried succeeded. Gives whether all may go that wait, of whom there are so many: each batch is twice as large as the one
    /// before it.
    fn opens(&mut self, waiting: usize) -> bool {
        if self.cause != Cause::Stock {
            return true;
        }
        self.went += 1;
        if self.went >= self.batch {
            (self.batch, self.went) = (self.batch.max(1) * 2, 0);
        }
        self.batch >= waiting
    }
}

/// Stands between what is waited for and what the provider said of it.
const IT_SAID: &str = ". It said: ";

/// What a Machine says that it was told to wait for, by a process that may be gone: then one tries first all the same, and not all at
/// once.
pub fn is_parked(machine: &Machine) -> bool {
    told(machine).is_some()
}

fn told(machine: &Machine) -> Option<(Cause, &'static str, &str)> {
    let said = machine.last_operation()?;
    let (what, message) = said.description.as_deref()?.split_once(IT_SAID)?;
    let cause = [Cause::Credentials, Cause::Access, Cause::Stock]
        .into_iter()
        .find(|cause| what.ends_with(cause.text()))?;
    let codes = [Code::Unauthenticated, Code::PermissionDenied, Code::ResourceExhausted];
    let word = codes
        .map(Code::word)
        .into_iter()
        .find(|word| said.error_code.as_deref() == Some(word));
    // A deletion's description goes on with what comes next.
    let mark = [keys::MARK_VM_DELETION, keys::MARK_VM_STATUS]
        .into_iter()
        .find(|mark| message.ends_with(mark));
    let message = mark
        .and_then(|mark| message.strip_suffix(mark))
        .map_or(message, |said| said.trim_end_matches(". "));
    Some((cause, word?, message))
}

impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{IT_SAID}{}", self.cause.text(), self.message)
    }
}

/// The gates of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    make: Option<Shut>,
    remove: Option<Shut>,
    /// The provider has let this class in since it, its Secrets or its driver last changed.
    is_let_in: bool,
}

/// What a call about a Machine of the class came to.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// The Machine.
    pub uid: &'a Uid,
    /// What the call was for.
    pub errand: Option<Errand>,
    /// The failure, if it was one.
    pub failure: Option<&'a Failure>,
    /// When the Machine itself would try again.
    pub until: Timestamp,
    /// How many Machines of the class have no VM.
    pub waiting: usize,
}

/// What an answer means to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The Machines of the class stand otherwise before a gate.
    pub of_class: bool,
    /// All may go: pauses that were planned meanwhile have lost their reason.
    pub is_open: bool,
    /// The credentials were refused: classes with the same ones that were not let in yet need not try.
    pub refused: bool,
    /// The credentials are good again: classes with the same ones may try at once.
    pub accepted: bool,
}

impl Gates {
    /// All open.
    pub const OPEN: &Self = &Self {
        make: None,
        remove: None,
        is_let_in: false,
    };

    fn gate(&mut self, errand: Errand) -> &mut Option<Shut> {
        match errand {
            Errand::Make => &mut self.make,
            Errand::Remove => &mut self.remove,
        }
    }

    fn both(&mut self) -> [&mut Option<Shut>; 2] {
        [&mut self.make, &mut self.remove]
    }

    /// The gates that are shut.
    fn shut(&self) -> impl Iterator<Item = &Shut> {
        self.make.iter().chain(&self.remove)
    }

    /// Why Machines of the class wait.
    pub fn causes(&self) -> BTreeSet<Cause> {
        self.shut().map(|shut| shut.cause).collect()
    }

    /// How a Machine stands before a gate.
    pub fn way(&self, errand: Errand, uid: &Uid, now: Timestamp) -> Way<'_> {
        let gate = match errand {
            Errand::Make => &self.make,
            Errand::Remove => &self.remove,
        };
        gate.as_ref().map_or(Way::Open, |shut| shut.way(uid, now))
    }

    /// Nothing was heard of the class's calls yet.
    pub fn is_unheard(&self) -> bool {
        !self.is_let_in && self.shut().next().is_none()
    }

    /// What a Machine says of an earlier process's gate counts until one has tried.
    pub fn recall(&mut self, errand: Errand, machine: &Machine) {
        if self.is_unheard() {
            self.shut_as_told(errand, machine, Timestamp::MIN);
        }
    }

    /// The gates as the Machine tells of them, shut until then: all that somebody knows of them who is not the manager.
    pub fn told_by(machine: &Machine, until: Timestamp) -> Self {
        let mut gates = Self::default();
        let errand = match meta::is_deleting(&machine.metadata) {
            true => Errand::Remove,
            false => Errand::Make,
        };
        gates.shut_as_told(errand, machine, until);
        gates
    }

    fn shut_as_told(&mut self, errand: Errand, machine: &Machine, until: Timestamp) {
        let Some((cause, word, message)) = told(machine) else {
            return;
        };
        let shut = Shut {
            cause,
            word,
            message: message.to_owned(),
            until,
            by: meta::identity(&machine.metadata).1,
            batch: 0,
            went: 0,
            turns: BTreeMap::new(),
        };
        match cause {
            Cause::Credentials => (self.make, self.remove) = (Some(shut.clone()), Some(shut)),
            Cause::Access | Cause::Stock => *self.gate(errand) = Some(shut),
        }
    }

    /// A Machine takes its turn, unless another was faster.
    pub fn takes_turn(&mut self, errand: Errand, uid: &Uid, now: Timestamp) -> bool {
        if matches!(self.way(errand, uid, now), Way::Shut(..)) {
            return false;
        }
        if let Some(shut) = self.gate(errand) {
            let turn = Turn {
                at: now,
                is_called: false,
            };
            shut.turns.insert(uid.clone(), turn);
        }
        true
    }

    /// The call of whoever has taken a turn begins.
    pub fn begins(&mut self, errand: Errand, uid: &Uid) {
        let turn = self.gate(errand).as_mut().and_then(|shut| shut.turns.get_mut(uid));
        if let Some(turn) = turn {
            turn.is_called = true;
        }
    }

    /// The class, its Secrets or its driver changed: what was said before may hold no longer, so one tries at once. The answers to
    /// calls that are under way are about what was before.
    pub fn doubt(&mut self) {
        self.is_let_in = false;
        for shut in self.both().into_iter().flatten() {
            (shut.until, shut.batch, shut.went) = (Timestamp::MIN, 0, 0);
            shut.turns.clear();
        }
    }

    /// Takes what a call came to.
    pub fn hear(&mut self, heard: Heard<'_>) -> News {
        let had_turn = heard.errand.is_some_and(|errand| self.ends_turn(errand, heard.uid));
        match heard.failure {
            None => self.succeeded(heard, had_turn),
            Some(failure) => match Cause::of(failure) {
                Some(Cause::Credentials) => self.refused(heard, failure, had_turn),
                Some(cause) => self.stopped(heard, failure, cause, had_turn),
                None => self.failed(heard, failure, had_turn),
            },
        }
    }

    /// A Machine has its turn no more, whatever it came to. Gives whether it had one.
    pub fn ends_turn(&mut self, errand: Errand, uid: &Uid) -> bool {
        let shut = self.gate(errand).as_mut();
        shut.is_some_and(|shut| shut.turns.remove(uid).is_some())
    }

    fn succeeded(&mut self, heard: Heard<'_>, had_turn: bool) -> News {
        let mut news = self.let_in(had_turn);
        let gate = heard.errand.filter(|_| had_turn).map(|errand| self.gate(errand));
        if let Some(gate) = gate {
            news.of_class = true;
            if gate.as_mut().is_some_and(|shut| shut.opens(heard.waiting)) {
                *gate = None;
                news.is_open = true;
            }
        }
        news
    }

    /// The provider has let the class in. What was asked before it shut somebody out says nothing.
    fn let_in(&mut self, had_turn: bool) -> News {
        let is_shut_out = self.shut().any(|shut| shut.cause == Cause::Credentials);
        if is_shut_out && !had_turn {
            return News::default();
        }
        self.is_let_in = true;
        for gate in self.both() {
            gate.take_if(|shut| shut.cause == Cause::Credentials);
        }
        News {
            of_class: is_shut_out,
            is_open: is_shut_out,
            accepted: is_shut_out,
            refused: false,
        }
    }

    /// The credentials were refused: whatever else is asked with them would be too.
    fn refused(&mut self, heard: Heard<'_>, failure: &Failure, had_turn: bool) -> News {
        let is_known = self.shut().any(|shut| shut.cause == Cause::Credentials);
        self.is_let_in = false;
        // Who asked before others were refused adds nothing, least of all to how long they wait.
        if is_known && !had_turn {
            return News::default();
        }
        for gate in self.both() {
            match gate {
                Some(shut) => shut.again(heard.uid, Cause::Credentials, failure, heard.until),
                None => *gate = Some(Shut::by(heard.uid, Cause::Credentials, failure, heard.until)),
            }
        }
        News {
            of_class: true,
            refused: true,
            ..News::default()
        }
    }

    /// This errand is forbidden, or there is nothing to be had.
    fn stopped(&mut self, heard: Heard<'_>, failure: &Failure, cause: Cause, had_turn: bool) -> News {
        let mut news = self.let_in(had_turn);
        let Some(errand) = heard.errand else { return news };
        let gate = self.gate(errand);
        match gate {
            Some(shut) if had_turn => shut.again(heard.uid, cause, failure, heard.until),
            Some(_) => return news,
            None => *gate = Some(Shut::by(heard.uid, cause, failure, heard.until)),
        }
        news.of_class = true;
        news
    }

    /// It failed for a reason of its own. Another may try, where only time is needed not before the one who tried would.
    fn failed(&mut self, heard: Heard<'_>, failure: &Failure, had_turn: bool) -> News {
        if was_let_in(failure) {
            let mut news = self.let_in(had_turn);
            news.of_class |= had_turn;
            return news;
        }
        let gate = heard.errand.filter(|_| had_turn).map(|errand| self.gate(errand));
        if let Some(Some(shut)) = gate {
            shut.until = shut.until.max(heard.until);
            shut.by = heard.uid.clone();
        }
        News {
            of_class: had_turn,
            ..News::default()
        }
    }

    /// Another class has had the same credentials refused. Gives whether that is news: who was let in with them knows better.
    pub fn shut_out(&mut self, by: &Self, now: Timestamp) -> bool {
        let refused = by.shut().find(|shut| shut.cause == Cause::Credentials);
        let Some(refused) = refused.filter(|_| !self.is_let_in && self.shut().next().is_none()) else {
            return false;
        };
        // Twice as long as the one that was refused: if it stays so, this one finds out for itself whether it concerns it.
        let pause = refused.until.duration_since(now).max(SignedDuration::ZERO);
        let shut = Shut {
            until: later(refused.until, pause),
            turns: BTreeMap::new(),
            ..refused.clone()
        };
        (self.make, self.remove) = (Some(shut.clone()), Some(shut));
        true
    }

    /// Another class was let in with the same credentials. Gives whether that is news.
    pub fn may_try(&mut self) -> bool {
        let mut is_news = false;
        for shut in self.both().into_iter().flatten() {
            if shut.cause == Cause::Credentials && shut.turns.is_empty() {
                (shut.until, is_news) = (Timestamp::MIN, true);
            }
        }
        is_news
    }
}

#[cfg(test)]
mod tests;
