//! The agents of a base: as a revision of git has them, or another agent directory.

use crate::formats::sweep_file::SweepFile;
use delta_base::durable;
use delta_base::hex::encode_hex;
use delta_base::{random, time};
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_list::format_age;
use delta_operator::{cancel, environment};
use delta_process::{LaunchContext, ProcessCommand, ProcessEnd, run_process};
use delta_run::record::describe_process_end;
use std::collections::BTreeMap;
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

/// The agents that a change is judged against.
pub struct BaseAgents {
    /// The directory of each, by its name in the sweep.
    pub homes: BTreeMap<String, PathBuf>,
    /// What the base is called: `3f2a91c (origin/main, 2 days)`.
    pub name: String,
    /// What the change is called.
    pub here: String,
    _checkout: Option<TemporaryDir>,
}

/// A directory that is removed at the end.
struct TemporaryDir(PathBuf);

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        let _ = durable::remove_dir_all_no_follow(&self.0);
    }
}

impl BaseAgents {
    /// The agent in the directory `home`, in place of the only agent of a sweep.
    ///
    /// # Errors
    /// The sweep has several agents.
    pub fn from_dir(file: &SweepFile, home: &Path) -> Result<Self, CommandFailure> {
        let [agent] = file.agents.as_slice() else {
            let message = "`against` names one agent directory, and the sweep has several agents";
            let hint = "name a revision, or `agent=ID` for one of them".to_owned();
            return Err(CommandFailure::config(message, hint));
        };
        let homes = BTreeMap::from([(agent.id.clone(), home.to_owned())]);
        let name = home.display().to_string();
        Ok(Self { homes, name, here: agent.path.clone(), _checkout: None })
    }

    /// The agents at `agents`, by name, as they are in a revision, or else where the work tree left the default branch of its
    /// remote.
    ///
    /// # Errors
    /// There is no such revision, or it lacks an agent.
    pub fn from_revision(
        agents: &[(String, PathBuf)],
        revision: Option<&str>,
    ) -> Result<Self, CommandFailure> {
        let name = format!("delta-gate-{}", encode_hex(&random::random_bytes::<8>()));
        let checkout = TemporaryDir(std::env::temp_dir().join(name));
        durable::ensure_private_dir(&checkout.0)?;
        let mut homes = BTreeMap::new();
        let mut names = None;
        for (index, (id, home)) in agents.iter().enumerate() {
            let git = Git::new(home, None);
            let (commit, label) = find_commit(&git, revision)?;
            let dir = checkout.0.join(index.to_string());
            let prefix = git.line(&["rev-parse", "--show-prefix"])?;
            check_out(&git, &commit, &prefix, &dir).map_err(|failure| {
                let message = format!("{label} has no agent `{id}`: {}", failure.message());
                CommandFailure::config(message, "name a base that has it".to_owned())
            })?;
            homes.insert(id.clone(), dir.join(&prefix));
            if names.is_none() {
                names = Some((describe_commit(&git, &commit, &label)?, describe_here(&git)?));
            }
        }
        let (name, here) = names.unwrap_or_default();
        Ok(Self { homes, name, here, _checkout: Some(checkout) })
    }
}

/// The commit of a base, and what the user calls it.
fn find_commit(git: &Git, revision: Option<&str>) -> Result<(String, String), CommandFailure> {
    if let Some(revision) = revision {
        let name = format!("{revision}^{{commit}}");
        let commit = git.line(&["rev-parse", "--verify", "--end-of-options", &name]);
        let commit = commit.map_err(|failure| {
            let message = format!("there is no base `{revision}`: {}", failure.message());
            let hint = "`against` takes a revision of git, an agent directory, or KEY=VALUE such as model=old; a shallow clone lacks older commits: `git fetch --unshallow`";
            CommandFailure::config(message, hint.to_owned())
        })?;
        return Ok((commit, revision.to_owned()));
    }
    // A clone has `origin/HEAD`; the checkout of a CI service often has the branch alone.
    let branches = ["origin/HEAD", "origin/main", "origin/master"];
    let merge_base = branches.iter().find_map(|branch| {
        let commit = git.line(&["merge-base", "HEAD", branch]).ok()?;
        let name = git.line(&["rev-parse", "--abbrev-ref", branch]).ok()?;
        Some((commit, name))
    });
    merge_base.ok_or_else(|| {
        let message = "there is no base: no default branch of a remote has a commit in common with HEAD";
        let hint = "write `gate: {against: REVISION}`, or fetch the branch: `git fetch origin main`; a shallow clone needs `git fetch --unshallow`";
        CommandFailure::config(message, hint.to_owned())
    })
}

/// Writes what a commit has below `prefix` to the same place in `dir`, as a checkout would, without the index or the files of
/// the user.
fn check_out(git: &Git, commit: &str, prefix: &str, dir: &Path) -> Result<(), CommandFailure> {
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
fn describe_commit(git: &Git, commit: &str, label: &str) -> Result<String, CommandFailure> {
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
fn describe_here(git: &Git) -> Result<String, CommandFailure> {
    let short = git.line(&["rev-parse", "--short", "HEAD"])?;
    let is_changed = !git.line(&["status", "--porcelain", "--", "."])?.is_empty();
    Ok(if is_changed { format!("{short} with changes") } else { short })
}

/// The program git in a directory.
struct Git(LaunchContext);

impl Git {
    fn new(dir: &Path, index: Option<&Path>) -> Self {
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

    /// What a command prints, without the newline.
    fn line(&self, words: &[&str]) -> Result<String, CommandFailure> {
        let argv: Vec<String> =
            std::iter::once("git").chain(words.iter().copied()).map(str::to_owned).collect();
        let command = ProcessCommand::new(&argv, &self.0, GIT_TIMEOUT, MAX_GIT_OUTPUT);
        let finished = run_process(&command, &cancel::install_cancel()?);
        let reason = match &finished.end {
            ProcessEnd::Exited(0) => {
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
}
