//! Black-box tests through the built program: real processes, real files, a scripted or a strict LLM. One file for each
//! promise.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, start real processes, and say what could not be proven"
)]

mod agent_loading;
mod damage;
mod execution;
mod faults;
mod list_runs;
mod order;
mod ownership;
mod resume;
mod run_loop;
mod runs;
mod signals;
mod smoke;
mod workspaces;

/// The program under test.
const DELTA: &str = env!("CARGO_BIN_EXE_delta");
