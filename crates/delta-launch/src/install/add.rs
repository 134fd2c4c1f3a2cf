//! `delta add`: installs agents, lists, updates and removes them.

use super::agent_location::AgentLocation;
use super::agent_review::{AgentReview, COMMIT_DIGITS, TREE_DIGITS, first_digits};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_agent::agent::agent_rights::AgentRights;
use delta_agent::agent::agent_tree::hash_agent_tree;
use delta_agent::agent::agents_lock::{AGENT_NAME_RULE, AgentsLock, LockedAgent, is_agent_name};
use delta_agent::agent::tool_imports::ImportPath;
use delta_base::id::SnapshotId;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_base::terminal_text::escape_to_line;
use delta_llm::llm::ModelSelection;
use delta_operator::arguments::builtin_agent::BUILTIN_AGENT;
use delta_operator::arguments::completion_candidates::AgentCompleter;
use delta_operator::cancel;
use delta_operator::failure::{CommandFailure, refuse_inside_run};
use delta_operator::runs::agent_store::{AgentDraft, AgentStore, read_agents_lock};
use delta_program::stdio;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Install an agent from a directory, an archive or a repository
///
/// `delta run --agent NAME` then runs it in every directory. Nothing of the agent is started: you see its tools, its network,
/// its keys and what runs without a sandbox, and decide. Without a terminal, only the tree that --tree or the file of --locked
/// names is installed, or an update with no more rights. A repository needs git.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AddArgs {
    /// Directory, tar.gz file or its https address, or URL[//DIR][@REF] of a git repository
    #[arg(required_unless_present_any = ["list", "update", "remove", "locked"], conflicts_with_all = ["list", "update", "remove", "locked"])]
    source: Option<String>,
    /// Name to install the agent under [default: `name` in agent.yaml]
    #[arg(long = "as", value_name = "NAME", requires = "source")]
    name: Option<String>,
    /// Hash of the only tree to install
    #[arg(long, value_name = "HASH", requires = "source", value_parser = parse_tree)]
    tree: Option<SnapshotId>,
    /// List the installed agents
    #[arg(long, conflicts_with_all = ["update", "remove", "locked"])]
    list: bool,
    /// Update the agent NAME, or all, from where they came
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with_all = ["remove", "locked"], add = ArgValueCompleter::new(AgentCompleter))]
    update: Option<Option<String>>,
    /// Remove the agent NAME; runs that it has made continue
    #[arg(long, value_name = "NAME", conflicts_with = "locked", add = ArgValueCompleter::new(AgentCompleter))]
    remove: Option<String>,
    /// Install the agents of FILE, an agents.lock.json, with the trees that it names
    #[arg(long, value_name = "FILE")]
    locked: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  delta add ./reviewer
  delta add https://github.com/x/agents//reviewer@v3
  delta add https://example.org/reviewer.tar.gz --as strict-reviewer
  delta add --update
  delta add --locked agents.lock.json    # the same agents as elsewhere

Exit codes: 0 done, 1 not installed, 3 a person has to decide, 126 refused";

fn parse_tree(text: &str) -> Result<SnapshotId, String> {
    SnapshotId::parse(text).ok_or_else(|| "expected 64 hexadecimal digits".to_owned())
}

/// Installs, lists, updates or removes agents; returns the exit code.
pub fn add_command(args: &AddArgs) -> Result<ExitCode, CommandFailure> {
    refuse_inside_run("install agents")?;
    let store = AgentStore::open_own()?;
    let cancel = cancel::install_cancel()?;
    let lock = store.mend_interrupted(&cancel)?;
    let installer = Installer { store, lock, cancel };
    if args.list {
        return Ok(installer.list());
    }
    if let Some(name) = &args.remove {
        return installer.remove(name);
    }
    if let Some(name) = &args.update {
        return installer.update(name.as_deref());
    }
    if let Some(file) = &args.locked {
        return installer.install_locked(file);
    }
    let location = AgentLocation::parse(args.source.as_deref().unwrap_or_default())?;
    installer.install(&location, args.name.as_deref(), args.tree)
}

struct Installer {
    store: AgentStore,
    /// What is installed before.
    lock: AgentsLock,
    cancel: CancelToken,
}

impl Installer {
    /// Installs an agent under its name or another one; only the tree that is named, if one is.
    fn install(
        &self,
        location: &AgentLocation,
        name: Option<&str>,
        expected_tree: Option<SnapshotId>,
    ) -> Result<ExitCode, CommandFailure> {
        let scratch = self.store.new_draft(&self.cancel)?;
        let (files, commit) = location.fetch(&scratch.dir, &self.cancel)?;
        let draft = self.store.new_draft(&self.cancel)?;
        files.write(&draft.dir)?;
        let tree = hash_agent_tree(&draft.dir, Path::new("")).unwrap_or(SnapshotId::NONE);
        if let Some(expected) = expected_tree.filter(|expected| *expected != tree) {
            let message = format!("{location} is the tree {tree}, not {expected}");
            let hint = "look at it, and at who named the other tree";
            return Err(CommandFailure::conflict(message, hint));
        }
        let loaded = Agent::load(&draft.dir, &ModelSelection::without_llm(), &ImportPath::closed());
        // The files that it was read from are gone when a person reads this.
        let agent = loaded.map_err(|report| {
            let message = report.to_string();
            let files = draft.dir.display().to_string();
            CommandFailure::config(message.replace(&files, &location.to_string()), None)
        })?;
        let name = name.unwrap_or(&agent.name);
        let before = self.lock.agents.get(name);
        let source = location.source();
        let problem = match before {
            _ if !is_agent_name(name) => Some(AGENT_NAME_RULE.to_owned()),
            Some(LockedAgent { source: other, .. }) if *other != source => {
                Some(format!("it is the name of an agent from {}", escape_to_line(other)))
            }
            None if name == BUILTIN_AGENT || self.store.names_other(name) => {
                Some("it is the name of an agent from elsewhere, without this command".to_owned())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            let message = format!("the name `{}` is refused: {problem}", escape_to_line(name));
            // The name may be from a lock file, for which there is no `--as`.
            let address = shell_quote(&location.address());
            let hint = format!("give it another name: `delta add {address} --as NAME`");
            return Err(CommandFailure::already_exists(message, hint));
        }
        let after = LockedAgent {
            source,
            reference: location.reference.clone(),
            commit,
            tree,
            rights: AgentRights::of_agent(&agent),
        };
        if before == Some(&after) {
            self.store.keep(draft, tree)?;
            stdio::print_error_line(&format!("{name} is up to date"));
            return Ok(ExitCode::SUCCESS);
        }
        let before_dir = before.map(|before| self.store.tree_dir(before.tree));
        let review = AgentReview {
            name,
            location,
            agent: &after,
            dir: &draft.dir,
            before: before.zip(before_dir.as_deref()),
        };
        if before.is_none_or(|before| before.tree != tree) {
            review.print(&scratch.dir)?;
            if !self.confirm(&review, expected_tree.is_some(), &scratch)? {
                stdio::print_error_line("Not installed");
                return Ok(ExitCode::FAILURE);
            }
        }
        self.store.keep(draft, tree)?;
        self.store.change(name, before, Some(after), &self.cancel)?;
        stdio::print_error_line(&format!("Installed {name}: `delta run --agent {name}` runs it"));
        stdio::print_text(&format!("{name}\n"));
        Ok(ExitCode::SUCCESS)
    }

    /// Whether to install it: a person decides, or who has named the tree, or an update has no more rights.
    fn confirm(
        &self,
        review: &AgentReview<'_>,
        is_named: bool,
        scratch: &AgentDraft,
    ) -> Result<bool, CommandFailure> {
        if terminal::can_prompt() {
            return review.ask(&scratch.dir, &self.cancel);
        }
        let is_no_wider = review
            .before
            .is_some_and(|(before, _)| review.agent.rights.beyond(&before.rights).is_empty());
        if is_named || is_no_wider {
            return Ok(true);
        }
        let message =
            format!("`{}` would be installed, and there is no terminal to ask at", review.name);
        let hint = format!("look at it, then name its tree: `--tree {}`", review.agent.tree);
        Err(CommandFailure::not_confirmed(message, hint))
    }

    fn list(&self) -> ExitCode {
        let mut rows: Vec<[String; 4]> = Vec::new();
        for (name, agent) in &self.lock.agents {
            let reference = agent.reference.iter().map(|reference| format!("@{reference}"));
            let source =
                reference.fold(agent.source.clone(), |source, reference| source + &reference);
            rows.push([
                name.clone(),
                escape_to_line(&source),
                first_digits(agent.commit.as_deref().unwrap_or_default(), COMMIT_DIGITS),
                first_digits(&agent.tree.to_string(), TREE_DIGITS),
            ]);
        }
        for name in self.store.list_others(&self.lock) {
            let dir = self.store.link(&name).display().to_string();
            rows.push([escape_to_line(&name), dir, String::new(), String::new()]);
        }
        let [names, sources, commits] = [0, 1, 2].map(|column: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        });
        for [name, source, commit, tree] in &rows {
            let line = format!("{name:names$}  {source:sources$}  {commit:commits$}  {tree}");
            stdio::print_text(&format!("{}\n", line.trim_end()));
        }
        ExitCode::SUCCESS
    }

    fn remove(&self, name: &str) -> Result<ExitCode, CommandFailure> {
        let agent = self.find_installed(name)?;
        self.store.change(name, Some(agent), None, &self.cancel)?;
        stdio::print_error_line(&format!("Removed {name}; its runs still continue"));
        Ok(ExitCode::SUCCESS)
    }

    fn find_installed(&self, name: &str) -> Result<&LockedAgent, CommandFailure> {
        self.lock.agents.get(name).ok_or_else(|| {
            let message = format!("`delta add` has installed no agent `{}`", escape_to_line(name));
            let dir = self.store.link("").display().to_string();
            CommandFailure::config(message, format!("agents that you have written are in {dir}"))
        })
    }

    fn update(&self, name: Option<&str>) -> Result<ExitCode, CommandFailure> {
        name.map_or(Ok(()), |name| self.find_installed(name).map(drop))?;
        let chosen =
            self.lock.agents.iter().filter(|(known, _)| name.is_none_or(|name| name == *known));
        self.install_each(chosen, false)
    }

    fn install_locked(&self, file: &Path) -> Result<ExitCode, CommandFailure> {
        let Some(lock) = read_agents_lock(file)? else {
            let message = format!("there is no file {}", file.display());
            return Err(CommandFailure::config(message, "name an agents.lock.json"));
        };
        self.install_each(lock.agents.iter(), true)
    }

    /// Installs agents from where they come from, or exactly as they are locked. The first failure decides how the command ends.
    fn install_each<'a>(
        &self,
        agents: impl Iterator<Item = (&'a String, &'a LockedAgent)>,
        is_exact: bool,
    ) -> Result<ExitCode, CommandFailure> {
        let mut worst = ExitCode::SUCCESS;
        for (name, agent) in agents {
            let code = AgentLocation::from_lock(agent, is_exact)
                .and_then(|location| {
                    self.install(&location, Some(name), is_exact.then_some(agent.tree))
                })
                .unwrap_or_else(|failure| failure.report());
            if worst == ExitCode::SUCCESS {
                worst = code;
            }
        }
        Ok(worst)
    }
}
