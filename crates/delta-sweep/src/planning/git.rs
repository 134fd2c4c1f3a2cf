//! Revisions and checkouts of git, none of which changes a file or the index of the user.

use delta_base::durable;
use delta_base::time;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::git::Git;
use delta_operator::runs::run_list::format_age;
use std::path::{Path, PathBuf};

/// What to do outside of a repository.
pub const REPOSITORY_HINT: &str =
    "the agents must be in a git repository; `delta sweep gate --against DIR` needs none";
const MS_PER_DAY: u64 = 86_400_000;

/// Writes what a commit has below `prefix` to the same place in `dir`, as a checkout would, without the index or the files of
/// the user.
pub fn check_out(git: &Git, commit: &str, prefix: &str, dir: &Path) -> Result<(), CommandFailure> {
    let top = PathBuf::from(git.line(&["rev-parse", "--show-toplevel"])?);
    durable::ensure_private_dir(dir)?;
    let git = Git::new(&top, Some(&dir.with_extension("index")));
    if prefix.is_empty() {
        git.line(&["read-tree", commit])?;
    } else {
        let tree = format!("{commit}:{}", prefix.trim_end_matches('/'));
        git.line(&["read-tree", &format!("--prefix={prefix}"), &tree])?;
    }
    git.line(&["checkout-index", "-a", &format!("--prefix={}/", dir.display())]).map(|_| ())
}

/// `3f2a91c (origin/main, 2 days)`.
pub fn describe_commit(git: &Git, commit: &str, label: &str) -> Result<String, CommandFailure> {
    let short = git.line(&["rev-parse", "--short", commit])?;
    let seconds = git.line(&["log", "-1", "--format=%ct", commit])?.parse().unwrap_or(0_i64);
    let age = time::current_time().as_millis().saturating_sub(seconds.saturating_mul(1000));
    let age = u64::try_from(age).unwrap_or(0);
    let age = match usize::try_from(age / MS_PER_DAY).unwrap_or(usize::MAX) {
        0 => format_age(age),
        days => pluralize(days, "day"),
    };
    let is_name = !label.starts_with(&short);
    Ok(if is_name { format!("{short} ({label}, {age})") } else { format!("{short} ({age})") })
}

/// The commit of the work tree, and whether the agent is another one.
pub fn describe_here(git: &Git) -> Result<String, CommandFailure> {
    let short = git.line(&["rev-parse", "--short", "HEAD"])?;
    let is_changed = !git.line(&["status", "--porcelain", "--", "."])?.is_empty();
    Ok(if is_changed { format!("{short} with changes") } else { short })
}
