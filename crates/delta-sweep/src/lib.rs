//! Sweeps: many runs from one immutable plan. The program `delta-sweep`, which `delta sweep` starts.
//!
//! [`formats`] and [`scores`] have the formats as types, and everything that can be decided from them: which runs a sweep.yaml
//! means, which id each has, what a result line says, which runs are settled, selected or left. They start no process and
//! write no file.
//! The commands start `delta run --ensure` for each run, and drive no run themselves.

pub mod cli;
mod commands;
pub mod formats;
mod grading;
mod planning;
mod running;
pub mod scores;
