//! Why a sandbox cannot be prepared.

use crate::profile::Guarantee;
use std::path::PathBuf;
use std::{fmt, io};

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
#[derive(Debug)]
pub enum SandboxError {
    /// Guarantees of the profile do not hold here, and were not waived.
    Missing(Vec<MissingGuarantee>),
    /// A path of the profile cannot be used.
    Path {
        /// The path.
        path: PathBuf,
        /// Why, as a fragment.
        reason: String,
    },
    /// What must not be possible in the sandbox is possible.
    Canary(String),
    /// Anything else.
    Failed(String),
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => {
                let names: Vec<&str> = missing.iter().map(|one| one.guarantee.name()).collect();
                write!(f, "the sandbox cannot be enforced here: {}", names.join(", "))
            }
            Self::Path { path, reason } => {
                write!(f, "the sandbox cannot use `{}`: {reason}", path.display())
            }
            Self::Canary(reason) => write!(f, "the sandbox failed its own check: {reason}"),
            Self::Failed(reason) => write!(f, "the sandbox could not be prepared: {reason}"),
        }
    }
}

impl std::error::Error for SandboxError {}

/// The text of a system error, without its number.
pub(crate) fn plain_error(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
