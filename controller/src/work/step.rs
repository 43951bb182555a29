//! Why a step did not take effect, and what becomes of the key then. Decides nothing else.

use std::time::Duration;

use millwright_core::plan::Bearing;
use millwright_core::queue::Verdict;

use crate::kube::error::{ReadError, WriteError};

/// A step that did not take effect.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What was read makes the rest of the plan void.
    #[error("the object is not what the plan was made for any more")]
    Void,
    /// It befell another object than the plan's own: one child, or a Node. What the plan says of others still holds.
    #[error(transparent)]
    OfAnother(Box<StepError>),
}

impl StepError {
    /// It befell another object than the plan's own.
    pub fn of_another(error: impl Into<Self>) -> Self {
        Self::OfAnother(Box::new(error.into()))
    }

    /// What the queue does with the key.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::OfAnother(error) => error.verdict(),
            // The newer object, or the end of this one, is on its way; without it, a look a little later does.
            Self::Write(WriteError::Stale | WriteError::AlreadyExists) => Verdict::BackOff,
            Self::Write(WriteError::Gone) | Self::Read(ReadError::Gone) | Self::Void => {
                Verdict::Done { wake: None::<Duration> }
            }
            Self::Write(WriteError::Refused { .. } | WriteError::Fenced | WriteError::Unreachable { .. }) => {
                Verdict::BackOff
            }
            Self::Read(ReadError::Refused { .. } | ReadError::Unreadable | ReadError::Unreachable { .. }) => {
                Verdict::BackOff
            }
        }
    }

    /// Whether what the plan was made from is no longer so, or may not be acted on any more: then nothing of the plan holds, however
    /// little else rests on the step that failed. What is no longer so of another object ends only a plan whose other steps rest on it.
    pub fn voids(&self, bearing: Bearing) -> bool {
        match self {
            Self::OfAnother(error) if matches!(**error, Self::Write(WriteError::Fenced)) => true,
            Self::OfAnother(error) => bearing == Bearing::Stops && error.voids(bearing),
            Self::Write(WriteError::Stale | WriteError::Gone | WriteError::Fenced) | Self::Void => true,
            Self::Read(ReadError::Gone) => true,
            Self::Write(WriteError::AlreadyExists | WriteError::Refused { .. } | WriteError::Unreachable { .. }) => {
                false
            }
            Self::Read(ReadError::Refused { .. } | ReadError::Unreadable | ReadError::Unreachable { .. }) => false,
        }
    }

    /// Whether it belongs to ordinary life: a conflict, an end.
    pub fn is_ordinary(&self) -> bool {
        match self {
            Self::OfAnother(error) => error.is_ordinary(),
            Self::Write(WriteError::Stale | WriteError::AlreadyExists | WriteError::Gone | WriteError::Fenced) => true,
            Self::Read(ReadError::Gone) | Self::Void => true,
            Self::Write(WriteError::Refused { .. } | WriteError::Unreachable { .. }) => false,
            Self::Read(ReadError::Refused { .. } | ReadError::Unreadable | ReadError::Unreachable { .. }) => false,
        }
    }
}
