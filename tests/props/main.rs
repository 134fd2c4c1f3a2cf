//! Properties of the tool language (C-2.5, C-2.6, C-2.9), shown with real shells.
//!
//! By default `quoting` runs 10,000 scripts (5,000 small, 5,000 large), each by both shells: 80 seconds of processor
//! time, under a minute on two free cores. The attacks (`soup`, `builtins`) run several thousand templates; what found
//! the last mistakes were some hundred thousand: `PROPTEST_CASES=200000 cargo test --test props soup`.
//! `PROPTEST_CASES=N` overrides the number of cases of every property.
#![allow(
    clippy::disallowed_methods,
    reason = "tests start the shells themselves, not through the engine"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod builtins;
mod expand;
mod maker;
mod quoting;
mod shells;
mod soup;
mod tape;
mod words;

/// What all properties have in common: a seed that is the same in every build, so that none fails by chance.
/// `PROPTEST_RNG_SEED=N` looks elsewhere.
fn base() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    let config = Config::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(20_261_121),
        fixed => fixed,
    };
    Config { rng_seed, ..config }
}
