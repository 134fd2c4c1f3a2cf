//! Plans: what they are made of, and how they are read.

pub mod agent_chain;
pub mod base_agents;
pub mod former_runs;
pub mod git;
pub mod input_reader;
pub mod plan_checks;
pub mod plan_reader;
pub mod plan_sources;
pub mod recorded_runs;
pub mod source_copies;
pub mod sweep_keys;
