//! `delta add`: agents that come from elsewhere. Nothing here starts a program of such an agent.

pub mod add;
mod agent_archive;
mod agent_location;
mod agent_repository;
mod agent_review;
