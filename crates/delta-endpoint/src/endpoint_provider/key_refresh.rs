//! A key that a command prints, and prints again when it has expired.

use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_llm::llm::LlmError;
use delta_llm::llm::endpoint::{ApiKey, KeySource};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// When to read a key again, and where from.
#[derive(Clone)]
pub struct KeyRefresh {
    source: Rc<dyn KeySource>,
    /// How long a key is used; `None` until the endpoint rejects it.
    max_age: Option<Duration>,
    read_at: Instant,
    /// Gets every key.
    secrets: Secrets,
}

impl fmt::Debug for KeyRefresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRefresh").finish_non_exhaustive()
    }
}

impl KeyRefresh {
    /// The refresh of a key that `source` has just given. Every later key becomes one of `secrets`.
    pub fn new(source: Rc<dyn KeySource>, max_age: Option<Duration>, secrets: Secrets) -> Self {
        Self { source, max_age, read_at: Instant::now(), secrets }
    }

    /// What to do about a key that the endpoint rejects.
    pub(super) fn rejection_hint(&self) -> String {
        let source = self.source.description();
        format!(
            "{source} prints a key that the endpoint rejects: run it yourself, and log in again"
        )
    }

    /// Whether the key is too old to be used.
    pub fn is_due(&self) -> bool {
        self.max_age.is_some_and(|age| self.read_at.elapsed() >= age)
    }

    /// Reads the key.
    pub(super) fn read_key(&mut self, cancel: &CancelToken) -> Result<ApiKey, LlmError> {
        let key = self.source.read_key(cancel)?;
        self.secrets.add(&key);
        self.read_at = Instant::now();
        Ok(ApiKey::new(key))
    }
}
