//! Compares the subjects of a statement with the files of a directory.

use super::document::{RESULT, ResourceDescriptor, SHA256, SYMLINK, Statement};
use crate::verify::RunCheck;
use delta_base::durable;
use delta_base::hex::sha256_hex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Checks that the directory has each file that the run has written, and none that it has removed.
pub fn check_subjects(statement: &Statement, checkout: &Path) -> RunCheck {
    let removed = &statement.predicate.build_definition.internal_parameters.removed;
    let is_file = |subject: &&ResourceDescriptor| subject.kind() != Some(RESULT);
    let files = statement.subject.iter().filter(is_file).count();
    if files == 0 && removed.is_empty() {
        return RunCheck::not_checked("subjects", "the run has changed no file, only its result");
    }
    let mut findings: Vec<String> = statement
        .subject
        .iter()
        .filter(is_file)
        .filter_map(|subject| find_difference(subject, checkout))
        .collect();
    let remaining = removed.iter().filter(|name| {
        let path = durable::join_beneath(checkout, name);
        path.is_ok_and(|path| durable::metadata_no_follow(&path).is_ok())
    });
    findings.extend(remaining.map(|name| format!("{name} exists, and the run has removed it")));
    let mut detail = format!("files: {files}");
    if !removed.is_empty() {
        detail.push_str(&format!(", removed: {}", removed.len()));
    }
    RunCheck::new("subjects", detail, findings)
}

/// The files that differ from a commit.
#[derive(Debug)]
pub struct ChangedFiles {
    /// What the commit is called.
    pub since: String,
    /// The paths, relative to the directory that is checked.
    pub paths: BTreeSet<Vec<u8>>,
}

/// Checks that the run has written or removed each file that has changed.
pub fn check_changes(statement: &Statement, checkout: &Path, changed: &ChangedFiles) -> RunCheck {
    let ChangedFiles { since, paths } = changed;
    let removed = &statement.predicate.build_definition.internal_parameters.removed;
    let subjects = statement.subject.iter().filter(|subject| subject.kind() != Some(RESULT));
    let named: BTreeSet<&[u8]> = subjects
        .map(|subject| subject.name.as_bytes())
        .chain(removed.iter().map(String::as_bytes))
        .collect();
    let findings = paths.iter().filter(|path| !named.contains(path.as_slice())).map(|path| {
        let exists = durable::metadata_no_follow(&checkout.join(OsStr::from_bytes(path))).is_ok();
        let change = if exists { "differs from" } else { "was removed since" };
        let name = String::from_utf8_lossy(path);
        format!("{name} {change} {since}, and the statement does not name it")
    });
    RunCheck::new("changes", format!("since {since}: {}", paths.len()), findings.collect())
}

/// How the file that a subject names differs from it.
fn find_difference(subject: &ResourceDescriptor, checkout: &Path) -> Option<String> {
    let name = &subject.name;
    let Some(expected) = subject.digest.get(SHA256) else {
        return Some(format!("{name} has no SHA-256"));
    };
    let path = Path::new(name);
    let digits = match subject.kind() {
        None => durable::hash_file_beneath(checkout, path),
        Some(SYMLINK) => durable::read_link_beneath(checkout, path).map(sha256_hex),
        Some(kind) => return Some(format!("{name} is of an unknown kind, {kind}")),
    };
    match digits {
        Ok(digits) if digits == *expected => None,
        Ok(digits) => Some(format!("{name} has the SHA-256 {digits}, not {expected}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!("{name} is missing")),
        Err(error) => Some(format!("{name} could not be read: {error}")),
    }
}
