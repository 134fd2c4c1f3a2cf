//! What the operator says about how this process owns runs.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How runs are owned from now on, if nothing else decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaseChoice {
    /// With the lock on a file system of one kernel, by turns on every other.
    #[default]
    Auto,
    /// With the lock.
    Flock,
    /// By turns.
    Turns,
}

/// What the operator says about ownership.
#[derive(Debug, Clone, Copy)]
pub struct LeasePolicy {
    /// How runs are owned that are not owned by turns already.
    pub choice: LeaseChoice,
    /// After how long a process of another host that shows no sign of life is replaced.
    pub ttl: Duration,
}

impl LeasePolicy {
    /// The time after which a silent process is replaced.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(70);
}

impl Default for LeasePolicy {
    fn default() -> Self {
        Self { choice: LeaseChoice::Auto, ttl: Self::DEFAULT_TTL }
    }
}

static LEASE_POLICY: RwLock<Option<LeasePolicy>> = RwLock::new(None);

/// Sets the policy of this process. Call this before a run is claimed.
pub fn set_lease_policy(policy: LeasePolicy) {
    *LEASE_POLICY.write().unwrap_or_else(PoisonError::into_inner) = Some(policy);
}

pub(crate) fn lease_policy() -> LeasePolicy {
    LEASE_POLICY.read().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
}

pub(crate) fn lease_ttl() -> Duration {
    lease_policy().ttl
}
