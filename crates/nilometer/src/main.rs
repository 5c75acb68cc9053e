//! The one binary, `nilometer`: it hands the command line to the library and exits with its verdict.

fn main() -> std::process::ExitCode {
    nilometer::cli::main()
}
