//! How to get at a control plane: credentials, kubeconfig, client, kubectl, CRDs, namespaces. It may not start or stop
//! anything but kubectl.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, Client, Config, ResourceExt as _};
use tokio::io::AsyncWriteExt as _;

use super::ControlPlane;

pub(super) const TOKENS: &str = "tokens.csv";
pub(super) const CERTIFICATES: &str = "certificates";
pub(super) const SERVER_KEY: &str = "certificates/apiserver.key";
/// Holds the server's certificate and that of the authority that signed it.
const SERVER_CERTIFICATE: &str = "certificates/apiserver.crt";

/// Why something could not be done with a running control plane.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("the kubeconfig {path} is not usable", path = .path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        error: kube::config::KubeconfigError,
    },
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("cannot read {path}", path = .path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{path} is not a CustomResourceDefinition: {reason}", path = .path.display())]
    NotACrd { path: PathBuf, reason: String },
    #[error("no CRD in {path}", path = .path.display())]
    NoCrds { path: PathBuf },
    #[error("the CRD {name} was not established")]
    NotEstablished {
        name: String,
        #[source]
        error: kube::runtime::wait::Error,
    },
    #[error("cannot run kubectl")]
    Kubectl(#[source] io::Error),
}

/// What kubectl said.
#[derive(Clone, Debug)]
pub struct Kubectl {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl ControlPlane {
    /// A client that may do everything.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client, AccessError> {
        let path = self.kubeconfig();
        let bad = |error| AccessError::Kubeconfig {
            path: path.clone(),
            error,
        };
        let kubeconfig = Kubeconfig::read_from(&path).map_err(bad)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(bad)?;
        Ok(Client::try_from(config)?)
    }

    /// Runs kubectl on this control plane. Whether it succeeded is in the answer.
    ///
    /// # Errors
    /// There is no kubectl, or it cannot be run.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Kubectl, AccessError> {
        self.kubectl_with_input(args, "").await
    }

    /// [`ControlPlane::kubectl`] with text on its standard input, as for `apply -f -`.
    ///
    /// # Errors
    /// As for `kubectl`.
    pub async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<Kubectl, AccessError> {
        let mut kubectl = tokio::process::Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            // Its usual cache is kept by address, and an address may have belonged to another control plane before.
            .arg("--cache-dir")
            .arg(self.dir().join("kubectl-cache"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(AccessError::Kubectl)?;
        if let Some(mut stdin) = kubectl.stdin.take() {
            // A kubectl that does not read its input closes it; its own answer says what was wrong.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = kubectl.wait_with_output().await.map_err(AccessError::Kubectl)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Kubectl {
            success: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        })
    }

    /// Applies every YAML file of `dir` as a CRD and waits until each is served.
    ///
    /// # Errors
    /// A file is not a CRD, there is none, or the API server refuses one.
    pub async fn install_crds(&self, dir: &Path) -> Result<(), AccessError> {
        install_crds(&self.client().await?, dir).await
    }

    /// Makes a namespace whose name begins with `prefix` and is new, and returns its name.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create_namespace(&self, prefix: &str) -> Result<String, AccessError> {
        let namespaces: Api<Namespace> = Api::all(self.client().await?);
        let wanted = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Ok(namespaces.create(&PostParams::default(), &wanted).await?.name_any())
    }
}

/// Applies every YAML file of `dir` as a CRD and waits until each is served, on any API server.
///
/// # Errors
/// A file is not a CRD, there is none, or the API server refuses one.
pub async fn install_crds(client: &Client, dir: &Path) -> Result<(), AccessError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let files = yaml_files(dir)?;
    let mut names = Vec::new();
    for file in files {
        let crd = read_crd(&file)?;
        let name = crd.name_any();
        let params = PatchParams::apply("millwright-dev").force();
        crds.patch(&name, &params, &Patch::Apply(&crd)).await?;
        names.push(name);
    }
    if names.is_empty() {
        return Err(AccessError::NoCrds { path: dir.to_owned() });
    }
    for name in names {
        let established = await_condition(crds.clone(), &name, conditions::is_crd_established()).await;
        established.map_err(|error| AccessError::NotEstablished {
            name: name.clone(),
            error,
        })?;
    }
    Ok(())
}

/// Where the kubeconfig of the control plane in `dir` is.
pub(super) fn kubeconfig(dir: &Path) -> PathBuf {
    dir.join("kubeconfig")
}

/// The token file of the server and the kubeconfig of its clients. The certificate that the kubeconfig names is made by
/// the server when it starts.
pub(super) fn write_credentials(dir: &Path, address: SocketAddr, token: &str) -> io::Result<()> {
    write_private(&dir.join(TOKENS), &format!("{token},admin,admin,\"system:masters\"\n"))?;
    let certificate = dir.join(SERVER_CERTIFICATE);
    let text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: millwright\n\
         clusters:\n\
         - name: millwright\n\
         \x20 cluster: {{server: \"https://{address}\", certificate-authority: {certificate:?}}}\n\
         users:\n\
         - name: admin\n\
         \x20 user: {{token: {token:?}}}\n\
         contexts:\n\
         - name: millwright\n\
         \x20 context: {{cluster: millwright, user: admin, namespace: default}}\n"
    );
    write_private(&kubeconfig(dir), &text)
}

fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(file)?;
    file.write_all(text.as_bytes())
}

fn yaml_files(dir: &Path) -> Result<Vec<PathBuf>, AccessError> {
    let unreadable = |error| AccessError::Read {
        path: dir.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_crd(file: &Path) -> Result<CustomResourceDefinition, AccessError> {
    let text = std::fs::read_to_string(file).map_err(|error| AccessError::Read {
        path: file.to_owned(),
        error,
    })?;
    let not_a_crd = |reason: String| AccessError::NotACrd {
        path: file.to_owned(),
        reason,
    };
    // By way of JSON: the type's own reader expects JSON's idea of numbers.
    let value: serde_json::Value = serde_saphyr::from_str(&text).map_err(|error| not_a_crd(error.to_string()))?;
    serde_json::from_value(value).map_err(|error| not_a_crd(error.to_string()))
}
