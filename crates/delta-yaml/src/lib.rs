//! Reads YAML into a tree with positions, and collects diagnostics that point into the file.

pub mod diagnostic;
pub mod yaml;
