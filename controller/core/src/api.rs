//! The four kinds of `machine.sapcloud.io/v1alpha1` as Rust types, and every key that carries meaning. Decides nothing.
//!
//! The types decode whatever the schema admits: a value that makes no sense is kept as text (`lenient`) or reads as absent, and is
//! judged by the planners, who can say so on the object. One odd object must never make a whole list unreadable.

pub mod crds;
mod creation_request;
pub mod keys;
pub mod lenient;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod meta;
pub mod node_template;
pub mod operation;
mod previous;
pub mod pruned;
pub mod qualified;
pub mod template;
pub mod validity;

pub use creation_request::CreationRequest;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use machine::{ClassRef, CurrentStatus, Machine, MachineSpec, MachineStatus, Phase};
pub use machine_class::{ClassNodeTemplate, MachineClass, MachineClassSpec, MachineClassStatus, SecretRef};
pub use machine_deployment::{MachineDeployment, MachineDeploymentSpec, MachineDeploymentStatus};
pub use machine_set::{MachineSet, MachineSetSpec, MachineSetStatus};
pub use node_template::NodeTemplateSpec;
pub use operation::{LastOperation, MachineSummary, OperationReason, OperationState, OperationType};
pub use template::Template;

/// The API group of all four kinds.
pub const GROUP: &str = "machine.sapcloud.io";
/// The only version, served and stored.
pub const VERSION: &str = "v1alpha1";
/// What `apiVersion` says in every object of ours and in owner references to them.
pub const API_VERSION: &str = "machine.sapcloud.io/v1alpha1";
