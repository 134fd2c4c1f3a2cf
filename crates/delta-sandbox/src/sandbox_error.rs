//! Why a sandbox cannot be prepared.

use crate::profile::Guarantee;
use std::io;
use std::path::PathBuf;

/// A guarantee that cannot be given here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingGuarantee {
    /// The guarantee.
    pub guarantee: Guarantee,
    /// Why, as a fragment.
    pub reason: String,
    /// What to change, as a sentence without a full stop; `None` if nothing helps.
    pub remedy: Option<String>,
}

/// A sandbox cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Guarantees of the profile do not hold here, and were not waived.
    #[error("the sandbox cannot be enforced here: {}", guarantee_names(.0))]
    Missing(Vec<MissingGuarantee>),
    /// A path of the profile cannot be used.
    #[error("the sandbox cannot use `{}`: {reason}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why, as a fragment.
        reason: String,
    },
    /// What must not be possible in the sandbox is possible.
    #[error("the sandbox failed its own check: {0}")]
    Canary(String),
    /// Anything else.
    #[error("the sandbox could not be prepared: {0}")]
    Failed(String),
}

fn guarantee_names(missing: &[MissingGuarantee]) -> String {
    missing.iter().map(|one| one.guarantee.name()).collect::<Vec<_>>().join(", ")
}

/// The text of a system error, without its number.
pub(crate) fn plain_error(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
