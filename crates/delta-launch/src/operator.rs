//! What this operator has on this machine: configuration, keys, state, environment, trust, prices and runs of their own; and
//! how a command fails.

pub mod api_key;
pub mod build_info;
pub mod cancel;
pub mod command_line;
pub mod config;
pub mod env_files;
pub mod environment;
pub mod failure;
pub mod global_options;
pub mod lease_options;
pub mod manual_page;
pub mod models;
pub mod own_run;
pub mod page;
pub mod prices;
pub mod read_threads;
pub mod runs_dir;
pub mod sandbox_options;
pub mod state;
pub mod trust;
