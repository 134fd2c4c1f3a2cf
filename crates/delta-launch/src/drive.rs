//! The commands that start, continue, answer and change runs, and how they find, claim and drive them.

pub mod apply;
pub mod approve;
pub mod continue_run;
pub mod conversation;
pub mod detach;
pub mod discard;
pub mod drive_agent;
pub mod export;
pub mod fork;
pub mod models;
pub mod next_steps;
pub mod pack;
pub mod replay;
pub mod rm;
pub mod rollback;
pub mod run;
pub mod sealer;
pub mod stop;
pub mod tell;
pub mod trust;
