//! Black-box tests through the built session programs: real shells, interpreters and terminals.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, start real processes, and say what could not be proven"
)]

mod sessions;
mod sessions_pty;
