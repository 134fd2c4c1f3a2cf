//! The files of a checkout that differ from a revision of git: what a branch changes.

use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::git::{Git, TemporaryDir};
use delta_report::statement::checkout::ChangedFiles;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What to do outside of a repository.
const REPOSITORY_HINT: &str = "`-w DIR` names the checkout of a git repository";
/// Only this lists a submodule with another commit or other files, whatever .gitmodules says.
const WITH_SUBMODULES: &str = "--ignore-submodules=none";

/// The files in all of the repository around `checkout` that differ from where `revision` and HEAD parted, or from `revision` if a
/// shallow clone does not have that commit: committed, staged or not, also new and removed ones, without the `statement`. A rename
/// is a file that was removed and one that is new.
pub fn find_changed_files(
    revision: &str,
    checkout: &Path,
    statement: &Path,
) -> Result<ChangedFiles, CommandFailure> {
    let top = Git::new(checkout, None).find_top_dir(REPOSITORY_HINT)?;
    let top = Path::new(&top);
    let git = Git::new(top, None);
    let commit = format!("{revision}^{{commit}}");
    let commit = git.line(&["rev-parse", "--verify", "--end-of-options", &commit]);
    let commit = commit.map_err(|failure| {
        let message = format!("there is no revision `{revision}`: {}", failure.message());
        let hint = "a shallow clone lacks older commits: `git fetch --depth 1 origin COMMIT`, or `git fetch --unshallow`";
        CommandFailure::config(message, hint)
    })?;
    let base = git.line(&["merge-base", "HEAD", &commit]).unwrap_or_else(|_| commit.clone());
    let diff =
        ["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", WITH_SUBMODULES, &base];
    let mut names = git.names(&[&diff[..], &["--"]].concat())?;
    names.extend(git.names(&[&diff[..], &["--cached", "--"]].concat())?);
    // HEAD is what is merged, whatever the checkout has.
    names.extend(git.names(&[&diff[..], &["HEAD", "--"]].concat())?);
    names.extend(find_unmarked_changes(top, &base, &diff)?);
    names.extend(git.names(&["ls-files", "--others", "--exclude-standard", "-z"])?);
    let statement = statement.canonicalize().ok();
    let statement = statement.as_deref().and_then(|path| path.strip_prefix(top).ok());
    let inside = checkout.canonicalize().ok();
    let inside = inside.as_deref().and_then(|path| path.strip_prefix(top).ok());
    let inside = inside.unwrap_or(Path::new(""));
    let names = names.iter().map(|name| Path::new(OsStr::from_bytes(name)));
    let changed = names.filter(|name| Some(*name) != statement);
    let paths: BTreeSet<Vec<u8>> = changed
        .map(|name| match name.strip_prefix(inside) {
            Ok(path) => path.as_os_str().as_bytes().to_vec(),
            // No run in the checkout has changed it.
            Err(_) => top.join(name).into_os_string().into_encoded_bytes(),
        })
        .collect();
    let short = git.line(&["rev-parse", "--short", &base])?;
    let since = if base == commit { revision.to_owned() } else { format!("{revision} at {short}") };
    Ok(ChangedFiles { since: strip_terminal_controls(&since), paths })
}

/// What `diff` finds by a new index: in the repository's, files can be marked as unchanged. Files that a sparse
/// checkout lacks are not removed.
fn find_unmarked_changes(
    top: &Path,
    base: &str,
    diff: &[&str],
) -> Result<Vec<Vec<u8>>, CommandFailure> {
    let scratch = TemporaryDir::create("verify")?;
    let git = Git::new(top, Some(&scratch.path().join("index")));
    git.line(&["read-tree", base])?;
    // Compares contents by their hashes, so that `diff` needs no object of a partial clone.
    git.line(&["update-index", "-q", "--refresh"])?;
    git.names(&[diff, &["--diff-filter=d", "--"]].concat())
}
