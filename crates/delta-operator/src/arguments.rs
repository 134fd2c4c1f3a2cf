//! What the arguments of a command say: the agent with its template, sandbox and servers, the options of a run, its limits, its
//! message, and who is asked.

pub mod agent_choice;
pub mod agent_template;
pub mod anchor;
pub mod approve_options;
pub mod budget;
pub mod builtin_agent;
pub mod completion_candidates;
pub mod conversation;
pub mod editor_schema;
pub mod mcp_servers;
pub mod message;
pub mod options;
pub mod project_skills;
pub mod run_sandbox;
pub mod served_output;
pub mod terminal_prompt;
