//! The one thread that changes the cloud: it decides each order, makes it durable, and only then shows and answers it.
//!
//! Group commit: all orders that wait while a transaction is synced go into the next one together, so a thousand
//! creates cost a handful of syncs. Two orders on the same VM or token never share a transaction; the second is
//! decided on what the first has left. A crash before the commit leaves no trace, a crash after it leaves the VM.

use std::{
    collections::HashSet,
    net::Ipv4Addr,
    sync::{Arc, mpsc},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;

use super::{
    CloudError, Happening, Shared,
    fleet::{Fleet, in_region},
    journal::{Entry, Event},
    ledger::Change,
    vm::{Deletion, Launch, Vm, VmId},
};
use crate::clock;

/// Bounds the memory of one transaction and the wait of its first order.
const BATCH: usize = 512;
/// How long a token stays spent. Longer than any manager repeats a create.
const SPENT_KEPT: SignedDuration = SignedDuration::from_hours(24);
const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// What is asked of the cloud.
pub(crate) enum Ask {
    /// Make a VM, or find the one of this token.
    Run(Box<Launch>),
    /// Remove a VM: by its own delay, or at once.
    Terminate { id: VmId, at_once: bool },
    /// Power a VM off.
    Stop(VmId),
    /// Power a VM on again.
    Start(VmId),
    /// The clock says that the VM has powered on.
    Booted(VmId),
    /// The VM's node is registered.
    Joined(VmId),
    /// The clock says that the VM may be gone.
    Purge(VmId),
}

impl Ask {
    /// The token or id that the order is about.
    fn subject(&self) -> &str {
        match self {
            Self::Run(launch) => &launch.token,
            Self::Terminate { id, .. }
            | Self::Stop(id)
            | Self::Start(id)
            | Self::Booted(id)
            | Self::Joined(id)
            | Self::Purge(id) => id.as_str(),
        }
    }
}

pub(crate) type Answer = Result<Arc<Vm>, CloudError>;

/// An ask and who waits for its answer, if anybody.
pub(crate) struct Order {
    pub(crate) ask: Ask,
    pub(crate) reply: Option<oneshot::Sender<Answer>>,
}

/// An order that has been decided but is not durable yet.
struct Decided {
    vm: Arc<Vm>,
    changes: Vec<Change>,
    reply: Option<oneshot::Sender<Answer>>,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) list_lag: Duration,
}

impl Writer {
    /// Runs until the last handle on the cloud is dropped.
    pub(crate) fn run(self, orders: &mpsc::Receiver<Order>) {
        let mut held = None;
        let mut swept = Timestamp::MIN;
        while let Some(first) = held.take().or_else(|| orders.recv().ok()) {
            let mut subjects = HashSet::from([first.ask.subject().to_owned()]);
            let mut batch = vec![first];
            while batch.len() < BATCH {
                let Ok(order) = orders.try_recv() else { break };
                if !subjects.insert(order.ask.subject().to_owned()) {
                    held = Some(order);
                    break;
                }
                batch.push(order);
            }
            self.carry_out(batch);
            let now = self.shared.outside.now();
            if now.duration_since(swept) > SWEEP_EVERY {
                swept = now;
                self.sweep(now);
            }
        }
    }

    /// Decides, commits and answers orders of which no two are about the same subject.
    pub(crate) fn carry_out(&self, batch: Vec<Order>) {
        let now = self.shared.outside.now();
        let decided = self.decide_all(batch, now);
        let mut changes = decided.iter().flat_map(|one| one.changes.iter()).peekable();
        let committed = if changes.peek().is_some() {
            self.shared.ledger.commit(changes)
        } else {
            Ok(())
        };
        match committed {
            Ok(()) => self.show(decided),
            Err(error) => self.give_up(decided, CloudError::Storage(Arc::new(error))),
        }
    }

    /// Refusals are answered at once: they leave nothing to make durable.
    fn decide_all(&self, batch: Vec<Order>, now: Timestamp) -> Vec<Decided> {
        let mut fleet = self.shared.fleet();
        let mut decided = Vec::with_capacity(batch.len());
        for Order { ask, reply } in batch {
            match self.decide(ask, &mut fleet, now) {
                Ok((vm, changes)) => decided.push(Decided { vm, changes, reply }),
                Err(refusal) => answer(reply, Err(refusal)),
            }
        }
        decided
    }

    /// The file has it: now the memory, the listeners and the callers.
    fn show(&self, decided: Vec<Decided>) {
        let is_changed = decided.iter().any(|one| !one.changes.is_empty());
        let mut fleet = self.shared.fleet();
        for Decided { vm, changes, reply } in decided {
            for change in changes {
                if let Change::Journal(entry) = &change {
                    let (event, vm) = (entry.event, Arc::clone(&vm));
                    let happening = Happening { event, vm };
                    fleet.tell(&happening);
                    // Without a watch there is nobody to tell.
                    self.shared.happenings.send(happening).ok();
                }
                fleet.apply(change);
            }
            answer(reply, Ok(vm));
        }
        drop(fleet);
        if is_changed {
            self.shared.changed.notify_waiters();
        }
    }

    fn give_up(&self, decided: Vec<Decided>, error: CloudError) {
        tracing::error!(%error, orders = decided.len(), "no order of the batch took effect");
        let mut fleet = self.shared.fleet();
        for Decided { vm, reply, .. } in decided {
            fleet.reopen(&vm.id);
            answer(reply, Err(error.clone()));
        }
    }

    /// Forgets tokens that nobody can ask for any more.
    fn sweep(&self, now: Timestamp) {
        let limit = now.checked_sub(SPENT_KEPT).unwrap_or(Timestamp::MIN);
        let stale: Vec<_> = self
            .shared
            .fleet()
            .spent_before(limit)
            .into_iter()
            .map(|token| Change::Forget { token })
            .collect();
        if stale.is_empty() {
            return;
        }
        match self.shared.ledger.commit(stale.iter()) {
            Ok(()) => {
                let mut fleet = self.shared.fleet();
                stale.into_iter().for_each(|change| fleet.apply(change));
            }
            Err(error) => tracing::warn!(%error, "old tokens stay for another hour"),
        }
    }
}

fn answer(reply: Option<oneshot::Sender<Answer>>, answer: Answer) {
    // Nobody waits for the clock's own orders, and a caller may have gone away: the effect stands either way.
    if let Some(reply) = reply {
        reply.send(answer).ok();
    }
}

type Decision = Result<(Arc<Vm>, Vec<Change>), CloudError>;

impl Writer {
    fn decide(&self, ask: Ask, fleet: &mut Fleet, now: Timestamp) -> Decision {
        match ask {
            Ask::Run(launch) => self.run_vm(*launch, fleet, now),
            Ask::Terminate { id, at_once } => terminate(&id, at_once, fleet, now),
            Ask::Stop(id) => {
                let vm = found(fleet, &id)?;
                if vm.stopped_at.is_some() || vm.deletion.is_some() {
                    return Ok((vm, Vec::new()));
                }
                Ok(altered(&vm, Event::Stopped, now, |vm| vm.stopped_at = Some(now)))
            }
            Ask::Start(id) => {
                let vm = found(fleet, &id)?;
                if vm.stopped_at.is_none() || vm.deletion.is_some() {
                    return Ok((vm, Vec::new()));
                }
                Ok(altered(&vm, Event::Booted, now, |vm| {
                    vm.stopped_at = None;
                    vm.booted = true;
                    vm.running_at = vm.running_at.min(now);
                }))
            }
            Ask::Booted(id) => {
                let vm = found(fleet, &id)?;
                if vm.booted || vm.stopped_at.is_some_and(|at| at < vm.running_at) {
                    return Ok((vm, Vec::new()));
                }
                Ok(altered(&vm, Event::Booted, vm.running_at, |vm| vm.booted = true))
            }
            Ask::Joined(id) => {
                let vm = found(fleet, &id)?;
                if vm.node_registered {
                    return Ok((vm, Vec::new()));
                }
                Ok(altered(&vm, Event::Joined, now, |vm| vm.node_registered = true))
            }
            Ask::Purge(id) => {
                let vm = found(fleet, &id)?;
                if !vm.is_past(now) || fleet.is_registering(&id) {
                    return Ok((vm, Vec::new()));
                }
                fleet.close(&id);
                Ok((Arc::clone(&vm), removal(&vm, now)))
            }
        }
    }

    fn run_vm(&self, launch: Launch, fleet: &Fleet, now: Timestamp) -> Decision {
        if fleet.is_spent(&launch.region, &launch.token) {
            return Err(CloudError::TokenSpent);
        }
        // The token is known at once, however long lists lag behind: that is what makes it a token.
        if let Some(vm) = fleet.by_token(&launch.region, &launch.token) {
            if vm.deletion.is_some() || fleet.is_closing(&vm.id) {
                return Err(CloudError::TokenSpent);
            }
            let is_known = !vm.spec_digest.is_empty() && !launch.spec_digest.is_empty();
            if is_known && vm.spec_digest != launch.spec_digest {
                return Err(CloudError::ParameterMismatch {
                    provider_id: vm.provider_id(),
                });
            }
            return Ok((Arc::clone(vm), Vec::new()));
        }
        let (id, address) = new_identity(self.shared.outside.chance());
        let vm = Arc::new(Vm::accepted(id, address, launch, now, self.list_lag));
        let entry = Entry::of(&vm, Event::Accepted, now);
        Ok((Arc::clone(&vm), vec![Change::Put(vm), Change::Journal(entry)]))
    }
}

fn terminate(id: &VmId, at_once: bool, fleet: &mut Fleet, now: Timestamp) -> Decision {
    let vm = found(fleet, id)?;
    let delay = if at_once { Duration::ZERO } else { vm.delete_delay };
    let deletion = Deletion {
        asked_at: now,
        gone_at: clock::after(now, delay),
        is_loss: at_once,
    };
    if vm.deletion.is_some_and(|earlier| earlier.gone_at <= deletion.gone_at) {
        return Ok((vm, Vec::new()));
    }
    // A node that registers at this moment must not appear after its VM is gone: the removal waits for it.
    if delay.is_zero() && !fleet.is_registering(id) {
        fleet.close(id);
        let last = Vm {
            deletion: Some(deletion),
            ..vm.as_ref().clone()
        };
        let changes = removal(&last, now);
        return Ok((Arc::new(last), changes));
    }
    Ok(altered(&vm, Event::Deleting, now, |vm| vm.deletion = Some(deletion)))
}

fn found(fleet: &Fleet, id: &VmId) -> Result<Arc<Vm>, CloudError> {
    let vm = fleet.get(id).ok_or_else(|| CloudError::NoSuchVm { id: id.clone() })?;
    Ok(Arc::clone(vm))
}

fn altered(vm: &Vm, event: Event, at: Timestamp, alter: impl FnOnce(&mut Vm)) -> (Arc<Vm>, Vec<Change>) {
    let mut vm = vm.clone();
    alter(&mut vm);
    let (entry, vm) = (Entry::of(&vm, event, at), Arc::new(vm));
    (Arc::clone(&vm), vec![Change::Put(vm), Change::Journal(entry)])
}

pub(crate) fn removal(vm: &Vm, at: Timestamp) -> Vec<Change> {
    vec![
        Change::Remove(vm.id.clone()),
        Change::Spend {
            token: in_region(&vm.region, &vm.token),
            at,
        },
        Change::Journal(Entry::of(vm, Event::Removed, at)),
    ]
}

/// An id that no VM ever had, and an address made of the same chance.
fn new_identity(chance: u128) -> (VmId, Ipv4Addr) {
    let [.., b, c, d] = chance.to_be_bytes();
    let text = format!("{chance:032x}");
    // 68 random bits as EC2 has, without the nibble that tells the UUID's version.
    let id: String = text
        .char_indices()
        .filter(|(at, _)| *at != 12)
        .map(|(_, digit)| digit)
        .take(17)
        .collect();
    (VmId::new(format!("i-{id}")), Ipv4Addr::new(10, b, c, d))
}
