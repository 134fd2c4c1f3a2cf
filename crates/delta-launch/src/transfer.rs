//! The commands that move runs to other places: `delta send` and `delta receive`.

pub mod receive;
mod redaction;
mod remote;
pub mod send;
