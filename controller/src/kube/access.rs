//! Where a cluster's address and credentials come from, and what is wrong with them where no client can be made of them.

use std::path::{Path, PathBuf};

use http::header::{HeaderValue, USER_AGENT};
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Where a cluster's address and credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The service account of the pod we run in.
    InCluster,
    /// A kubeconfig file, its current context.
    File(PathBuf),
}

/// Why there is no client. None of these heals by waiting.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file is missing, no YAML, or names nothing usable.
    #[error("kubeconfig {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// We do not run in a pod, or without a service account.
    #[error("no --kubeconfig was given and this is no pod with a service account: {0}")]
    InCluster(InClusterError),
    /// The credentials cannot be used.
    #[error("no client can be made from {origin}: {reason}")]
    Unusable {
        /// The file, or the service account.
        origin: String,
        /// What is wrong.
        reason: String,
    },
}

/// What we want otherwise than kube does.
pub(super) fn prepared(mut config: Config) -> Config {
    config.default_retry = false;
    config.headers.push((
        USER_AGENT,
        HeaderValue::from_static(concat!("millwright/", env!("CARGO_PKG_VERSION"))),
    ));
    config
}

pub(super) async fn read(access: &Access) -> Result<Config, AccessError> {
    match access {
        Access::InCluster => Config::incluster().map_err(AccessError::InCluster),
        Access::File(path) => read_file(path).await.map_err(|error| AccessError::File {
            path: path.clone(),
            reason: wrong_with(&error),
        }),
    }
}

/// What is wrong with a kubeconfig, without a word of what is in it: the parser would show the lines around the
/// mistake, and they may be keys.
pub(crate) fn wrong_with(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("no kubeconfig, see line {} column {}", at.line(), at.column()),
            None => "no kubeconfig".to_owned(),
        },
        other => other.to_string(),
    }
}

async fn read_file(path: &Path) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let names_proxy = kubeconfig.clusters.iter().any(|named| {
        named
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.proxy_url.is_some())
    });
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // kube 5.0.0 looks for the proxy's own name in NO_PROXY. A proxy that the kubeconfig names is used whatever the environment says.
    if !names_proxy && Matcher::from_env().intercept(&config.cluster_url).is_none() {
        config.proxy_url = None;
    }
    Ok(config)
}

pub(super) fn origin(access: &Access) -> String {
    match access {
        Access::InCluster => "the pod's service account".to_owned(),
        Access::File(path) => format!("kubeconfig {}", path.display()),
    }
}
