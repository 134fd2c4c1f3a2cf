//! The program `delta-sessions`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delta::cli::sessions::main()
}
