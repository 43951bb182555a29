//! The provider as a process of its own, with a client of its socket: what a manager sees, and a real `kill -9`.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use millwright_proto::v1::{
    CreateMachineRequest, DeleteMachineRequest, GetMachineStatusRequest, ListMachinesRequest, Machine, MachineClass,
    MachineKey, WatchMachinesRequest, driver_service_client::DriverServiceClient,
};
use millwright_provider_virtual::{cloud::Entry, console::Console};
use prost_types::{Struct, Value, value::Kind};
use tempfile::TempDir;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

/// A provider, its directory and the flags that it is started with again.
pub struct Provider {
    pub dir: TempDir,
    flags: Vec<String>,
    child: Option<Child>,
}

impl Provider {
    pub fn start(flags: &[&str]) -> Self {
        let mut provider = Self::new(flags);
        provider.start_again();
        provider
    }

    /// One that does not run yet, for whoever puts VMs into its state file first.
    pub fn new(flags: &[&str]) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            child: None,
        }
    }

    pub fn start_again(&mut self) {
        let child = Command::new(env!("CARGO_BIN_EXE_millwright-provider-virtual"))
            .args(["--listen", &self.address("driver.sock")])
            .args(["--console", &self.address("console.sock")])
            .args(&self.flags)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn();
        self.child = Some(child.expect("the binary starts"));
    }

    /// `kill -9`, and the wait for the end.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// Waits for an end that the process brings about itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.take().expect("it runs").wait().expect("it ends").code()
    }

    pub fn state_file(&self) -> PathBuf {
        self.dir.path().join("driver.redb")
    }

    pub fn address(&self, socket: &str) -> String {
        format!("unix://{}", self.dir.path().join(socket).display())
    }

    pub async fn driver(&self) -> DriverServiceClient<Channel> {
        DriverServiceClient::new(self.channel("driver.sock").await)
    }

    pub async fn console(&self) -> Console {
        self.channel("console.sock").await;
        Console::connect(&self.address("console.sock"))
            .await
            .expect("the console answers")
    }

    pub async fn journal(&self) -> Vec<Entry> {
        self.console().await.journal().await.expect("the journal")
    }

    async fn channel(&self, socket: &str) -> Channel {
        let endpoint = Endpoint::from_shared(self.address(socket)).expect("an address");
        let begun = Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) if begun.elapsed() > Duration::from_secs(20) => panic!("{socket}: {error:?}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

pub fn key(name: &str) -> MachineKey {
    // Any text of a UUID's length will do; it only has to be the same for the same name.
    let uid = format!(
        "00000000-0000-4000-8000-{:0>12}",
        name.bytes()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
            % 1_000_000_000_000
    );
    MachineKey {
        cluster_id: "dev".into(),
        namespace: "default".into(),
        name: name.into(),
        uid,
    }
}

pub fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.into())),
    }
}

pub fn flag(is_set: bool) -> Value {
    Value {
        kind: Some(Kind::BoolValue(is_set)),
    }
}

pub fn number(number: f64) -> Value {
    Value {
        kind: Some(Kind::NumberValue(number)),
    }
}

pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Struct {
    Struct {
        fields: fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

pub fn class_with<const N: usize>(more: [(&str, Value); N]) -> MachineClass {
    let mut spec = object([
        ("instanceType", text("small")),
        ("region", text("moon")),
        ("zone", text("moon-a")),
    ]);
    spec.fields.extend(object(more).fields);
    MachineClass {
        name: "small".into(),
        namespace: "default".into(),
        provider: "virtual".into(),
        provider_spec: Some(spec),
        ..MachineClass::default()
    }
}

pub fn class() -> MachineClass {
    class_with([])
}

/// A class that scripts one fault.
pub fn faulty<const N: usize>(fault: [(&str, Value); N]) -> MachineClass {
    let fault = Value {
        kind: Some(Kind::StructValue(object(fault))),
    };
    let faults = Value {
        kind: Some(Kind::ListValue(prost_types::ListValue { values: vec![fault] })),
    };
    class_with([("faults", faults)])
}

pub fn create(name: &str) -> CreateMachineRequest {
    CreateMachineRequest {
        key: Some(key(name)),
        machine_class: Some(class()),
        tags: BTreeMap::from([("owner".to_owned(), "test".to_owned())]),
        spec_digest: "a".repeat(64),
        ..CreateMachineRequest::default()
    }
}

pub fn status_of(name: &str) -> GetMachineStatusRequest {
    GetMachineStatusRequest {
        key: Some(key(name)),
        machine_class: Some(class()),
        ..GetMachineStatusRequest::default()
    }
}

pub fn delete(name: &str) -> DeleteMachineRequest {
    DeleteMachineRequest {
        key: Some(key(name)),
        machine_class: Some(class()),
        ..DeleteMachineRequest::default()
    }
}

pub fn watch(machine_class: Option<MachineClass>) -> WatchMachinesRequest {
    WatchMachinesRequest {
        cluster_id: "dev".into(),
        machine_class,
        ..WatchMachinesRequest::default()
    }
}

pub fn list(page_size: i32, page_token: &str) -> ListMachinesRequest {
    ListMachinesRequest {
        cluster_id: "dev".into(),
        machine_class: Some(class()),
        page_size,
        page_token: page_token.into(),
        ..ListMachinesRequest::default()
    }
}

/// The `ErrorInfo.reason` of a refusal.
pub fn reason(status: &Status) -> String {
    status
        .get_error_details()
        .error_info()
        .map(|info| info.reason.clone())
        .unwrap_or_default()
}

pub fn retry_after(status: &Status) -> Option<Duration> {
    status
        .get_error_details()
        .retry_info()
        .and_then(|info| info.retry_delay)
}

pub async fn make(driver: &mut DriverServiceClient<Channel>, name: &str) -> Machine {
    driver
        .create_machine(create(name))
        .await
        .expect("accepted")
        .into_inner()
        .machine
        .expect("a machine")
}
