//! Requests to LLMs and their answers in the forms of the endpoints, without a connection; and the providers that need none:
//! a script, a command, a recording.

pub mod llm;
