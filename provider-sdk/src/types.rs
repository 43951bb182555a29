//! What a driver's author sees of the contract: requests, answers and the values in them.
//!
//! Decides nothing. No type of the wire shows here (`translate.rs` is the only place that knows both sides), and
//! whatever holds a secret has no `Debug`.

mod answer;
mod class;
mod machine;
mod request;
mod secret;

pub use self::answer::{
    CallAdvice, Capability, Change, ClassReport, ClassSchema, Deletion, DriverInfo, MachinePage, MachineStatus,
    NodeTemplate, Price, SecretKey, Severity, Violation, VolumeId, VolumeIds, WatchEvent, WatchStream,
};
pub use self::class::{MachineClass, schema_of};
pub use self::machine::{
    AddressType, CapacityType, Initialization, Interruption, InterruptionKind, Machine, MachineKey, MachineState,
    NodeAddress,
};
pub(crate) use self::request::is_same_spec;
pub use self::request::{
    Context, CreateMachine, DeleteMachine, GetMachineStatus, GetNodeTemplate, GetVolumeIds, InitializeMachine,
    ListMachines, ValidateMachineClass, VolumeSource, VolumeSpec, WatchMachines,
};
pub use self::secret::{Secrets, UserData};
