//! What the tests of delta share.

pub mod sandbox;
pub mod server;
pub mod wait;
