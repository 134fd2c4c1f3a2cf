//! What every other crate builds on: time, text, ids, durable files, signals and the terminal.

pub mod api_key_names;
pub mod checksum;
pub mod durable;
pub mod engine_variables;
pub mod error_text;
pub mod hex;
pub mod id;
pub mod json;
pub mod json_repair;
pub mod quantity;
pub mod random;
pub mod redact;
pub mod shell_quote;
pub mod signal;
pub mod suggest;
pub mod terminal;
pub mod terminal_text;
pub mod text;
pub mod time;
pub mod url_secrets;
