//! What the tests of delta share.

pub mod server;
