//! What could never work (`spec/api.md` §8), in words. Decides nothing else.

use super::{MachineDeployment, MachineSet};
use crate::selector::Matcher;

/// What could never work (`spec/api.md` §8), in words.
pub fn set_fault(set: &MachineSet) -> Option<String> {
    let Some(selector) = &set.spec.selector else {
        return Some("spec.selector is missing: it must select the template's labels".to_owned());
    };
    if set.spec.replicas < 0 {
        return Some(format!(
            "spec.replicas is {}: it must not be negative",
            set.spec.replicas
        ));
    }
    let matcher = match Matcher::new(selector) {
        Ok(matcher) => matcher,
        Err(error) => return Some(format!("spec.selector {error}")),
    };
    if matcher.selects_all() {
        return Some("spec.selector is empty: it would select every machine".to_owned());
    }
    if !matcher.matches(&set.spec.template.labels()) {
        return Some("spec.selector does not match spec.template.metadata.labels".to_owned());
    }
    let class = set.spec.template.class();
    let named = class.as_ref().is_some_and(|class| class.is_named());
    (!named).then(|| "spec.template.spec.class must have a kind and a name".to_owned())
}

/// What could never work (`spec/api.md` §8), in words. A strategy is not judged: nothing here depends on it.
pub fn deployment_fault(deployment: &MachineDeployment) -> Option<String> {
    let spec = &deployment.spec;
    let Some(selector) = &spec.selector else {
        return Some("spec.selector is missing: it must select the template's labels".to_owned());
    };
    if spec.replicas < 0 {
        return Some(format!("spec.replicas is {}: it must not be negative", spec.replicas));
    }
    let matcher = match Matcher::new(selector) {
        Ok(matcher) => matcher,
        Err(error) => return Some(format!("spec.selector {error}")),
    };
    if matcher.selects_all() {
        return Some("spec.selector is empty: it would select every machine".to_owned());
    }
    if !matcher.matches(&spec.template.labels()) {
        return Some("spec.selector does not match spec.template.metadata.labels".to_owned());
    }
    let named = spec.template.class().is_some_and(|class| class.is_named());
    (!named).then(|| "spec.template.spec.class must have a kind and a name".to_owned())
}
