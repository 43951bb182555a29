//! The smallest driver that runs: VMs are entries of a map and are gone with the process.
//!
//! ```text
//! cargo run -p millwright-provider-sdk --example hello -- --listen unix:///tmp/hello.sock
//! grpcurl -plaintext -unix /tmp/hello.sock machine.driver.v1.DriverService/GetDriverInfo
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use millwright_provider_sdk::clap::{self, Parser as _};
use millwright_provider_sdk::{
    Capability, ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError,
    DriverInfo, GetMachineStatus, Identity, ListMachines, Machine, MachineKey, MachinePage, MachineState,
    MachineStatus, Reason, ServeArgs, Timestamp, ValidateMachineClass, serde_json, serve, telemetry,
};

/// What a class of this provider says.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// Whom to greet.
    greeting: String,
}

/// What this cloud keeps of a VM, as clouds do: a name and tags, and nothing of Machines.
#[derive(Clone)]
struct Vm {
    id: String,
    hostname: String,
    tags: BTreeMap<String, String>,
    greeting: String,
    created: Timestamp,
}

impl Vm {
    /// The tags say whose VM it is.
    fn machine(&self) -> Machine {
        let identity = Identity::from_tags(&self.tags);
        let mut vm = Machine::of(identity, self.id.clone(), MachineState::Running);
        vm.node_name.clone_from(&self.hostname);
        vm.state_message = format!("hello, {}", self.greeting);
        vm.create_time = Some(self.created);
        vm
    }
}

/// Cluster id and uid: a VM of another cluster is never touched.
type Token = (String, String);

fn token(key: &MachineKey) -> Token {
    (key.cluster_id.clone(), key.uid.clone())
}

/// The VMs by the token that they were ordered with.
#[derive(Default)]
struct Hello {
    vms: Mutex<BTreeMap<Token, Vm>>,
}

impl Hello {
    fn vms(&self) -> MutexGuard<'_, BTreeMap<Token, Vm>> {
        self.vms.lock().expect("no holder of this lock panics")
    }
}

impl Driver for Hello {
    fn info(&self) -> DriverInfo {
        DriverInfo::new("hello", env!("CARGO_PKG_VERSION"))
            .with_capabilities([Capability::MachineClassSchema, Capability::ValidateMachineClass])
    }

    /// Safe to repeat: a second call finds the first one's VM.
    async fn create_machine(&self, request: CreateMachine, _: Context) -> Result<MachineStatus, DriverError> {
        let spec: Spec = request.machine_class.spec()?;
        let mut vms = self.vms();
        let is_namesake = |vm: &Machine| vm.key.is_namesake(&request.key);
        if let Some(other) = vms.values().map(Vm::machine).find(is_namesake) {
            let text = "another machine's VM has the name";
            return Err(DriverError::new(Reason::NameConflict, text).provider_ids([other.provider_id]));
        }
        let vm = vms.entry(token(&request.key)).or_insert_with(|| Vm {
            id: format!("hello:///{}", request.key.uid),
            hostname: request.key.node_name(),
            tags: request.tags.clone(),
            greeting: spec.greeting,
            created: Timestamp::now(),
        });
        let vm = vm.machine();
        if !request.is_made_of(&vm.spec_digest) {
            let text = "the VM was made of another spec";
            return Err(DriverError::new(Reason::SpecConflict, text).provider_ids([vm.provider_id]));
        }
        Ok(vm.into())
    }

    /// Gone is success, whether or not it was ever there.
    async fn delete_machine(&self, request: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
        let mut vms = self.vms();
        let was_there = vms.remove(&token(&request.key)).is_some();
        if !was_there && vms.values().any(|vm| vm.id == request.provider_id) {
            let text = "the VM of this id is another machine's";
            return Err(DriverError::new(Reason::NotOwned, text));
        }
        Ok(Deletion::Deleted)
    }

    async fn get_machine_status(&self, request: GetMachineStatus, _: Context) -> Result<MachineStatus, DriverError> {
        let vms = self.vms();
        if let Some(vm) = vms.get(&token(&request.key)) {
            return Ok(vm.machine().into());
        }
        // A machine that was restored from a backup names its VM by the id; the VM bears the uid of before.
        let is_restored =
            |vm: &Machine| vm.provider_id == request.provider_id && request.key.may_be_restored_from(&vm.key);
        let restored = vms.values().map(Vm::machine).find(is_restored);
        restored
            .map(Into::into)
            .ok_or_else(|| DriverError::not_found("no VM bears this uid"))
    }

    async fn list_machines(&self, request: ListMachines, _: Context) -> Result<MachinePage, DriverError> {
        Ok(MachinePage::of(&request, self.vms().values().map(Vm::machine)))
    }

    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        let mut schema = ClassSchema::of::<Spec>();
        schema.examples = [("world".to_owned(), serde_json::json!({"greeting": "world"}))].into();
        Ok(schema)
    }

    /// With `live`, too: a map needs no credentials, and a class names nothing that may be absent (CLS-9).
    async fn validate_machine_class(
        &self,
        request: ValidateMachineClass,
        _: Context,
    ) -> Result<ClassReport, DriverError> {
        let mut report = ClassReport::default();
        report.violations = request.machine_class.parse_spec::<Spec>().err().unwrap_or_default();
        report.inventory_key = "memory".to_owned();
        Ok(report)
    }
}

#[derive(clap::Parser)]
#[command(about = "A driver whose VMs are entries of a map")]
struct Args {
    #[command(flatten)]
    serve: ServeArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let _telemetry = telemetry::start(&args.serve, "hello", env!("CARGO_PKG_VERSION"))?;
    serve(Hello::default(), args.serve.into()).await?;
    Ok(())
}
