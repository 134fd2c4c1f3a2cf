//! Rates, means and comparisons of repeated runs, with intervals that hold.
//!
//! Inputs differ in difficulty, so repeats of one input are not independent: an interval that counts every run as a sample of
//! its own is too narrow.
//! Everything here therefore works on *clusters*: the scores of one input (or of one group of inputs), of which the means are
//! independent of each other.
//! Pure code: the same scores and the same seed give the same numbers, in every version and on every machine.

pub mod comparison;
pub mod estimate;
pub mod frontier;
mod normal;
pub mod pass;
mod resampling;
#[cfg(test)]
mod scipy;
pub mod sequential;
pub mod step;
mod student_t;
