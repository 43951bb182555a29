//! A client of the console, for the subcommand and for tests.

use tonic::transport::{Channel, Endpoint as Address};

use super::{
    v1::{
        GetJournalRequest, ListVmsRequest, RemoveVmRequest, StartVmRequest, StopVmRequest,
        console_service_client::ConsoleServiceClient,
    },
    view::{VmView, time},
};
use crate::cloud::{Entry, Event, VmId};

/// Why the console did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// No console answers there.
    #[error("no console answers at {endpoint}")]
    Connect {
        /// Where it was looked for.
        endpoint: String,
        /// What the transport says.
        #[source]
        source: tonic::transport::Error,
    },
    /// It answered with an error.
    #[error("{}", .0.message())]
    Refused(Box<tonic::Status>),
    /// It told of an event that this version does not know.
    #[error("the console told of {0:?}, which this version does not know")]
    UnknownEvent(String),
}

impl From<tonic::Status> for ConsoleError {
    fn from(status: tonic::Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A connection to a console.
#[derive(Clone)]
pub struct Console(ConsoleServiceClient<Channel>);

/// A long journal is longer than gRPC's usual 4 MiB.
const ANSWER_MAX: usize = 256 << 20;

impl Console {
    /// Connects to `unix:///PATH`.
    pub async fn connect(endpoint: &str) -> Result<Self, ConsoleError> {
        let failed = |source| ConsoleError::Connect {
            endpoint: endpoint.to_owned(),
            source,
        };
        let channel = Address::from_shared(endpoint.to_owned())
            .map_err(failed)?
            .connect()
            .await
            .map_err(failed)?;
        Ok(Self(
            ConsoleServiceClient::new(channel).max_decoding_message_size(ANSWER_MAX),
        ))
    }

    /// Every VM of every cluster, without lag.
    pub async fn vms(&mut self) -> Result<Vec<VmView>, ConsoleError> {
        let answer = self.0.list_vms(ListVmsRequest {}).await?.into_inner();
        Ok(answer.vms.into_iter().map(VmView::from).collect())
    }

    /// All that happened.
    pub async fn journal(&mut self) -> Result<Vec<Entry>, ConsoleError> {
        let answer = self.0.get_journal(GetJournalRequest {}).await?.into_inner();
        let entries = answer.entries.into_iter().map(|entry| {
            let event = Event::named(&entry.event).ok_or(ConsoleError::UnknownEvent(entry.event))?;
            let (at, vm_id) = (time(entry.at), VmId::new(entry.vm_id));
            Ok(Entry {
                at,
                event,
                vm_id,
                uid: entry.uid,
                cluster: entry.cluster,
                name: entry.name,
            })
        });
        entries.collect()
    }

    /// Powers a VM off, by its id or its machine's name.
    pub async fn stop(&mut self, vm: &str) -> Result<(), ConsoleError> {
        self.0.stop_vm(StopVmRequest { vm: vm.to_owned() }).await?;
        Ok(())
    }

    /// Powers a VM on again, by its id or its machine's name.
    pub async fn start(&mut self, vm: &str) -> Result<(), ConsoleError> {
        self.0.start_vm(StartVmRequest { vm: vm.to_owned() }).await?;
        Ok(())
    }

    /// Takes a VM away, by its id or its machine's name.
    pub async fn remove(&mut self, vm: &str) -> Result<(), ConsoleError> {
        self.0.remove_vm(RemoveVmRequest { vm: vm.to_owned() }).await?;
        Ok(())
    }
}
