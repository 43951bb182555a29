//! The Driver API as somebody meets it who has nothing but grpcurl and a socket: reflection, a machine's life, and errors
//! that say what is wrong. Against the real virtual provider in a process of its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use millwright_tests::clients::{Answer, Grpcurl};
use millwright_tests::fleet::VirtualProvider;
use serde_json::{Value, json};

const SERVICE: &str = "machine.driver.v1.DriverService";
const UID: &str = "0b5c3f1e-6f0a-4c57-9d3e-2f6f3d1c9a01";

/// A provider with a grpcurl on its socket; the directory goes last.
struct Desk {
    grpcurl: Grpcurl,
    _provider: VirtualProvider,
    _dir: tempfile::TempDir,
}

impl Desk {
    async fn open(what: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("virtual.sock");
        let grpcurl = Grpcurl::for_socket(what, &socket)?;
        let provider = VirtualProvider::alone(dir.path(), "virtual").await.start();
        provider.wait_until_it_listens().await;
        Some(Self {
            grpcurl,
            _provider: provider,
            _dir: dir,
        })
    }

    fn call(&self, method: &str, request: &Value) -> Answer {
        self.grpcurl.ask(Some(request), &[&format!("{SERVICE}/{method}")])
    }

    /// A call that succeeds, and its answer.
    fn answer(&self, method: &str, request: &Value) -> Value {
        let answer = self.call(method, request);
        assert_eq!(answer.code, Some(0), "{method}: {}", answer.stderr);
        serde_json::from_str(&answer.stdout).unwrap()
    }

    /// A call that fails with this gRPC code, and what grpcurl prints about it.
    fn refusal(&self, method: &str, request: &Value, code: i32) -> String {
        let answer = self.call(method, request);
        assert_eq!(
            answer.code,
            Some(64 + code),
            "{method}: {}{}",
            answer.stdout,
            answer.stderr
        );
        answer.stderr
    }
}

const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const FAILED_PRECONDITION: i32 = 9;

fn about(key: &Value) -> Value {
    json!({
        "key": key,
        "machineClass": {
            "name": "small", "namespace": "default", "provider": "virtual",
            "providerSpec": { "instanceType": "small", "region": "local", "zone": "local-a" },
        },
    })
}

fn key() -> Value {
    json!({ "clusterId": "local", "namespace": "default", "name": "by-grpcurl", "uid": UID })
}

#[tokio::test]
async fn the_service_can_be_listed_and_described_without_our_proto() {
    let Some(desk) = Desk::open("the service can be listed and described").await else {
        return;
    };
    let list = desk.grpcurl.ask(None, &["list"]);
    for service in [SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(list.stdout.lines().any(|line| line == service), "{list:?}");
    }
    let described = desk.grpcurl.ask(None, &["describe", SERVICE]).stdout;
    assert!(
        described.contains("rpc CreateMachine ( .machine.driver.v1.CreateMachineRequest )"),
        "{described}"
    );
    assert!(
        described.contains("Makes sure that one VM exists for the machine"),
        "the rules travel along: {described}"
    );
    let healthy = desk.grpcurl.ask(None, &["grpc.health.v1.Health/Check"]);
    assert!(healthy.stdout.contains("SERVING"), "{healthy:?}");
    let info = desk.answer("GetDriverInfo", &json!({}));
    assert_eq!(info["name"], "virtual");
}

#[tokio::test]
async fn a_machine_asked_for_twice_is_one_vm_and_once_deleted_it_never_comes_back() {
    let Some(desk) = Desk::open("a machine asked for twice is one VM").await else {
        return;
    };
    let key = key();
    let typed = about(&key).to_string();
    assert!(
        typed.len() <= 280,
        "{} characters are too many by hand: {typed}",
        typed.len()
    );
    let first = desk.answer("CreateMachine", &about(&key));
    let second = desk.answer("CreateMachine", &about(&key));
    assert!(first["machine"]["providerId"].is_string(), "{first}");
    assert_eq!(first["machine"]["providerId"], second["machine"]["providerId"]);

    let deleted = desk.answer("DeleteMachine", &about(&key));
    assert_eq!(deleted["state"], "STATE_DELETED");
    let refusal = desk.refusal("CreateMachine", &about(&key), FAILED_PRECONDITION);
    assert!(
        refusal.contains("Code: FailedPrecondition") && refusal.contains("\"MACHINE_DELETED\""),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_machine_never_made_is_not_found_with_the_reason_printed() {
    let Some(desk) = Desk::open("a machine never made is not found").await else {
        return;
    };
    let refusal = desk.refusal("GetMachineStatus", &about(&key()), NOT_FOUND);
    assert!(
        refusal.contains("Code: NotFound") && refusal.contains("google.rpc.ErrorInfo"),
        "{refusal}"
    );
    assert!(refusal.contains("\"reason\": \"MACHINE_NOT_FOUND\""), "{refusal}");
}

#[tokio::test]
async fn a_request_without_a_uid_is_refused_naming_the_field() {
    let Some(desk) = Desk::open("a request without a uid is refused").await else {
        return;
    };
    let mut nameless = key();
    nameless.as_object_mut().unwrap().remove("uid");
    let refusal = desk.refusal("CreateMachine", &about(&nameless), INVALID_ARGUMENT);
    assert!(
        refusal.contains("Code: InvalidArgument") && refusal.contains("\"field\": \"key.uid\""),
        "{refusal}"
    );
}
