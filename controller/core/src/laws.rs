//! The shape of laws that plans must keep. The laws themselves are a crate of their own, which no shipped program contains.

use jiff::Timestamp;

use crate::{class, deployment, machine, set};

/// One function for each kind that has laws. Each gives the texts of those that a plan breaks.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is named after its kind")]
pub struct Laws {
    pub machine: fn(&machine::Observed<'_>, &machine::Plan, Timestamp) -> Vec<String>,
    pub set: fn(&set::Observed<'_>, &set::Plan, Timestamp) -> Vec<String>,
    pub deployment: fn(&deployment::Observed<'_>, &deployment::Plan, Timestamp) -> Vec<String>,
    pub class: fn(&class::Observed<'_>, &class::Plan) -> Vec<String>,
    pub secret: fn(&class::SecretObserved<'_>, &class::SecretPlan) -> Vec<String>,
}
