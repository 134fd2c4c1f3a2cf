//! The commands for authors of agents, and the checks of a machine.

pub mod doctor;
pub mod init;
pub mod init_provider;
pub mod lint;
pub mod migrate;
pub mod sandbox;
pub mod schema;
pub mod skill;
pub mod test;
pub mod tool;
pub mod tool_holder;
