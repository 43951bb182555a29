//! The trait that a provider's author implements.
//!
//! Write the calls as plain `async fn`s. Before a call reaches the author the SDK has checked its required fields and
//! sizes, the leader's epoch, the peer and the capability; mutating calls of one Machine never run at the same time, and
//! run in a task of their own that outlives the caller.

use std::future::Future;

use crate::error::DriverError;
use crate::types::{
    ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, DriverInfo, GetMachineStatus,
    GetNodeTemplate, InitializeMachine, ListMachines, Machine, MachinePage, MachineStatus, NodeTemplate,
    ValidateMachineClass, WatchMachines, WatchStream,
};

/// One provider's driver.
///
/// Every method must be safe to call again after any outcome, even after the process was killed in the middle: the
/// manager repeats what it has not seen finished. What that asks of each method is said there.
pub trait Driver: Send + Sync + 'static {
    /// Who the driver is and what it can do.
    ///
    /// Idempotent: the same for the life of the process. No provider call, no waiting; the SDK asks once, at start.
    fn info(&self) -> DriverInfo;

    /// Makes sure that one VM exists for the Machine, adopting one that is there.
    ///
    /// Answer as soon as the provider has durably accepted the VM and `get_machine_status` can find it; do not wait
    /// for the boot. Set `tags` in the same provider request that makes the VM, and read them back by
    /// [`Identity::from_tags`](crate::Identity::from_tags).
    ///
    /// A creation of several steps that fails after the first says so by [`DriverError::outcome`]: what most reasons say by themselves is that
    /// nothing was made.
    ///
    /// Idempotent: before creating, look for a VM of this uid. One with the same or an unknown `spec_digest` is the
    /// answer; with another digest it is `SpecConflict`. A VM of the same cluster, namespace and name with another uid is
    /// `NameConflict`; with no uid at all it is the Machine's own. Never a second VM: hand the uid to the provider as
    /// its idempotency token where there is one.
    fn create_machine(
        &self,
        request: CreateMachine,
        context: Context,
    ) -> impl Future<Output = Result<MachineStatus, DriverError>> + Send;

    /// Removes the VM and everything made for it. Works from the key alone; `provider_id` is a hint.
    ///
    /// Idempotent: gone is [`Deletion::Deleted`], never an error, whether or not this driver ever saw the VM. `Deleted`
    /// says that nothing is left and that nothing can still arrive: if the provider may yet show a VM of this uid,
    /// answer [`Deletion::Deleting`]. (After the start of the process the SDK does so by itself, until `propagation_delay`
    /// has passed.) A VM whose tags name another cluster or uid is left alone: `NotOwned` if there is no VM of the key and
    /// `provider_id` names such a VM.
    fn delete_machine(
        &self,
        request: DeleteMachine,
        context: Context,
    ) -> impl Future<Output = Result<Deletion, DriverError>> + Send;

    /// The VM of a Machine, found by uid, else by name within cluster and namespace.
    ///
    /// Idempotent: changes nothing. `MachineNotFound` is a fact: the provider was asked and its propagation delay
    /// allowed for. If that cannot be told: `ProviderUnavailable`.
    fn get_machine_status(
        &self,
        request: GetMachineStatus,
        context: Context,
    ) -> impl Future<Output = Result<MachineStatus, DriverError>> + Send;

    /// One page of all VMs of a cluster that the class's credentials and region reach, whatever class made them.
    ///
    /// Idempotent: changes nothing, and the same cursor may be asked again. A VM that exists from the first page's
    /// request to the last page's answer appears at least once. What could not be asked is named in `unreachable`.
    fn list_machines(
        &self,
        request: ListMachines,
        context: Context,
    ) -> impl Future<Output = Result<MachinePage, DriverError>> + Send;

    /// Steps that can only follow the creation. Capability `InitializeMachine`.
    ///
    /// Idempotent: OK means that all steps hold; each is checked before it is done, so that a repeat is cheap.
    fn initialize_machine(
        &self,
        request: InitializeMachine,
        context: Context,
    ) -> impl Future<Output = Result<Machine, DriverError>> + Send {
        let _ = (request, context);
        std::future::ready(Err(DriverError::unimplemented("InitializeMachine")))
    }

    /// All VMs, `Synced`, then every change of one. Capability `WatchMachines`.
    ///
    /// Idempotent: changes nothing; any number of watches may run. The stream is polled only as fast as the manager
    /// reads, so a driver that buffers must bound its buffer and end the watch with `ResumeTokenExpired` beyond it.
    /// The SDK sends the heartbeats and ends the stream when the process stops.
    fn watch_machines(
        &self,
        request: WatchMachines,
        context: Context,
    ) -> impl Future<Output = Result<WatchStream, DriverError>> + Send {
        let _ = (request, context);
        std::future::ready(Err(DriverError::unimplemented("WatchMachines")))
    }

    /// JSON Schema of the class's spec, and what its Secret needs. Capability `MachineClassSchema`.
    ///
    /// Idempotent: the same for the life of the process. No provider call, no waiting.
    ///
    /// # Errors
    /// Only the default body fails: the driver has no schema.
    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        Err(DriverError::unimplemented("GetMachineClassSchema"))
    }

    /// Checks a class before a machine is made of it. Capability `ValidateMachineClass`.
    ///
    /// Idempotent: changes nothing, neither here nor at the provider. A bad class is an answer with all its
    /// violations, not an error ([`MachineClass::parse_spec`](crate::MachineClass::parse_spec) gives them all).
    ///
    /// With [`live`](ValidateMachineClass::live) the provider is asked, too: for credentials, permissions, and whether what the class names exists.
    /// The SDK cannot know what a driver asked. Say what could not be checked by a [`warning`](crate::Violation::warning) with the reason
    /// `NOT_CHECKED`, so that an answer without any means that all is good (CLS-9).
    fn validate_machine_class(
        &self,
        request: ValidateMachineClass,
        context: Context,
    ) -> impl Future<Output = Result<ClassReport, DriverError>> + Send {
        let _ = (request, context);
        std::future::ready(Err(DriverError::unimplemented("ValidateMachineClass")))
    }

    /// What a node made of this class would offer. Capability `NodeTemplate`.
    ///
    /// Idempotent: changes nothing. `SpecOutOfRange` for a type that the provider does not have.
    fn node_template(
        &self,
        request: GetNodeTemplate,
        context: Context,
    ) -> impl Future<Output = Result<NodeTemplate, DriverError>> + Send {
        let _ = (request, context);
        std::future::ready(Err(DriverError::unimplemented("GetNodeTemplate")))
    }
}
