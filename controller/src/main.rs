//! The binary; what it does is `millwright::cli`.

/// A fifth of the manager's time is in glibc's allocator otherwise: objects are small, many, and freed on other threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    millwright::cli::main()
}
