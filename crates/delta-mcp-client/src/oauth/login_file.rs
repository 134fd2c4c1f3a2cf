//! The file with a login, in the operator's state. A process that changes it holds its lock.

use delta_base::durable::{self, FileLock};
use delta_base::signal::CancelToken;
use delta_mcp::failure::McpFailure;
use delta_mcp::oauth::OAuthSettings;
use delta_mcp::oauth::saved_login::SavedLogin;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another process may hold the lock: longer than it waits for its issuer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The login of the server at `url`, if there is one.
///
/// # Errors
/// The file cannot be read, or has no login of this server.
pub fn read_login(settings: &OAuthSettings, url: &str) -> Result<Option<SavedLogin>, McpFailure> {
    let path = &settings.login_file;
    let text = match durable::read_regular_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let message = format!("could not read {}: {error}", path.display());
            return Err(McpFailure::Unauthorized(message));
        }
    };
    SavedLogin::parse(&text, url).map(Some).map_err(|problem| {
        McpFailure::Unauthorized(format!(
            "could not read the login in {}: {problem}; replace it: {}",
            path.display(),
            settings.login_command
        ))
    })
}

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
