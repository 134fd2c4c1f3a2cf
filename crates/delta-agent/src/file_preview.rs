//! What a call would do to a file of the workspace, as a unified diff for the person who approves the call.

use crate::tool::ToolPreview;
use delta_base::durable;
use delta_base::text::text_diff::LineDiff;
use serde_json::Value as Json;
use std::io;
use std::path::Path;

/// The largest file that is compared.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The change that a call with these arguments would make, or why it cannot be shown. The file is read now, beneath
/// `workspace` and without following a symlink.
pub fn preview_file_change(preview: &ToolPreview, arguments: &Json, workspace: &Path) -> String {
    let argument = |name: &str| arguments.get(name).and_then(Json::as_str);
    let Some((path, content)) = argument(&preview.path).zip(argument(&preview.content)) else {
        return "no preview: the call has no path or no content\n".to_owned();
    };
    let name = Path::new(path);
    let name = name.strip_prefix(workspace).unwrap_or(name);
    let before = match durable::read_beneath(workspace, name, MAX_FILE_BYTES) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(_) => return format!("no preview: {path} is not UTF-8 text\n"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return format!("no preview: could not read {path}: {error}\n"),
    };
    let old = before.as_deref().unwrap_or_default();
    let new = match preview.replaces.as_deref() {
        None => content.to_owned(),
        Some(replaces) => {
            let Some(replaced) = argument(replaces) else {
                return format!("no preview: the call has no `{replaces}`\n");
            };
            match old.matches(replaced).count() {
                1 if !replaced.is_empty() => old.replacen(replaced, content, 1),
                count => {
                    return format!(
                        "no preview: {path} has the text of `{replaces}` {count} times\n"
                    );
                }
            }
        }
    };
    if before.is_some() && old == new {
        return format!("{path} does not change\n");
    }
    let from = if before.is_some() { format!("a/{path}") } else { "/dev/null".to_owned() };
    LineDiff::new(old, &new, 3).with_names(&from, &format!("b/{path}"))
}
