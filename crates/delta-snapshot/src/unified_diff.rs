//! Changes as unified diffs in the format of git.

use super::tree::{EntryKind, TreeEntry};
use super::{SnapshotChange, SnapshotError, SnapshotStore};
use delta_base::text::text_diff::LineDiff;

/// Larger files are only reported as different.
const MAX_DIFF_BYTES: u64 = 4 << 20;

/// A change as a unified diff in the format of git.
#[derive(Debug)]
pub struct RenderedChange {
    /// The diff.
    pub text: String,
    /// The number of added lines.
    pub added: usize,
    /// The number of removed lines.
    pub removed: usize,
    /// Whether both contents are text.
    pub is_text: bool,
}

/// Renders a change; `store` has the contents.
pub fn render_change(
    store: &SnapshotStore,
    change: &SnapshotChange,
) -> Result<RenderedChange, SnapshotError> {
    let without_directory = |entry: &Option<TreeEntry>| {
        entry.clone().filter(|entry| entry.kind != EntryKind::Directory)
    };
    let before = without_directory(&change.before);
    let after = without_directory(&change.after);
    let path = &change.path;
    let mut rendered =
        RenderedChange { text: directory_line(change), added: 0, removed: 0, is_text: false };
    match (before.as_ref(), after.as_ref()) {
        (None, None) => {}
        // Like git: a file that becomes a symlink is deleted, and the symlink is new.
        (Some(old), Some(new)) if old.kind != new.kind => {
            append_file_diff(store, path, Some(old), None, &mut rendered)?;
            append_file_diff(store, path, None, Some(new), &mut rendered)?;
        }
        (old, new) => append_file_diff(store, path, old, new, &mut rendered)?,
    }
    Ok(rendered)
}

/// A line for a directory that is empty or has a new mode; git has no such entries and skips the line.
fn directory_line(change: &SnapshotChange) -> String {
    let mode = |entry: &Option<TreeEntry>| {
        let directory = entry.as_ref().filter(|entry| entry.kind == EntryKind::Directory);
        directory.map(|entry| format!("{:04o}", entry.mode))
    };
    let path = quote_git_path("", &change.path);
    match (mode(&change.before), mode(&change.after)) {
        (None, None) => String::new(),
        (None, Some(mode)) => format!("New directory {path}, mode {mode}\n"),
        (Some(_), None) => format!("Deleted directory {path}\n"),
        (Some(before), Some(after)) => format!("Directory {path}, mode {before}, now {after}\n"),
    }
}

/// Appends the diff of one path; neither side is a directory.
fn append_file_diff(
    store: &SnapshotStore,
    path: &[u8],
    before: Option<&TreeEntry>,
    after: Option<&TreeEntry>,
    rendered: &mut RenderedChange,
) -> Result<(), SnapshotError> {
    if path.split(|byte| *byte == b'/').any(is_name_of_git) {
        return append_git_file(store, path, before, after, rendered);
    }
    append_patch(store, path, before, after, rendered)
}

/// Appends the diff of a file in a git directory so that no program reads it: `git apply` refuses a whole patch with one.
fn append_git_file(
    store: &SnapshotStore,
    path: &[u8],
    before: Option<&TreeEntry>,
    after: Option<&TreeEntry>,
    rendered: &mut RenderedChange,
) -> Result<(), SnapshotError> {
    let start = rendered.text.len();
    append_patch(store, path, before, after, rendered)?;
    if !rendered.text[start..].starts_with("diff --git ") {
        return Ok(());
    }
    let patch = rendered.text.split_off(start);
    let path = quote_git_path("", path);
    rendered.text.push_str(&format!("{path} differs; this patch leaves it out\n"));
    rendered.text.extend(patch.split_inclusive('\n').flat_map(|line| ["# ", line]));
    Ok(())
}

/// Whether git takes a name for the one of its directory, also on file systems of other machines.
fn is_name_of_git(name: &[u8]) -> bool {
    let stem = name.split(|byte| matches!(byte, b':' | b'\\')).next().unwrap_or_default();
    let end = stem.iter().rposition(|byte| !matches!(byte, b' ' | b'.')).map_or(0, |last| last + 1);
    [&b".git"[..], b"git~1"].iter().any(|git| stem[..end].eq_ignore_ascii_case(git))
}

/// Appends the patch of one path.
fn append_patch(
    store: &SnapshotStore,
    path: &[u8],
    before: Option<&TreeEntry>,
    after: Option<&TreeEntry>,
    rendered: &mut RenderedChange,
) -> Result<(), SnapshotError> {
    let out = &mut rendered.text;
    let [old_path, new_path] = ["a/", "b/"].map(|lead| quote_git_path(lead, path));
    let header = format!("diff --git {old_path} {new_path}\n{}", mode_lines(before, after));
    let name = |entry: Option<&TreeEntry>, name| entry.map_or("/dev/null".to_owned(), |_| name);
    let [old_name, new_name] = [name(before, old_path), name(after, new_path)];
    if before.map(|entry| entry.id) == after.map(|entry| entry.id) {
        rendered.is_text = true;
        match before.zip(after).filter(|(old, new)| is_executable(old) == is_executable(new)) {
            // git knows no other permissions, and refuses a whole patch with a change of nothing.
            Some((old, new)) => out.push_str(&format!(
                "File {}, mode {:04o}, now {:04o}\n",
                quote_git_path("", path),
                old.mode,
                new.mode
            )),
            None => out.push_str(&header),
        }
        return Ok(());
    }
    let old_text = read_text_content(store, before)?;
    let new_text = read_text_content(store, after)?;
    let Some((old_text, new_text)) = old_text.zip(new_text) else {
        // Without a header, because `git apply` refuses a whole patch with binary files that it cannot make, and not as git
        // says it, because that would make the file of a header before it one of them.
        let is_large = before.into_iter().chain(after).any(|entry| entry.length > MAX_DIFF_BYTES);
        let kind = if is_large { "Large" } else { "Binary" };
        out.push_str(&format!(
            "{kind} files {old_name} and {new_name} differ; this patch leaves them out\n"
        ));
        return Ok(());
    };
    rendered.is_text = true;
    let diff = LineDiff::new(&old_text, &new_text, 3);
    rendered.added += diff.added;
    rendered.removed += diff.removed;
    // As git marks the end of a name with blanks, which `patch` would end at the first.
    let end = if path.contains(&b' ') { "\t" } else { "" };
    let marked = |name: String| if name == "/dev/null" { name } else { name + end };
    out.push_str(&header);
    out.push_str(&diff.with_names(&marked(old_name), &marked(new_name)));
    Ok(())
}

/// The lines about the modes of both sides, as git writes them.
fn mode_lines(before: Option<&TreeEntry>, after: Option<&TreeEntry>) -> String {
    match (before.map(git_mode), after.map(git_mode)) {
        (None, Some(mode)) => format!("new file mode {mode}\n"),
        (Some(mode), None) => format!("deleted file mode {mode}\n"),
        (Some(old), Some(new)) if old != new => format!("old mode {old}\nnew mode {new}\n"),
        _ => String::new(),
    }
}

fn is_executable(entry: &TreeEntry) -> bool {
    entry.mode & 0o100 != 0
}

/// The mode as git writes it: the kind of the entry, then the permission bits.
fn git_mode(entry: &TreeEntry) -> String {
    match entry.kind {
        EntryKind::Symlink => "120000".to_owned(),
        _ => format!("10{:04o}", entry.mode),
    }
}

/// The content as text; `None` if it is not text. The content of a missing entry is empty.
fn read_text_content(
    store: &SnapshotStore,
    entry: Option<&TreeEntry>,
) -> Result<Option<String>, SnapshotError> {
    let Some(entry) = entry else { return Ok(Some(String::new())) };
    if entry.length > MAX_DIFF_BYTES {
        return Ok(None);
    }
    let text = String::from_utf8(store.read_content(entry.id)?).ok();
    Ok(text.filter(|text| !text.contains('\0')))
}

/// A path as git writes it: in quotes if it contains special characters.
pub fn quote_git_path(lead: &str, path: &[u8]) -> String {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_plain) {
        return format!("{lead}{}", String::from_utf8_lossy(path));
    }
    let mut out = format!("\"{lead}");
    for byte in path {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
            byte if is_plain(byte) => out.push(char::from(*byte)),
            byte => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}

/// Whether the change only creates or deletes the directory of the next change.
pub fn is_implied_directory(change: &SnapshotChange, next: Option<&SnapshotChange>) -> bool {
    let is_directory = |entry: &Option<TreeEntry>| {
        entry.as_ref().is_none_or(|entry| entry.kind == EntryKind::Directory)
    };
    let is_created_or_deleted = change.before.is_none() || change.after.is_none();
    let prefix = [&change.path, &b"/"[..]].concat();
    is_created_or_deleted
        && is_directory(&change.before)
        && is_directory(&change.after)
        && next.is_some_and(|next| next.path.starts_with(&prefix))
}

/// Renders changes of about at most `max_bytes`; the others are only counted.
pub fn render_changes_within(
    store: &SnapshotStore,
    changes: &[SnapshotChange],
    max_bytes: usize,
) -> Result<String, SnapshotError> {
    let mut text = String::new();
    for (index, change) in changes.iter().enumerate() {
        if is_implied_directory(change, changes.get(index + 1)) {
            continue;
        }
        let rendered = render_change(store, change)?.text;
        let room = max_bytes.saturating_sub(text.len());
        if rendered.len() <= room {
            text.push_str(&rendered);
            continue;
        }
        let cut = rendered.get(..rendered.floor_char_boundary(room)).unwrap_or_default();
        // Whole lines.
        text.push_str(&cut[..cut.rfind('\n').map_or(0, |end| end + 1)]);
        let rest = changes.len() - index;
        text.push_str(&format!(
            "… cut in {}; {rest} paths are not or not fully here\n",
            quote_git_path("", &change.path)
        ));
        break;
    }
    Ok(text)
}
