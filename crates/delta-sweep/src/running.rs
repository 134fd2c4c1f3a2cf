//! The processes of runs, and what is known of runs while they are worked on.

pub mod continued_runs;
pub mod delta_program;
pub mod host_grants;
pub mod line_writer;
pub mod measured_runs;
pub mod recorded_start;
pub mod result_reader;
pub mod run_choice;
pub mod run_pool;
pub mod run_standing;
pub mod run_starter;
pub mod status_painter;
pub mod sweep_record;
