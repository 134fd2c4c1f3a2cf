//! Tools for authors of agents: [`lint`] finds mistakes before a run, [`agent_test`] runs the tests of an agent, [`schema`]
//! describes its files to editors, and [`migration`] converts agents from older formats.

pub mod agent_test;
pub mod lint;
pub mod migration;
pub mod schema;
pub mod sweep_schema;
