//! Black-box tests through the built program: real processes, real files, a scripted or a strict LLM. One file for each
//! promise.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests may, and start real processes"
)]

mod agent_loading;
mod agent_sections;
mod ask_human;
mod context;
mod disk;
mod execution;
mod llm;
mod order;
mod output;
mod progress;
mod records;
mod run_loop;
mod security;
mod show;
mod signals;
mod smoke;
mod tool_expand;
mod workspace_choice;
mod workspaces;

/// The program under test.
const DELTA: &str = env!("CARGO_BIN_EXE_delta");
