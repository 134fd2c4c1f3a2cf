//! Quotes text for command lines that a user can paste.

use crate::text::hidden_text::misleads_anywhere;
use std::path::Path;

/// Quotes `text` as one argument of a shell command.
pub fn shell_quote(text: &str) -> String {
    // An argument cannot contain a NUL, so dropping it loses nothing.
    shlex::try_quote(text).map_or_else(|_| shell_quote(&text.replace('\0', "")), Into::into)
}

/// Quotes `text` as one argument of a shell command for a person to read: characters that a terminal would not show as
/// they are become escapes in `$'...'`, which bash and zsh read back. Line ends and tabs stay as they are.
pub fn shell_quote_visibly(text: &str) -> String {
    let is_hidden = |c: char| !matches!(c, '\n' | '\t') && (c.is_control() || misleads_anywhere(c));
    if !text.contains(is_hidden) {
        return shell_quote(text);
    }
    let mut out = "$'".to_owned();
    for c in text.chars() {
        match c {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            '\r' => out.push_str("\\r"),
            c if is_hidden(c) && c.is_ascii() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_hidden(c) => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Quotes a path as one argument of a shell command. A path that starts with a hyphen gets `./`: it would be an option.
pub fn shell_quote_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    let prefix = if path.starts_with('-') { "./" } else { "" };
    shell_quote(&format!("{prefix}{path}"))
}
