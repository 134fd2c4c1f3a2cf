//! The Model Context Protocol, both eras, as far as delta speaks it: messages, their framing, the lock file, and what the
//! engine hands to the process that holds a connection. It opens no connection.

pub mod failure;
pub mod holder_config;
pub mod json_rpc;
pub mod line_framing;
pub mod lock_file;
pub mod oauth;
pub mod peer_input;
pub mod protocol_era;
pub mod server_sandbox;
pub mod server_spec;
pub mod tool_result;
