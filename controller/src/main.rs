//! The binary; what it does is `millwright::cli`.

fn main() -> std::process::ExitCode {
    millwright::cli::main()
}
