//! The token that the signals of this process set.

use crate::failure::CommandFailure;
use delta_base::signal::CancelToken;
use std::sync::OnceLock;

/// The token that signals set. The first call installs the handlers.
pub fn install_cancel() -> Result<CancelToken, CommandFailure> {
    static CANCEL: OnceLock<CancelToken> = OnceLock::new();
    if let Some(cancel) = CANCEL.get() {
        return Ok(cancel.clone());
    }
    let cancel = CancelToken::from_signals().map_err(|error| {
        CommandFailure::config(format!("could not install the signal handlers: {error}"), None)
    })?;
    Ok(CANCEL.get_or_init(|| cancel).clone())
}
