//! A workspace at two iterations, as a unified diff of the form that git writes.

use super::{DiffArgs, TROUBLE};
use crate::cli::failure::Failure;
use crate::cli::named::Found;
use crate::cli::point::{self, Point};
use crate::cli::{drive, resume, stdout};
use crate::snapshot::{Change, Entry, Kind, SnapshotError, Store};
use similar::{ChangeTag, TextDiff};
use std::process::ExitCode;
use std::time::Duration;

/// How long the smallest difference of two files is looked for; after that, any does.
const PATIENCE: Duration = Duration::from_secs(2);

/// A larger file is only said to differ.
const LARGEST: u64 = 4 << 20;

/// Prints what differs; gives the exit code.
pub fn diff(args: &DiffArgs, from: &Point, to: &Point) -> ExitCode {
    match perform(args, from, to) {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => {
            stdout::write(&text);
            ExitCode::FAILURE
        }
        Err(failure) => match failure.complain() {
            code if code == ExitCode::FAILURE => ExitCode::from(TROUBLE),
            code => code,
        },
    }
}

fn perform(args: &DiffArgs, from: &Point, to: &Point) -> Result<String, Failure> {
    let Found { id, dir, workspace, .. } = args.run.find(&args.work_dir)?;
    let state = resume::fold_journal(&id, &dir)?.state;
    let trees = [from.resolve(&state, &id)?, to.resolve(&state, &id)?];
    let mut store = point::store(&dir, &state)?;
    let mut now = None;
    if trees.contains(&None) {
        let cancel = drive::cancel()?;
        let secrets = point::secrets(&dir, &state, &workspace.root)?;
        now = Some(store.take(&workspace.root, &secrets, Some(&cancel))?.tree);
    }
    let [Some(from), Some(to)] = trees.map(|tree| tree.or(now)) else { return Ok(String::new()) };
    let changes = store.compare(from, to)?.changes;
    let mut text = String::new();
    let mut total = Lines::default();
    for (index, change) in changes.iter().enumerate() {
        if point::is_implied(change, changes.get(index + 1)) {
            continue;
        }
        if args.name_only {
            text.push_str(&format!("{}\n", quoted("", &change.path)));
            continue;
        }
        let shown = show(&store, change)?;
        total.added += shown.lines.added;
        total.removed += shown.lines.removed;
        match args.stat {
            true => text.push_str(&shown.lines.line(&quoted("", &change.path), shown.is_text)),
            false => text.push_str(&shown.text),
        }
    }
    if args.stat && !text.is_empty() {
        text.push_str(&format!("{} added, {} removed\n", total.added, total.removed));
    }
    Ok(text)
}

/// How many lines differ.
#[derive(Default)]
struct Lines {
    added: usize,
    removed: usize,
}

impl Lines {
    fn line(&self, path: &str, is_text: bool) -> String {
        match is_text {
            true => format!("{path} | +{} -{}\n", self.added, self.removed),
            false => format!("{path} | no text\n"),
        }
    }
}

/// A change as it is shown.
struct Shown {
    text: String,
    lines: Lines,
    is_text: bool,
}

fn show(store: &Store, change: &Change) -> Result<Shown, SnapshotError> {
    let is_directory = |entry: &&Entry| entry.kind == Kind::Directory;
    let side = |entry: &Option<Entry>| entry.clone().filter(|entry| !is_directory(&entry));
    let (before, after) = (side(&change.before), side(&change.after));
    let mut shown = Shown { text: directory(change), lines: Lines::default(), is_text: false };
    match (&before, &after) {
        (None, None) => {}
        // A file does not become a symlink: as for git, the one goes and the other comes.
        (Some(one), Some(other)) if one.kind != other.kind => {
            add(store, &change.path, (Some(one), None), &mut shown)?;
            add(store, &change.path, (None, Some(other)), &mut shown)?;
        }
        (one, other) => add(store, &change.path, (one.as_ref(), other.as_ref()), &mut shown)?,
    }
    Ok(shown)
}

/// A line for a directory that is empty or has other rights; git knows none, and reads over it.
fn directory(change: &Change) -> String {
    let mode = |entry: &Option<Entry>| {
        let found = entry.as_ref().filter(|entry| entry.kind == Kind::Directory);
        found.map(|entry| format!("{:04o}", entry.mode))
    };
    let path = quoted("", &change.path);
    match (mode(&change.before), mode(&change.after)) {
        (None, None) => String::new(),
        (None, Some(mode)) => format!("New directory {path}, mode {mode}\n"),
        (Some(_), None) => format!("Deleted directory {path}\n"),
        (Some(before), Some(after)) => format!("Directory {path}, mode {before}, now {after}\n"),
    }
}

/// Adds the diff of one path, in which neither side is a directory.
fn add(
    store: &Store,
    path: &[u8],
    (before, after): (Option<&Entry>, Option<&Entry>),
    shown: &mut Shown,
) -> Result<(), SnapshotError> {
    let (old, new) = (quoted("a/", path), quoted("b/", path));
    let out = &mut shown.text;
    out.push_str(&format!("diff --git {old} {new}\n"));
    match (before.map(mode), after.map(mode)) {
        (None, Some(mode)) => out.push_str(&format!("new file mode {mode}\n")),
        (Some(mode), None) => out.push_str(&format!("deleted file mode {mode}\n")),
        (Some(one), Some(other)) if one != other => {
            out.push_str(&format!("old mode {one}\nnew mode {other}\n"));
        }
        _ => {}
    }
    if before.map(|entry| entry.id) == after.map(|entry| entry.id) {
        shown.is_text = true;
        return Ok(());
    }
    let name = |entry: Option<&Entry>, name: &str| match entry {
        Some(_) => name.to_owned(),
        None => "/dev/null".to_owned(),
    };
    let (old, new) = (name(before, &old), name(after, &new));
    let (Some(one), Some(other)) = (text(store, before)?, text(store, after)?) else {
        out.push_str(&format!("Binary files {old} and {new} differ\n"));
        return Ok(());
    };
    shown.is_text = true;
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&one, &other);
    for line in diff.iter_all_changes() {
        shown.lines.added += usize::from(line.tag() == ChangeTag::Insert);
        shown.lines.removed += usize::from(line.tag() == ChangeTag::Delete);
    }
    let hunks = diff.unified_diff().to_string();
    if !hunks.is_empty() {
        out.push_str(&format!("--- {old}\n+++ {new}\n{hunks}"));
    }
    Ok(())
}

/// The mode as git writes it, which for a file has its kind before the permission bits.
fn mode(entry: &Entry) -> String {
    match entry.kind {
        Kind::Symlink => "120000".to_owned(),
        _ => format!("10{:04o}", entry.mode),
    }
}

/// A content as text; `None` when it is none. What is not there is empty.
fn text(store: &Store, entry: Option<&Entry>) -> Result<Option<String>, SnapshotError> {
    let Some(entry) = entry else { return Ok(Some(String::new())) };
    if entry.length > LARGEST {
        return Ok(None);
    }
    let text = String::from_utf8(store.content(entry.id)?).ok();
    Ok(text.filter(|text| !text.contains('\0')))
}

/// A path as git writes it: in quotes where it holds what could not be read back otherwise.
fn quoted(lead: &str, path: &[u8]) -> String {
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
