//! Black-box tests through the built program: real processes, real files, a scripted or a strict LLM. One file for each
//! promise.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, start real processes, and say what could not be proven"
)]

mod acp;
mod agent_choice;
mod agent_loading;
mod agent_sections;
mod agent_tests;
mod agents_md;
mod approvals;
mod ask_human;
mod binary_output;
mod budget;
mod changed_runs;
mod coding_agent;
mod coding_projects;
mod colours;
mod context;
mod context_budget;
mod context_command;
mod context_keys;
mod context_sources;
mod context_texts;
mod copies;
mod corpus_runs;
mod damage;
mod diff_runs;
mod disk;
mod disk_limit;
mod doctor;
mod dotenv;
mod endings;
mod ends_run;
mod examples;
mod execution;
mod export;
mod export_send;
mod faults;
mod finish_required;
mod first_minute;
mod fork;
mod fork_files;
mod git;
mod hook_faults;
mod hook_files;
mod hook_moments;
mod hooks;
mod images;
mod imports;
mod init;
mod limits;
mod lint;
mod live;
mod list_runs;
mod llm;
mod llm_settings;
mod mcp_serve;
mod memory_folding;
mod migrate;
mod models;
mod nested;
mod object_parameters;
mod operator_config;
mod order;
mod output;
mod pack;
mod parallel;
mod ownership;
mod piped_task;
mod prices;
mod progress;
mod records;
mod remove_runs;
mod replay;
mod resume;
mod run_loop;
mod run_names;
mod run_tree;
mod runs;
mod runs_dir;
mod run_selection;
mod sandbox;
mod sandbox_changes;
mod sandbox_defaults;
mod sandbox_display;
mod sandbox_parts;
mod sandbox_programs;
mod sandbox_runs;
mod schemas;
mod security;
mod shells;
mod show;
mod signals;
mod skills;
mod smoke;
mod staged;
mod staged_calls;
mod staged_places;
mod stop;
mod surviving;
mod snapshots;
mod terminal_notes;
mod throttling;
mod tool_expand;
mod units;
mod verify;
mod view;
mod workspace_choice;
mod workspaces;

/// The program under test.
const DELTA: &str = env!("CARGO_BIN_EXE_delta");
