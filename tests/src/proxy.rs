//! A TCP proxy in front of a server, by which a cluster is taken away and given back. It may not look into what passes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, JoinSet};

const BACKLOG: u32 = 1024;

/// How a proxy treats its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// What comes is passed on.
    Open,
    /// Connections are refused, as by a host on which nothing listens.
    Refusing,
    /// Connections are taken and nothing is ever answered, as by a firewall that drops packets.
    Hanging,
}

/// A port of loopback in front of a server. Dropping it ends all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    server: SocketAddr,
    /// Bound, never listening: keeps the port ours, and refuses while nobody listens beside it.
    _port: TcpSocket,
    serving: Arc<Mutex<Option<JoinHandle<()>>>>,
    silenced: Arc<Notify>,
}

impl Proxy {
    /// A proxy of `server`, which is on loopback.
    ///
    /// # Panics
    /// The machine has no free port.
    pub async fn before(server: SocketAddr, passage: Passage) -> Self {
        let port = shared_port(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let proxy = Self {
            address: port.local_addr().expect("a bound socket has an address"),
            server,
            _port: port,
            serving: Arc::default(),
            silenced: Arc::default(),
        };
        proxy.set(passage).await;
        proxy
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Treats clients in another way from now on; connections that there are end.
    ///
    /// # Panics
    /// Its port cannot be listened on.
    pub async fn set(&self, passage: Passage) {
        let mut serving = self.serving.lock().await;
        if let Some(before) = serving.take() {
            before.abort();
            let _ = before.await;
        }
        if passage != Passage::Refusing {
            let listener = shared_port(self.address).listen(BACKLOG).expect("the port is ours");
            let server = (passage == Passage::Open).then_some(self.server);
            *serving = Some(tokio::spawn(serve(listener, server, Arc::clone(&self.silenced))));
        }
    }

    /// Nothing passes any more over the connections that there are, and they stay open; new connections are passed on. So it looks when a
    /// firewall forgets its connections.
    pub fn silence_connections(&self) {
        self.silenced.notify_waiters();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Ok(mut serving) = self.serving.try_lock()
            && let Some(serving) = serving.take()
        {
            serving.abort();
        }
    }
}

fn shared_port(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    socket.set_reuseport(true).expect("ports can be shared");
    socket.bind(address).expect("loopback has a free port");
    socket
}

/// Takes connections, all of which end with this task.
async fn serve(listener: tokio::net::TcpListener, server: Option<SocketAddr>, silenced: Arc<Notify>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, server, Arc::clone(&silenced)));
    }
}

async fn pass(mut client: TcpStream, server: Option<SocketAddr>, silenced: Arc<Notify>) {
    let Some(server) = server else {
        return std::future::pending().await;
    };
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        // An end from either side is the end of both; whose it was does not matter here.
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = silenced.notified() => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// A server that says one word to everybody.
    async fn greeter() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.write_all(b"hello").await;
                tokio::spawn(async move {
                    let mut rest = Vec::new();
                    let _ = client.read_to_end(&mut rest).await;
                });
            }
        });
        address
    }

    async fn word(stream: &mut TcpStream) -> String {
        let mut word = [0; 5];
        stream.read_exact(&mut word).await.unwrap();
        String::from_utf8_lossy(&word).into_owned()
    }

    #[tokio::test]
    async fn connections_are_silenced_and_new_ones_pass() {
        let proxy = Proxy::before(greeter().await, Passage::Open).await;
        let mut silent = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(word(&mut silent).await, "hello");
        proxy.silence_connections();
        let end = timeout(Duration::from_millis(200), silent.read(&mut [0; 1])).await;
        assert!(end.is_err(), "it stays open: {end:?}");
        let mut last = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(word(&mut last).await, "hello");
    }

    #[tokio::test]
    async fn a_proxy_is_taken_away_and_given_back() {
        let proxy = Proxy::before(greeter().await, Passage::Refusing).await;
        TcpStream::connect(proxy.address()).await.unwrap_err();

        proxy.set(Passage::Open).await;
        let mut first = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(word(&mut first).await, "hello");

        proxy.set(Passage::Hanging).await;
        let end = timeout(Duration::from_secs(10), first.read(&mut [0; 1])).await.unwrap();
        assert!(
            matches!(end, Ok(0) | Err(_)),
            "connections that there were end: {end:?}"
        );
        let mut silent = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(timeout(Duration::from_millis(200), word(&mut silent)).await.is_err());

        proxy.set(Passage::Open).await;
        let mut last = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(word(&mut last).await, "hello");
    }
}
