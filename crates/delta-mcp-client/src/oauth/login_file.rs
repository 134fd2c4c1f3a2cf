//! The file with a login, in the operator's state. A process that changes it holds its lock.

use delta_base::durable::{self, FileLock};
use delta_base::signal::CancelToken;
use delta_mcp::failure::McpFailure;
use delta_mcp::oauth::OAuthSettings;
use delta_mcp::oauth::saved_login::SavedLogin;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another process may hold the lock: longer than it waits for its issuer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The right to change a file with a login.
pub(super) struct LoginWriter<'a> {
    path: &'a Path,
    _lock: FileLock,
}

impl<'a> LoginWriter<'a> {
    /// Waits until no other process changes the file.
    pub(super) fn acquire(
        settings: &'a OAuthSettings,
        cancel: &CancelToken,
    ) -> Result<Self, McpFailure> {
        let path = settings.login_file.as_path();
        let fail = |error: durable::FileError| McpFailure::Unauthorized(error.to_string());
        if let Some(dir) = path.parent() {
            durable::ensure_private_dir_synced(dir).map_err(fail)?;
        }
        let lock_path = path.with_extension("lock");
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            if let Some(lock) = FileLock::try_acquire(&lock_path).map_err(fail)? {
                return Ok(Self { path, _lock: lock });
            }
            if cancel.wait(LOCK_INTERVAL) {
                return Err(McpFailure::Cancelled);
            }
            if Instant::now() >= deadline {
                let message = format!("another process does not release {}", lock_path.display());
                return Err(McpFailure::Unreachable(message));
            }
        }
    }

    /// Replaces the login. It is on the disk before a token of it is used: an issuer that gives new refresh tokens takes
    /// the old ones for stolen.
    pub(super) fn write(&self, login: &SavedLogin) -> Result<(), McpFailure> {
        durable::replace_private_synced(self.path, login.to_text().as_bytes())
            .map_err(|error| McpFailure::Unauthorized(error.to_string()))
    }
}
