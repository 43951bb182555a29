//! Why an apply is refused, in the server's words.
//!
//! Decides nothing.

use crate::fields::{Step, path_text};
use crate::managers::Manager;

/// A field that an apply would take from its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: Vec<Step>,
}

impl Conflict {
    /// The cause's `field`.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }

    /// The cause's `message`; its reason is `FieldManagerConflict`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The body is an object of another kind or version than the path.
    #[error("invalid object type: {0}")]
    OtherKind(String),
    #[error("metadata.managedFields must be nil")]
    OwnersStated,
    /// The body does not fit the kind's shape.
    #[error("failed to create typed patch object ({object}): {complaint}")]
    Untyped { object: String, complaint: String },
    #[error("{}", conflict_text(.0))]
    Conflict(Vec<Conflict>),
}

impl ApplyError {
    /// The HTTP status and `reason` with which the server refuses.
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Self::OtherKind(_) | Self::OwnersStated => (400, "BadRequest"),
            Self::Untyped { .. } => (500, ""),
            Self::Conflict(_) => (409, "Conflict"),
        }
    }
}

fn conflict_text(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", only.message(), only.field());
    }
    let mut lines = Vec::new();
    let mut said = None;
    for conflict in conflicts {
        if said != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            said = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.field()));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
