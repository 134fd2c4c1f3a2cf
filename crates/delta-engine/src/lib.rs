//! The loop that runs an agent, which never prints; and what its operator sees, for the programs that launch it.

pub mod engine;
pub mod progress;
pub mod result_output;
