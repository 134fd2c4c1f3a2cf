//! A run: its events, journal, state, io/ records, ownership, budget and directory.

pub mod budget;
pub mod chain;
pub mod conversation;
pub mod event;
pub mod fork;
pub mod interaction_request;
pub mod journal;
pub mod lease;
pub mod limits;
pub mod mailbox;
pub mod ownership;
pub mod record;
pub mod run;
pub mod run_files;
pub mod run_result;
pub mod run_summary;
pub mod run_tree;
pub mod state;
pub mod sweep;
pub mod workspace;
