//! An agent directory: its tools, context, hooks and settings, loaded and checked as a whole.

pub mod agent;
pub mod allowed_calls;
pub mod approval_prompt;
pub mod ask_human;
pub mod child_environment;
pub mod config_grants;
pub mod context;
pub mod file_preview;
pub mod git_places;
pub mod hook;
pub mod json_schema;
pub mod mcp_server;
pub mod run_sandbox;
pub mod skill;
pub mod tool;
pub mod trust_store;
