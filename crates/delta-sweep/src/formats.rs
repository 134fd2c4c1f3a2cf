//! The files of a sweep, and what can be decided from them.

pub mod canonical_json;
pub mod chain_change;
pub mod csv;
pub mod grade;
pub mod grade_source;
pub mod grader;
pub mod host_grant;
pub mod ignored_inputs;
pub mod input;
pub mod placeholder;
pub mod plan;
pub mod plan_file;
pub mod recorded_input;
pub mod result_line;
pub mod retry_policy;
pub mod run_settings;
pub mod selection;
pub mod slurm_array;
pub mod summary;
pub mod sweep_file;
