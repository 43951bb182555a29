//! A wire between a client and a server that can be cut.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub struct Relay {
    pub addr: SocketAddr,
    is_up: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (is_up, state) = watch::channel(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, state));
        Self {
            addr,
            is_up,
            _tasks: tasks,
        }
    }

    /// Ends all connections, and every new one at once, until it is mended.
    pub fn cut(&self) {
        self.is_up.send_replace(false);
    }

    pub fn mend(&self) {
        self.is_up.send_replace(true);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if *state.borrow() {
            connections.spawn(carry(client, server, state.clone()));
        }
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut state: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    tokio::select! {
        // Either end may go at any time.
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = state.wait_for(|is_up| !is_up) => {}
    }
}
