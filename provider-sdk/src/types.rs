//! What a driver's author sees of the contract: requests, answers and the values in them.
//!
//! No type of the wire shows here (`translate.rs` is the only place that knows both sides), and the `Debug` of whatever holds a secret does
//! not show it. What may grow is `#[non_exhaustive]`: made by a constructor, and its fields are set.

mod answer;
mod class;
mod identity;
mod machine;
mod request;
mod secret;

pub use self::answer::{
    CallAdvice, Capability, Change, ClassReport, ClassSchema, Deletion, DriverInfo, MachinePage, MachineStatus,
    NodeTemplate, Price, SecretKey, Severity, Violation, WatchEvent, WatchStream,
};
pub use self::class::{MachineClass, schema_of};
pub use self::identity::{Identity, TagCodec};
pub(crate) use self::machine::NODE_NAME_MAX;
pub use self::machine::{
    AddressType, CapacityType, Initialization, Interruption, InterruptionKind, Machine, MachineKey, MachineState,
    NodeAddress,
};
pub use self::request::{
    Context, CreateMachine, DeleteMachine, GetMachineStatus, GetNodeTemplate, InitializeMachine, ListMachines,
    ValidateMachineClass, WatchMachines,
};
pub(crate) use self::request::{PAGE_SIZE_DEFAULT, is_same_spec};
pub use self::secret::{Secret, Secrets, UserData};
