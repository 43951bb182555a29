//! Proxies of the environment, as every program heeds them that reaches an API server.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::cluster::command;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The first bytes that somebody sends.
async fn first_bytes(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 256];
    let length = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Rows: O9.
#[tokio::test]
async fn a_manager_goes_through_https_proxy_but_for_servers_that_no_proxy_names() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let words = format!(
        "manager --kubeconfig {} --target-kubeconfig none --cluster-id test --driver tcp://127.0.0.1:1 --metrics-addr 127.0.0.1:0",
        file.path().display()
    );
    for no_proxy in [None, Some("elsewhere.example"), Some("127.0.0.1"), Some("127.0.0.0/8")] {
        let ((server, at), (proxy, proxy_at)) = (listener().await, listener().await);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{at}"), "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        std::fs::write(file.path(), config.to_string()).unwrap();
        let mut manager = command(&words);
        manager.env("HTTPS_PROXY", format!("http://{proxy_at}"));
        manager.envs(no_proxy.map(|names| ("NO_PROXY", names)));
        let mut manager = manager.spawn().unwrap();
        let reached = async {
            tokio::select! {
                said = first_bytes(&proxy) => said,
                said = first_bytes(&server) => format!("server: {said}"),
            }
        };
        let said = tokio::time::timeout(Duration::from_secs(20), reached).await;
        let said = said.expect("the manager reaches for its API server");
        // A TLS handshake begins with this byte.
        let wanted = match no_proxy {
            Some("127.0.0.1" | "127.0.0.0/8") => "server: \u{16}".to_owned(),
            _ => format!("CONNECT {at} HTTP/1.1\r\n"),
        };
        assert!(said.starts_with(&wanted), "NO_PROXY {no_proxy:?}: {said}");
        manager.kill().await.unwrap();
    }
}
