//! The binary; what it does is `millwright_provider_virtual::cli`.

fn main() -> std::process::ExitCode {
    millwright_provider_virtual::cli::main()
}
