//! Whom manager and provider are on a real API server: service accounts that may do what the shipped roles say and no
//! more, so that a permission that is missing there fails a test. It may not grant anything else.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use millwright_dev::apiserver::ControlPlane;
use millwright_dev::apiserver::binaries::workspace_root;
use serde_json::{Value, json};

use crate::apiserver::ADMIN_TOKEN;
use crate::service::eventually;

/// Longer than any test.
const VALID: i64 = 6 * 3600;
/// The API server's authorizer learns of roles by watches of its own.
const GRANTED: Duration = Duration::from_secs(60);

/// The manager's roles as shipped.
pub const SHIPPED: &str = "deploy/rbac.yaml";
/// Those that the original is deployed with.
pub const ORIGINALS: &str = "tests/kubernetes/original-rbac.yaml";

/// Kubeconfigs (mode 0600) of the two accounts.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub manager: PathBuf,
    pub provider: PathBuf,
}

/// A permission that a role gives, by which it is seen that the authorizer knows the role.
struct Permission {
    namespace: Option<String>,
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
}

impl Accounts {
    /// Makes the accounts of the provider's shipped roles and of these of the manager for one namespace, and waits until they may do
    /// what the roles say.
    ///
    /// # Panics
    /// The API server refuses a role or a token.
    pub async fn granted(plane: &ControlPlane, namespace: &str, manager: &str) -> Self {
        let accounts = Self {
            manager: account(plane, namespace, manager).await,
            provider: account(plane, namespace, "controller/dev/provider-rbac.yaml").await,
        };
        let ours = "machine.sapcloud.io";
        let in_namespace = |name: &str| Some(name.to_owned());
        let of_manager = [
            permission(in_namespace(namespace), ours, "machines", "create"),
            permission(in_namespace("kube-system"), "", "secrets", "create"),
            permission(None, "", "nodes", "delete"),
        ];
        let of_provider = [
            permission(
                in_namespace("kube-node-lease"),
                "coordination.k8s.io",
                "leases",
                "create",
            ),
            permission(None, "", "nodes", "create"),
        ];
        wait_until_known(&accounts.manager, &of_manager).await;
        wait_until_known(&accounts.provider, &of_provider).await;
        accounts
    }
}

/// Makes the account of a file of roles, for one namespace.
async fn account(plane: &ControlPlane, namespace: &str, file: &str) -> PathBuf {
    let client = plane.client().await.expect("a client");
    let text = std::fs::read_to_string(workspace_root().join(file)).expect("the roles are in the checkout");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("roles are YAML");
    for object in &objects {
        create(&client, &moved(object.clone(), namespace)).await;
    }
    let account = objects.iter().find(|object| object["kind"] == "ServiceAccount");
    let account = account.and_then(|account| account["metadata"]["name"].as_str());
    kubeconfig(plane, &client, namespace, account.expect("the roles are somebody's")).await
}

/// Whether the account of a kubeconfig may do something.
///
/// # Errors
/// The API server's answer.
pub async fn may(
    kubeconfig: &Path,
    namespace: Option<&str>,
    group: &str,
    resource: &str,
    verb: &str,
) -> Result<bool, String> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: namespace.map(str::to_owned),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client_of(kubeconfig).await);
    let answer = reviews.create(&PostParams::default(), &review).await;
    let status = answer.map_err(|error| error.to_string())?.status;
    Ok(status.is_some_and(|status| status.allowed))
}

fn permission(
    namespace: Option<String>,
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
) -> Permission {
    Permission {
        namespace,
        group,
        resource,
        verb,
    }
}

async fn wait_until_known(kubeconfig: &Path, permissions: &[Permission]) {
    for Permission {
        namespace,
        group,
        resource,
        verb,
    } in permissions
    {
        let probe = async || match may(kubeconfig, namespace.as_deref(), group, resource, verb).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("no {verb} of {resource}")),
            Err(error) => Err(error),
        };
        eventually("the roles are known", GRANTED, &[], probe).await;
    }
}

/// A shipped object for another namespace than "default". What is no part of that namespace gets a name of its own, because
/// several namespaces share a control plane.
fn moved(mut object: Value, namespace: &str) -> Value {
    let is_inside = object["metadata"]["namespace"] == "default";
    if is_inside {
        object["metadata"]["namespace"] = json!(namespace);
    } else {
        rename(&mut object["metadata"]["name"], namespace);
        if object["roleRef"].is_object() {
            rename(&mut object["roleRef"]["name"], namespace);
        }
    }
    for subject in object["subjects"].as_array_mut().into_iter().flatten() {
        subject["namespace"] = json!(namespace);
    }
    object
}

fn rename(name: &mut Value, namespace: &str) {
    *name = json!(format!("{}-{namespace}", name.as_str().expect("it has a name")));
}

async fn create(client: &Client, object: &Value) {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object.clone()).expect("a Kubernetes object");
    let made = api.create(&PostParams::default(), &object).await;
    made.unwrap_or_else(|error| panic!("{kind} {:?}: {error}", object.metadata.name));
}

/// The admin's kubeconfig with the token of an account instead.
async fn kubeconfig(plane: &ControlPlane, client: &Client, namespace: &str, account: &str) -> PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(VALID),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .unwrap_or_else(|error| panic!("a token for {account}: {error}"));
    let token = answer
        .status
        .and_then(|status| status.token)
        .expect("a token request is answered by a token");
    let admin = std::fs::read_to_string(plane.kubeconfig()).expect("the admin's kubeconfig");
    assert!(
        admin.contains(ADMIN_TOKEN),
        "the admin's kubeconfig has the admin's token"
    );
    let file = plane.dir().join(format!("{namespace}.{account}.kubeconfig"));
    write_private(&file, &admin.replace(ADMIN_TOKEN, &token));
    file
}

/// A kubeconfig for another address of the same server, as one behind a proxy is.
///
/// # Panics
/// It cannot be read or written.
#[must_use]
pub fn readdressed(kubeconfig: &Path, from: &str, to: &str) -> PathBuf {
    let text = std::fs::read_to_string(kubeconfig).expect("the kubeconfig can be read");
    assert!(text.contains(from), "{} names {from}", kubeconfig.display());
    let file = kubeconfig.with_extension("readdressed");
    write_private(&file, &text.replace(from, to));
    file
}

fn write_private(file: &Path, text: &str) {
    let opened = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(file);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

async fn client_of(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the account's kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
}
