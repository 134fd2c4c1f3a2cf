//! The network of a list of hosts, with real programs that know no proxy. Servers on the loopback of the machine are the
//! outside; a table of names like /etc/hosts leads there.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests start real processes, panic, and report what could not be tested"
)]

mod attacks;
mod namespace;
mod programs;
mod relays;
