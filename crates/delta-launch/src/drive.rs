//! The commands that start, continue, answer and change runs, and how they find, claim and drive them.

pub mod apply;
pub mod approval_preview;
pub mod approve;
pub mod continue_run;
pub mod discard;
pub mod drive_agent;
pub mod fork;
pub mod next_steps;
pub mod pack;
pub mod page_server;
pub mod restore_point;
pub mod rm;
pub mod rollback;
pub mod run;
pub mod run_argument;
pub mod run_list;
pub mod sealer;
pub mod stage;
pub mod stop;
pub mod trust;
