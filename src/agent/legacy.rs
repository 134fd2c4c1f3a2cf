//! Names that agent directories had before, and still may have.

use super::MAIN_FILE;
use std::fs;
use std::path::Path;

/// What agent.yaml was called.
const OLD_NAME: &str = "config.yaml";

/// How the warning of something that is old begins.
pub(super) const DEPRECATED: &str = "[DEPRECATION WARNING]";

/// The name of the main file in `home`; what a person should change about it goes into `warnings`.
pub(super) fn main_file(home: &Path, warnings: &mut Vec<String>) -> Option<&'static str> {
    // A link that leads nowhere is there: what it should be is not to be replaced by something older.
    let has = |name: &str| fs::symlink_metadata(home.join(name)).is_ok();
    match (has(MAIN_FILE), has(OLD_NAME)) {
        (true, true) => {
            warnings.push(format!(
                "Warning: {0} has both {MAIN_FILE} and {OLD_NAME}; {MAIN_FILE} is used, {OLD_NAME} is not read",
                home.display()
            ));
            Some(MAIN_FILE)
        }
        (true, false) => Some(MAIN_FILE),
        (false, true) => {
            warnings.push(format!(
                "{DEPRECATED} {} is the old name of {MAIN_FILE}; rename it",
                home.join(OLD_NAME).display()
            ));
            Some(OLD_NAME)
        }
        (false, false) => None,
    }
}
