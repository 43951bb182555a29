//! The sandbox alone, with our kinds: `cargo run -p millwright-sandbox --example serve -- KUBECONFIG [PORT]`, then
//! `kubectl --kubeconfig KUBECONFIG get machines`. Ends by Ctrl-C.
//!
//! For trying the server; the quick start is the program for users.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use millwright_sandbox::api::Api;
use millwright_sandbox::http::outside::{Outside as _, System};
use millwright_sandbox::http::users::Users;
use millwright_sandbox::http::{Options, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("say where to write the kubeconfig")?;
    let port = words.next().map_or(Ok(0), |port| port.parse())?;
    let mut api = Api::new(System.moment().now);
    for definition in millwright_core::api::crds::all() {
        let definition = serde_json::to_value(definition)?;
        api.install(&definition, &System.moment())?;
    }
    // The id of a moment is as good a token as any: random, and never given twice.
    let users = Users::default()
        .with("admin", &System.moment().uid)
        .with_unnamed("admin");
    let mut options = Options::new(api, users);
    options.addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let running = Server::start(options).await?;
    std::fs::write(&path, running.kubeconfig("admin").ok_or("there is no admin")?)?;
    println!("{} — kubectl --kubeconfig {path} get machines", running.url());
    tokio::signal::ctrl_c().await?;
    Ok(running.stop().await?)
}
