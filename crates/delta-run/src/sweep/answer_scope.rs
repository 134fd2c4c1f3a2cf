//! Which stored answers a run of a sweep shares.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The environment variable of a run with its [`AnswerScope`], as JSON. The runs that its tools start do not get it.
pub const ANSWERS_VARIABLE: &str = "DELTA_ANSWERS";

/// The answers that a run shares: of runs on the same input with the same number of the repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerScope {
    /// The directory of the answers.
    pub dir: PathBuf,
    /// The id of the input.
    pub input: String,
    /// The number of the repeat.
    pub repeat: u32,
}
