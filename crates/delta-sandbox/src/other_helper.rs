//! What a system other than Linux has in place of [`crate::helper`].
#![cfg(not(target_os = "linux"))]

use std::process::ExitCode;

/// Always fails.
pub fn run_helper() -> ExitCode {
    ExitCode::FAILURE
}

pub(crate) mod stage_mounts {
    use crate::kernel::other_system::unsupported;
    use crate::plan::stage_layers::StageError;
    use std::os::fd::OwnedFd;

    pub(crate) fn join_stage(_: &[OwnedFd]) -> Result<(), StageError> {
        Err(StageError::new(unsupported().to_string()))
    }
}
