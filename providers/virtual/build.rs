//! Compiles the console's `.proto` without protoc, as `proto/build.rs` does the contract.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("proto");
    let proto = root.join("millwright/cloud/v1/console.proto");
    println!("cargo:rerun-if-changed={}", proto.display());

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).open_file(&proto)?;
    tonic_prost_build::configure()
        .btree_map(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
