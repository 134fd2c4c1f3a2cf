//! What this operator has on this machine: configuration, keys, state, environment, trust and prices; how a command fails;
//! what its [`arguments`] choose; and the [`runs`] that exist. Nothing here opens a connection or
//! drives a run.

pub mod api_key;
pub mod arguments;
pub mod build_info;
pub mod cancel;
pub mod command_line;
pub mod config;
pub mod endpoints;
pub mod env_files;
pub mod environment;
pub mod failure;
pub mod global_options;
pub mod lease_options;
pub mod manual_page;
pub mod prices;
pub mod read_threads;
pub mod runs;
pub mod runs_dir;
pub mod sandbox_options;
pub mod state;
pub mod trust;
