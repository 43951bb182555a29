//! The simulated cloud of a scene as its own console shows it, past the Driver API.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Deserialize;

use crate::programs::programs;
use crate::scene::Scene;

/// A VM as the cloud itself shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    pub provider_id: String,
    pub state: String,
    pub name: String,
    pub uid: String,
}

/// Of which Machines these VMs are.
#[must_use]
pub fn uids(vms: &[Vm]) -> BTreeSet<&str> {
    vms.iter().map(|vm| vm.uid.as_str()).collect()
}

/// A line of the cloud's journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub at: Timestamp,
    pub event: String,
    pub vm_id: String,
    pub uid: String,
    pub name: String,
}

impl Scene {
    /// Every VM, from the console of the running cloud.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn vms(&self) -> Result<Vec<Vm>, String> {
        let listed = self.console("vms").await?;
        serde_json::from_str(&listed).map_err(|error| format!("{error}: {listed}"))
    }

    /// All that ever happened in the cloud.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn journal(&self) -> Result<Vec<Entry>, String> {
        let listed = self.console("journal").await?;
        serde_json::from_str(&listed).map_err(|error| format!("{error}: {listed}"))
    }

    /// Takes a VM away, powers it off or on again (`remove`, `stop`, `start`), past the Driver API.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn at_the_console(&self, act: &str, vm: &str) -> Result<(), String> {
        self.console_args(&[act, vm]).await.map(drop)
    }

    async fn console(&self, act: &str) -> Result<String, String> {
        self.console_args(&["-o", "json", act]).await
    }

    async fn console_args(&self, args: &[&str]) -> Result<String, String> {
        let output = tokio::process::Command::new(&programs().await.virtual_provider)
            .args(["console", "--connect"])
            .arg(format!("unix://{}", self.provider.console.display()))
            .args(args)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}
