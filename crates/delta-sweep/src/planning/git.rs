//! The program git: revisions, checkouts and differences, none of which changes a file or the index of the user.

use crate::planning::plan_reader::unreadable_file;
use delta_base::durable;
use delta_base::hex::encode_hex;
use delta_base::{random, time};
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_list::format_age;
use delta_operator::{cancel, environment};
use delta_process::{LaunchContext, ProcessCommand, ProcessEnd, run_process};
use delta_run::record::describe_process_end;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a command of git may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(120);
/// How much of its output is read.
const MAX_GIT_OUTPUT: usize = 64 << 10;
/// The variables by which a hook of git would lead these commands to its own index or directory.
const GIT_PLACES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];
const MS_PER_DAY: u64 = 86_400_000;

/// A directory that is removed at the end.
pub struct TemporaryDir(PathBuf);

impl TemporaryDir {
    /// An empty directory for the command `delta sweep NAME`.
    pub fn create(command: &str) -> Result<Self, CommandFailure> {
        let name = format!("delta-{command}-{}", encode_hex(&random::random_bytes::<8>()));
        let dir = Self(std::env::temp_dir().join(name));
        durable::ensure_private_dir(&dir.0)?;
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        let _ = durable::remove_dir_all_no_follow(&self.0);
    }
}

/// The program git in a directory.
pub struct Git(LaunchContext);

impl Git {
    /// With the index `index`, or else the one of the repository.
    pub fn new(dir: &Path, index: Option<&Path>) -> Self {
        let mut env = environment::variables_without_keys(&[]);
        env.retain(|name, _| {
            !GIT_PLACES.iter().any(|variable| OsStr::new(variable) == name.as_os_str())
        });
        if let Some(index) = index {
            env.insert("GIT_INDEX_FILE".into(), index.into());
        }
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        Self(LaunchContext::new(dir, env))
    }

    /// In a directory that is in no repository, whatever is around it.
    pub fn outside(dir: &Path) -> Self {
        let mut git = Self::new(dir, None);
        let parent = dir.parent().unwrap_or(dir);
        git.0.env.set("GIT_CEILING_DIRECTORIES", parent);
        git
    }

    /// The top directory of the repository that has the directory.
    ///
    /// # Errors
    /// There is none, or git does not use it.
    pub fn find_top_dir(&self) -> Result<String, CommandFailure> {
        self.line(&["rev-parse", "--show-toplevel"]).map_err(|failure| {
            let hint = "the agents must be in a git repository; `delta sweep gate --against DIR` needs none";
            failure.with_hint(hint)
        })
    }

    /// What a command prints, without the newline.
    ///
    /// # Errors
    /// It fails; the message has what it printed.
    pub fn line(&self, words: &[&str]) -> Result<String, CommandFailure> {
        self.line_with_code(words, 0)
    }

    /// What a command prints that exits with 0 or with `code`.
    fn line_with_code(&self, words: &[&str], code: i32) -> Result<String, CommandFailure> {
        let argv: Vec<String> =
            std::iter::once("git").chain(words.iter().copied()).map(str::to_owned).collect();
        let command = ProcessCommand::new(&argv, &self.0, GIT_TIMEOUT, MAX_GIT_OUTPUT);
        let finished = run_process(&command, &cancel::install_cancel()?);
        let reason = match &finished.end {
            ProcessEnd::Exited(exited) if *exited == 0 || *exited == code => {
                let output = String::from_utf8_lossy(&finished.stdout.head).into_owned();
                return Ok(output.trim_end_matches('\n').to_owned());
            }
            ProcessEnd::Cancelled => return Err(CommandFailure::interrupted("interrupted")),
            ProcessEnd::Exited(_) => String::from_utf8_lossy(&finished.stderr.head).into_owned(),
            end => describe_process_end(end).unwrap_or_else(|| "it failed".to_owned()),
        };
        let reason = reason.trim().trim_start_matches("fatal: ");
        Err(CommandFailure::config(format!("git {}: {reason}", words[0]), None))
    }

    /// What `log` or `diff` writes to the new file `output`, however much that is.
    ///
    /// # Errors
    /// It fails, or the file cannot be read.
    pub fn long_output(&self, words: &[&str], output: &Path) -> Result<Vec<u8>, CommandFailure> {
        let option = format!("--output={}", output.display());
        // `diff --no-index` exits with 1 where there is a difference.
        self.line_with_code(&[&words[..1], &[&option], &words[1..]].concat(), 1)?;
        durable::read_no_follow(output).map_err(|source| unreadable_file(output.to_owned(), source))
    }
}

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
