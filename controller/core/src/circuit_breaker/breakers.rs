//! The breakers of all accounts and classes: which of them are before a call, and what its outcome opens and closes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Admission, Cause, CircuitBreaker, Meaning, Operation, is_suspended};
use crate::api::{Machine, meta};
use crate::driver::Failure;
use crate::ids::{DriverName, Name, SecretKey, Uid};

/// What the provider counts calls against: the driver, and the Secret with the credentials.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(pub DriverName, pub SecretKey);

/// What a breaker stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// All calls of an account.
    Account(Account),
    /// All calls of one class: other classes of its account are accepted, or it has none.
    Class(Name),
    /// Calls of a class for one operation.
    Operation(Name, Operation),
}

/// All open breakers, and what they need to know of the classes.
#[derive(Debug, Default)]
pub struct Breakers {
    open: BTreeMap<Scope, CircuitBreaker>,
    classes: BTreeMap<Name, Standing>,
}

/// A class and its account.
#[derive(Clone, Debug)]
struct Standing {
    account: Option<Account>,
    /// The provider has accepted the credentials since the class, its Secrets or its driver last changed.
    is_accepted: bool,
}

/// The open breakers before a class's calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circuits<'a> {
    /// Of the account or the class: its credentials were refused.
    pub credentials: Option<&'a CircuitBreaker>,
    /// Of creations.
    pub create: Option<&'a CircuitBreaker>,
    /// Of deletions.
    pub delete: Option<&'a CircuitBreaker>,
    /// No breaker is open, and no call of the class has succeeded since it, its Secrets or its driver last changed.
    is_unheard: bool,
}

impl<'a> Circuits<'a> {
    fn all(self) -> impl Iterator<Item = &'a CircuitBreaker> {
        [self.credentials, self.create, self.delete].into_iter().flatten()
    }

    /// Why calls of the class are suspended.
    pub fn causes(self) -> BTreeSet<Cause> {
        self.all().map(|breaker| breaker.cause).collect()
    }

    /// Whether a Machine may call. One that an earlier process told to wait probes first also where that process could not store in the
    /// class that a breaker was open.
    pub fn admit(self, operation: Operation, machine: &Machine, now: Timestamp) -> Admission<'a> {
        let (class, uid) = (class_of(machine), meta::identity(&machine.metadata).1);
        let call = match operation {
            Operation::Create => self.create,
            Operation::Delete => self.delete,
        };
        let mut admission = match self.is_unheard && is_suspended(machine) {
            true => Admission::Probe,
            false => Admission::Allow,
        };
        for breaker in [self.credentials, call].into_iter().flatten() {
            admission = breaker.admit((&class, &uid), now);
            if matches!(admission, Admission::Deny(..)) {
                break;
            }
        }
        admission
    }
}

/// What a call about a Machine of a class came to.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The Machine.
    pub uid: &'a Uid,
    /// What the call was for.
    pub operation: Option<Operation>,
    /// The failure, if it was one.
    pub failure: Option<&'a Failure>,
    /// When the Machine itself would try again.
    pub retry_at: Timestamp,
    /// How many Machines of the class have no VM.
    pub waiting: usize,
}

/// What an outcome changes for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Classes whose Machines look again.
    pub classes: BTreeSet<Name>,
    /// A breaker closed: pauses after failures of its cause have lost their reason.
    pub is_closed: bool,
}

fn class_of(machine: &Machine) -> Name {
    Name::new(machine.class_name().unwrap_or_default())
}

impl Breakers {
    /// A class, its Secrets or its driver changed: what was said before may hold no longer, so one Machine probes at once. A class that
    /// is new to this process brings the breakers that its conditions tell to be open.
    pub fn class_changed(
        &mut self,
        class: &Name,
        account: Option<Account>,
        stored: impl FnOnce() -> Vec<(Option<Operation>, CircuitBreaker)>,
    ) {
        let is_new = !self.classes.contains_key(class);
        let refused = self.circuits(class).credentials.cloned();
        let is_accepted = false;
        self.classes.insert(class.clone(), Standing { account, is_accepted });
        // Other credentials than the refused ones: one Machine finds out whether they are good.
        let moved = refused.filter(|_| self.circuits(class).credentials.is_none());
        let stored = if is_new { stored() } else { Vec::new() };
        for (operation, breaker) in stored.into_iter().chain(moved.map(|breaker| (None, breaker))) {
            let own = operation.map_or(Scope::Class(class.clone()), |of| Scope::Operation(class.clone(), of));
            self.open.insert(own, breaker);
        }
        for operation in [Operation::Create, Operation::Delete] {
            self.before(class, Some(operation))
                .for_each(|(_, breaker)| breaker.retry_at_once());
        }
        self.prune();
    }

    /// The class is gone.
    pub fn forget_class(&mut self, class: &Name) {
        self.classes.remove(class);
        self.prune();
    }

    /// No breaker outlives the last class that it stops.
    fn prune(&mut self) {
        let classes = &self.classes;
        self.open.retain(|scope, _| match scope {
            Scope::Account(account) => classes.values().any(|of| of.account.as_ref() == Some(account)),
            Scope::Class(class) | Scope::Operation(class, _) => classes.contains_key(class),
        });
    }

    /// The open breakers before a class's calls, those of an operation among them.
    fn before<'a>(
        &'a mut self,
        class: &'a Name,
        operation: Option<Operation>,
    ) -> impl Iterator<Item = (&'a Scope, &'a mut CircuitBreaker)> {
        let account = self.classes.get(class).and_then(|of| of.account.as_ref());
        self.open.iter_mut().filter(move |(scope, _)| match scope {
            Scope::Account(of) => account == Some(of),
            Scope::Class(of) => of == class,
            Scope::Operation(of, called) => of == class && Some(*called) == operation,
        })
    }

    /// The open breakers before a class's calls.
    pub fn circuits(&self, class: &Name) -> Circuits<'_> {
        let standing = self.classes.get(class);
        let mut circuits = Circuits::default();
        for (scope, breaker) in &self.open {
            match scope {
                Scope::Account(of) if standing.is_some_and(|of_class| of_class.account.as_ref() == Some(of)) => {
                    circuits.credentials = Some(breaker);
                }
                Scope::Class(of) if of == class => circuits.credentials = Some(breaker),
                Scope::Operation(of, Operation::Create) if of == class => circuits.create = Some(breaker),
                Scope::Operation(of, Operation::Delete) if of == class => circuits.delete = Some(breaker),
                Scope::Account(_) | Scope::Class(_) | Scope::Operation(..) => {}
            }
        }
        circuits.is_unheard = circuits.all().next().is_none() && standing.is_some_and(|of| !of.is_accepted);
        circuits
    }

    /// The breakers of each class.
    pub fn all(&self) -> impl Iterator<Item = Circuits<'_>> {
        self.classes.keys().map(|class| self.circuits(class))
    }

    /// Lets nobody probe. For a program that only explains what the manager would do, and does not know when its next probe is due.
    pub fn hold(&mut self) {
        self.open
            .values_mut()
            .for_each(|breaker| breaker.retry_at = Timestamp::MAX);
    }

    /// A Machine reserves a call, unless others were faster.
    pub fn reserve(&mut self, operation: Operation, machine: &Machine, now: Timestamp) -> bool {
        let (class, uid) = (class_of(machine), meta::identity(&machine.metadata).1);
        let circuits = self.circuits(&class);
        if matches!(circuits.admit(operation, machine, now), Admission::Deny(..)) {
            return false;
        }
        if circuits.is_unheard
            && let Some(cause) = Cause::told(machine)
        {
            let scope = match cause {
                Cause::Credentials => Scope::Class(class.clone()),
                Cause::Access | Cause::Capacity => Scope::Operation(class.clone(), operation),
            };
            self.open.insert(scope, CircuitBreaker::restored(cause, String::new()));
        }
        for (_, breaker) in self.before(&class, Some(operation)) {
            breaker.in_flight.insert(uid.clone(), Some(now));
        }
        true
    }

    /// A reserved call begins.
    pub fn begin(&mut self, class: &Name, operation: Operation, uid: &Uid) {
        for (_, breaker) in self.before(class, Some(operation)) {
            breaker
                .in_flight
                .entry(uid.clone())
                .and_modify(|reserved| *reserved = None);
        }
    }

    /// Nothing was learned of a call. Gives whether it was one of those in flight: another Machine may have its place.
    pub fn release(&mut self, class: &Name, operation: Option<Operation>, uid: &Uid) -> bool {
        let before = self.before(class, operation);
        before.fold(false, |was, (_, breaker)| {
            breaker.in_flight.remove(uid).is_some() || was
        })
    }

    /// The call of a Machine has ended. Its class may name another account than when the call began, or be gone: no breaker waits for it.
    pub fn abandon(&mut self, uid: &Uid) {
        for breaker in self.open.values_mut() {
            breaker.in_flight.remove(uid);
        }
    }

    /// Takes what a call about a Machine of the class came to.
    pub fn record(&mut self, class: &Name, outcome: Outcome<'_>) -> Change {
        let mut change = Change::default();
        let (mut probed, mut is_outdated) = (Vec::new(), false);
        for (scope, breaker) in self.before(class, outcome.operation) {
            match breaker.in_flight.remove(outcome.uid) {
                Some(_) => probed.push(scope.clone()),
                // A call that was made before others were refused says nothing of the refusal: it neither prolongs nor ends it.
                None => is_outdated |= breaker.cause == Cause::Credentials,
            }
        }
        if !probed.is_empty() {
            change.classes.insert(class.clone());
        }
        if is_outdated {
            return change;
        }
        match outcome.failure.map(|failure| (failure, Meaning::of(failure))) {
            Some((failure, Meaning::Suspends(Cause::Credentials))) => {
                self.refused(class, &outcome, failure, &mut change)
            }
            Some((failure, Meaning::Suspends(cause))) => {
                self.accepted(class, &mut change);
                let scope = outcome
                    .operation
                    .map(|operation| Scope::Operation(class.clone(), operation));
                let opens = |scope: &Scope| probed.contains(scope) || !self.open.contains_key(scope);
                if let Some(scope) = scope.filter(opens) {
                    self.opens(scope, class, &outcome, (failure, cause), &mut change);
                }
            }
            Some((_, Meaning::Accepted)) => self.accepted(class, &mut change),
            // No other Machine probes before this one would: only time mends what stopped it.
            Some((_, Meaning::Unknown)) => {
                let probed = self
                    .before(class, outcome.operation)
                    .filter(|(scope, _)| probed.contains(scope));
                probed.for_each(|(_, breaker)| breaker.postpone(class, outcome.uid, outcome.retry_at));
            }
            None => {
                self.accepted(class, &mut change);
                self.open.retain(|scope, breaker| {
                    let closes = probed.contains(scope) && breaker.succeeded(outcome.waiting);
                    change.is_closed |= closes;
                    !closes
                });
            }
        }
        change
    }

    /// The credentials were refused: whatever else is asked with them would be too. Where another class of the account is accepted, the
    /// refusal is the class's own.
    fn refused(&mut self, class: &Name, outcome: &Outcome<'_>, failure: &Failure, change: &mut Change) {
        let Some(standing) = self.classes.get_mut(class) else {
            return;
        };
        standing.is_accepted = false;
        let account = standing.account.clone();
        let of_account = |of: &&Standing| of.account.is_some() && of.account == account;
        let is_own = self.classes.values().filter(of_account).any(|of| of.is_accepted)
            || self.open.contains_key(&Scope::Class(class.clone()));
        let scope = account.filter(|_| !is_own).map(Scope::Account);
        let scope = scope.unwrap_or_else(|| Scope::Class(class.clone()));
        self.opens(scope, class, outcome, (failure, Cause::Credentials), change);
    }

    fn opens(
        &mut self,
        scope: Scope,
        class: &Name,
        outcome: &Outcome<'_>,
        (failure, cause): (&Failure, Cause),
        change: &mut Change,
    ) {
        self.concerns(&scope, class, change);
        let breaker = self.open.entry(scope);
        let breaker = breaker.or_insert_with(|| CircuitBreaker::restored(cause, failure.message.clone()));
        breaker.fail(cause, &failure.message, (class, outcome.uid), outcome.retry_at);
    }

    /// The provider accepted the credentials.
    fn accepted(&mut self, class: &Name, change: &mut Change) {
        if let Some(standing) = self.classes.get_mut(class) {
            standing.is_accepted = true;
        }
        let refused: Vec<Scope> = self.before(class, None).map(|(scope, _)| scope.clone()).collect();
        for scope in refused {
            self.concerns(&scope, class, change);
            self.open.remove(&scope);
            change.is_closed = true;
        }
    }

    /// All classes that the breaker stops look again.
    fn concerns(&self, scope: &Scope, class: &Name, change: &mut Change) {
        change.classes.insert(class.clone());
        if let Scope::Account(account) = scope {
            let of_account = self
                .classes
                .iter()
                .filter(|(_, of)| of.account.as_ref() == Some(account));
            change.classes.extend(of_account.map(|(name, _)| name.clone()));
        }
    }
}
