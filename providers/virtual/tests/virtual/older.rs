//! VMs that an older controller has made: the class's marks tell them (GEN-5).

use std::{collections::BTreeMap, time::Duration};

use millwright_proto::v1::{
    CreateMachineRequest, DeleteMachineRequest, GetMachineStatusRequest, ListMachinesRequest, MachineClass, MachineKey,
    machine::State, watch_machines_response::Type,
};
use millwright_provider_virtual::cloud::{Cloud, Delays, Launch, Owner};

use crate::process::{Provider, class, create, delete, key, list, reason, status_of, watch};

fn marks() -> BTreeMap<String, String> {
    let marks = [("kubernetes.io/cluster/dev", "1"), ("kubernetes.io/role/node", "1")];
    marks.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn marked_class() -> Option<MachineClass> {
    Some(MachineClass {
        legacy_marks: marks(),
        ..class()
    })
}

/// A provider in whose cloud an older controller has made VMs of these names and tags.
async fn with_older_vms<const N: usize>(vms: [(&str, BTreeMap<String, String>); N]) -> Provider {
    let mut provider = Provider::new(&[]);
    let cloud = Cloud::open(&provider.state_file(), Duration::ZERO).expect("the state file opens");
    for (name, tags) in vms {
        let launch = Launch {
            token: format!("token of {name}"),
            owner: Owner {
                cluster: String::new(),
                namespace: String::new(),
                name: name.to_owned(),
                uid: String::new(),
            },
            machine_class: String::new(),
            spec_digest: String::new(),
            tags,
            region: "moon".to_owned(),
            zone: "moon-a".to_owned(),
            instance_type: "small".to_owned(),
            delays: Delays {
                create: Duration::ZERO,
                join: Duration::ZERO,
                delete: Duration::ZERO,
            },
        };
        cloud.run_vm(launch).await.expect("accepted");
    }
    drop(cloud);
    provider.start_again();
    provider
}

#[tokio::test]
async fn a_vm_that_lacks_a_mark_or_whose_class_names_none_is_nobodys() {
    let mut half = marks();
    half.pop_last();
    let provider = with_older_vms([("half", half), ("whole", marks())]).await;
    let mut driver = provider.driver().await;
    let half = GetMachineStatusRequest {
        machine_class: marked_class(),
        ..status_of("half")
    };
    for request in [half, status_of("whole")] {
        let refused = driver.get_machine_status(request).await.expect_err("it is not its own");
        assert_eq!(reason(&refused), "MACHINE_NOT_FOUND");
    }
    let unmarked = driver.list_machines(list(0, "")).await.expect("a page").into_inner();
    assert!(unmarked.machines.is_empty());
    let other_name = DeleteMachineRequest {
        provider_id: provider.console().await.vms().await.expect("vms")[0]
            .provider_id
            .clone(),
        machine_class: marked_class(),
        ..delete("other")
    };
    let refused = driver
        .delete_machine(other_name)
        .await
        .expect_err("it is another machine's");
    assert_eq!(reason(&refused), "NOT_OWNED");
    assert_eq!(provider.console().await.vms().await.expect("vms").len(), 2);
}

#[tokio::test]
async fn a_creation_adopts_the_vm_of_an_older_controller_by_its_name() {
    let provider = with_older_vms([("m", marks())]).await;
    let mut driver = provider.driver().await;
    let request = CreateMachineRequest {
        machine_class: marked_class(),
        ..create("m")
    };
    let adopted = driver.create_machine(request).await.expect("it stands").into_inner();
    let expected = MachineKey {
        uid: String::new(),
        ..key("m")
    };
    assert_eq!(adopted.machine.expect("a machine").key, Some(expected));
    assert_eq!(provider.console().await.vms().await.expect("vms").len(), 1);
}

#[tokio::test]
async fn the_vm_of_an_older_controller_has_the_machines_namespace_in_its_status_and_none_in_list_and_watch() {
    let provider = with_older_vms([("m", marks())]).await;
    let mut driver = provider.driver().await;
    let request = GetMachineStatusRequest {
        machine_class: marked_class(),
        ..status_of("m")
    };
    let seen = driver
        .get_machine_status(request)
        .await
        .expect("it stands")
        .into_inner();
    let mut vm = seen.machine.expect("a machine");
    let mut shown_key = MachineKey {
        uid: String::new(),
        ..key("m")
    };
    assert_eq!(vm.key.as_ref(), Some(&shown_key));
    shown_key.namespace.clear();
    vm.key = Some(shown_key.clone());
    let request = ListMachinesRequest {
        machine_class: marked_class(),
        ..list(0, "")
    };
    let page = driver.list_machines(request).await.expect("a page").into_inner();
    assert_eq!(page.machines, std::slice::from_ref(&vm));
    let mut events = driver
        .watch_machines(watch(marked_class()))
        .await
        .expect("a watch")
        .into_inner();
    let shown = events.message().await.expect("no error").expect("no end");
    assert_eq!((shown.r#type(), shown.machine), (Type::Upsert, Some(vm)));
    let synced = events.message().await.expect("no error").expect("no end");
    assert_eq!(synced.r#type(), Type::Synced);
    provider.console().await.remove("m").await.expect("it is gone");
    // Its boot and the join of its node change nothing that the watch shows (WAT-4).
    let told = events.message().await.expect("no error").expect("no end");
    assert_eq!(told.r#type(), Type::Deleted, "{told:?}");
    assert_eq!(told.machine.expect("a machine").key, Some(shown_key));
}

#[tokio::test]
async fn a_deletion_takes_the_vm_of_an_older_controller_by_name_or_by_id() {
    let provider = with_older_vms([("m", marks()), ("n", marks())]).await;
    let mut driver = provider.driver().await;
    let by_name = DeleteMachineRequest {
        machine_class: marked_class(),
        ..delete("m")
    };
    let vms = provider.console().await.vms().await.expect("vms");
    let other = vms.iter().find(|vm| vm.name == "n").expect("it stands");
    let by_id = DeleteMachineRequest {
        key: Some(MachineKey {
            uid: String::new(),
            ..key("n")
        }),
        provider_id: other.provider_id.clone(),
        machine_class: marked_class(),
        ..delete("n")
    };
    for request in [by_name, by_id] {
        let deleted = driver.delete_machine(request).await.expect("it goes").into_inner();
        assert_eq!(deleted.state(), State::Deleted);
    }
    assert!(provider.console().await.vms().await.expect("vms").is_empty());
}
