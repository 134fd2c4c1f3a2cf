//! The program `delta`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delta::cli::main()
}
