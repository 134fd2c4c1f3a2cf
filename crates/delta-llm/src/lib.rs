//! The providers that answer a request: an HTTP endpoint, a script, a command, a recording.

pub mod llm;
