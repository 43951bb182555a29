//! One Machine is one trace: from the manager's pass over its call to the provider's work, each in a process of its own. And nothing
//! that is secret gets to the collector.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams};
use millwright_tests::collector::{Collector, Seen};
use millwright_tests::manifests;
use millwright_tests::scene::{Scene, shared_plane};
use millwright_tests::script::Script;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
const MANAGER: &str = "millwright";
const PROVIDER: &str = "millwright-provider-virtual";

/// What the class's Secret holds, and nobody else may see.
const USER_DATA: &str = "canary-of-the-user-data";
const PASSWORD: &str = "canary-of-the-password";

/// The secret half of the bootstrap token of this scene's machine, while there is one.
async fn token(scene: &Scene) -> Result<String, String> {
    let all: Api<Secret> = Api::namespaced(scene.client.clone(), "kube-system");
    let tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    let found = all.list(&tokens).await.map_err(|error| error.to_string())?;
    let place = format!("machine {}/", scene.namespace);
    let text = |secret: &Secret, key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        value
            .map(|value| String::from_utf8_lossy(&value.0).into_owned())
            .unwrap_or_default()
    };
    let ours = found
        .items
        .iter()
        .find(|secret| text(secret, "description").contains(&place));
    ours.map(|secret| text(secret, "token-secret"))
        .ok_or_else(|| "no token yet".to_owned())
}

async fn with_secrets(scene: &Scene) {
    let data = json!({ "stringData": {
        "password": PASSWORD,
        "userData": format!("#cloud-config\n# {USER_DATA}\n# <<MACHINE_NAME>>\n# <<BOOTSTRAP_TOKEN>>\n"),
    } });
    let (secrets, params) = (scene.secrets(), PatchParams::default());
    let patched = secrets.patch(manifests::SECRET, &params, &Patch::Merge(data)).await;
    patched.expect("the Secret can be changed");
}

/// The only span that is so.
fn only<'a>(spans: &'a [Seen], what: &str, is_it: impl Fn(&Seen) -> bool) -> &'a Seen {
    let found: Vec<&Seen> = spans.iter().filter(|seen| is_it(seen)).collect();
    let [seen] = found[..] else {
        panic!("{what}: {found:#?} of {spans:#?}")
    };
    seen
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_creation_of_a_machine_is_one_trace_from_the_pass_to_the_provider_and_holds_no_secret() {
    let what = "the creation of a machine is one trace";
    let Some(plane) = shared_plane(what).await else { return };
    let collector = Collector::start().await;
    // Long enough that the token can be seen.
    let script = Script::new("traces").provider("--join-delay", "2s");
    let script = script
        .manager("--otlp-endpoint", collector.url())
        .provider("--otlp-endpoint", collector.url());
    let mut scene = script.begin(&plane).await;
    with_secrets(&scene).await;
    scene.deploy(1).await;
    let token = scene.until("a bootstrap token", LIMIT, token).await;
    let sight = scene.settled_at(1, LIMIT).await;
    let uid = sight.machines[0]["metadata"]["uid"].as_str().unwrap();
    // What a process did last is exported at its end.
    assert!(scene.manager.service.stop(LIMIT).await.success());
    assert!(scene.provider.service.stop(LIMIT).await.success());

    let spans = collector.spans();
    let creates = |seen: &Seen, service: &str, kind: SpanKind| {
        seen.service == service
            && seen.span.kind == kind as i32
            && seen.attribute("rpc.method") == Some("CreateMachine")
            && seen.attribute("uid") == Some(uid)
    };
    let served = only(&spans, "the provider's call", |seen| {
        creates(seen, PROVIDER, SpanKind::Server)
    });
    let called = only(&spans, "the manager's call", |seen| {
        creates(seen, MANAGER, SpanKind::Client)
    });
    let pass = only(&spans, "the pass", |seen| {
        seen.span.span_id == called.span.parent_span_id
    });
    assert_eq!(served.span.parent_span_id, called.span.span_id);
    assert_eq!(
        (pass.service.as_str(), pass.attribute("kind")),
        (MANAGER, Some("machine"))
    );
    assert!(pass.span.parent_span_id.is_empty(), "a trace begins with a pass");
    let traces = [pass, called, served].map(|seen| hex(&seen.span.trace_id));
    assert!(traces.iter().all(|trace| *trace == traces[0]), "{traces:?}");
    for (span, code) in [(called, "OK"), (served, "OK")] {
        assert_eq!(span.attribute("code"), Some(code));
    }

    // The lines of both about the call are found by its trace.
    for log in [scene.provider.service.log(), scene.manager.service.log()] {
        assert!(!log.contains("otel."), "what is exported stands around no line: {log}");
    }
    let log = scene.provider.service.log();
    let line = log
        .lines()
        .find(|line| line.contains("CreateMachine") && line.contains("done"));
    assert!(line.is_some_and(|line| line.contains(&traces[0])), "{line:?}");

    let all = format!("{spans:?}");
    for secret in [USER_DATA, PASSWORD, token.as_str()] {
        assert!(
            !secret.is_empty() && !all.contains(secret),
            "{secret} got to the collector"
        );
    }
    let passes = spans.iter().filter(|seen| seen.span.name.starts_with("pass ")).count();
    println!(
        "{what}: {} spans, {passes} of them passes; trace {}",
        spans.len(),
        traces[0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_is_told_of_once_and_keeps_no_machine_from_coming_up() {
    let what = "a collector that is away";
    let Some(plane) = shared_plane(what).await else { return };
    // Bound and never listened on.
    let nobody = millwright_tests::service::ReservedPort::any();
    let url = format!("http://{}", nobody.address());
    let script = Script::new("no-traces")
        .manager("--otlp-endpoint", &url)
        .provider("--otlp-endpoint", &url)
        .env("OTEL_BSP_SCHEDULE_DELAY", "100");
    let mut scene = script.begin(&plane).await;
    scene.deploy(2).await;
    scene.settled_at(2, LIMIT).await;
    let told = "traces cannot be exported";
    scene.manager.service.wait_for_log(told, LIMIT).await;
    scene.scale(0).await;
    scene.settled_at(0, LIMIT).await;
    let began = std::time::Instant::now();
    assert!(scene.manager.service.stop(LIMIT).await.success());
    assert!(scene.provider.service.stop(LIMIT).await.success());
    println!("{what}: both ended within {:?}", began.elapsed());
    let log = scene.manager.service.log();
    assert_eq!(log.matches(told).count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_with_tls_gets_the_traces_of_a_manager_that_trusts_its_certificate() {
    let what = "a collector with TLS";
    let Some(plane) = shared_plane(what).await else { return };
    let collector = Collector::start_with_tls().await;
    let certificate = collector.certificate().unwrap().display().to_string();
    let script = Script::new("tls-traces")
        .manager("--otlp-endpoint", collector.url())
        .env("SSL_CERT_FILE", certificate);
    let mut scene = script.begin(&plane).await;
    scene.deploy(1).await;
    scene.settled_at(1, LIMIT).await;
    assert!(scene.manager.service.stop(LIMIT).await.success());
    let spans = collector.spans();
    assert!(
        spans.iter().any(|seen| seen.service == MANAGER),
        "{}",
        scene.manager.service.log()
    );
}
