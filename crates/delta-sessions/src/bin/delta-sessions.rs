//! The program `delta-sessions`.

use delta_program::stdio;
use std::process::ExitCode;

fn main() -> ExitCode {
    stdio::finish_output(delta_sessions::cli::main())
}
