//! Write a Millwright provider: implement [`Driver`], call [`serve`].
//!
//! The SDK owns the wire: the socket or TLS, the checks of every request, one operation at a time for each Machine, work that
//! outlives its caller, errors cut to what trailers can carry, health, reflection, metrics and the orderly end. An
//! author sees plain types and writes plain `async fn`s. A complete driver, keeping its VMs in memory:
//!
//! ```
//! use std::{collections::BTreeMap, sync::Mutex};
//! use millwright_provider_sdk::*;
//!
//! #[derive(Default)]
//! struct Shelf(Mutex<BTreeMap<(String, String), Machine>>); // cluster and uid -> VM
//!
//! fn id(key: &MachineKey) -> (String, String) {
//!     (key.cluster_id.clone(), key.uid.clone())
//! }
//!
//! impl Driver for Shelf {
//!     fn info(&self) -> DriverInfo {
//!         DriverInfo::new("shelf", "1.0.0")
//!     }
//!
//!     async fn create_machine(&self, request: CreateMachine, _: Context) -> Result<MachineStatus, DriverError> {
//!         let mut vms = self.0.lock().expect("no holder of this lock panics");
//!         if vms.values().any(|vm| vm.key.is_namesake(&request.key)) {
//!             return Err(DriverError::new(Reason::NameConflict, "another machine's VM has the name"));
//!         }
//!         let vm = vms.entry(id(&request.key)).or_insert_with(|| {
//!             let id = format!("shelf:///{}", request.key.uid);
//!             let mut vm = Machine::of(Identity::of(&request), id, MachineState::Running);
//!             vm.node_name = request.key.node_name();
//!             vm.create_time = Some(Timestamp::now());
//!             vm
//!         });
//!         if !request.is_made_of(&vm.spec_digest) {
//!             return Err(DriverError::new(Reason::SpecConflict, "the VM was made of another spec"));
//!         }
//!         Ok(vm.clone().into())
//!     }
//!
//!     async fn delete_machine(&self, request: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
//!         let mut vms = self.0.lock().expect("no holder of this lock panics");
//!         let was_there = vms.remove(&id(&request.key)).is_some();
//!         if !was_there && vms.values().any(|vm| vm.provider_id == request.provider_id) {
//!             return Err(DriverError::new(Reason::NotOwned, "the id names another machine's VM"));
//!         }
//!         Ok(Deletion::Deleted) // also if it was not there: deletion is a state to reach, not an act
//!     }
//!
//!     async fn get_machine_status(&self, request: GetMachineStatus, _: Context) -> Result<MachineStatus, DriverError> {
//!         let vms = self.0.lock().expect("no holder of this lock panics");
//!         // A machine that was restored from a backup names its VM by the id; the VM bears the uid of before.
//!         let is_restored = |vm: &&Machine| vm.provider_id == request.provider_id && request.key.may_be_restored_from(&vm.key);
//!         let vm = vms.get(&id(&request.key)).or_else(|| vms.values().find(is_restored));
//!         vm.cloned().map(Into::into).ok_or_else(|| DriverError::not_found("no such VM"))
//!     }
//!
//!     async fn list_machines(&self, request: ListMachines, _: Context) -> Result<MachinePage, DriverError> {
//!         let vms = self.0.lock().expect("no holder of this lock panics");
//!         Ok(MachinePage::of(&request, vms.values().cloned()))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shelf.sock");
//! let options = ServeOptions::new(format!("unix://{}", path.display()).parse()?);
//! # let server = Server::bind(Shelf::default(), options).await?;
//! # server.run_until(async { assert!(path.exists()) }).await?;
//! # let serve = |options| serve(Shelf::default(), options);
//! # let options = ServeOptions::new("tcp://127.0.0.1:0".parse()?);
//! # let _never_polled =
//! serve(options) // … .await: serves until SIGTERM
//! # ;
//! # Ok(())
//! # }
//! ```
//!
//! A binary takes its flags from [`ServeArgs`] and its log and traces from [`telemetry::start`]; `examples/hello.rs` is one.
//! What each call must hold to is said at the methods of [`Driver`]; the contract itself is `driver.proto`.

#![warn(missing_docs)]

mod args;
mod call;
mod deadline;
mod driver;
mod endpoint;
mod epoch;
mod error;
mod flight;
mod health;
mod http;
mod http_answer;
mod metrics;
mod page;
mod peer;
mod reason;
mod serve;
mod service;
mod socket;
mod spec_faults;
mod status;
pub mod telemetry;
#[cfg(test)]
mod test_log;
mod tls;
mod translate;
mod types;
mod validate;
mod watch;

/// What times in requests and answers are.
pub use jiff::Timestamp;
/// Crates whose types and traits are part of this crate's API, in the versions that it uses: `clap` of [`ServeArgs`], `futures` of
/// [`WatchStream`], `jiff` of [`Timestamp`], `schemars` of [`ClassSchema::of`], `serde` and `serde_json` of [`MachineClass::spec`] and
/// [`ClassSchema`], `millwright_proto` of [`in_process`], `tonic` of [`ServeError`]. A driver can name them by these paths. The derives of serde
/// and schemars need the crate itself among the driver's dependencies, or an attribute such as
/// `#[serde(crate = "millwright_provider_sdk::serde")]`.
#[doc(no_inline)]
pub use {clap, futures, jiff, millwright_proto, schemars, serde, serde_json, tonic};

pub use self::args::{ServeArgs, parse_duration};
pub use self::driver::Driver;
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::error::DriverError;
pub use self::health::Health;
pub use self::reason::{FieldViolation, Outcome, Reason};
pub use self::serve::{ServeError, ServeOptions, Server, in_process, serve};
pub use self::socket::SocketError;
pub use self::tls::{TlsError, TlsFiles};
pub use self::types::*;
