//! What the grades of a sweep say: scores, pairs, where a run was lost, their texts and their page.

pub mod bisect_text;
pub mod chain_search;
pub mod cost_estimate;
pub mod fork_search;
pub mod gate_runs;
pub mod loss_text;
pub mod page_data;
pub mod pair_table;
pub mod score_table;
pub mod score_text;
pub mod setting_race;
pub mod setting_table;
pub mod step_text;
pub mod verdict;
pub mod verdict_text;
