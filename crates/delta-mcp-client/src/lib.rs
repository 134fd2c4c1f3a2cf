//! A client of the Model Context Protocol, both eras, the process that holds a connection for a run, and the commands for
//! servers.
//!
//! Written by hand and synchronous: a request of the modern era has one answer, and the legacy era adds an opening of two
//! messages.

pub mod client;
pub mod commands;
pub mod holder;
mod http_transport;
pub mod oauth;
mod param_header;
mod server_task;
mod stdio_transport;
pub mod tool_session;
mod wake_signal;
