//! The process around a driver: its socket, the services beside it, what it refuses, and its end.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Script, Scripted, Served, class, create, reason};
use millwright_proto::v1;
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use millwright_provider_sdk::{
    Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo, Endpoint, GetMachineStatus,
    Health, ListMachines, MachinePage, MachineStatus, ServeError, ServeOptions, Server,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

const SERVICE: &str = "machine.driver.v1.DriverService";

fn named_fields(status: &tonic::Status) -> Vec<String> {
    let bad = status
        .get_details_bad_request()
        .expect("INVALID_FIELD brings BadRequest");
    bad.field_violations
        .into_iter()
        .map(|violation| violation.field)
        .collect()
}

#[tokio::test]
async fn a_request_without_a_uid_names_the_field_and_does_not_reach_the_author() {
    let served = Served::start(Script::Succeed).await;
    let mut request = create(1);
    request.key.as_mut().unwrap().uid.clear();
    request.machine_class.as_mut().unwrap().provider = "aws".into();
    let error = served.client().await.create_machine(request).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::InvalidArgument, "INVALID_FIELD")
    );
    assert_eq!(named_fields(&error), ["key.uid", "machine_class.provider"]);
    assert_eq!(served.cloud.creates.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn calls_without_their_capability_are_unimplemented_before_anything_else() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    let error = client
        .get_machine_class_schema(v1::GetMachineClassSchemaRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    let error = client
        .initialize_machine(v1::InitializeMachineRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    // Told, but not written: the author's fault, and yet no crash.
    let request = v1::GetNodeTemplateRequest {
        machine_class: Some(class()),
        ..Default::default()
    };
    assert_eq!(
        client.get_node_template(request).await.unwrap_err().code(),
        Code::Unimplemented
    );
}

#[tokio::test]
async fn the_driver_introduces_itself() {
    let served = Served::start(Script::Succeed).await;
    let info = served
        .client()
        .await
        .get_driver_info(v1::GetDriverInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), ("scripted", "7.1"));
    let told = [v1::Capability::WatchMachines, v1::Capability::NodeTemplate].map(i32::from);
    assert_eq!(info.capabilities, told);
}

#[tokio::test]
async fn a_message_over_4_mib_is_refused_and_the_connection_lives() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    let request = v1::CreateMachineRequest {
        user_data: vec![0; 4 * 1024 * 1024 + 1],
        ..create(1)
    };
    client.create_machine(request).await.unwrap_err();
    client.create_machine(create(1)).await.unwrap();
}

#[tokio::test]
async fn the_socket_is_closed_to_others_and_a_second_driver_is_refused() {
    let served = Served::start(Script::Succeed).await;
    assert_eq!(std::fs::metadata(&served.path).unwrap().mode() & 0o777, 0o660);
    let second = Scripted::default();
    let options = ServeOptions::new(format!("unix://{}", served.path.display()).parse().unwrap());
    let error = Server::bind(second, options).await.err().unwrap();
    assert!(
        matches!(error, ServeError::Socket(_)) && error.to_string().contains("served by a running process"),
        "{error}"
    );
    served
        .client()
        .await
        .create_machine(create(1))
        .await
        .expect("the first is not disturbed");
}

#[tokio::test]
async fn tcp_is_served_on_loopback_and_nowhere_else() {
    let scripted = Scripted::default;
    let everywhere = ServeOptions::new(Endpoint::Tcp(([0, 0, 0, 0], 0).into()));
    assert!(matches!(
        Server::bind(scripted(), everywhere).await,
        Err(ServeError::NotLoopback(_))
    ));

    let server = Server::bind(scripted(), ServeOptions::new("tcp://127.0.0.1:0".parse().unwrap()))
        .await
        .unwrap();
    let Endpoint::Tcp(address) = server.endpoint() else {
        panic!("asked for TCP")
    };
    let uri = format!("http://{address}");
    let asked = async {
        let mut client = DriverServiceClient::connect(uri).await.unwrap();
        client.create_machine(create(1)).await.unwrap();
    };
    server.run_until(asked).await.unwrap();
}

#[tokio::test]
async fn a_driver_says_itself_that_it_cannot_work() {
    let own = Health::default();
    let served = Served::start_as(Scripted::default(), |options| options.health = own.clone()).await;
    let mut health = HealthClient::new(served.channel().await);
    let request = HealthCheckRequest {
        service: SERVICE.into(),
    };
    let mut told = health.watch(request).await.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    own.set_serving(false);
    assert_eq!(
        told.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    let page = http_get(served.metrics_addr, "/healthz").await;
    assert!(page.starts_with("HTTP/1.1 503"), "{page}");
    served
        .client()
        .await
        .create_machine(create(1))
        .await
        .expect("calls are served all the same");
    own.set_serving(true);
    assert_eq!(told.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
}

#[tokio::test]
async fn a_watch_whose_client_does_not_read_does_not_hold_up_the_end() {
    let mut served = Served::start_with(Script::Succeed, Duration::from_secs(25)).await;
    let watch = v1::WatchMachinesRequest {
        cluster_id: "dev".into(),
        machine_class: Some(class()),
        ..Default::default()
    };
    let _unread = served.client().await.watch_machines(watch).await.unwrap();
    let started = Instant::now();
    served.ask_to_stop();
    served.ended().await.expect("nothing is lost");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_driver_without_a_version_or_with_a_name_that_is_none_does_not_start() {
    struct Named(&'static str, &'static str);
    impl Driver for Named {
        fn info(&self) -> DriverInfo {
            DriverInfo::new(self.0, self.1)
        }
        async fn create_machine(&self, _: CreateMachine, _: Context) -> Result<MachineStatus, DriverError> {
            Err(DriverError::unimplemented("CreateMachine"))
        }
        async fn delete_machine(&self, _: DeleteMachine, _: Context) -> Result<Deletion, DriverError> {
            Err(DriverError::unimplemented("DeleteMachine"))
        }
        async fn get_machine_status(&self, _: GetMachineStatus, _: Context) -> Result<MachineStatus, DriverError> {
            Err(DriverError::unimplemented("GetMachineStatus"))
        }
        async fn list_machines(&self, _: ListMachines, _: Context) -> Result<MachinePage, DriverError> {
            Err(DriverError::unimplemented("ListMachines"))
        }
    }
    let bind = |driver| Server::bind(driver, ServeOptions::new("tcp://127.0.0.1:0".parse().unwrap()));
    assert!(matches!(bind(Named("aws", "")).await, Err(ServeError::VendorVersion)));
    for name in ["", "a_b", "-a", "a..b", "é"] {
        assert!(
            matches!(bind(Named(name, "1")).await, Err(ServeError::DriverName(_))),
            "{name}"
        );
    }
    for name in ["AWS", "aws.example.com"] {
        bind(Named(name, "1")).await.expect(name);
    }
}

#[tokio::test]
async fn health_is_told_under_both_names() {
    let served = Served::start(Script::Succeed).await;
    let mut health = HealthClient::new(served.channel().await);
    for name in ["", SERVICE] {
        let answer = health.check(HealthCheckRequest { service: name.into() }).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    }
    let error = health
        .check(HealthCheckRequest { service: "x".into() })
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    use tonic_reflection::pb::{v1, v1alpha};
    let served = Served::start(Script::Succeed).await;

    let ask = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(ask),
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(served.channel().await);
    let mut answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else {
        panic!("{answer:?}")
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(
        names.contains(&SERVICE.to_owned()) && names.contains(&"grpc.health.v1.Health".to_owned()),
        "{names:?}"
    );

    let ask = v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol("google.rpc.ErrorInfo".into());
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(ask),
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(served.channel().await);
    let mut answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(
        matches!(
            answer,
            v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_)
        ),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_end_waits_for_work_ends_watches_and_removes_the_socket() {
    let mut served = Served::start(Script::Take(Duration::from_millis(600))).await;
    let mut client = served.client().await;
    let mut creating = client.clone();
    let creation = tokio::spawn(async move { creating.create_machine(create(1)).await });
    let watch = v1::WatchMachinesRequest {
        cluster_id: "dev".into(),
        machine_class: Some(class()),
        ..Default::default()
    };
    let mut watch = client.watch_machines(watch).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    // An open health watch never ends by itself; it must not hold the process up.
    let mut health = HealthClient::new(served.channel().await);
    let mut told = health
        .watch(HealthCheckRequest {
            service: SERVICE.into(),
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    tokio::time::sleep(Duration::from_millis(100)).await;

    let started = Instant::now();
    served.ask_to_stop();
    assert_eq!(
        told.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    assert!(
        watch.message().await.unwrap().is_none(),
        "the watch ends without an error"
    );
    creation.await.unwrap().expect("the call in flight is answered");
    let (path, cloud) = (served.path.clone(), Arc::clone(&served.cloud));
    served.ended().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(!path.exists());
    assert_eq!(cloud.vms.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn work_whose_caller_is_gone_is_waited_for_but_not_for_ever() {
    let mut served = Served::start_with(Script::Take(Duration::from_secs(60)), Duration::from_millis(200)).await;
    let mut client = served.client().await;
    tokio::time::timeout(Duration::from_millis(100), client.create_machine(create(1)))
        .await
        .unwrap_err();
    served.ask_to_stop();
    let error = served.ended().await.unwrap_err();
    assert!(matches!(error, ServeError::DrainTimedOut { left: 1, .. }), "{error}");
}

async fn http_get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn metrics_tell_calls_by_code_and_reason() {
    let served = Served::start(Script::Succeed).await;
    let mut client = served.client().await;
    client.create_machine(create(1)).await.unwrap();
    client
        .create_machine(v1::CreateMachineRequest::default())
        .await
        .unwrap_err();
    let page = http_get(served.metrics_addr, "/metrics").await;
    for (code, reason) in [("OK", ""), ("INVALID_ARGUMENT", "INVALID_FIELD")] {
        let line = format!(r#"driver_call_seconds_count{{method="CreateMachine",code="{code}",reason="{reason}"}} 1"#);
        assert!(page.contains(&line), "{page}");
    }
    assert!(
        http_get(served.metrics_addr, "/healthz")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

/// All that is logged at the most verbose level, by any crate.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log is the process's: other tests write to it, too, but only this one knows the canary.
#[tokio::test]
async fn no_secret_is_logged_at_any_level() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(lines.with_ansi(false).finish()).expect("no other test sets one");

    let served = Served::start(Script::LogAll).await;
    let mut client = served.client().await;
    let secrets = v1::CreateMachineRequest {
        secret_data: [("token".to_owned(), b"canary-4711".to_vec())].into(),
        user_data: b"canary-4711".to_vec(),
        ..create(1)
    };
    client.create_machine(secrets.clone()).await.unwrap();
    client
        .create_machine(v1::CreateMachineRequest { key: None, ..secrets })
        .await
        .unwrap_err();

    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        text.contains("author") && text.contains("INVALID_FIELD"),
        "the log was not caught"
    );
    assert!(
        !text.contains("canary") && !text.contains("99, 97, 110, 97, 114, 121"),
        "a secret is in the log"
    );
}
