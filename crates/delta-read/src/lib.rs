//! The commands that read runs.

pub mod context;
pub mod diff;
pub mod inbox;
pub mod list_runs;
pub mod live_view;
pub mod show;
pub mod verify;
pub mod view;
