//! The program `delta-sessions`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delta_sessions::sessions_cli::main()
}
