//! The program `delta-sweep`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delta_sweep::cli::main()
}
