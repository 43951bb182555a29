//! Compiles `driver.proto` without protoc: protox parses it, tonic-prost-build generates the code.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let proto = root.join("machine/driver/v1/driver.proto");
    println!("cargo:rerun-if-changed={}", proto.display());

    // The encoded set keeps comments and options, which reflection clients print.
    let mut compiler = protox::Compiler::new([&root])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_file(&proto)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("driver.bin"), compiler.encode_file_descriptor_set())?;
    let descriptors = compiler.file_descriptor_set();

    tonic_prost_build::configure()
        .generate_default_stubs(true)
        .btree_map(".")
        .skip_debug(SECRET_MESSAGES)
        .compile_fds(descriptors)?;
    Ok(())
}

/// Every message with a `debug_redact` field. Their `Debug` is written by hand in `src/redact.rs`,
/// because a derived one prints secrets as lists of bytes.
const SECRET_MESSAGES: [&str; 8] = [
    ".machine.driver.v1.CreateMachineRequest",
    ".machine.driver.v1.InitializeMachineRequest",
    ".machine.driver.v1.DeleteMachineRequest",
    ".machine.driver.v1.GetMachineStatusRequest",
    ".machine.driver.v1.ListMachinesRequest",
    ".machine.driver.v1.WatchMachinesRequest",
    ".machine.driver.v1.ValidateMachineClassRequest",
    ".machine.driver.v1.GetNodeTemplateRequest",
];
