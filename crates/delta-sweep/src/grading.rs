//! Graders, and the scores that they gave.

pub mod graded_inputs;
pub mod grader_program;
pub mod run_grader;
pub mod sweep_scores;
