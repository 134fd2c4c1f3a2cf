//! The chain between two revisions: the agents after each commit that changes them, or after each hunk of their difference.
//!
//! Everything is made in a temporary directory; the repository and the files of the user stay as they are.

use crate::formats::chain_change::{ChainChange, Hunk, split_hunks};
use crate::planning::base_agents::BaseAgents;
use crate::planning::git::{REPOSITORY_HINT, check_out, describe_commit};
use crate::planning::plan_sources::PlanAgents;
use delta_base::durable;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::git::{Git, TemporaryDir};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The agents after a change.
pub struct ChainPoint {
    /// The change.
    pub change: ChainChange,
    /// The directory of each agent, by its name; or why they cannot be made.
    pub homes: Result<BTreeMap<String, PathBuf>, CommandFailure>,
}

/// Two revisions of the agents of a sweep.
pub struct ChainEnds {
    /// In the top directory of the repository.
    git: Git,
    /// The name of each agent, its directory, and its path in the repository, which is empty or ends with a slash.
    agents: Vec<(String, PathBuf, String)>,
    good: String,
    /// The newest commit of the chain.
    bad: String,
    /// Whether the work tree is the last point: no commit is named, and it has changes.
    ends_here: bool,
    /// The agents of the good end, and what both ends are called.
    pub named: BaseAgents,
    checkouts: TemporaryDir,
}

impl ChainEnds {
    /// The agents at `agents`, by name, between the revision `good` and the revision `bad`, or else the work tree.
    ///
    /// # Errors
    /// The agents are not in one repository, there is no such revision, `good` lacks an agent, or `bad` does not descend from
    /// `good`.
    pub fn find(
        agents: &[(String, PathBuf)],
        good: &str,
        bad: Option<&str>,
    ) -> Result<Self, CommandFailure> {
        let mut top = None;
        let mut placed = Vec::new();
        for (id, home) in agents {
            let git = Git::new(home, None);
            let own_top = git.find_top_dir(REPOSITORY_HINT)?;
            if top.get_or_insert_with(|| own_top.clone()) != &own_top {
                let message = format!("agent `{id}` is in another repository than the first agent");
                return Err(CommandFailure::config(message, None));
            }
            placed.push((id.clone(), home.clone(), git.line(&["rev-parse", "--show-prefix"])?));
        }
        let git = Git::new(Path::new(&top.unwrap_or_default()), None);
        let named = BaseAgents::from_revision(agents, Some(good))?;
        let good_commit = resolve_commit(&git, good)?;
        let bad_commit = resolve_commit(&git, bad.unwrap_or("HEAD"))?;
        if git.line(&["merge-base", "--is-ancestor", &good_commit, &bad_commit]).is_err() {
            let newer = bad.unwrap_or("HEAD");
            let message = format!("`{newer}` does not descend from `{good}`");
            let help = match git.line(&["merge-base", &good_commit, &bad_commit]) {
                Ok(base) => format!("`--good {base}` is the commit that both descend from"),
                Err(_) => "a shallow clone lacks older commits: `git fetch --unshallow`".to_owned(),
            };
            return Err(CommandFailure::config(message, help));
        }
        let mut ends = Self {
            git,
            agents: placed,
            good: good_commit,
            bad: bad_commit,
            ends_here: false,
            named,
            checkouts: TemporaryDir::create("bisect")?,
        };
        match bad {
            Some(bad) => ends.named.here = describe_commit(&ends.git, &ends.bad, bad)?,
            None => {
                let arguments = ends.with_paths(&["status", "--porcelain"]);
                let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                ends.ends_here = !ends.git.line(&words)?.is_empty();
            }
        }
        Ok(ends)
    }

    /// A command of git about the agents alone.
    fn with_paths(&self, words: &[&str]) -> Vec<String> {
        let paths = self.agents.iter().map(|(_, _, path)| format!(":(top,literal){path}"));
        let words = words.iter().copied().chain(["--"]).map(str::to_owned);
        words.chain(paths).collect()
    }

    /// The good end.
    pub fn first(&self) -> Result<ChainPoint, CommandFailure> {
        let title = self.git.line(&["log", "-1", "--format=%s", &self.good])?;
        let id = self.git.line(&["rev-parse", "--short", &self.good])?;
        Ok(ChainPoint { change: ChainChange { id, title }, homes: Ok(self.named.homes.clone()) })
    }

    /// The agents of the bad end.
    pub fn bad_homes(&self) -> Result<BTreeMap<String, PathBuf>, CommandFailure> {
        if self.ends_here {
            let homes = self.agents.iter().map(|(id, home, _)| (id.clone(), home.clone()));
            return Ok(homes.collect());
        }
        self.check_out(&self.bad)
    }

    fn check_out(&self, commit: &str) -> Result<BTreeMap<String, PathBuf>, CommandFailure> {
        let homes = self.agents.iter().enumerate().map(|(index, (id, _, path))| {
            let dir = self.checkouts.path().join(format!("{commit}-{index}"));
            check_out(&self.git, commit, path, &dir)?;
            Ok((id.clone(), dir.join(path)))
        });
        homes.collect()
    }

    /// The first-parent commits after the good end that change an agent, oldest first, then the work tree if it is the end.
    pub fn commits(&self) -> Result<Vec<ChainPoint>, CommandFailure> {
        let range = format!("{}..{}", self.good, self.bad);
        let format = "--format=%H %h %s";
        let arguments = self.with_paths(&["log", "--first-parent", "--reverse", format, &range]);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let log = self.git.long_output(&words, &self.checkouts.path().join("log"))?;
        let log = String::from_utf8_lossy(&log).into_owned();
        let commits = log.lines().filter_map(|line| {
            let (commit, rest) = line.split_once(' ')?;
            let (id, title) = rest.split_once(' ').unwrap_or((rest, ""));
            let change = ChainChange { id: id.to_owned(), title: title.to_owned() };
            Some(ChainPoint { change, homes: self.check_out(commit) })
        });
        let mut points: Vec<ChainPoint> = commits.collect();
        if self.ends_here {
            let title = "changes that are not committed".to_owned();
            let change = ChainChange { id: "here".to_owned(), title };
            points.push(ChainPoint { change, homes: self.bad_homes() });
        }
        Ok(points)
    }

    /// The agents after the first hunk of the difference between the ends, after the first two, and so on, in the order of the
    /// files. `restore` makes a copy of the agent of the good end with this name.
    pub fn hunks(
        &self,
        good: &PlanAgents,
        bad: &PlanAgents,
        mut restore: impl FnMut(&str, &Path) -> Result<(), CommandFailure>,
    ) -> Result<Vec<ChainPoint>, CommandFailure> {
        let mut points = Vec::new();
        let mut homes: BTreeMap<String, PathBuf> =
            good.copies().map(|(id, copy)| (id.to_owned(), copy.to_owned())).collect();
        for ((id, old), (_, new)) in good.copies().zip(bad.copies()) {
            let mut applied = Vec::new();
            for hunk in self.diff(old, new)? {
                applied.extend_from_slice(&hunk.patch);
                let dir = self.checkouts.path().join(format!("hunk-{}", points.len()));
                restore(id, &dir)?;
                homes.insert(id.to_owned(), dir.clone());
                let after = self.apply(&applied, old, &dir).map(|()| homes.clone());
                points.push(ChainPoint { change: hunk.change, homes: after });
            }
            homes.insert(id.to_owned(), new.to_owned());
        }
        if let Some(last) = points.last_mut() {
            // The bad end itself, whatever git made of its last hunk.
            last.homes = Ok(homes);
        }
        Ok(points)
    }

    /// The hunks between two directories: their lines alone, so that each block of changed lines is one.
    fn diff(&self, old: &Path, new: &Path) -> Result<Vec<Hunk>, CommandFailure> {
        let file = self.checkouts.path().join("diff");
        let [old, new] = [old, new].map(|path| path.display().to_string());
        // Whatever the user has configured, the parts are the same.
        let words = [
            "diff",
            "--no-index",
            "--unified=0",
            "--inter-hunk-context=0",
            "--binary",
            "--no-renames",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            &old,
            &new,
        ];
        let patch = self.git.long_output(&words, &file)?;
        Ok(split_hunks(&patch, [&old, &new]))
    }

    /// Applies a patch of [`ChainEnds::diff`] to a copy of `old`.
    fn apply(&self, patch: &[u8], old: &Path, dir: &Path) -> Result<(), CommandFailure> {
        let file = dir.with_extension("patch");
        durable::create_private_unsynced(&file, patch)?;
        // `a/`, and the directories down to the agent.
        let parts = old.components().filter(|part| part.as_os_str() != "/").count() + 1;
        let parts = format!("-p{parts}");
        let path = file.display().to_string();
        let words = ["apply", "--unidiff-zero", "--whitespace=nowarn", &parts, &path];
        Git::outside(dir).line(&words).map(|_| ())
    }
}

fn resolve_commit(git: &Git, revision: &str) -> Result<String, CommandFailure> {
    let name = format!("{revision}^{{commit}}");
    git.line(&["rev-parse", "--verify", "--end-of-options", &name]).map_err(|failure| {
        let message = format!("there is no revision `{revision}`: {}", failure.message());
        let hint = "`--good` and `--bad` take revisions of git; a shallow clone lacks older commits: `git fetch --unshallow`";
        CommandFailure::config(message, hint.to_owned())
    })
}
