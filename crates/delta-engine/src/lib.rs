//! The loop that runs an agent, its result and its progress.

pub mod engine;
pub mod run_result;
pub mod result_output;
pub mod progress;
