//! The program `delta-sessions-pty`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delta::cli::sessions_pty::main()
}
