//! Runs that are already there: how they are named, found and listed, whose they are, their restore points, stages and pages.

pub mod agent_hint;
pub mod agent_store;
pub mod approval_preview;
pub mod git;
pub mod own_run;
pub mod page;
pub mod page_server;
pub mod restore_point;
pub mod run_argument;
pub mod run_arguments;
pub mod run_input;
pub mod run_list;
pub mod run_watch;
pub mod separate_copy;
pub mod stage;
pub mod transfers;
