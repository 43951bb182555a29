//! Credential plugins: the commands that a kubeconfig names under `exec`.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>. Nothing that a plugin prints
//! gets into an error: it may be half a token.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::ByteString;
use kube::config::ExecConfig;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// How long a plugin may take. client-go waits for ever.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How much a plugin may print. A certificate with its key and its chain has some kilobytes.
const MAX_PRINTED: u64 = 1 << 20;

/// What a plugin gave.
pub(super) struct Given {
    /// The token or the client certificate, as fields of a kubeconfig's user.
    pub(super) signs: Value,
    /// When it ends, if the plugin tells.
    pub(super) ends: Option<jiff::Timestamp>,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<jiff::Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs a plugin, without a terminal.
pub(super) async fn run(exec: &ExecConfig) -> Result<Given, String> {
    let Some(command) = &exec.command else {
        return Err("a credential plugin without a command".to_owned());
    };
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let spec = json!({"interactive": false, "cluster": cluster});
    let info = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    let env = exec.env.iter().flatten();
    let env = env.filter_map(|variable| Some((variable.get("name")?, variable.get("value")?)));
    let mut plugin = Command::new(command);
    plugin
        .args(exec.args.iter().flatten())
        .envs(env)
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(TIME_LIMIT, printed(plugin)).await;
    let ended = ended.map_err(|_| {
        format!(
            "the credential plugin {command} did not end within {} s",
            TIME_LIMIT.as_secs()
        )
    })?;
    let (status, printed) = ended.map_err(|error| {
        let hint = exec.install_hint.as_deref().map(|hint| format!(". {}", hint.trim()));
        format!("the credential plugin {command}: {error}{}", hint.unwrap_or_default())
    })?;
    if !status.success() {
        return Err(format!(
            "the credential plugin {command} failed ({status}); run it by hand to see what it says"
        ));
    }
    let given = given(&printed).ok_or_else(|| {
        format!("what the credential plugin {command} printed is no ExecCredential with a token or a certificate")
    })?;
    if let Some(token) = given.signs.get("token").and_then(Value::as_str) {
        sendable(token).map_err(|reason| format!("the credential plugin {command}: {reason}"))?;
    }
    Ok(given)
}

/// Runs a command, and gives what it printed.
async fn printed(mut command: Command) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = command.spawn()?;
    let mut printed = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(MAX_PRINTED + 1).read_to_end(&mut printed).await?;
    }
    if u64::try_from(printed.len()).is_ok_and(|length| length > MAX_PRINTED) {
        return Err(std::io::Error::other(format!(
            "it prints more than {MAX_PRINTED} bytes"
        )));
    }
    Ok((child.wait().await?, printed))
}

/// Whether a token can stand in a header: kube panics at one that cannot.
pub(super) fn sendable(token: &str) -> Result<(), &'static str> {
    match HeaderValue::try_from(token) {
        Ok(_) if !token.is_empty() => Ok(()),
        Ok(_) => Err("an empty token"),
        Err(_) => Err("a token with characters that no header can have"),
    }
}

/// Plugins print JSON; client-go takes YAML too.
fn given(printed: &[u8]) -> Option<Given> {
    let status = serde_saphyr::from_slice::<ExecCredential>(printed).ok()?.status?;
    let base64 = |text: String| ByteString(text.into_bytes());
    let certificate = status.client_certificate_data.zip(status.client_key_data);
    let signs = match (status.token, certificate) {
        (None, None) => return None,
        (token, certificate) => {
            let (certificate, key) = certificate
                .map(|(certificate, key)| (base64(certificate), base64(key)))
                .unzip();
            json!({"token": token, "client-certificate-data": certificate, "client-key-data": key})
        }
    };
    Some(Given {
        signs,
        ends: status.expiration_timestamp,
    })
}
