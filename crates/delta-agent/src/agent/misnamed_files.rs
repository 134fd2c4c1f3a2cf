//! Files of an agent directory with a name that delta does not read, such as hooks.yml: an agent without its hooks would
//! run without its gates.

use super::{CONTEXT_FILE, MAIN_FILE};
use crate::hook::HOOKS_FILE;
use std::path::Path;

/// The names that authors write in place of the name of a file.
const MISNAMES: [(&str, &[&str]); 3] = [
    (MAIN_FILE, &["agent.yml"]),
    (CONTEXT_FILE, &["context.yml"]),
    (HOOKS_FILE, &["hooks.yml", "hook.yaml", "hook.yml"]),
];

/// What to do about a file in `home` that is not read because it should have the name `name`; `None` if there is none.
pub(super) fn misnamed_file_help(home: &Path, name: &str) -> Option<String> {
    let (_, misnames) = MISNAMES.iter().find(|(known, _)| *known == name)?;
    let misname = misnames.iter().find(|misname| home.join(misname).symlink_metadata().is_ok())?;
    Some(format!("delta does not read {misname}: rename it to {name}"))
}
