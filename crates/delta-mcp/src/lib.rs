//! The Model Context Protocol, both eras, as far as delta speaks it: messages, their framing, a client, the lock file, and
//! the process that holds a connection for a run.
//!
//! Written by hand and synchronous: a request of the modern era has one answer, and the legacy era adds an opening of two
//! messages.

pub mod client;
pub mod failure;
pub mod holder;
mod http_transport;
pub mod json_rpc;
pub mod line_framing;
mod param_header;
pub mod lock_file;
pub mod peer_input;
pub mod protocol_era;
pub mod server_sandbox;
pub mod server_spec;
pub mod server_task;
mod stdio_transport;
pub mod tool_result;
pub mod tool_session;
mod wake_signal;
