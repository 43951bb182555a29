//! Looks at providers for VMs that no Machine owns, and at Nodes that are left of such: listings, live reads, deletions. Machines without
//! a Node whose VM is not among those that are listed are asked for it.
//!
//! Chooses nothing: when a look is due and what it comes to is `millwright_core::orphans`'. Each look is a task of its own, one for each
//! inventory at a time, so that a driver that hangs holds up nobody. It asks for a VM's deletion with a permit that the evidence was
//! consumed for, and under the lead, as every call that changes something.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use millwright_core::api::{Machine, MachineClass, meta};
use millwright_core::driver::{Deletion, Failure, Reaction, Reason};
use millwright_core::ids::{DriverName, Name, ProviderId, Uid};
use millwright_core::orphans::{
    self, Evidence, Finding, Gap, Inventories, Inventory, Listing, Observed, Plan, Sighting, Step, Way, nodes,
};
use millwright_core::permit::DeletePermit;
use millwright_core::plan::label;
use millwright_core::sight::later;

use super::shared::Shared;
use super::token;
use super::vm::secrets_of;
use crate::crash;
use crate::driver::{Driver, DriverClass, DriverState, MachineKey, Scope, Target, bounds};
use crate::kube::error::{ReadError, WriteError};
use crate::kube::events::Severity;

/// Two looks at an inventory are no closer than this.
const LEAST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// By so many ways to an inventory a listing is tried.
const MOST_WAYS: usize = 3;
/// Most pages of a listing: 10,000 VMs at the pages of 500 that the contract has are 20. A driver that never comes to an end is at fault.
const MOST_PAGES: usize = 1000;
/// So often a listing begins anew because its place was forgotten.
const MOST_STARTS: usize = 3;
/// So many orphans are deleted at a time.
const AT_ONCE: usize = 8;

/// Begins the looks that are due.
pub(super) fn look(shared: &Arc<Shared>) {
    let settings = &shared.settings;
    if settings.orphan_period.is_zero() {
        return;
    }
    let (now, lead_since) = (shared.env.now(), shared.sight(None).lead_since);
    let is_here = |driver: &DriverName| shared.is_here(driver);
    let due = shared.quietly(|world| Inventories::due(world, lead_since, settings, is_here, now));
    for (inventory, ways) in due {
        let task = Arc::clone(shared);
        shared.calls.spawn(async move {
            let looked = AssertUnwindSafe(look_at(&task, &inventory, &ways)).catch_unwind().await;
            let sooner = looked.unwrap_or_else(|_| {
                tracing::error!(%inventory, "the look for VMs of no Machine panicked; it is made again");
                None
            });
            let now = task.env.now();
            let (soonest, usual) = (later(now, LEAST_PAUSE), later(now, task.settings.orphan_period));
            let next = sooner.unwrap_or(usual).min(usual).max(soonest);
            task.quietly(|world| world.ledger.inventories.ended(&inventory, next));
        });
    }
}

/// One look. Gives when to look again, if sooner than usual.
async fn look_at(shared: &Arc<Shared>, inventory: &Inventory, ways: &[Way]) -> Option<Timestamp> {
    let DriverState::Ready(driver) = shared.drivers.get(&inventory.driver) else {
        return None;
    };
    let (listing, via) = list(shared, &driver, inventory, ways).await;
    let result = listing.gap.as_ref().map_or("complete", Gap::label);
    shared.metrics.listed(inventory.driver.as_str(), result);
    let Plan {
        steps,
        wake,
        why,
        noted,
        report,
    } = shared.quietly(|world| {
        let plan = (shared.env.planners.orphans)(&Observed {
            listing: &listing,
            noted: &world.ledger.inventories.noted(inventory),
            world,
            sight: shared.sight(Some(&inventory.driver)),
            propagation_delay: driver.info().propagation_delay,
            namespace: shared.write.namespace(),
            settings: &shared.settings,
        });
        let seen = orphans::Seen {
            listing: &listing,
            namespace: shared.write.namespace(),
            settings: &shared.settings,
        };
        orphans::note(world, inventory, seen, plan.noted.clone(), plan.report);
        plan
    });
    if listing.gap.is_none() {
        let now = shared.env.now();
        let missing = shared.change(|world, uptime| world.all_listed(ways, &listing.up(), (now, uptime)));
        shared.metrics.doubted(inventory.driver.as_str(), "missing", missing);
    }
    let vms = listing.vms.len();
    tracing::debug!(%inventory, vms, ?report, %why, noted = noted.suspects.len(), "looked for VMs of no Machine");
    if let (Some(gap), true) = (&listing.gap, !noted.suspects.is_empty()) {
        tracing::info!(%inventory, %gap, "VMs without a Machine stay: the listing is not complete");
    }
    if let Some(via) = via {
        carry_out(shared, &via, steps, label(&why)).await;
    }
    if shared.settings.has_target {
        look_at_nodes(shared, &inventory.driver).await;
    }
    wake
}

/// What a listing was made through.
struct Via {
    driver: Arc<Driver>,
    /// Where events are told: the class, unless it is gone.
    class: Option<Arc<MachineClass>>,
    scope: Scope,
}

impl Via {
    fn warn(&self, shared: &Shared, reason: &str, text: &str) {
        if let Some(class) = &self.class {
            shared.events.publish(&**class, Severity::Warning, reason, text);
        }
    }
}

/// Lists all VMs of an inventory, by the first of its ways by which that is possible.
async fn list(shared: &Shared, driver: &Arc<Driver>, inventory: &Inventory, ways: &[Way]) -> (Listing, Option<Via>) {
    let begun = shared.env.now();
    let mut gap = Gap::Failed("no class of it is there any more".to_owned());
    for way in ways.iter().take(MOST_WAYS) {
        let name = &way.class;
        let scope = match scope(shared, way, &driver.info().name).await {
            Ok(scope) => scope,
            Err(why) => {
                gap = Gap::Failed(format!("class {name}: {why}"));
                continue;
            }
        };
        match pages(driver, &scope).await {
            Ok((vms, unreachable)) => {
                let listing = Listing {
                    begun,
                    ended: shared.env.now(),
                    vms,
                    gap: (!unreachable.is_empty()).then_some(Gap::Unreachable(unreachable)),
                };
                shared.quietly(|world| world.ledger.inventories.listed(inventory, None));
                let class = shared.look(|world| world.classes.get(name).cloned());
                let driver = Arc::clone(driver);
                return (listing, Some(Via { driver, class, scope }));
            }
            Err(why) => gap = Gap::Failed(format!("class {name}: {why}")),
        }
    }
    tell_unlisted(shared, inventory, ways, &gap);
    let listing = Listing {
        begun,
        ended: shared.env.now(),
        vms: Vec::new(),
        gap: Some(gap),
    };
    (listing, None)
}

/// Without a list no VM of no Machine is ever found, and the classes are where people look for what ails their driver. The same is told
/// once, so that nothing is written while nothing changes.
fn tell_unlisted(shared: &Shared, inventory: &Inventory, ways: &[Way], gap: &Gap) {
    let text = format!("The VMs at the provider cannot be listed, and it is tried again: {gap}");
    tracing::warn!(%inventory, "{text}");
    if !shared.quietly(|world| world.ledger.inventories.listed(inventory, Some(&text))) {
        return;
    }
    for way in ways.iter().take(MOST_WAYS) {
        if let Some(class) = shared.look(|world| world.classes.get(&way.class).cloned()) {
            shared.events.publish(&*class, Severity::Warning, "VmsNotListed", &text);
        }
    }
}

/// What is sent, and the credentials. Where the class says still what the way does, it says all of it.
pub(super) async fn scope(shared: &Shared, way: &Way, driver: &DriverName) -> Result<Scope, String> {
    let secrets = secrets_of(shared, &way.request.secret_keys()).await;
    let secrets = secrets.map_err(|error| error.to_string())?;
    let class = shared.look(|world| way.live(world).cloned());
    let spec = class
        .as_ref()
        .map_or(&way.request.provider_spec, |class| &class.spec.provider_spec);
    let wire = DriverClass::new(shared.write.namespace(), way.class.as_str(), driver, spec)
        .and_then(|wire| wire.at(&way.request.locator, &shared.settings.legacy_marks))
        .map_err(|error| error.to_string())?;
    Ok(Scope {
        cluster_id: shared.settings.cluster_id.clone(),
        class: match &class {
            Some(class) => wire.with_object(class),
            None => wire,
        },
        secrets: secrets.data,
    })
}

/// All pages of a listing, and what of them could not be asked. A place that is forgotten begins it anew; any other failure ends it.
async fn pages(driver: &Driver, scope: &Scope) -> Result<(Vec<Sighting>, Vec<String>), String> {
    let (mut vms, mut unreachable, mut token) = (Vec::new(), Vec::new(), None::<String>);
    let (mut starts, mut tokens, mut seen) = (1, BTreeSet::new(), BTreeSet::new());
    let (mut bytes, mut stranger) = (0, None);
    for _ in 0..MOST_PAGES {
        let page = match driver.list_machines(scope, token.as_deref()).await {
            Ok(page) => page,
            Err(failure) if failure.reason == Some(Reason::PageTokenExpired) && starts < MOST_STARTS => {
                starts += 1;
                (vms, unreachable, token, bytes) = (Vec::new(), Vec::new(), None, 0);
                (tokens, seen) = (BTreeSet::new(), BTreeSet::new());
                continue;
            }
            Err(failure) => return Err(format!("{}: {}", failure.word(), failure.message)),
        };
        bytes += page.bytes;
        if let Some(vm) = page.stranger.filter(|_| stranger.is_none()) {
            tracing::warn!(driver = %driver.info().name, vm, "the driver listed a VM of another cluster, and perhaps more: they are passed over");
            stranger = Some(vm);
        }
        let before = seen.len();
        seen.extend(page.vms.iter().filter_map(|vm| vm.vm.provider_id.as_ref()).map(mark));
        vms.extend(page.vms.into_iter().map(|vm| vm.sighting()));
        unreachable.extend(page.unreachable);
        unreachable.truncate(bounds::UNREACHABLE);
        match page.next {
            _ if vms.len() > bounds::VMS => return Err(format!("it has more than {} VMs", bounds::VMS)),
            _ if bytes > bounds::LISTING => return Err(format!("it has more than {} bytes", bounds::LISTING)),
            None => return Ok((vms, unreachable)),
            // A cursor that the provider moves may keep its name.
            Some(next) if !tokens.insert(next.clone()) && seen.len() == before => {
                return Err("it gave one page token twice and nothing new, so it has no end".to_owned());
            }
            Some(next) => token = Some(next),
        }
    }
    Err(format!("it did not end within {MOST_PAGES} pages"))
}

/// A number for an id, which takes less to remember.
fn mark(id: &ProviderId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// Tells what is to be told, and deletes what may be deleted.
async fn carry_out(shared: &Shared, via: &Via, steps: Vec<Step>, why: String) {
    let mut deletions = Vec::new();
    for step in steps {
        match step {
            Step::Tell(finding, vm) => tell(shared, via, finding, &vm),
            Step::Hold(why) => {
                tracing::warn!(driver = %via.driver.info().name, %why, "VMs of no Machine stay");
                let text = why.to_string();
                via.warn(shared, "OrphansHeld", &text);
            }
            Step::Delete(evidence) => deletions.push(evidence),
        }
    }
    if !deletions.is_empty() {
        tracing::info!(driver = %via.driver.info().name, vms = deletions.len(), why, "VMs of no Machine are deleted");
    }
    let deletions = deletions.into_iter().map(|evidence| delete(shared, via, *evidence));
    let mut deletions = futures::stream::iter(deletions).buffer_unordered(AT_ONCE);
    while deletions.next().await.is_some() {}
}

fn tell(shared: &Shared, via: &Via, finding: Finding, vm: &Sighting) {
    let (reason, result, text) = match finding {
        Finding::Unmarked => (
            "UnmarkedVm",
            "unmarked",
            "is left alone: its tags do not say for certain whose it is",
        ),
        Finding::Duplicate => (
            "DuplicateVm",
            "duplicate",
            "is left alone: that Machine names another VM as its own",
        ),
        Finding::Ageless => (
            "AgelessVm",
            "ageless",
            "has no Machine, and is left alone: the driver does not say when it was made",
        ),
        Finding::DryRun => (
            "OrphanFound",
            "dry_run",
            "is of no Machine, and would be deleted (--orphan-dry-run)",
        ),
    };
    let (driver, text) = (&via.driver.info().name, format!("{} {text}", vm.text()));
    tracing::warn!(%driver, "{text}");
    shared.metrics.orphan(driver.as_str(), result);
    via.warn(shared, reason, &text);
}

/// Reads the Machine live, and deletes the VM if there is none.
async fn delete(shared: &Shared, via: &Via, evidence: Evidence) {
    let (driver, sighting) = (via.driver.info().name.clone(), evidence.vm().clone());
    let vm = sighting.text();
    if shared.stop.is_cancelled() {
        return;
    }
    let seen = evidence.text();
    let live = match live(shared, evidence.machine()).await {
        Ok(live) => live,
        Err(error) => {
            tracing::warn!(%driver, %error, "{vm} stays: its Machine could not be read");
            return shared.metrics.orphan(driver.as_str(), "unread");
        }
    };
    let target = target(shared, via, &sighting, evidence.machine());
    let proof = match evidence.confirm(live.as_deref()) {
        Ok(proof) => proof,
        Err(spared) => {
            tracing::warn!(%driver, "{vm} stays: {spared}");
            return shared.metrics.orphan(driver.as_str(), "spared");
        }
    };
    let permit = DeletePermit::for_orphan(proof);
    let sent = via.driver.delete_machine(&target, permit);
    let answer = crash::around("DeleteMachine of an orphan", sent).await;
    let reaction = answer.as_ref().map(|_| ()).map_err(Failure::reaction);
    tell_deletion(shared, via, &vm, &seen, answer);
    match reaction {
        Ok(()) => drop_token(shared, &sighting).await,
        Err(Reaction::StepDown) => answer_back(shared, via).await,
        Err(_) => {}
    }
}

/// The driver says that a newer leader has spoken to it. If it is wrong, the next look reaches it.
async fn answer_back(shared: &Shared, via: &Via) {
    match shared.leads_against(Some(&via.driver)).await {
        Ok(Some(text)) => via.warn(shared, "FalseStaleLeader", text),
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "whether a newer leader has spoken to the driver could not be read"),
    }
}

/// The bootstrap token of the Machine that the VM had may be left, too: its name follows from the uid.
async fn drop_token(shared: &Shared, vm: &Sighting) {
    let Some(uid) = vm.uid.as_ref().filter(|_| shared.settings.has_target) else {
        return;
    };
    // The term in which this was planned is over: the next one finds what is left.
    if shared.stop.is_cancelled() {
        return;
    }
    if let Err(error) = token::remove_of(shared, uid).await {
        tracing::warn!(%uid, %error, "the bootstrap token of a Machine that is gone stays; it runs out by itself");
    }
}

fn tell_deletion(shared: &Shared, via: &Via, vm: &str, seen: &str, answer: Result<Deletion, Failure>) {
    let driver = &via.driver.info().name;
    let (result, reason, text) = match answer {
        Ok(Deletion { gone: true, .. }) => (
            "deleted",
            "OrphanDeleted",
            format!("{vm} was of no Machine, and is deleted: {seen}"),
        ),
        Ok(Deletion { gone: false, .. }) => (
            "deleting",
            "OrphanDeleted",
            format!("{vm} is of no Machine, and is being deleted: {seen}"),
        ),
        Err(failure) => {
            let why = format!("{}: {}", failure.word(), failure.message);
            (
                "failed",
                "OrphanNotDeleted",
                format!("{vm} is of no Machine, and could not be deleted: {why}"),
            )
        }
    };
    tracing::warn!(%driver, "{text}");
    shared.metrics.orphan(driver.as_str(), result);
    via.warn(shared, reason, &text);
}

/// The Machine of that name, by the API server's own word.
async fn live(shared: &Shared, name: &Name) -> Result<Option<Arc<Machine>>, ReadError> {
    match shared.write.read::<Machine>(name).await {
        Ok(live) => Ok(Some(shared.wrote(live))),
        Err(ReadError::Gone) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The VM by its own key (OR-2).
fn target(shared: &Shared, via: &Via, vm: &Sighting, machine: &Name) -> Target {
    Target {
        tagged_uid: None,
        former_namespace: None,
        key: MachineKey {
            cluster_id: shared.settings.cluster_id.clone(),
            namespace: vm.namespace.clone(),
            name: machine.clone(),
            uid: vm.uid.clone().unwrap_or_else(|| Uid::new("")),
        },
        class: via.scope.class.clone(),
        secrets: Arc::clone(&via.scope.secrets),
        provider_id: vm.provider_id.clone(),
        last_known_state: None,
    }
}

/// Removes Nodes whose Machine and VM are gone.
async fn look_at_nodes(shared: &Shared, driver: &DriverName) {
    let (sight, now) = (shared.sight(None), shared.env.now());
    let removals = shared.quietly(|world| {
        let mut plan = nodes::plan(world, &sight, &shared.settings, now);
        nodes::note(world, &mut plan);
        plan.removals
    });
    for evidence in removals {
        let node = evidence.node().name.clone();
        match remove_node(shared, evidence).await {
            Ok(true) => {
                shared.metrics.orphan(driver.as_str(), "node_removed");
                tracing::warn!(%node, "the Node's Machine and VM are gone: it is removed");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%node, error, "the Node of a VM that is gone could not be removed; it is tried again")
            }
        }
    }
}

/// Gives whether it was removed.
async fn remove_node(shared: &Shared, evidence: nodes::Evidence) -> Result<bool, String> {
    let machine = live(shared, evidence.machine())
        .await
        .map_err(|error| error.to_string())?;
    let node = match shared.write.read_node(&evidence.node().name).await {
        Ok(node) => shared.wrote(node),
        Err(ReadError::Gone) => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    let Some(reference) = evidence.confirm(machine.as_deref(), &node) else {
        return Ok(false);
    };
    if shared.stop.is_cancelled() {
        return Ok(false);
    }
    if shared.settings.orphan_dry_run {
        tracing::warn!(node = %reference.name, "the Node's Machine and VM are gone: it would be removed (--orphan-dry-run)");
        return Ok(false);
    }
    let removed = async {
        if !meta::is_deleting(&node.metadata) {
            shared.write.delete_node(&reference.name, &reference.uid).await?;
        }
        shared.write.release_node(&node).await.map(drop)
    };
    match removed.await {
        Ok(()) | Err(WriteError::Gone) => {}
        Err(error) => return Err(error.to_string()),
    }
    shared.change(|world, uptime| world.ended::<Node>(&Name::new(reference.name.as_str()), &reference.uid, uptime));
    Ok(true)
}
