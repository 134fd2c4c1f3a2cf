//! What every other crate builds on: time, text, ids, durable files, signals and the terminal.

pub mod time;
pub mod terminal_text;
pub mod text;
pub mod json_repair;
pub mod engine_variables;
pub mod error_text;
pub mod suggest;
pub mod redact;
pub mod url_secrets;
pub mod shell_quote;
pub mod hex;
pub mod id;
pub mod quantity;
pub mod random;
pub mod checksum;
pub mod json;
pub mod durable;
pub mod signal;
pub mod terminal;
pub mod api_key_names;
