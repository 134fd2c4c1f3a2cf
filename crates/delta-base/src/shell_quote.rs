//! Quotes text for command lines that a user can paste.

use std::path::Path;

/// Quotes `text` as one argument of a shell command.
pub fn shell_quote(text: &str) -> String {
    // An argument cannot contain a NUL, so dropping it loses nothing.
    shlex::try_quote(text).map_or_else(|_| shell_quote(&text.replace('\0', "")), Into::into)
}

/// Quotes a path as one argument of a shell command. A path that starts with a hyphen gets `./`: it would be an option.
pub fn shell_quote_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    let prefix = if path.starts_with('-') { "./" } else { "" };
    shell_quote(&format!("{prefix}{path}"))
}
