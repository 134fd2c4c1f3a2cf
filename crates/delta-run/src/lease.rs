//! Ownership by turns without acting on it: the files in `lease/`, the decisions, and what the operator chose.

pub(crate) mod lease_files;
pub mod lease_policy;
pub mod turns;
