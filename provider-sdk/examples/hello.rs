//! The smallest driver that runs: VMs are entries of a map and are gone with the process.
//!
//! ```text
//! cargo run -p millwright-provider-sdk --example hello -- --listen unix:///tmp/hello.sock
//! grpcurl -plaintext -unix /tmp/hello.sock machine.driver.v1.DriverService/GetDriverInfo
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use clap::Parser as _;
use millwright_provider_sdk::{
    Capability, ClassReport, ClassSchema, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError,
    DriverInfo, GetMachineStatus, ListMachines, Machine, MachinePage, MachineState, MachineStatus, Reason, ServeArgs,
    ValidateMachineClass, schema_of, serve, telemetry,
};

/// What a class of this provider says.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// Whom to greet.
    greeting: String,
}

/// The VMs by their Machine's uid, which is the idempotency token of every call.
#[derive(Default)]
struct Hello {
    vms: Mutex<BTreeMap<String, Machine>>,
}

impl Hello {
    fn vms(&self) -> MutexGuard<'_, BTreeMap<String, Machine>> {
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
        if let Some(other) = vms.values().find(|vm| vm.key.is_namesake(&request.key)) {
            return Err(
                DriverError::new(Reason::NameConflict, "another machine's VM has the name")
                    .provider_ids([other.provider_id.clone()]),
            );
        }
        let vm = vms.entry(request.key.uid.clone()).or_insert_with(|| Machine {
            node_name: request.key.name.clone(),
            state_message: format!("hello, {}", spec.greeting),
            machine_class: request.machine_class.name.clone(),
            spec_digest: request.spec_digest.clone(),
            create_time: Some(jiff::Timestamp::now()),
            ..Machine::new(
                request.key.clone(),
                format!("hello:///{}", request.key.uid),
                MachineState::Running,
            )
        });
        if !request.is_made_of(&vm.spec_digest) {
            return Err(
                DriverError::new(Reason::SpecConflict, "the VM was made of another spec")
                    .provider_ids([vm.provider_id.clone()]),
            );
        }
        Ok(vm.clone().into())
    }

    /// Gone is success, whether or not it was ever there.
    async fn delete_machine(&self, request: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
        let mut vms = self.vms();
        let is_foreign = |vm: &Machine| vm.provider_id == request.provider_id && vm.key.uid != request.key.uid;
        if vms.values().any(is_foreign) {
            return Err(DriverError::new(
                Reason::NotOwned,
                "the VM of this id is another machine's",
            ));
        }
        vms.remove(&request.key.uid);
        Ok(Deletion::Deleted)
    }

    async fn get_machine_status(&self, request: GetMachineStatus, _: Context) -> Result<MachineStatus, DriverError> {
        let vms = self.vms();
        // A machine that was restored from a backup names its VM by the id; the VM bears the uid of before.
        let is_restored = |vm: &&Machine| vm.provider_id == request.provider_id && request.key.is_namesake(&vm.key);
        let vm = vms.get(&request.key.uid).or_else(|| vms.values().find(is_restored));
        vm.cloned()
            .map(Into::into)
            .ok_or_else(|| DriverError::not_found("no VM bears this uid"))
    }

    /// The cursor is the uid that the next page begins with.
    async fn list_machines(&self, request: ListMachines, _: Context) -> Result<MachinePage, DriverError> {
        let vms = self.vms();
        let mut rest = vms
            .range(request.cursor..)
            .filter(|(_, vm)| vm.key.cluster_id == request.cluster_id);
        let machines = rest
            .by_ref()
            .take(request.page_size)
            .map(|(_, vm)| vm.clone())
            .collect();
        let next_cursor = rest.next().map(|(uid, _)| uid.clone()).unwrap_or_default();
        Ok(MachinePage {
            machines,
            next_cursor,
            unreachable: Vec::new(),
        })
    }

    fn machine_class_schema(&self) -> Result<ClassSchema, DriverError> {
        let examples = [("world".to_owned(), serde_json::json!({"greeting": "world"}))].into();
        Ok(ClassSchema {
            provider_spec_schema: schema_of::<Spec>(),
            secret_keys: Vec::new(),
            examples,
        })
    }

    async fn validate_machine_class(
        &self,
        request: ValidateMachineClass,
        _: Context,
    ) -> Result<ClassReport, DriverError> {
        let violations = request.machine_class.parse_spec::<Spec>().err().into_iter().collect();
        Ok(ClassReport {
            violations,
            inventory_key: "memory".to_owned(),
        })
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
