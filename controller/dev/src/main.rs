//! `cargo run`: the quick start, and the two programs that it starts as processes of their own.
//!
//! Cargo builds only this binary. It is therefore also the manager, with its commands for people, and the virtual provider: called by
//! one of their names (a link that the quick start makes), it is that program and nothing else.

use std::process::ExitCode;

mod quickstart;

fn main() -> ExitCode {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    match called.as_deref().and_then(std::path::Path::file_name) {
        Some(name) if name == quickstart::MANAGER || name == millwright::cli::PLUGIN => millwright::cli::main(),
        Some(name) if name == quickstart::PROVIDER => millwright_provider_virtual::cli::main(),
        Some(_) | None => quickstart::main(),
    }
}
