//! The API on a socket: HTTP/1.1 on loopback around the value.
//!
//! Decides who asks, how large a body may be, and when the value's background work is done. What an answer says is the
//! value's affair alone. This is the only room of the crate that waits, and [`outside`] the only one that reads a clock.

mod ask;
pub mod disk;
mod kubeconfig;
pub mod outside;
mod reply;
mod room;
mod rounds;
mod stream;
pub mod users;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::rbac::defaults;
use disk::Disk;
use outside::{Outside, System};
use room::Room;
use users::Users;

/// How long connections may take to end what they have begun.
const GRACE: Duration = Duration::from_secs(5);

/// What a server is started with.
pub struct Options {
    /// What is served, with the kinds and objects that it has from the start.
    pub api: Api,
    /// Where. Must be loopback: tokens travel unencrypted. Port 0 takes any that is free.
    pub addr: SocketAddr,
    /// Who may ask.
    pub users: Users,
    /// Where times and ids come from.
    pub outside: Arc<dyn Outside>,
    /// How often watches that want to know are told how far they have come.
    pub bookmarks: Duration,
    /// Where the state is kept; nowhere, if absent. What the file holds goes into `api`.
    pub disk: Option<Disk>,
    /// How long history is kept: watches and pages from before answer 410.
    pub history: Duration,
}

impl Options {
    /// The real server's numbers, any free port, the system's clock.
    pub fn new(api: Api, users: Users) -> Self {
        Self {
            api,
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            users,
            outside: Arc::new(System),
            disk: None,
            bookmarks: Duration::from_mins(1),
            history: Duration::from_mins(5),
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no TLS here, so nobody but this host may listen.
    #[error("{0} is not a loopback address, and tokens would travel in the clear")]
    NotLoopback(SocketAddr),
    /// Somebody has the port, or the address is not of this host.
    #[error("{addr} cannot be served: {reason}")]
    Bind { addr: SocketAddr, reason: std::io::Error },
    /// The value refuses one of the roles that every cluster has.
    #[error("the roles of every cluster cannot be stored: {0}")]
    Roles(crate::failure::Failure),
    /// A task of the server panicked.
    #[error("the server died: {0}")]
    Died(tokio::task::JoinError),
    /// Not everything is on disk.
    #[error("{0}")]
    NotKept(String),
    /// Somebody read too slowly; his connection was cut.
    #[error("connections were still open {} s after the stop", GRACE.as_secs())]
    Cut,
}

/// The server, before it runs.
#[derive(Debug, Clone, Copy)]
pub struct Server;

impl Server {
    /// Takes the port and serves until [`Running::stop`], or until what it returns is dropped.
    pub async fn start(mut options: Options) -> Result<Running, ServeError> {
        let wanted = options.addr;
        if !wanted.ip().is_loopback() {
            return Err(ServeError::NotLoopback(wanted));
        }
        let wrong = |reason| ServeError::Bind { addr: wanted, reason };
        let listener = TcpListener::bind(wanted).await.map_err(wrong)?;
        let addr = listener.local_addr().map_err(wrong)?;
        let outside = options.outside.clone();
        defaults::install(&mut options.api, || outside.moment()).map_err(ServeError::Roles)?;
        let stop = CancellationToken::new();
        let history = options.history;
        let room = Arc::new(Room::new(options, stop.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(rounds::collect(room.clone()));
        tasks.spawn(rounds::forget(room.clone(), history));
        tasks.spawn(serve(listener, room.clone()));
        Ok(Running {
            addr,
            room,
            _stop: stop.drop_guard(),
            tasks,
        })
    }
}

async fn serve(listener: TcpListener, room: Arc<Room>) {
    // An event is one small packet: it must not wait for the acknowledgement of the one before.
    let listener = listener.tap_io(|stream| {
        // A connection without it is slower, not wrong.
        stream.set_nodelay(true).ok();
    });
    let stop = room.stop.clone();
    let app = Router::new().fallback(ask::answer).with_state(room);
    let server = axum::serve(listener, app).with_graceful_shutdown(async move { stop.cancelled().await });
    // Its error type is a leftover: accepting is tried again for ever.
    server.await.expect("axum's server does not end by an error");
}

/// A server that runs.
pub struct Running {
    addr: SocketAddr,
    room: Arc<Room>,
    /// Watches end with it, also where nobody called `stop`.
    _stop: tokio_util::sync::DropGuard,
    tasks: JoinSet<()>,
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A kubeconfig by which kubectl and clients speak as this user. It contains the token. None if there is no such user.
    pub fn kubeconfig(&self, user: &str) -> Option<String> {
        let token = self.room.users.token(user)?;
        Some(kubeconfig::text(&self.url(), user, token))
    }

    /// Looks at or changes the value past the socket; watches see what changed.
    pub fn with<T>(&self, act: impl FnOnce(&mut Api) -> T) -> T {
        self.room.with(act)
    }

    /// Why the state can no longer be kept, if that is so. Nothing is answered then.
    pub fn fault(&self) -> Option<String> {
        self.room.fault()
    }

    /// Takes no more connections, ends watches, lets requests under way finish.
    pub async fn stop(mut self) -> Result<(), ServeError> {
        self.room.stop.cancel();
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.map_err(ServeError::Died)?;
            }
            Ok(())
        };
        let ended = tokio::time::timeout(GRACE, all).await.unwrap_or(Err(ServeError::Cut));
        match self.room.close().await {
            Some(why) => Err(ServeError::NotKept(why)),
            None => ended,
        }
    }
}
