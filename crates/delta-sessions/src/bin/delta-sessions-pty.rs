//! The program `delta-sessions-pty`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delta_sessions::pty_cli::main()
}
