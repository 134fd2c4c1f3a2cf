//! Reads finished and active runs: comparison, replay, export and HTML pages.

pub mod export;
pub mod journal_chain;
pub mod replay;
pub mod request_breakdown;
pub mod run_cost;
pub mod run_diff;
pub mod run_load;
pub mod run_names;
pub mod statement;
pub mod sweep_facts;
pub mod verify;
pub mod view;
