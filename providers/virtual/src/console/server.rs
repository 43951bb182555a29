//! The console's service on its unix socket.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use millwright_provider_sdk::Endpoint;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

use super::{
    v1::{
        Entry, GetJournalRequest, GetJournalResponse, ListVmsRequest, ListVmsResponse, RemoveVmRequest,
        RemoveVmResponse, StartVmRequest, StartVmResponse, StopVmRequest, StopVmResponse,
        console_service_server::{ConsoleService, ConsoleServiceServer},
    },
    view::{VmView, wire_time},
};
use crate::cloud::{Cloud, CloudError, Vm};

/// Owner and group only, as the driver's socket.
const SOCKET_MODE: u32 = 0o660;

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleServeError {
    /// Who can let hosts fail must be on this machine.
    #[error("the console listens at a unix socket only, not at {0}")]
    NotASocket(Endpoint),
    /// A living process has the socket.
    #[error("another process serves at {path}")]
    Taken {
        /// The socket.
        path: String,
    },
    /// The socket cannot be made.
    #[error("the console cannot listen at {path}")]
    Listen {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Listens, then serves in the future that it returns.
pub(crate) fn serve(
    cloud: Cloud,
    endpoint: &Endpoint,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, ConsoleServeError> {
    let Endpoint::Unix(path) = endpoint else {
        return Err(ConsoleServeError::NotASocket(endpoint.clone()));
    };
    let (listener, file) = (listen(path)?, SocketFile(path.clone()));
    Ok(async move {
        let _file = file;
        let service = ConsoleServiceServer::new(Service { cloud });
        let incoming = UnixListenerStream::new(listener);
        let served = Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, stop.cancelled());
        if let Err(error) = served.await {
            tracing::error!(%error, "the console ended");
        }
    })
}

fn listen(path: &Path) -> Result<UnixListener, ConsoleServeError> {
    let name = || path.display().to_string();
    let failed = |source| ConsoleServeError::Listen { path: name(), source };
    if UnixStream::connect(path).is_ok() {
        return Err(ConsoleServeError::Taken { path: name() });
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(failed(io::ErrorKind::AlreadyExists.into())),
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
    Ok(listener)
}

/// Removes the socket's file when serving ends, however it ends. One that a kill has left is taken over by `listen`.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

struct Service {
    cloud: Cloud,
}

impl Service {
    /// By id, else by the machine's name.
    fn find(&self, wanted: &str) -> Result<Arc<Vm>, Status> {
        let vms = self.cloud.everything();
        if let Some(vm) = vms.iter().find(|vm| vm.id.as_str() == wanted) {
            return Ok(Arc::clone(vm));
        }
        let mut named = vms.iter().filter(|vm| vm.owner.name == wanted);
        match (named.next(), named.next()) {
            (None, _) => Err(Status::not_found(format!("no VM has the id or name {wanted:?}"))),
            (Some(vm), None) => Ok(Arc::clone(vm)),
            (Some(_), Some(_)) => Err(Status::failed_precondition(format!(
                "several VMs have the name {wanted:?}: give the id"
            ))),
        }
    }
}

#[tonic::async_trait]
impl ConsoleService for Service {
    async fn list_vms(&self, _: Request<ListVmsRequest>) -> Result<Response<ListVmsResponse>, Status> {
        let vms = self
            .cloud
            .everything()
            .iter()
            .map(|vm| VmView::from(vm.as_ref()).into())
            .collect();
        Ok(Response::new(ListVmsResponse { vms }))
    }

    async fn get_journal(&self, _: Request<GetJournalRequest>) -> Result<Response<GetJournalResponse>, Status> {
        let journal = self
            .cloud
            .journal()
            .map_err(|error| Status::internal(error.to_string()))?;
        let entries = journal.into_iter().map(|entry| Entry {
            at: Some(wire_time(entry.at)),
            event: entry.event.word().to_owned(),
            vm_id: entry.vm_id.to_string(),
            uid: entry.uid,
            cluster: entry.cluster,
            name: entry.name,
        });
        Ok(Response::new(GetJournalResponse {
            entries: entries.collect(),
        }))
    }

    async fn stop_vm(&self, request: Request<StopVmRequest>) -> Result<Response<StopVmResponse>, Status> {
        let vm = self.find(&request.get_ref().vm)?;
        let vm = self.cloud.stop(&vm.id).await.map_err(status)?;
        Ok(Response::new(StopVmResponse {
            vm: Some(VmView::from(vm.as_ref()).into()),
        }))
    }

    async fn start_vm(&self, request: Request<StartVmRequest>) -> Result<Response<StartVmResponse>, Status> {
        let vm = self.find(&request.get_ref().vm)?;
        let vm = self.cloud.start(&vm.id).await.map_err(status)?;
        Ok(Response::new(StartVmResponse {
            vm: Some(VmView::from(vm.as_ref()).into()),
        }))
    }

    async fn remove_vm(&self, request: Request<RemoveVmRequest>) -> Result<Response<RemoveVmResponse>, Status> {
        let vm = self.find(&request.get_ref().vm)?;
        self.cloud.remove(&vm.id).await.map_err(status)?;
        Ok(Response::new(RemoveVmResponse {}))
    }
}

fn status(error: CloudError) -> Status {
    match error {
        CloudError::NoSuchVm { .. } => Status::not_found(error.to_string()),
        CloudError::TokenSpent | CloudError::ParameterMismatch { .. } => Status::failed_precondition(error.to_string()),
        CloudError::Storage(_) | CloudError::Closed => Status::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("console.sock");
        fs::write(&path, "precious").expect("a file");
        listen(&path).expect_err("it is no socket");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
    }
}
