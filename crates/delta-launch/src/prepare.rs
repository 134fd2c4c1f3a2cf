//! From arguments to an agent that is ready for a run: options, limits, sandbox, endpoint, observer. Changes no run.

pub mod agent_choice;
pub mod agent_template;
pub mod anchor;
pub mod approve_options;
pub mod budget;
pub mod builtin_agent;
pub mod completion_candidates;
pub mod editor_schema;
pub mod endpoint;
pub mod images;
pub mod mcp_servers;
pub mod message;
pub mod observer;
pub mod options;
pub mod prepared_agent;
pub mod project_skills;
pub mod run_result;
pub mod run_sandbox;
pub mod served_output;
pub mod terminal_prompt;
