//! Sweeps: many runs from one immutable plan.
//!
//! This crate has the formats as types, and everything that can be decided from them: which runs a sweep.yaml means, which id
//! each has, what a result line says, which runs are settled, selected or left.
//! It starts no process and writes no file; the program does both.

pub mod canonical_json;
pub mod csv;
pub mod grade;
pub mod grade_source;
pub mod grader;
pub mod host_grant;
pub mod input;
pub mod layout;
pub mod page_data;
pub mod pair_table;
pub mod placeholder;
pub mod plan;
pub mod plan_file;
pub mod result_line;
pub mod retry_policy;
pub mod run_settings;
pub mod score_table;
pub mod score_text;
pub mod selection;
pub mod slurm_array;
pub mod summary;
pub mod sweep_file;
pub mod sweep_schema;
pub mod worker_state;
pub mod zip_archive;
