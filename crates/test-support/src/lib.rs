//! What the tests of delta share.
#![allow(clippy::disallowed_methods, reason = "tests start real processes")]

pub mod normal;
pub mod pty;
pub mod running;
pub mod sandbox;
pub mod server;
pub mod wait;
