//! Serving agents to editors and other programs: ACP, MCP, and the runs that work for a client.

pub mod acp;
pub mod mcp_serve;
pub mod peers;
pub mod question_form;
pub mod supervisor;
