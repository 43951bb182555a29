//! `driver`: one call of the Driver API by hand, with the class and the Secrets of manifests.
//!
//! For authors of drivers, and for whoever wants to know what a driver says without a cluster. No epoch is sent, as from grpcurl, so a manager
//! that leads is not disturbed; VMs are made for a cluster of their own (`--cluster-id`), so no manager takes them for its own.

mod manifests;
mod show;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use millwright_core::driver::{Code, Failure as Said};
use millwright_core::ids::{DriverName, Name, ProviderId, Uid};
use millwright_core::user_data;
use millwright_proto::v1;
use millwright_proto::v1::driver_service_client::DriverServiceClient;
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status};

use self::manifests::Manifests;
use super::failure::Failure;
use super::flags::{Deletion, DriverCommand, DriverFlags, DriverReach, Machine, Shape};
use super::output;
use crate::config::tls_files;
use crate::driver::bounds;
use crate::driver::{
    DriverClass, Lifeline, MachineKey, Peers, SecretData, Target, Wire, info_flaws, reason_name, refusal,
};

/// Largest answer that is read: a page of 1,000 VMs has less.
const LARGEST: usize = 64 << 20;
/// After so many pages an empty page that is not the last one is no list of VMs any more.
const EMPTY_PAGES: u32 = 1000;
/// The pause between two DeleteMachine where the driver advises none (`driver.proto`).
const POLL: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(flags: &DriverFlags) -> Result<(), Failure> {
    let caller = Caller::of(&flags.reach)?;
    match &flags.command {
        DriverCommand::Info => caller.info().await,
        DriverCommand::Validate { live } => caller.validate(*live).await,
        DriverCommand::Schema => caller.schema().await,
        DriverCommand::Template => caller.template().await,
        DriverCommand::Create { machine, user_data } => {
            let user_data = user_data.as_deref().map(manifests::bytes).transpose()?;
            caller.create(machine, user_data).await
        }
        DriverCommand::Status { machine, provider_id } => caller.status(machine, provider_id).await,
        DriverCommand::Delete(deletion) => caller.delete(deletion).await,
        DriverCommand::List => caller.list().await,
        DriverCommand::Watch => caller.watch().await,
    }
}

/// One driver, and what every call to it has in common.
struct Caller<'f> {
    flags: &'f DriverReach,
    client: DriverServiceClient<Wire>,
    manifests: Manifests,
}

/// What a call about a class sends of it.
struct Sent {
    class: DriverClass,
    secrets: Arc<SecretData>,
    user_data: Vec<u8>,
}

impl Sent {
    fn class(&self) -> Option<v1::MachineClass> {
        Some(self.class.to_wire())
    }
}

impl<'f> Caller<'f> {
    fn of(flags: &'f DriverReach) -> Result<Self, Failure> {
        let endpoint = flags.endpoint.as_ref().ok_or(Failure::NoEndpoint)?;
        let files = tls_files([&flags.driver_ca, &flags.driver_cert, &flags.driver_key]);
        let files = files.map_err(|error| Failure::Manifest(error.to_string()))?;
        let connect = Peers::new(&flags.driver_uid).with_tls(files).connect();
        let wire = connect(endpoint, &Lifeline::new(flags.timeout));
        Ok(Self {
            flags,
            client: DriverServiceClient::new(wire).max_decoding_message_size(LARGEST),
            manifests: Manifests::read(&flags.filename)?,
        })
    }

    /// Sends a call, and says what a failure of it means.
    async fn ask<T>(
        &self,
        method: &'static str,
        secrets: &SecretData,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        let timeout = self.flags.timeout;
        let answer = tokio::time::timeout(timeout, call).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer within {timeout:?}"))));
        answer.map(Response::into_inner).map_err(|status| {
            let failure = secrets.failure(&status);
            let mut said = told(&failure);
            // A status with a cause was made on this side: the connection broke, or there was none.
            if let (Some(_), Some(endpoint)) = (std::error::Error::source(&status), &self.flags.endpoint) {
                said += &format!(" (at {endpoint})");
            }
            Failure::Driver {
                method,
                said,
                retry_after: failure.retry_after,
            }
        })
    }

    async fn driver(&self) -> Result<v1::GetDriverInfoResponse, Failure> {
        let request = v1::GetDriverInfoRequest {
            manager_name: "millwright driver".to_owned(),
            manager_version: env!("CARGO_PKG_VERSION").to_owned(),
            manager_capabilities: Vec::new(),
        };
        let mut client = self.client.clone();
        let call = client.get_driver_info(request);
        self.ask("GetDriverInfo", &SecretData::default(), call).await
    }

    /// The class of the manifests as a driver gets it. One that names no driver is this driver's.
    async fn sent(&self) -> Result<Sent, Failure> {
        let class = self.manifests.class(self.flags.class.as_deref())?;
        let driver = match class.object.driver() {
            Some(named) => named,
            None => DriverName::new(self.driver().await?.name),
        };
        let spec = &class.object.spec.provider_spec;
        let marks = self.flags.legacy_mark.iter().cloned().collect();
        let wire = DriverClass::new(&class.namespace, &class.name, &driver, spec)
            .and_then(|wire| wire.at(&serde_json::Value::Null, &marks));
        let wire =
            wire.map_err(|error| Failure::Manifest(format!("MachineClass {}: providerSpec: {error}", class.name)))?;
        Ok(Sent {
            class: wire.with_object(&class.object),
            secrets: Arc::new(class.secrets.into_iter().collect()),
            user_data: class.user_data,
        })
    }

    fn target(&self, sent: &Sent, machine: &Machine, provider_id: &str) -> Target {
        let cluster_id = self.flags.cluster_id.clone();
        let (namespace, name) = (sent.class.to_wire().namespace, &machine.name);
        let uid = machine.uid.clone();
        let uid = uid.unwrap_or_else(|| uid_of(&cluster_id, &namespace, name));
        Target {
            key: MachineKey {
                cluster_id,
                namespace,
                name: Name::new(name),
                uid: Uid::new(uid),
            },
            class: sent.class.clone(),
            secrets: Arc::clone(&sent.secrets),
            tagged_uid: None,
            former_namespace: None,
            provider_id: ProviderId::non_empty(Some(provider_id)),
            last_known_state: None,
        }
    }

    fn print<M: prost::Message>(
        &self,
        type_name: &str,
        message: &M,
        table: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.flags.output {
            Shape::Table => output::print(&table()),
            Shape::Json => output::line(&show::json(type_name, message)?),
            Shape::Yaml => output::print(&show::yaml(type_name, message)?),
        }
    }

    async fn info(&self) -> Result<(), Failure> {
        let info = self.driver().await?;
        self.print("GetDriverInfoResponse", &info, || show::info(&info))?;
        let flaws = info_flaws(&info).map_err(|why| refused("GetDriverInfo", &why))?;
        flaws.iter().for_each(|flaw| output::note(flaw));
        Ok(())
    }

    async fn validate(&self, live: bool) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let class = sent.class.to_wire();
        let name = class.name.clone();
        let request = v1::ValidateMachineClassRequest {
            machine_class: Some(class),
            secret_data: sent.secrets.to_wire().into_iter().collect(),
            live,
        };
        let mut client = self.client.clone();
        let call = client.validate_machine_class(request);
        let answer = self.ask("ValidateMachineClass", &sent.secrets, call).await?;
        self.print("ValidateMachineClassResponse", &answer, || {
            show::violations(&name, &answer)
        })?;
        match show::errors(&answer) {
            0 => Ok(()),
            errors => Err(Failure::Manifest(format!(
                "MachineClass {name}: the driver finds {errors} fault(s), so no machine can be made of it"
            ))),
        }
    }

    async fn schema(&self) -> Result<(), Failure> {
        let mut client = self.client.clone();
        let call = client.get_machine_class_schema(v1::GetMachineClassSchemaRequest {});
        let answer = self.ask("GetMachineClassSchema", &SecretData::default(), call).await?;
        let yaml = show::yaml("GetMachineClassSchemaResponse", &answer)?;
        self.print("GetMachineClassSchemaResponse", &answer, || yaml)
    }

    async fn template(&self) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let request = v1::GetNodeTemplateRequest {
            machine_class: sent.class(),
            secret_data: sent.secrets.to_wire().into_iter().collect(),
        };
        let mut client = self.client.clone();
        let call = client.get_node_template(request);
        let answer = self.ask("GetNodeTemplate", &sent.secrets, call).await?;
        let template = answer.node_template.unwrap_or_default();
        self.print("NodeTemplate", &template, || show::template(&template))
    }

    async fn create(&self, machine: &Machine, user_data: Option<Vec<u8>>) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let target = self.target(&sent, machine, "");
        let template = user_data.unwrap_or_else(|| sent.user_data.clone());
        if user_data::needs_token(&template) {
            output::note(
                "the boot configuration wants a bootstrap token, and there is none: its placeholder stays, so no node will join",
            );
        }
        let filled = user_data::fill(&template, None, &machine.name);
        let filled = filled.map_err(|error| Failure::Manifest(error.to_string()))?;
        let secrets = sent.secrets.sending(&filled, None);
        let request = v1::CreateMachineRequest {
            key: Some(target.key.to_wire()),
            machine_class: sent.class(),
            secret_data: sent.secrets.to_wire().into_iter().collect(),
            user_data: filled,
            ..v1::CreateMachineRequest::default()
        };
        let mut client = self.client.clone();
        let answer = self
            .ask("CreateMachine", &secrets, client.create_machine(request))
            .await?;
        self.machine("CreateMachine", &target, answer.machine)
    }

    async fn status(&self, machine: &Machine, provider_id: &str) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let target = self.target(&sent, machine, provider_id);
        let request = v1::GetMachineStatusRequest {
            key: Some(target.key.to_wire()),
            provider_id: provider_id.to_owned(),
            machine_class: sent.class(),
            secret_data: sent.secrets.to_wire().into_iter().collect(),
        };
        let mut client = self.client.clone();
        let call = client.get_machine_status(request);
        let answer = self.ask("GetMachineStatus", &sent.secrets, call).await?;
        self.machine("GetMachineStatus", &target, answer.machine)
    }

    /// Prints the VM of an answer, and fails where a manager would refuse the answer (SPEC.md, MAN-18).
    fn machine(&self, method: &'static str, target: &Target, machine: Option<v1::Machine>) -> Result<(), Failure> {
        let refusal = refusal(target, machine.clone());
        let machine = machine.unwrap_or_default();
        self.print("Machine", &machine, || show::machines(std::slice::from_ref(&machine)))?;
        refusal.map_or(Ok(()), |why| Err(refused(method, &why)))
    }

    /// Asks until nothing is left, unless once is enough.
    async fn delete(&self, deletion: &Deletion) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let target = self.target(&sent, &deletion.machine, &deletion.provider_id);
        loop {
            let request = v1::DeleteMachineRequest {
                key: Some(target.key.to_wire()),
                provider_id: deletion.provider_id.clone(),
                machine_class: sent.class(),
                secret_data: sent.secrets.to_wire().into_iter().collect(),
                last_known_state: String::new(),
            };
            let mut client = self.client.clone();
            let answer = self.ask("DeleteMachine", &sent.secrets, client.delete_machine(request));
            let answer = match answer.await {
                // Another operation is under way, the provider throttles or the like: the driver says when to come again.
                Err(Failure::Driver {
                    retry_after: Some(pause),
                    said,
                    ..
                }) if deletion.wait => {
                    output::note(&said);
                    tokio::time::sleep(pause.unsigned_abs()).await;
                    continue;
                }
                answer => answer?,
            };
            let is_gone = answer.state() == v1::machine::State::Deleted;
            let word = if is_gone { "deleted" } else { "is being deleted" };
            self.print("DeleteMachineResponse", &answer, || {
                format!("machine/{} {word}\n", deletion.machine.name)
            })?;
            if is_gone || !deletion.wait {
                return Ok(());
            }
            let pause = answer.poll_after.and_then(|pause| Duration::try_from(pause).ok());
            tokio::time::sleep(pause.unwrap_or(POLL)).await;
        }
    }

    async fn list(&self) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let (mut all, mut pages) = (v1::ListMachinesResponse::default(), 0);
        loop {
            let request = v1::ListMachinesRequest {
                cluster_id: self.flags.cluster_id.clone(),
                machine_class: sent.class(),
                secret_data: sent.secrets.to_wire().into_iter().collect(),
                page_size: 0,
                page_token: std::mem::take(&mut all.next_page_token),
            };
            let mut client = self.client.clone();
            let page = self
                .ask("ListMachines", &sent.secrets, client.list_machines(request))
                .await?;
            let is_empty = page.machines.is_empty();
            all.machines.extend(page.machines);
            all.unreachable.extend(page.unreachable);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_empty() {
                break;
            }
            pages += 1;
            if all.machines.len() > bounds::VMS || (is_empty && pages > EMPTY_PAGES) {
                return Err(Failure::Manifest(format!(
                    "ListMachines: the list does not end: {} VMs in {pages} pages",
                    all.machines.len()
                )));
            }
        }
        if !all.unreachable.is_empty() {
            output::note(&format!(
                "the list is not whole: {} could not be asked",
                show::cell(&all.unreachable.join(", "))
            ));
        }
        if all.machines.is_empty() {
            output::note(&format!(
                "there are no VMs of cluster {} (--cluster-id)",
                self.flags.cluster_id
            ));
        }
        self.print("ListMachinesResponse", &all, || show::machines(&all.machines))
    }

    /// Prints events until the stream ends.
    async fn watch(&self) -> Result<(), Failure> {
        let sent = self.sent().await?;
        let request = Request::new(v1::WatchMachinesRequest {
            cluster_id: self.flags.cluster_id.clone(),
            machine_class: sent.class(),
            secret_data: sent.secrets.to_wire().into_iter().collect(),
            ..v1::WatchMachinesRequest::default()
        });
        let mut client = self.client.clone();
        let mut events = self
            .ask("WatchMachines", &sent.secrets, client.watch_machines(request))
            .await?;
        loop {
            // The driver sends a sign of life each half minute.
            let next = self.ask("WatchMachines", &sent.secrets, async {
                events.message().await.map(Response::new)
            });
            match next.await? {
                Some(event) => self.print("WatchMachinesResponse", &event, || show::event(&event))?,
                None => return Ok(()),
            }
        }
    }
}

/// A uid for a machine that no API server gave one: the same for the same names, so that a repeated call is about the same VM.
fn uid_of(cluster_id: &str, namespace: &str, name: &str) -> String {
    let digest = Sha256::digest(format!("{cluster_id}/{namespace}/{name}"));
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    // Version 8 of RFC 9562: made in a way of our own.
    format!(
        "{}-{}-8{}-8{}-{}",
        part(0, 8),
        part(8, 12),
        part(13, 16),
        part(17, 20),
        part(20, 32)
    )
}

/// An OK that a manager would not take for one.
fn refused(method: &'static str, why: &str) -> Failure {
    Failure::Driver {
        method,
        said: format!("a manager refuses this answer: {why}"),
        retry_after: None,
    }
}

/// What a driver says of a call that failed.
fn told(said: &Said) -> String {
    if said.code == Code::Unimplemented && said.reason.is_none() {
        return format!("this driver has no such call (it says: {})", said.message);
    }
    let mut text = said.code.word().to_owned();
    if let Some(reason) = said.reason {
        text += &format!(" ({})", reason_name(reason));
    }
    text += &format!(": {}", said.message);
    if let Some(pause) = said.retry_after {
        text += &format!(" (try again after {pause:#})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_made_of_names_has_the_form_of_one_and_stays() {
        let uid = uid_of("by-hand", "default", "one");
        assert_eq!(uid.len(), 36);
        assert_eq!(uid, uid_of("by-hand", "default", "one"));
        assert_ne!(uid, uid_of("by-hand", "default", "two"));
        assert_eq!(uid.get(14..15), Some("8"));
    }
}
