//! Properties of the tool language (C-2.5, C-2.6, C-2.9), shown with real shells.
//!
//! `PROPTEST_CASES=N` overrides the number of cases of every property. By default each runs as many as fit into about a
//! minute; the bar of 10,000 scripts for the quoting property is what the default of `quoting` adds up to.
#![allow(
    clippy::disallowed_methods,
    reason = "tests start the shells themselves, not through the engine"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod expand;
mod maker;
mod quoting;
mod shells;
mod soup;
mod tape;
mod words;
