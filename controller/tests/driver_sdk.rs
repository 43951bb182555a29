//! The manager's calls against a driver made with the SDK: both halves of the contract, written apart, over a socket.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test says by its panic what went wrong, and waits in real time"
)]

mod stub;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use jiff::Timestamp;
use millwright::driver::{Creation, Driver, NodeMetadata, Scope, SecretData, Target};
use millwright_core::driver::{Capability, Code, Effect, Reason, VmState};
use millwright_core::ids::{Name, ProviderId, Uid};
use millwright_core::permit::DeletePermit;
use millwright_provider_sdk as sdk;
use stub::{Desk, target};
use zeroize::Zeroizing;

/// VMs in a map; the type "gone" is out of stock, and the name of a reason fails for that reason.
#[derive(Default)]
struct Shelf(Mutex<BTreeMap<String, sdk::Machine>>);

#[derive(serde::Deserialize)]
struct Spec {
    size: String,
}

impl sdk::Driver for Shelf {
    fn info(&self) -> sdk::DriverInfo {
        sdk::DriverInfo::new("x", "1").with_capabilities([sdk::Capability::ValidateMachineClass])
    }

    async fn create_machine(
        &self,
        request: sdk::CreateMachine,
        _: sdk::Context,
    ) -> Result<sdk::MachineStatus, sdk::DriverError> {
        let spec: Spec = request.machine_class.spec()?;
        if let Some(reason) = sdk::Reason::from_name(&spec.size) {
            return Err(sdk::DriverError::new(reason, "as the class asks"));
        }
        if spec.size == "gone" {
            return Err(sdk::DriverError::new(
                sdk::Reason::CapacityUnavailable {
                    zone: "a".into(),
                    instance_type: spec.size,
                },
                "no more of these",
            ));
        }
        let id = format!("shelf:///{}", request.key.uid);
        let mut vm = sdk::Machine::new(request.key.clone(), id, sdk::MachineState::Running);
        vm.node_name = request.key.node_name();
        vm.create_time = Some(Timestamp::UNIX_EPOCH);
        Ok(self
            .0
            .lock()
            .unwrap()
            .entry(request.key.uid)
            .or_insert(vm)
            .clone()
            .into())
    }

    async fn delete_machine(
        &self,
        request: sdk::DeleteMachine,
        _: sdk::Context,
    ) -> Result<sdk::Deletion, sdk::DriverError> {
        self.0.lock().unwrap().remove(&request.key.uid);
        Ok(sdk::Deletion::Deleted)
    }

    async fn get_machine_status(
        &self,
        request: sdk::GetMachineStatus,
        _: sdk::Context,
    ) -> Result<sdk::MachineStatus, sdk::DriverError> {
        let vm = self.0.lock().unwrap().get(&request.key.uid).cloned();
        vm.map(Into::into)
            .ok_or_else(|| sdk::DriverError::not_found("no such VM"))
    }

    async fn list_machines(
        &self,
        request: sdk::ListMachines,
        _: sdk::Context,
    ) -> Result<sdk::MachinePage, sdk::DriverError> {
        let vms = self.0.lock().unwrap();
        Ok(sdk::MachinePage::of(&request, vms.values().cloned()))
    }
}

/// A served shelf and the driver that the pool made of it.
async fn shelf() -> (Desk, Arc<Driver>, stub::Running, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("x.sock");
    let endpoint = format!("unix://{}", socket.display()).parse().unwrap();
    let running = stub::run_server(|| async move {
        sdk::serve(Shelf::default(), sdk::ServeOptions::new(endpoint))
            .await
            .unwrap();
    });
    let desk = Desk::at(&[&socket]);
    let driver = desk.ready("x").await;
    (desk, driver, running, directory)
}

fn creation() -> Creation {
    Creation {
        token: None,
        user_data: Zeroizing::new(Vec::new()),
        spec_digest: "0".repeat(64),
        node: NodeMetadata::default(),
    }
}

/// Another machine of the same class.
fn numbered(n: usize) -> Target {
    let mut target = target();
    target.key.name = Name::new(format!("m-{n}"));
    target.key.uid = Uid::new(format!("0e7b5bd0-6f2c-4f0e-9a55-{n:012}"));
    target
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_lives_and_dies_once() {
    let (_desk, driver, _running, _directory) = shelf().await;
    assert_eq!(driver.info().capabilities, [Capability::ValidateMachineClass].into());
    let target = target();

    let absent = driver
        .get_machine_status(&target)
        .await
        .expect_err("nothing was made yet");
    assert_eq!(
        (absent.code, absent.reason),
        (Code::NotFound, Some(Reason::MachineNotFound))
    );
    let vm = driver.create_machine(&target, &creation()).await.expect("it is made");
    assert_eq!(
        vm.provider_id,
        Some(ProviderId::new(format!("shelf:///{}", target.key.uid)))
    );
    let again = driver.create_machine(&target, &creation()).await.expect("it is there");
    assert_eq!(again.provider_id, vm.provider_id);
    assert_eq!(
        driver.get_machine_status(&target).await.map(|vm| vm.state),
        Ok(VmState::Running)
    );

    let deletion = Timestamp::UNIX_EPOCH.to_string();
    let machine =
        serde_json::json!({ "metadata": { "name": "m", "uid": target.key.uid, "deletionTimestamp": deletion } });
    let machine = serde_json::from_value(machine).expect("a Machine");
    let permit = || DeletePermit::for_deleting(&machine).expect("it is being deleted");
    assert!(
        driver
            .delete_machine(&target, permit())
            .await
            .expect("it is deleted")
            .gone
    );
    assert!(
        driver
            .delete_machine(&target, permit())
            .await
            .expect("gone stays gone")
            .gone
    );
    let refused = driver
        .create_machine(&target, &creation())
        .await
        .expect_err("a uid never comes back");
    let said = (refused.code, refused.reason, refused.effect);
    assert_eq!(
        said,
        (Code::FailedPrecondition, Some(Reason::MachineDeleted), Effect::None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_author_s_error_arrives_with_its_reason_and_outcome() {
    let (_desk, driver, _running, _directory) = shelf().await;
    let spec = serde_json::json!({ "size": "gone" });
    let class = millwright::driver::DriverClass::new("default", "small", &driver.info().name, &spec).unwrap();
    let failure = driver
        .create_machine(&Target { class, ..target() }, &creation())
        .await
        .expect_err("out of stock");
    assert_eq!(
        (failure.code, failure.reason),
        (Code::ResourceExhausted, Some(Reason::CapacityUnavailable))
    );
    assert_eq!(
        (failure.effect, failure.message.contains("no more of these")),
        (Effect::None, true)
    );
}

/// The SDK's codes of reasons are those that the manager accepts: a reason under another code is the driver's fault to the manager.
#[tokio::test(flavor = "multi_thread")]
async fn every_reason_of_an_author_is_believed() {
    let (_desk, driver, _running, _directory) = shelf().await;
    for reason in sdk::Reason::all() {
        let spec = serde_json::json!({ "size": reason.name() });
        let class = millwright::driver::DriverClass::new("default", "small", &driver.info().name, &spec).unwrap();
        let failed = driver.create_machine(&Target { class, ..target() }, &creation()).await;
        let failure = failed.expect_err("the class asks for it");
        let is_fault = failure.reason.is_none_or(|reason| reason == Reason::DriverFault);
        assert_eq!(is_fault, reason == sdk::Reason::DriverFault, "{reason:?}: {failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_leader_s_call_is_refused() {
    let (desk, driver, _running, _directory) = shelf().await;
    desk.leads(5, None);
    driver
        .create_machine(&numbered(1), &creation())
        .await
        .expect("the leader may");
    desk.leads(4, None);
    let failure = driver
        .create_machine(&numbered(2), &creation())
        .await
        .expect_err("it has been replaced");
    assert_eq!(
        (failure.reason, failure.effect),
        (Some(Reason::StaleLeader), Effect::None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_machines_are_made_over_one_connection_and_listed_by_pages() {
    let (desk, driver, _running, _directory) = shelf().await;
    let targets: Vec<Target> = (0..1000).map(numbered).collect();
    let creation = creation();
    let made = join_all(targets.iter().map(|target| driver.create_machine(target, &creation))).await;
    assert!(
        made.iter().all(Result::is_ok),
        "{:?}",
        made.iter().find(|vm| vm.is_err())
    );
    let scope = Scope {
        cluster_id: "c".into(),
        class: target().class,
        secrets: Arc::new(SecretData::default()),
    };
    let first = driver.list_machines(&scope, None).await.expect("a page");
    let second = driver
        .list_machines(&scope, first.next.as_deref())
        .await
        .expect("the next");
    let uids: BTreeSet<_> = first
        .vms
        .iter()
        .chain(&second.vms)
        .map(|listed| listed.uid.clone())
        .collect();
    assert_eq!((uids.len(), second.next), (1000, None));
    assert_eq!(desk.recorder.0.lock().unwrap().len(), 1002);
}
