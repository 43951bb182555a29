//! Where the driver looks: the class's locator decides, and its spec only where there is none.

use millwright_proto::v1::{
    CreateMachineRequest, DeleteMachineRequest, GetMachineStatusRequest, ListMachinesRequest, MachineClass,
    ValidateMachineClassRequest, machine::State, watch_machines_response::Type,
};

use crate::process::{Provider, class, class_with, create, delete, list, make, object, reason, status_of, text, watch};

/// A class that was deleted since: of its spec nothing is left.
fn left_of_class(region: &str) -> Option<MachineClass> {
    Some(MachineClass {
        provider_spec: Some(object([])),
        locator: Some(object([("region", text(region))])),
        ..class()
    })
}

#[tokio::test]
async fn a_locator_without_a_region_leaves_the_driver_nowhere_to_look() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    make(&mut driver, "m").await;
    let nowhere = Some(MachineClass {
        locator: Some(object([("account", text("a"))])),
        ..class()
    });
    let status = GetMachineStatusRequest {
        machine_class: nowhere.clone(),
        ..status_of("m")
    };
    let removal = DeleteMachineRequest {
        machine_class: nowhere,
        ..delete("m")
    };
    for refused in [
        driver.get_machine_status(status).await.expect_err("nobody knows where"),
        driver.delete_machine(removal).await.expect_err("nobody knows where"),
    ] {
        assert_eq!(reason(&refused), "CREDENTIALS_MISSING");
        assert!(refused.message().contains("locator.region"), "{}", refused.message());
    }
}

#[tokio::test]
async fn what_validation_answers_as_locator_finds_the_vm_without_the_spec() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let made = make(&mut driver, "m").await;
    let request = ValidateMachineClassRequest {
        machine_class: Some(class()),
        ..ValidateMachineClassRequest::default()
    };
    let report = driver
        .validate_machine_class(request)
        .await
        .expect("it is good")
        .into_inner();
    assert_eq!(report.locator, Some(object([("region", text("moon"))])));

    let machine_class = left_of_class("moon");
    let request = GetMachineStatusRequest {
        machine_class: machine_class.clone(),
        ..status_of("m")
    };
    let seen = driver
        .get_machine_status(request)
        .await
        .expect("it is there")
        .into_inner();
    assert_eq!(seen.machine.expect("a machine").provider_id, made.provider_id);
    let request = ListMachinesRequest {
        machine_class: machine_class.clone(),
        ..list(0, "")
    };
    let page = driver.list_machines(request).await.expect("a page").into_inner();
    assert_eq!(page.machines.len(), 1);
    let mut events = driver
        .watch_machines(watch(machine_class.clone()))
        .await
        .expect("a watch")
        .into_inner();
    let first = events.message().await.expect("no error").expect("no end");
    assert_eq!(first.r#type(), Type::Upsert);
    let request = DeleteMachineRequest {
        machine_class,
        ..delete("m")
    };
    let deleted = driver.delete_machine(request).await.expect("it goes").into_inner();
    assert_eq!(deleted.state(), State::Deleted);
    assert!(provider.console().await.vms().await.expect("vms").is_empty());
}

#[tokio::test]
async fn a_locator_wins_over_the_spec_of_a_class_that_has_moved_since() {
    let provider = Provider::start(&[]);
    let mut driver = provider.driver().await;
    let made = make(&mut driver, "m").await;
    let moved = MachineClass {
        locator: Some(object([("region", text("moon"))])),
        ..class_with([("region", text("mars")), ("zone", text("mars-a"))])
    };
    let request = GetMachineStatusRequest {
        machine_class: Some(moved.clone()),
        ..status_of("m")
    };
    let seen = driver
        .get_machine_status(request)
        .await
        .expect("it is on the moon")
        .into_inner();
    assert_eq!(seen.machine.expect("a machine").provider_id, made.provider_id);
    let again = CreateMachineRequest {
        machine_class: Some(moved.clone()),
        ..create("m")
    };
    let again = driver.create_machine(again).await.expect("it is found").into_inner();
    assert_eq!(
        again.machine.expect("a machine").provider_id,
        made.provider_id,
        "no second VM"
    );
    let fresh = CreateMachineRequest {
        machine_class: Some(moved),
        ..create("n")
    };
    let fresh = driver.create_machine(fresh).await.expect("accepted").into_inner();
    assert_eq!(
        fresh.machine.expect("a machine").region,
        "mars",
        "what is new is made by the spec"
    );
}
