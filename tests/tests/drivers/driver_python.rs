//! The Driver API in another language: a Python client generated from the proto walks a machine through its life against
//! the real virtual provider.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says by its panic what went wrong"
)]

use millwright_tests::clients::Python;
use millwright_tests::fleet::VirtualProvider;

#[tokio::test]
async fn a_python_client_made_of_the_proto_alone_gets_every_promised_answer() {
    let Some(python) = Python::with_stubs("a Python client gets every promised answer") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let provider = VirtualProvider::alone(dir.path(), "virtual").await.start();
    provider.wait_until_it_listens().await;

    let walk = python.run("driver_client.py", &[&provider.socket.display().to_string()]);
    let log = provider.service.log_tail();
    assert_eq!(walk.code, Some(0), "{}{}\n{log}", walk.stdout, walk.stderr);
    // Seven lines: a client that stopped early without failing would print fewer.
    assert_eq!(walk.stdout.lines().count(), 7, "{}", walk.stdout);
    assert!(
        walk.stdout.ends_with("every answer was as promised\n"),
        "{}",
        walk.stdout
    );
}
