//! What the tests of delta share.

pub mod normal;
pub mod pty;
pub mod sandbox;
pub mod server;
pub mod wait;
