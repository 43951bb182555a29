//! Label selectors, read once and matched often. Decides what selects nothing: an absent selector, and one that cannot
//! be read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt as _};

/// A label selector, ready to match.
#[derive(Clone, Debug)]
pub struct Matcher(Selector);

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be read: {0}")]
pub struct BadSelector(String);

impl Matcher {
    /// Reads a selector.
    pub fn new(selector: &LabelSelector) -> Result<Self, BadSelector> {
        Selector::try_from(selector.clone())
            .map(Self)
            .map_err(|error| BadSelector(error.to_string()))
    }

    /// Whether it selects everything. In this API that is a mistake: such a set would adopt every orphan.
    pub fn selects_all(&self) -> bool {
        self.0.selects_all()
    }

    /// Whether it selects an object with these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }

    /// Whether it selects an object.
    pub fn selects(&self, meta: &ObjectMeta) -> bool {
        meta.labels
            .as_ref()
            .map_or_else(|| self.0.matches(&BTreeMap::new()), |labels| self.0.matches(labels))
    }
}

/// The selector as the scale subresource shows it; `None` where it cannot be read, and where a status has no room for it: a cut one would
/// select other objects.
pub fn text(selector: &LabelSelector) -> Option<String> {
    const LONGEST: usize = 32 * 1024;
    let text = Selector::try_from(selector.clone()).ok()?.to_string();
    (text.len() <= LONGEST && !text.chars().any(char::is_control)).then_some(text)
}
