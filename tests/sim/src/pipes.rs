//! gRPC as it is, HTTP/2 and all, over pipes in memory in place of a socket.
//!
//! A connection lives as long as both processes do. Whichever dies, the other sees its end of the pipe close; what was
//! under way in it is lost.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Server};
use tower::service_fn;

use crate::call_recorder::CallRecorder;
use crate::process::Process;
use crate::world::World;

/// Bytes that a pipe holds, as a socket's buffer.
const HOLDS: usize = 64 * 1024;
/// As the manager's own channel has it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Incoming = mpsc::UnboundedSender<io::Result<DuplexStream>>;

/// Where a driver's process listens, while one does.
#[derive(Default)]
pub struct Listener(Mutex<Option<(Arc<Process>, Incoming)>>);

impl Listener {
    /// A process listens, for as long as it lives.
    pub fn open(&self, process: &Arc<Process>, call_recorder: CallRecorder, world: &Arc<World>) {
        let (incoming, connections) = mpsc::unbounded_channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Arc::clone(process), incoming));
        let (process, world) = (Arc::clone(process), Arc::clone(world));
        tokio::spawn(async move {
            let serving = Server::builder()
                .add_service(call_recorder)
                .serve_with_incoming(UnboundedReceiverStream::new(connections));
            tokio::select! {
                biased;
                () = process.closed() => {}
                served = serving => if let Err(error) = served {
                    world.broken("simulator", format!("the gRPC server ends: {error}"));
                },
            }
        });
    }

    /// The process is gone.
    pub fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A channel of the manager behind this process: it connects when it is used, and again after each loss.
    pub fn channel(self: &Arc<Self>, process: &Arc<Process>) -> Channel {
        let (listener, process) = (Arc::clone(self), Arc::clone(process));
        let connector = service_fn(move |_| {
            let dialled = listener.dial(&process).map(TokioIo::new);
            async move { dialled }
        });
        Endpoint::from_static("http://sim")
            .connect_timeout(CONNECT_TIMEOUT)
            .connect_with_connector_lazy(connector)
    }

    fn dial(&self, manager: &Arc<Process>) -> io::Result<DuplexStream> {
        let listening = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (driver, incoming) = listening.as_ref().ok_or(io::ErrorKind::ConnectionRefused)?;
        let (ours, mut near) = duplex(HOLDS);
        let (mut far, theirs) = duplex(HOLDS);
        incoming
            .send(Ok(theirs))
            .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        let (manager, driver) = (Arc::clone(manager), Arc::clone(driver));
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = manager.closed() => {}
                () = driver.closed() => {}
                // Either side may hang up; that the other hears of it is all there is to it.
                _ = copy_bidirectional(&mut near, &mut far) => {}
            }
        });
        Ok(ours)
    }
}
