//! What could never work in a spec (GE-9), in words: the field, what it says, what it should say. Decides nothing else.
//!
//! The API server refuses the plainest of these (`crds`); these functions judge whatever is stored. Negative bounds, bounds beyond
//! 100 % and bounds that are both zero are no faults: the original accepts them, and a rollout counts them sensibly.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::lenient::{IntOrPercent, Lenient, Rounding, Word};
use super::machine_deployment::{InPlaceUpdate, RollingUpdate, Strategy, StrategyType};
use super::{ClassRef, Machine, MachineDeployment, MachineSet, Template, keys};
use crate::selector::{self, Matcher};

/// Why no VM can be made for a Machine.
pub fn machine_fault(machine: &Machine) -> Option<String> {
    class_fault("spec.class", machine.spec.class.as_ref())
}

/// Why a set can never work.
pub fn set_fault(set: &MachineSet) -> Option<String> {
    let spec = &set.spec;
    let found = not_negative("spec.replicas", Some(spec.replicas))
        .or_else(|| selector_fault("set", spec.selector.as_ref(), &spec.template, &keys::WRITTEN_LABELS))
        .or_else(|| class_fault(TEMPLATE_CLASS, spec.template.class().as_ref()))
        .or_else(|| not_negative("spec.minReadySeconds", Some(spec.min_ready_seconds)));
    found.or_else(|| word_fault("spec.deletePolicy", spec.delete_policy.as_ref()?, DELETE_POLICIES))
}

/// Why a deployment can never work.
pub fn deployment_fault(deployment: &MachineDeployment) -> Option<String> {
    let spec = &deployment.spec;
    let (selector, written) = (spec.selector.as_ref(), &keys::WRITTEN_LABELS_OF_SETS);
    let rollback_to = spec.rollback_to.as_ref().map(|to| to.revision);
    not_negative("spec.replicas", Some(spec.replicas))
        .or_else(|| selector_fault("deployment", selector, &spec.template, written))
        .or_else(|| class_fault(TEMPLATE_CLASS, spec.template.class().as_ref()))
        .or_else(|| strategy_fault(spec.strategy.as_ref()))
        .or_else(|| not_negative("spec.minReadySeconds", Some(spec.min_ready_seconds)))
        .or_else(|| not_negative("spec.revisionHistoryLimit", spec.revision_history_limit))
        .or_else(|| not_negative("spec.progressDeadlineSeconds", spec.progress_deadline_seconds))
        .or_else(|| not_negative("spec.rollbackTo.revision", rollback_to))
        .or_else(|| {
            let field = format!("metadata.annotations[{}]", keys::DELETE_POLICY);
            word_fault(&field, &deployment.delete_policy()?, DELETE_POLICIES)
        })
}

/// Whether a deployment's selector is there and empty: it would take every set of the namespace.
pub fn selects_all(deployment: &MachineDeployment) -> bool {
    let selector = deployment.spec.selector.as_ref().map(Matcher::new);
    matches!(selector, Some(Ok(matcher)) if matcher.selects_all())
}

const DELETE_POLICIES: &str = "Random, Newest or Oldest";
const TEMPLATE_CLASS: &str = "spec.template.spec.class";

fn not_negative<N: PartialOrd + Default + fmt::Display>(field: &str, number: Option<N>) -> Option<String> {
    let number = number.filter(|number| *number < N::default())?;
    Some(format!("{field} is {number}: it must not be negative"))
}

fn class_fault(field: &str, class: Option<&ClassRef>) -> Option<String> {
    let Some(class) = class else {
        return Some(format!("{field} is missing: it must have a kind and a name"));
    };
    let is_empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    let part = match (is_empty(&class.kind), is_empty(&class.name)) {
        (true, _) => "kind is missing: it must be MachineClass",
        (false, true) => "name is missing: it must be the name of a MachineClass",
        (false, false) => return None,
    };
    Some(format!("{field}.{part}"))
}

/// `written` are labels that no child keeps as the selector asks for them.
fn selector_fault(
    owner: &str,
    selector: Option<&LabelSelector>,
    template: &Template,
    written: &[&str],
) -> Option<String> {
    let Some(selector) = selector else {
        return Some("spec.selector is missing: it must select the template's labels".to_owned());
    };
    let matcher = match Matcher::new(selector) {
        Ok(matcher) => matcher,
        Err(error) => return Some(format!("spec.selector {error}")),
    };
    if matcher.selects_all() {
        // The first two sentences are the original's.
        return Some(format!(
            "This {owner} is selecting all machines. A non-empty selector is required. \
             spec.selector is empty: it must select the template's labels"
        ));
    }
    if let Some(key) = selected_keys(selector).find(|key| written.contains(key)) {
        return Some(format!(
            "spec.selector asks for the label {key}, which this program writes itself: it must ask for labels of the template only"
        ));
    }
    let labels = template.labels();
    (!matcher.matches(&labels)).then(|| {
        format!(
            "spec.selector does not match spec.template.metadata.labels: it selects {}, and these are {}",
            selector::text(selector).unwrap_or_default(),
            told(&labels)
        )
    })
}

fn selected_keys(selector: &LabelSelector) -> impl Iterator<Item = &str> {
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key);
    let expressions = selector.match_expressions.iter().flatten();
    labels.chain(expressions.map(|term| &term.key)).map(String::as_str)
}

fn told(labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return "none".to_owned();
    }
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

fn word_fault<T: Word>(field: &str, word: &Lenient<T>, choices: &str) -> Option<String> {
    match word {
        Lenient::Known(_) => None,
        Lenient::Other(text) => Some(format!("{field} is {text:?}: it must be {choices}")),
    }
}

/// A deployment without a strategy, or without its type, rolls as a Deployment of Kubernetes does: its type's comment in the
/// original promises that, although the original then ignores the deployment.
fn strategy_fault(strategy: Option<&Strategy>) -> Option<String> {
    let strategy = strategy?;
    let missing = |field: &str| {
        Some(format!(
            "spec.strategy.{field} is missing: it must be given with maxSurge and maxUnavailable"
        ))
    };
    let Some(type_) = &strategy.type_ else {
        return strategy.rolling_update.as_ref().and_then(rolling_update_fault);
    };
    match (type_.known(), &strategy.rolling_update, &strategy.in_place_update) {
        (Some(StrategyType::Recreate), _, _) => None,
        (Some(StrategyType::RollingUpdate), Some(block), _) => rolling_update_fault(block),
        (Some(StrategyType::RollingUpdate), None, _) => missing("rollingUpdate"),
        (Some(StrategyType::InPlaceUpdate), _, Some(block)) => in_place_update_fault(block),
        (Some(StrategyType::InPlaceUpdate), _, None) => missing("inPlaceUpdate"),
        (None, _, _) => word_fault("spec.strategy.type", type_, "RollingUpdate, Recreate or InPlaceUpdate"),
    }
}

fn rolling_update_fault(block: &RollingUpdate) -> Option<String> {
    let field = "spec.strategy.rollingUpdate";
    bounds_fault(field, block.max_surge.as_ref(), block.max_unavailable.as_ref())
}

fn in_place_update_fault(block: &InPlaceUpdate) -> Option<String> {
    let (field, choices) = ("spec.strategy.inPlaceUpdate", "Auto or Manual");
    bounds_fault(field, block.max_surge.as_ref(), block.max_unavailable.as_ref()).or_else(|| {
        let field = format!("{field}.orchestrationType");
        match &block.orchestration_type {
            Some(word) => word_fault(&field, word, choices),
            None => Some(format!("{field} is missing: it must be {choices}")),
        }
    })
}

fn bounds_fault(block: &str, surge: Option<&IntOrPercent>, unavailable: Option<&IntOrPercent>) -> Option<String> {
    bound_fault(block, "maxSurge", surge).or_else(|| bound_fault(block, "maxUnavailable", unavailable))
}

fn bound_fault(block: &str, name: &str, bound: Option<&IntOrPercent>) -> Option<String> {
    let wanted = "a number of at most 32 bits, or a percentage such as \"25%\"";
    let Some(bound) = bound else {
        return Some(format!("{block}.{name} is missing: it must be {wanted}"));
    };
    // Whether a share of 100 can be told is whether it is a share at all.
    let unread = bound.resolve(100, Rounding::Up).is_err();
    unread.then(|| format!("{block}.{name} is {:?}: it must be {wanted}", bound.to_string()))
}
