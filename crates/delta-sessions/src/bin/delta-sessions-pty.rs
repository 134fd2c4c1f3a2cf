//! The program `delta-sessions-pty`.

use delta_program::stdio;
use std::process::ExitCode;

fn main() -> ExitCode {
    stdio::finish_output(delta_sessions::pty_cli::main())
}
