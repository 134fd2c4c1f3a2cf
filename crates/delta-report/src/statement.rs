//! Statements: what made the changes of a run, as in-toto Statement v1 with the predicate SLSA Provenance v1.
//!
//! [`crate::export::in_toto`] makes the statement of a run, [`envelope`] signs it, and [`verify_statement`] checks it.

pub mod checkout;
pub mod document;
pub mod envelope;
mod run_comparison;
pub mod verify_statement;
pub mod workspace_trees;
