//! Which status writes tell a failure, and that nothing which can fail stands before them.

use millwright_core::api::{OperationState, Phase, keys};
use millwright_core::{deployment, machine, set};

use crate::Broken;

/// A status write, as a law reads it.
pub(crate) trait Report {
    /// Whether it tells a failure of the object's own.
    fn tells_failure(&self) -> bool;
}

impl Report for machine::StatusChange {
    fn tells_failure(&self) -> bool {
        let is_bad = matches!(
            self.phase,
            Phase::Unknown | Phase::Failed | Phase::CrashLoopBackOff | Phase::InPlaceUpdateFailed
        );
        is_bad || self.state == OperationState::Failed
    }
}

impl Report for set::StatusChange {
    fn tells_failure(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|told| told.type_ == keys::CONDITION_REPLICA_FAILURE && told.status == keys::STATUS_TRUE)
    }
}

impl Report for deployment::StatusChange {
    /// `ReplicaFailure` is its set's, which told it.
    fn tells_failure(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|told| told.type_ == keys::CONDITION_PROGRESSING && told.status == "False")
    }
}

/// Telling a failure never stands behind a step that can fail: what stands there is told late, or never if it fails each time.
pub(crate) fn reported_first<S>(
    steps: &[S],
    tells: impl Fn(&S) -> bool,
    can_fail: impl Fn(&S) -> bool,
) -> Option<Broken> {
    let report = steps.iter().rposition(tells)?;
    let risk = steps.iter().position(can_fail)?;
    (risk < report).then_some(Broken::ReportBehindFailure)
}
