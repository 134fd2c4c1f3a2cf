//! An agent that is ready for a run, with its endpoint and its observer. Changes no run.

pub mod download;
pub mod endpoint;
pub mod images;
pub mod observer;
pub mod prepared_agent;
pub mod run_result;
