//! File names of older agent directories.

use super::MAIN_FILE;
use std::path::Path;
use std::{fs, io};

const OLD_MAIN_FILE: &str = "config.yaml";

/// The prefix of every deprecation warning.
pub(super) const DEPRECATION_WARNING: &str = "[DEPRECATION WARNING]";

/// Whether this user may not look for the main file in `home`, which may be there: reading it fails with the reason.
pub fn is_unsearchable(home: &Path) -> bool {
    let main_file = fs::symlink_metadata(home.join(MAIN_FILE));
    main_file.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The name of the main file in `home`; advice for the operator is added to `warnings`.
pub(super) fn find_main_file(home: &Path, warnings: &mut Vec<String>) -> Option<&'static str> {
    // A dangling symlink counts: an older file must not replace its target.
    let has = |name: &str| fs::symlink_metadata(home.join(name)).is_ok();
    match (has(MAIN_FILE) || is_unsearchable(home), has(OLD_MAIN_FILE)) {
        (true, true) => {
            warnings.push(format!(
                "Warning: {0} has both {MAIN_FILE} and {OLD_MAIN_FILE}; {MAIN_FILE} is used, {OLD_MAIN_FILE} is not read",
                home.display()
            ));
            Some(MAIN_FILE)
        }
        (true, false) => Some(MAIN_FILE),
        (false, true) => {
            warnings.push(format!(
                "{DEPRECATION_WARNING} {} is the old name of {MAIN_FILE}; rename it",
                home.join(OLD_MAIN_FILE).display()
            ));
            Some(OLD_MAIN_FILE)
        }
        (false, false) => None,
    }
}
