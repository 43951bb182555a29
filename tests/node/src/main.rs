//! A cluster with real nodes, for people: `cargo run -p millwright-node -- up 3`. The arguments are those of `node.sh`, which
//! this becomes after finding what it needs. The cluster's files are in `$NODE_DIR`, or else in one folder below the target
//! directory.

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use millwright_node::Kit;

fn main() -> ExitCode {
    let kit = match Kit::find() {
        Ok(kit) => kit,
        Err(error) => {
            eprintln!("millwright-node: {error}");
            return ExitCode::FAILURE;
        }
    };
    let dir = std::env::var_os("NODE_DIR").map_or_else(|| kit.clusters().join("cluster"), Into::into);
    let error = kit.node_sh(&dir).args(std::env::args_os().skip(1)).exec();
    eprintln!("millwright-node: cannot run bash: {error}");
    ExitCode::FAILURE
}
