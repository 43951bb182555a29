//! Laws of a Machine's plan: what comes before a VM, what must be proven before one is forgotten, which phase follows which.

use jiff::Timestamp;
use millwright_core::api::{NodeTemplateSpec, Phase, keys, meta};
use millwright_core::circuit_breaker::{Admission, Operation};
use millwright_core::driver::{Call, Capability, Initialization};
use millwright_core::machine;
use millwright_core::machine::in_place::marks::{Marks, Reason};
use millwright_core::machine::node_patch::NodePatch;
use millwright_core::machine::preserve::request::Value;
use millwright_core::machine::{DriverView, node};

use crate::report::{Report as _, reported_first};
use crate::{Broken, wakes_later};

/// Laws of a Machine's plan.
pub fn machine(seen: &machine::Observed<'_>, plan: &machine::Plan, now: Timestamp) -> Vec<Broken> {
    let mut broken: Vec<Broken> = wakes_later(plan.wake, now).into_iter().collect();
    broken.extend(calls_alone(seen, plan));
    broken.extend(passes_breaker((seen, now), plan));
    let is_told = |step: &machine::Step| matches!(step, machine::Step::Record(change) if change.tells_failure());
    broken.extend(reported_first(&plan.steps, is_told, may_be_refused));
    let mut phase = seen.machine.phase().clone();
    let mut read_live = false;
    let mut is_asked_for = seen.machine.creation_request().is_some();
    for (index, step) in plan.steps.iter().enumerate() {
        let last = index + 1 == plan.steps.len();
        let may_create = read_live && is_asked_for;
        broken.extend(machine_step((seen, now), step, &phase, may_create, last));
        match step {
            machine::Step::Record(change) => {
                phase = change.phase.clone();
                // The API server refuses the write if the uid differs, and answers with the object as it is.
                read_live = true;
                is_asked_for |= change.creation_request.is_some();
            }
            machine::Step::Confirm => read_live = true,
            _ => {}
        }
    }
    broken
}

/// What may be refused again and again, by the target cluster too. The finalizer, the live read and the VM's id are what a report
/// rests on, and are written to the Machine as the report is.
fn may_be_refused(step: &machine::Step) -> bool {
    use machine::Step;
    !matches!(
        step,
        Step::AddFinalizer
            | Step::Confirm
            | Step::SeeNode(_)
            | Step::Identify { .. }
            | Step::Record(_)
            | Step::Complain(_)
    )
}

fn calls_alone(seen: &machine::Observed<'_>, plan: &machine::Plan) -> Option<Broken> {
    let calls = plan
        .steps
        .iter()
        .filter(|step| matches!(step, machine::Step::Call(_)))
        .count();
    let last = matches!(plan.steps.last(), Some(machine::Step::Call(_)));
    let alone = calls == 0 || (calls == 1 && last && seen.calls.running.is_none());
    (!alone).then_some(Broken::CallsNotAlone)
}

/// A call that others have found to be in vain is made only by who has reserved the probe.
fn passes_breaker((seen, now): (&machine::Observed<'_>, Timestamp), plan: &machine::Plan) -> Option<Broken> {
    let Some(machine::Step::Call(call)) = plan.steps.last() else {
        return None;
    };
    // A silent Node's VM is asked for while its pods are waited for, which is no part of the removal.
    let operation = Operation::of(seen.machine, *call).filter(|_| plan.why != machine::Why::VmDoubted)?;
    let is_probe = plan.steps.contains(&machine::Step::Probe(operation));
    let is_allowed = match seen.admit(operation, now) {
        Admission::Allow => true,
        Admission::Probe => is_probe,
        Admission::Deny(..) => false,
    };
    (!is_allowed).then_some(Broken::PassesBreaker)
}

fn machine_step(
    (seen, now): (&machine::Observed<'_>, Timestamp),
    step: &machine::Step,
    phase: &Phase,
    may_create: bool,
    last: bool,
) -> Option<Broken> {
    use machine::Step;
    let machine = seen.machine;
    let deleting = meta::is_deleting(&machine.metadata);
    let guarded = meta::has_finalizer(&machine.metadata, keys::FINALIZER);
    match step {
        Step::Call(Call::Create) if deleting || !guarded => Some(Broken::CreateUnguarded),
        Step::Call(Call::Create) if is_elsewhere(seen) => Some(Broken::CreateElsewhere),
        Step::Call(Call::Create) => (phase.is_new() || !may_create).then_some(Broken::CreateWithoutIntent),
        Step::Call(Call::Delete) if !deleting => Some(Broken::DeleteOfWanted),
        Step::Call(Call::Delete) => has_pods(seen).then_some(Broken::VmBeforePods),
        Step::RemoveFinalizer if !last => Some(Broken::StepAfterTheEnd),
        Step::RemoveFinalizer => (!deleting || !is_proven(seen)).then_some(Broken::ReleaseUnproven),
        Step::DeleteMachine => deleting.then_some(Broken::DeletedTwice),
        // Only the driver's own word about this uid changes what stands there, and only before the Machine has joined.
        Step::Identify { provider_id, .. } => {
            let said = seen.calls.vm.as_ref().and_then(|vm| vm.provider_id.as_ref());
            let is_settled = machine.has_joined() || deleting;
            let is_changed = provider_id.is_some() && machine.provider_id().is_some();
            let is_wrong = provider_id.as_ref().is_some_and(|id| Some(id) != said);
            (is_wrong || (is_changed && is_settled)).then_some(Broken::IdentityChanged)
        }
        // One that is stored already is carried on: clocks jump.
        Step::Record(change) if change.since > change.at && machine.phase_since() != Some(change.since) => {
            Some(Broken::PhaseFromTheFuture)
        }
        // It has no VM, or never had its Node, whatever its phase says.
        Step::Record(change)
            if change.phase == Phase::Pending && (machine::knows_no_vm(machine) || seen.is_yet_to_join()) =>
        {
            None
        }
        Step::Record(change) if !is_edge(phase, &change.phase, deleting) => {
            Some(Broken::PhaseEdge(phase.to_string(), change.phase.to_string()))
        }
        Step::Record(change) => skips_initialization(seen, phase, &change.phase),
        // RemoveNode looks at the Node live and leaves another VM's alone, so a name is enough.
        Step::AddFinalizer
        | Step::Confirm
        | Step::SeeNode(_)
        | Step::EnsureToken
        | Step::Probe(_)
        | Step::Call(Call::Initialize | Call::Status)
        | Step::RemoveNode(_)
        | Step::LeaveBehind
        | Step::DropToken
        | Step::Complain(_)
        | Step::LeavePods
        | Step::StepDown => None,
        Step::Keep(_) | Step::Annotate(_) if deleting => Some(Broken::KeepsLeaving),
        Step::Keep(keeping) => ends_early(seen, *keeping, now).then_some(Broken::PreservedTooShort),
        Step::Annotate(changes) => {
            let own = [keys::PRESERVE, keys::LAST_APPLIED_PRESERVE];
            let is_foreign = changes.keys().any(|key| !own.contains(key));
            is_foreign.then_some(Broken::RequestChanged)
        }
        Step::WriteCondition(patch) => {
            let type_ = patch.condition.as_ref().map(|condition| condition.type_.as_str());
            match type_ {
                Some(keys::NODE_PRESERVED) => deleting.then_some(Broken::KeepsLeaving),
                Some(keys::NODE_IN_PLACE_UPDATE) => deleting.then_some(Broken::KeepsLeaving),
                Some(keys::NODE_TERMINATING) => (!deleting).then_some(Broken::DrainOfWanted),
                _ => Some(Broken::ForeignOfNode),
            }
        }
        Step::WriteNode(patch) if patch.finalizer == Some(true) && deleting => Some(Broken::GuardOfLeaving),
        Step::WriteNode(patch) if cordons_wrongly(seen, patch) => Some(Broken::DrainOfWanted),
        Step::WriteNode(patch) | Step::WriteCapacity(patch) => {
            claims_too_much(seen, patch).then_some(Broken::ForeignOfNode)
        }
        Step::Cordon(_) | Step::Detach(_) => (!deleting).then_some(Broken::DrainOfWanted),
        Step::WatchPods(_) | Step::Evict(_) if deleting && takes_pods(seen) => Some(Broken::PodsMayCome),
        Step::WatchPods(_) | Step::WatchVolumes | Step::LearnVolumes(_) | Step::Evict(_) | Step::DeletePods { .. } => {
            (!deleting && !is_emptied(seen, now)).then_some(Broken::DrainOfWanted)
        }
    }
}

/// S1. The class asks for something else than was asked for before, and of that one a VM may be there: not all creations were answered that
/// nothing was done, and the driver's last word is not that there is none.
fn is_elsewhere(seen: &machine::Observed<'_>) -> bool {
    let (asked, recipe) = (seen.machine.creation_request(), seen.class.recipe());
    let is_changed = asked
        .zip(recipe)
        .is_some_and(|(asked, recipe)| !asked.is_same(&recipe.essentials));
    is_changed && seen.calls.unmade.is_none() && seen.calls.not_found_at.is_none()
}

/// New pods may come to the Node, so that a list of its pods says nothing, and those that are evicted may come back.
fn takes_pods(seen: &machine::Observed<'_>) -> bool {
    let is_refused = seen.calls.cordon_refused.is_some() || seen.calls.gone_since.is_some();
    let own = seen.node.filter(|node| node::belongs(node, seen.machine));
    !is_refused && own.is_some_and(|node| !node::is_cordoned(node))
}

/// The Node of a Machine that stays is cordoned only for its update in place, and in use again only after one.
fn cordons_wrongly(seen: &machine::Observed<'_>, patch: &NodePatch) -> bool {
    let marks = seen.node.map(Marks::of).unwrap_or_default();
    match patch.unschedulable {
        Some(true) => !(marks.is_selected && marks.reason == Some(Reason::Selected)),
        Some(false) => !marks.is_under_way(),
        None => false,
    }
}

/// The pods of a node that stays go only where no new ones come, and its Machine failed and is preserved, or was selected for an update.
fn is_emptied(seen: &machine::Observed<'_>, now: Timestamp) -> bool {
    let machine = seen.machine;
    let marks = seen.node.map(Marks::of).unwrap_or_default();
    let is_selected = marks.is_selected && marks.reason == Some(Reason::Selected);
    if is_selected && seen.node.is_some_and(node::is_cordoned) {
        return true;
    }
    let is_tainted = seen
        .node
        .is_some_and(|node| node::taints(node).iter().any(machine::preserve::marks::is_ours));
    let runs = machine.preserved_until().is_some_and(|until| until > now);
    *machine.phase() == Phase::Failed && runs && is_tainted
}

/// It takes time from a Machine that is to be kept.
fn ends_early(seen: &machine::Observed<'_>, keeping: machine::Keeping, now: Timestamp) -> bool {
    let machine = seen.machine;
    let Some(until) = machine.preserved_until().filter(|until| *until > now) else {
        return false;
    };
    let sees = seen.settings.has_target && seen.sight.target_since.is_some();
    let node = seen.node.filter(|node| sees && node::belongs(node, machine));
    let requested = machine::preserve::request::request(machine, node).value;
    let is_requested = match requested {
        Some(Value::Now) => true,
        Some(Value::WhenFailed | Value::Auto) => *machine.phase() == Phase::Failed,
        Some(Value::Never) | None => false,
    };
    is_requested && keeping.until != Some(until)
}

/// S8. Keys of a Node are its Machine's to change only where the template gives them, or gave them when it was last applied.
fn claims_too_much(seen: &machine::Observed<'_>, patch: &NodePatch) -> bool {
    let noted = seen
        .node
        .and_then(|node| meta::annotation(&node.metadata, keys::LAST_APPLIED_NODE_TEMPLATE));
    let noted = noted.and_then(|text| serde_json::from_str::<NodeTemplateSpec>(text).ok());
    let templates: Vec<&NodeTemplateSpec> = seen.machine.spec.node_template.iter().chain(&noted).collect();
    let own = [
        keys::LAST_APPLIED_NODE_TEMPLATE,
        keys::LAST_APPLIED_VIRTUAL_CAPACITY,
        keys::SCALE_DOWN_DISABLED,
        keys::SCALE_DOWN_DISABLED_BY_US,
        keys::MACHINE_JOIN_DURATION,
        keys::PRESERVE,
        keys::UPDATE_FAILED_REASON,
        keys::CORDONED_BEFORE_UPDATE,
    ];
    let is_update = |(key, value): (&String, &Option<String>)| match key.as_str() {
        keys::CANDIDATE_FOR_UPDATE => true,
        keys::SELECTED_FOR_UPDATE | keys::UPDATE_RESULT => value.is_none(),
        _ => false,
    };
    let is_label = |key: &String| templates.iter().any(|template| template.labels().contains_key(key));
    let is_annotation = |key: &String| {
        templates
            .iter()
            .any(|template| template.annotations().contains_key(key))
    };
    patch
        .labels
        .iter()
        .any(|(key, value)| key != keys::MACHINE_NAME && !is_label(key) && !is_update((key, value)))
        || patch
            .annotations
            .keys()
            .any(|key| !own.contains(&key.as_str()) && !is_annotation(key))
}

/// S7. Pods are left that this process knows of, on a Node that stands, and the description does not say that the drain is over. The pods
/// of a Node that somebody deleted are the garbage collector's.
fn has_pods(seen: &machine::Observed<'_>) -> bool {
    let said = seen
        .machine
        .last_operation()
        .and_then(|last| last.description.as_deref());
    let is_draining = said.is_some_and(|said| said.ends_with(keys::MARK_DRAIN));
    let stands = seen.node.is_some_and(|node| node::belongs(node, seen.machine));
    is_draining
        && stands
        && seen.drain.is_some_and(|drain| drain.left().next().is_some())
        && seen.sight.target_since.is_some()
}

/// S2. Nothing is left at the provider: the driver said so, and said so after its propagation delay where a create may have been under way;
/// or the provider accepted the credentials of no creation; or no driver was ever asked, and there is none that an older controller could
/// have asked.
fn is_proven(seen: &machine::Observed<'_>) -> bool {
    let is_unnamed = seen.machine.provider_id().is_none() && seen.machine.node_label().is_none();
    let is_locked_out = seen.calls.unmade.is_some_and(|unmade| unmade.is_locked_out);
    let was_locked_out = is_locked_out && seen.calls.vm.is_none() && is_unnamed;
    if machine::delete::never_had_vm(seen) || was_locked_out {
        return true;
    }
    let Some(gone_since) = seen.calls.gone_since else {
        return false;
    };
    let (is_named, made) = (seen.machine.provider_id().is_some(), seen.calls.made_at);
    match seen.driver {
        DriverView::Ready(info) => {
            let is_settled =
                millwright_core::sight::later(made.unwrap_or(seen.sight.lead_since), info.propagation_delay)
                    <= gone_since;
            let certain = millwright_core::sight::later(gone_since, info.propagation_delay);
            (is_named && is_settled) || seen.calls.not_found_at.is_some_and(|at| at >= certain)
        }
        DriverView::Unnamed | DriverView::Missing { .. } | DriverView::Away { .. } => is_named && made.is_none(),
    }
}

/// Which phases may follow each other (MC-27). Staying is always allowed, and deletion leads to `Terminating` and nowhere else, but
/// for a Machine that nobody began, which may stay so.
fn is_edge(from: &Phase, to: &Phase, deleting: bool) -> bool {
    if deleting || *to == Phase::Terminating {
        let stays_early = from == to && matches!(from, Phase::New | Phase::Pending);
        return deleting && (*to == Phase::Terminating || stays_early);
    }
    let reachable: &[Phase] = match from {
        Phase::New | Phase::CrashLoopBackOff => &[
            Phase::Pending,
            Phase::Available,
            Phase::CrashLoopBackOff,
            Phase::Failed,
            Phase::Running,
        ],
        Phase::Pending => &[Phase::Available, Phase::CrashLoopBackOff, Phase::Failed, Phase::Running],
        Phase::Running => &[Phase::Unknown, Phase::InPlaceUpdating],
        Phase::Unknown => &[Phase::Running, Phase::Available, Phase::Failed, Phase::InPlaceUpdating],
        Phase::Available => &[Phase::Running, Phase::Unknown, Phase::InPlaceUpdating],
        Phase::Failed => &[Phase::Running, Phase::Unknown, Phase::Available],
        Phase::InPlaceUpdating => &[Phase::InPlaceUpdateSuccessful, Phase::InPlaceUpdateFailed],
        Phase::InPlaceUpdateFailed => &[Phase::InPlaceUpdateSuccessful, Phase::InPlaceUpdating, Phase::Failed],
        Phase::InPlaceUpdateSuccessful => &[Phase::Running, Phase::Unknown, Phase::InPlaceUpdating],
        // It stays, and the phase is not ours: it is judged anew.
        Phase::Terminating | Phase::Other(_) => &[Phase::Pending, Phase::Running, Phase::Unknown],
    };
    from == to || reachable.contains(to)
}

/// W19: nothing becomes usable while the driver says that InitializeMachine has work to do.
fn skips_initialization(seen: &machine::Observed<'_>, from: &Phase, to: &Phase) -> Option<Broken> {
    let usable = matches!(to, Phase::Running | Phase::Available);
    let creating = matches!(from, Phase::New | Phase::Pending | Phase::CrashLoopBackOff);
    let pending = seen
        .calls
        .vm
        .as_ref()
        .is_some_and(|vm| vm.initialization == Initialization::Pending);
    let can = match seen.driver {
        DriverView::Ready(info) => info.capabilities.contains(&Capability::InitializeMachine),
        DriverView::Unnamed | DriverView::Missing { .. } | DriverView::Away { .. } => true,
    };
    (usable && creating && pending && can).then_some(Broken::InitializationSkipped)
}
