//! What is exported of a call, and what the driver is told of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use millwright_core::api::MachineClass;
use millwright_core::change::Change;
use millwright_core::machine;
use millwright_proto::v1;
use millwright_proto::v1::driver_service_server::{DriverService, DriverServiceServer};
use millwright_trace::{Parent, TRACEPARENT};
use opentelemetry::Value as Exported;
use opentelemetry::trace::{SpanKind, Status as Verdict, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use prost_types::value::Kind;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::driver::Wire;
use crate::env::{Outside, Planners, System};
use crate::work::machine::Machines;
use crate::work::pass::pass;
use crate::work::scripted::{Answer, Scripted, failure as refusal};

/// Never leaves the process: it is in the user data of the class.
const CANARY: &str = "canary-4711";

/// A driver that keeps the metadata and the class of what it is asked, and knows of no VM.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<MetadataMap>>>, Arc<Mutex<Vec<v1::MachineClass>>>);

#[tonic::async_trait]
impl DriverService for Listener {
    async fn get_driver_info(
        &self,
        _: tonic::Request<v1::GetDriverInfoRequest>,
    ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
        Ok(Response::new(v1::GetDriverInfoResponse {
            name: "listens".to_owned(),
            vendor_version: "1".to_owned(),
            ..Default::default()
        }))
    }

    async fn get_machine_status(
        &self,
        request: tonic::Request<v1::GetMachineStatusRequest>,
    ) -> Result<Response<v1::GetMachineStatusResponse>, Status> {
        self.0.lock().unwrap().push(request.metadata().clone());
        self.1.lock().unwrap().extend(request.into_inner().machine_class);
        Err(Status::resource_exhausted(CANARY))
    }
}

/// What was exported.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Kept {
    /// Keeps what this thread exports while the guard lives.
    fn begin() -> (Self, DefaultGuard) {
        // Without a global subscriber, a span's first use in a test beside this one may be noted as of interest to nobody.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let kept = Self::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
        let spans = millwright_trace::layer(provider.tracer("test"));
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans));
        (kept, guard)
    }

    fn named(&self, name: &str) -> Vec<SpanData> {
        let kept = self.0.lock().unwrap();
        kept.iter().filter(|span| span.name.ends_with(name)).cloned().collect()
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let mut all = span.attributes.iter();
    let found = all.find(|attribute| attribute.key.as_str() == name)?;
    match &found.value {
        Exported::String(text) => Some(text.as_str().to_owned()),
        other => Some(other.to_string()),
    }
}

/// Asks for the VM of a Machine of the first generation.
fn asks_first(seen: &machine::Observed<'_>, now: Timestamp) -> machine::Plan {
    let again = Some(now + SignedDuration::from_secs(60));
    let steps = match seen.machine.metadata.generation {
        Some(1) => vec![machine::Step::Call(Call::Status)],
        _ => Vec::new(),
    };
    machine::Plan::act(steps, machine::Why::CrumbChanged).or_at(again, now)
}

fn machine(name: &str, generation: u8) -> Machine {
    let machine = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "generation": generation},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    });
    serde_json::from_value(machine).unwrap()
}

fn class(provider: &str) -> MachineClass {
    let class = json!({
        "metadata": {"name": "small", "namespace": "default", "uid": "c", "resourceVersion": "1"},
        "provider": provider, "providerSpec": {"size": "s"}, "secretRef": {"name": "cred", "namespace": "default"},
    });
    serde_json::from_value(class).unwrap()
}

fn answer(_: &http::Method, path: &str, _: &Value) -> Answer {
    match path.rsplit_once('/') {
        Some((_, "cred")) => (
            200,
            json!({"metadata": {"name": "cred"}, "data": {"userData": "Y2FuYXJ5LTQ3MTE="}}),
        ),
        _ => refusal(404, "NotFound"),
    }
}

/// One pass over a Machine for which the driver is asked, and one over a Machine for which nothing is done. No dispatcher: it would
/// take up the answer, and the planner would ask without end.
async fn one_call() -> Listener {
    let machines = [("m-1", 1), ("m-2", 2)].map(|(name, generation)| machine(name, generation));
    asked(class("listens"), machines.into(), answer).await.0
}

fn wire(driver: impl DriverService) -> Wire {
    let server = DriverServiceServer::new(driver);
    BoxCloneSyncService::new(ServiceExt::<http::Request<Body>>::map_err(
        server,
        |never| match never {},
    ))
}

/// One pass over each of these Machines. Gives what the driver heard, and what failed.
async fn asked(
    class: MachineClass,
    machines: Vec<Machine>,
    answer: fn(&http::Method, &str, &Value) -> Answer,
) -> (Listener, Vec<String>) {
    let listener = Listener::default();
    let wire = wire(listener.clone());
    let planners = Planners {
        machine: asks_first,
        ..Planners::default()
    };
    let scripted = Scripted::with(answer, planners, Some(wire));
    let shared = &scripted.shared;
    // The handshake.
    tokio::time::sleep(Duration::from_secs(2)).await;
    shared.change(|world, uptime| world.observe(Change::Applied(class), uptime));
    for machine in machines {
        let name = meta::identity(&machine.metadata).0;
        shared.change(|world, uptime| world.observe(Change::Applied(machine), uptime));
        pass::<Machines>(shared, &name).await;
    }
    shared.calls.close();
    let ended = tokio::time::timeout(Duration::from_secs(60), shared.calls.wait()).await;
    ended.expect("the driver answers at once");
    let failed = shared.look(|world| {
        let calls = world.ledger.calls.values();
        let troubles = calls.filter_map(|calls| calls.trouble.as_ref());
        troubles.map(|trouble| trouble.failure.message.clone()).collect()
    });
    (listener, failed)
}

/// A Machine whose VM was asked of this driver, in the region a.
fn asked_for(driver: &str) -> Machine {
    let mut machine = machine("m-1", 1);
    let spec = json!({"place": {"region": "a"}});
    let secrets = json!([{"name": "cred", "namespace": "default"}]);
    let request = json!({"provider": driver, "providerSpec": spec, "secretRefs": secrets});
    machine.status.get_or_insert_default().creation_request = serde_json::from_value(request).unwrap();
    machine
}

/// Rows: L1.
#[tokio::test(start_paused = true)]
async fn a_vm_is_asked_for_by_what_it_was_made_of_whatever_its_class_says_now() {
    for class_now in [class("listens"), class("another")] {
        let (listener, failed) = asked(class_now, vec![asked_for("listens")], answer).await;
        let heard = listener.1.lock().unwrap().clone();
        let [
            v1::MachineClass {
                provider,
                provider_spec: Some(spec),
                ..
            },
        ] = &heard[..]
        else {
            panic!("heard {heard:?}, failed {failed:?}");
        };
        let Some(Kind::StructValue(place)) = &spec.fields["place"].kind else {
            panic!("{spec:?}");
        };
        let region = Some(Kind::StringValue("a".to_owned()));
        assert_eq!((provider.as_str(), &place.fields["region"].kind), ("listens", &region));
    }
}

/// Rows: L1.
#[tokio::test(start_paused = true)]
async fn no_vm_is_asked_for_by_a_class_that_was_changed_since_the_request_was_recorded() {
    let scripted = Scripted::with(answer, Planners::default(), Some(wire(Listener::default())));
    let shared = &scripted.shared;
    // The handshake.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut as_recorded = class("listens");
    as_recorded.spec.provider_spec = json!({"place": {"region": "a"}});
    let classes = [
        (as_recorded, true),
        (class("listens"), false),
        (class("another"), false),
    ];
    for (version, (mut class, is_sent)) in (1..).zip(classes) {
        class.metadata.resource_version = Some(version.to_string());
        shared.change(|world, uptime| world.observe(Change::Applied(class), uptime));
        let request = request(shared, &asked_for("listens"), Call::Create);
        assert_eq!(request.is_ok(), is_sent);
    }
}

/// Rows: L18, D2.
#[tokio::test(start_paused = true)]
async fn without_its_credentials_no_driver_is_asked_for_a_vm() {
    let gone = |_: &http::Method, _: &str, _: &Value| refusal(404, "NotFound");
    let mut leaving = asked_for("listens");
    leaving.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    for machine in [asked_for("listens"), leaving] {
        let (listener, failed) = asked(class("listens"), vec![machine], gone).await;
        assert_eq!(listener.0.lock().unwrap().len(), 0);
        assert_eq!(failed, ["Secret default/cred does not exist"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_told_its_span_which_is_the_child_of_the_pass_that_wanted_it() {
    let (kept, _guard) = Kept::begin();
    let heard = one_call().await.0.lock().unwrap().clone();
    let (passes, calls) = (kept.named("pass machine"), kept.named("/GetMachineStatus"));
    let ([pass, ..], [call, ..], [told, ..]) = (&passes[..], &calls[..], &heard[..]) else {
        panic!("passes {passes:?}, calls {calls:?}, heard {heard:?}");
    };
    assert_eq!(call.parent_span_id, pass.span_context.span_id());
    assert_eq!(call.span_context.trace_id(), pass.span_context.trace_id());
    let told = Parent::of(told).expect("the driver is told");
    assert_eq!(told.trace_id().to_string(), call.span_context.trace_id().to_string());
    assert_eq!(
        (call.span_kind.clone(), &call.status),
        (SpanKind::Client, &Verdict::error(""))
    );
    for (name, wanted) in [
        ("rpc.system", "grpc"),
        ("rpc.service", millwright_proto::SERVICE_NAME),
        ("rpc.method", "GetMachineStatus"),
        ("server.address", "unix:///run/test.sock"),
        ("driver", "listens"),
        ("machine", "m-1"),
        ("uid", "m-1"),
        ("code", "ResourceExhausted"),
    ] {
        assert_eq!(attribute(call, name).as_deref(), Some(wanted), "{name}");
    }
    for (name, wanted) in [
        ("kind", "machine"),
        ("name", "m-1"),
        ("namespace", "default"),
        ("why", "CrumbChanged"),
    ] {
        assert_eq!(attribute(pass, name).as_deref(), Some(wanted), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_does_nothing_is_not_exported() {
    let (kept, _guard) = Kept::begin();
    one_call().await;
    let passes = kept.named("pass machine");
    assert!(!passes.is_empty());
    assert!(
        passes
            .iter()
            .all(|pass| attribute(pass, "name").as_deref() == Some("m-1")),
        "{passes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn neither_user_data_nor_what_a_driver_says_is_exported() {
    let (kept, _guard) = Kept::begin();
    one_call().await;
    let kept = format!("{:?}", kept.0.lock().unwrap());
    assert!(kept.contains("GetMachineStatus") && !kept.contains(CANARY), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn without_a_collector_a_call_is_told_nothing() {
    let heard = one_call().await.0.lock().unwrap().clone();
    assert!(!heard.is_empty());
    assert!(heard.iter().all(|told| !told.contains_key(TRACEPARENT)), "{heard:?}");
}

/// A clock that breaks when it is looked at for the n-th time; 0: it does not.
#[derive(Clone, Default)]
struct BreakingClock(Arc<AtomicU32>);

impl Outside for BreakingClock {
    fn now(&self) -> Timestamp {
        let looks = self.0.load(Ordering::SeqCst);
        self.0.store(looks.saturating_sub(1), Ordering::SeqCst);
        assert!(looks != 1, "the clock breaks");
        System.now()
    }

    fn chance(&self) -> u64 {
        System.chance()
    }
}

/// A driver whose answer is followed by so many looks at the clock until that breaks.
struct Breaker(BreakingClock, u32);

#[tonic::async_trait]
impl DriverService for Breaker {
    async fn get_driver_info(
        &self,
        request: tonic::Request<v1::GetDriverInfoRequest>,
    ) -> Result<Response<v1::GetDriverInfoResponse>, Status> {
        Listener::default().get_driver_info(request).await
    }

    async fn get_machine_status(
        &self,
        _: tonic::Request<v1::GetMachineStatusRequest>,
    ) -> Result<Response<v1::GetMachineStatusResponse>, Status> {
        self.0.0.store(self.1, Ordering::SeqCst);
        Err(Status::unavailable("the driver's own words"))
    }
}

/// The call would be under way for the life of the process, and its Machine would wait for it.
///
/// Rows: O22.
#[tokio::test(start_paused = true)]
async fn a_panic_at_a_drivers_answer_ends_the_call_as_one_that_failed() {
    let mut panicked = 0;
    for looks in 0..4 {
        let clock = BreakingClock::default();
        let planners = Planners {
            machine: asks_first,
            ..Planners::default()
        };
        let driver = wire(Breaker(clock.clone(), looks));
        let scripted = Scripted::within(answer, planners, Some(driver), Arc::new(clock));
        let shared = &scripted.shared;
        // The handshake.
        tokio::time::sleep(Duration::from_secs(2)).await;
        shared.change(|world, uptime| world.observe(Change::Applied(class("listens")), uptime));
        shared.change(|world, uptime| world.observe(Change::Applied(machine("m-1", 1)), uptime));
        pass::<Machines>(shared, &Name::new("m-1")).await;
        shared.calls.close();
        shared.calls.wait().await;
        let (running, said) = shared.look(|world| {
            let calls = world.ledger.calls.values().next().expect("it was called");
            let said = calls.trouble.as_ref().map(|trouble| trouble.failure.message.clone());
            (calls.running, said.expect("it failed"))
        });
        assert_eq!(running, None, "after {looks} looks: {said}");
        panicked += usize::from(said.contains("panicked"));
    }
    assert!(panicked > 0, "no look at the clock was in the way of the answer");
}
