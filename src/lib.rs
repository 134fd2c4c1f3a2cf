//! delta runs AI agents the Unix way: an agent is a directory of plain files, every tool is an ordinary command, and
//! everything that happened is one append-only file.
//!
//! The crate is made for its programs; its promise to the world is their behaviour and the formats of their files, not
//! this API. The modules are listed lowest first: each uses only those above it. ARCHITECTURE.md is the map.

// Values: no input, no output.
pub mod time;
pub mod text;
pub mod diag;
pub mod id;
pub mod vars;
pub mod tokens;
pub mod crc;
pub mod json;
pub mod transcript;

// The outside world: one file for each side effect.
pub mod durable;
pub mod signal;
pub mod process;
pub mod terminal;
pub mod yaml;
pub mod http;

// The LLM.
pub mod llm;

// A run and its facts.
pub mod event;
pub mod conversation;
pub mod timeline;
pub mod state;
pub mod history;
pub mod comparison;
pub mod ownership;
pub mod limits;
pub mod ledger;
pub mod journal;
pub mod record;
pub mod snapshot;
pub mod composition;
pub mod run;
pub mod workspace;
pub mod fork;
pub mod family;
pub mod kept;

// What an agent is made of.
pub mod environment;
pub mod tool;
pub mod context;
pub mod hook;
pub mod human;
pub mod agent;
pub mod agent_test;
pub mod schema;
pub mod lint;
pub mod migrate;

// The loop, and what surrounds it.
pub mod engine;
pub mod replay;
pub mod outcome;
pub mod output;
pub mod export;
pub mod progress;
pub mod view;

// The programs.
pub mod session;
pub mod cli;
