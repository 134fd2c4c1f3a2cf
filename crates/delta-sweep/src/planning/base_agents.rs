//! The agents of a base: as a revision of git has them, or another agent directory.

use crate::formats::sweep_file::SweepFile;
use crate::planning::git::{REPOSITORY_HINT, check_out, describe_commit, describe_here};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::git::{Git, TemporaryDir};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

impl BaseAgents {
    /// The agent in the directory `home`, in place of the only agent of a sweep.
    ///
    /// # Errors
    /// The sweep has several agents.
    pub fn from_dir(file: &SweepFile, home: &Path) -> Result<Self, CommandFailure> {
        let [agent] = file.agents.as_slice() else {
            let message = "`against` names one agent directory, and the sweep has several agents";
            let hint = "name a revision, or `agent=ID` for one of them";
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
        let checkout = TemporaryDir::create("gate")?;
        let mut homes = BTreeMap::new();
        let mut names = None;
        for (index, (id, home)) in agents.iter().enumerate() {
            let git = Git::new(home, None);
            git.find_top_dir(REPOSITORY_HINT)?;
            let (commit, label) = find_commit(&git, revision)?;
            let dir = checkout.path().join(index.to_string());
            let prefix = git.line(&["rev-parse", "--show-prefix"])?;
            check_out(&git, &commit, &prefix, &dir).map_err(|failure| {
                let message = format!("{label} has no agent `{id}`: {}", failure.message());
                CommandFailure::config(message, "name a base that has it")
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
