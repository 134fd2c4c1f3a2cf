//! Drives a prepared agent through a run: what ENGINE_START records, the budget, the snapshots, and the engine itself.

pub mod lost_journal;
mod sweep_share;

use crate::drive::next_steps;
use crate::prepare::observer::{prints_pieces, shows_live_output};
use crate::prepare::prepared_agent::PreparedAgent;
use delta_agent::agent::SnapshotSettings;
use delta_agent::agent::agent_tree::hash_agent_tree;
use delta_agent::allowed_calls::OperatorGrants;
use delta_agent::ask_human::HumanPrompt;
use delta_agent::child_environment::ChildEnvironment;
use delta_agent::run_sandbox::RunSandbox;
use delta_agent::tool::has_staged_tool;
use delta_base::signal::CancelToken;
use delta_base::{terminal, time};
use delta_engine::engine::Engine;
use delta_lint::lint::find_missing_programs;
use delta_llm::llm::{Provider, ProviderKind};
use delta_operator::arguments::agent_choice;
use delta_operator::arguments::budget::{self, OuterLimits, OwnedRun, PastUse};
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_input::{PausingPrompt, RunInput};
use delta_operator::runs::{agent_hint, agent_store, restore_point};
use delta_operator::trust::read_import_path;
use delta_operator::{config, environment, state};
use delta_process as process;
use delta_run::budget::ledger::Budget;
use delta_run::event::{AgentCopy, EngineStart, RunStage};
use delta_run::journal::seal_key::SealKey;
use delta_run::ownership::owner_process::current_process;
use delta_run::run::{Run, RunNotice};
use delta_run::run_result::RunResult;
use delta_run::state::RunState;
use delta_run::workspace::{self, Workspace};
use delta_snapshot::{ExcludePatterns, SnapshotStore};
use delta_yaml::diagnostic::Diagnostic;
use std::path::Path;
use std::sync::Arc;
use sweep_share::SweepShare;

/// The budget of a run that this process drives, and what it shares with the processes of a sweep.
pub struct RunBudget {
    /// The limits, and the ledger that counts against them.
    pub budget: Budget,
    /// The part of the limits of a sweep, for a run of one.
    pub share: Option<SweepShare>,
}

/// What answers instead of the agent's LLM and of the person at the terminal.
pub struct Impersonators {
    /// Answers for the LLM.
    pub provider: Box<dyn Provider>,
    /// Answers for the person.
    pub human: Box<dyn HumanPrompt>,
}

/// Where delta cannot find processes.
#[cfg(target_os = "linux")]
const UNSEEN_PROCESSES: &str = "Note: /proc does not show the processes of this PID namespace, so delta does not end what calls leave \
     running; mount it, for example with `unshare --mount-proc`";
#[cfg(not(target_os = "linux"))]
const UNSEEN_PROCESSES: &str = "Note: untested here: delta does not end what calls leave running";

impl PreparedAgent {
    /// The ENGINE_START event of this process.
    pub fn engine_start(
        &self,
        run: &Run,
        workspace: &Workspace,
        options: &RunOptions,
        agent_copy: AgentCopy,
        sandbox: Option<&RunSandbox>,
    ) -> EngineStart {
        let mut config = self.agent.run_config();
        let outside = workspace::runs_dir().map(|_| run.dir.to_string_lossy().into_owned());
        config.run_dir = outside;
        config.kept = Some(agent_copy);
        config.sandbox = sandbox.map(|sandbox| sandbox.record().clone());
        config.inner_key = derive_inner_seal(sandbox, run)
            .and_then(|keys| SealKey::from_derived(&keys))
            .map(|keys| keys.public_key().to_string());
        let mut approval = options.approvals.operator_approval();
        approval.add_asking(&self.asking_tools);
        config.approve = approval.recorded();
        if let (Some(llm), Some(model)) = (&mut config.llm, &self.agent.model_choice) {
            llm.option = Some(model.to_recorded());
        }
        if let Some(llm) = &mut config.llm {
            llm.settings = self.agent.llm_settings.iter().map(ToString::to_string).collect();
        }
        let is_script = matches!(self.agent.llm.provider, ProviderKind::Script(_));
        let agent_tree = hash_agent_tree(&self.agent.home, &workspace.root);
        let agent_source =
            agent_store::find_source(&self.agent.home, agent_tree).unwrap_or_else(|note| {
                options.print_notes(&[note]);
                None
            });
        EngineStart {
            run_id: run.id.clone(),
            epoch: run.epoch(),
            agent_home: self.agent.home.to_string_lossy().into_owned(),
            agent_name: self.agent.name.clone(),
            agent_tree,
            agent_source,
            work_dir: workspace.root.to_string_lossy().into_owned(),
            workspace_id: workspace.name(),
            max_iterations: options
                .max_iterations
                .or(run.state().changed_iterations())
                .unwrap_or(self.agent.max_iterations),
            calls_per_answer: Some(options.limits.bounds().or(self.bounds).max_calls_per_answer()),
            repeats: self.bounds.max_repeats(is_script),
            config,
            process: current_process(),
            boot_id: delta_base::durable::boot_id(),
            lease: Some(run.lease()),
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            parent: None,
            seal: None,
        }
    }

    /// The budget of a run in `workspace`: the limits of this command line, of an earlier process or of the agent, and what
    /// the enclosing runs and the sweep have left.
    pub fn open_budget(
        &self,
        run: &OwnedRun<'_>,
        workspace: &Workspace,
        options: &RunOptions,
        past: PastUse,
        cancel: &CancelToken,
    ) -> Result<RunBudget, CommandFailure> {
        let places = self.named_workspace.iter().chain([&workspace.root]);
        let share = SweepShare::open(run.id, places, &self.enclosing_ledgers, cancel)?;
        let ledger = share.as_ref().and_then(SweepShare::ledger).cloned();
        let rate_dir = share.as_ref().and_then(SweepShare::rate_dir).map(Path::to_owned);
        let outer = OuterLimits::new(self.enclosing_ledgers.clone(), ledger, rate_dir);
        let limits = options.limits.limits();
        let opened = budget::open_budget(run, limits, &self.agent, outer, past, cancel)?;
        options.print_notes(&opened.notes);
        let addresses = self.addresses.iter().map(String::as_str);
        let models = self.agent.llm.models().zip(addresses);
        self.parent_prices.clone().write(models, run.id.as_str(), run.dir)?;
        Ok(RunBudget { budget: opened.budget, share })
    }

    /// Drives a run, whose ENGINE_START has been committed, until it ends or stops.
    pub fn drive(
        &self,
        run: &mut Run,
        workspace: &Workspace,
        options: &RunOptions,
        sandbox: Option<Arc<RunSandbox>>,
        budget: RunBudget,
        cancel: CancelToken,
    ) -> Result<RunResult, CommandFailure> {
        let RunBudget { budget, share } = budget;
        let environment = self
            .environment(run.id.as_str(), &run.dir, workspace, budget.ledger_path())
            .with_call_rate(share.as_ref().and_then(SweepShare::rate_dir))
            .with_inner_seal(derive_inner_seal(sandbox.as_deref(), run))
            .with_sandbox(sandbox);
        if !process::shows_own_processes() {
            options.print_notes(&[UNSEEN_PROCESSES.to_owned()]);
        }
        if run.epoch() == 1 && !options.quiet {
            self.warn_of_missing_programs(run, &environment);
        }
        let next = agent_hint::own_continue_command(run.state());
        // The run has its message: the same command would send it twice.
        let to_continue = format!("when that is mended: {next}");
        let add_hint = |failure: CommandFailure| failure.adding_hint(&to_continue);
        let provider = self.connect_llm(&environment).map_err(add_hint)?;
        if !options.quiet && terminal::is_stderr_terminal() {
            cancel.set_last_words(format!("\nStopped at once. Continue with: {next}\n"));
        }
        if run.state().stage.is_some() {
            // A process enters one stage.
            options.conversation.close();
        }
        let line = &options.conversation.line;
        let input =
            options.takes_input().then(|| RunInput::open(line, &run.id, &run.dir, run.mailbox()));
        let input = input.flatten();
        run.notify(RunNotice::Input(input.as_ref().map(|input| input.line())));
        let human = options.human_prompt(&cancel).map(|inner| match &input {
            Some(input) => Box::new(PausingPrompt { inner, input: Arc::clone(input) }),
            None => inner,
        });
        let snapshots = self.open_snapshots(run, workspace, options).map_err(add_hint)?;
        let servers = self.mcp_servers(&environment).map_err(add_hint)?;
        let grants = self.grants(run, workspace, options).map_err(add_hint)?;
        let cleanup = cancel.clone();
        let clock = time::current_time;
        let driven = Engine::new(&self.agent, environment, provider, cancel, human, clock, budget)
            .with_mcp_servers(servers)
            .with_parallel_calls(self.bounds.max_parallel())
            .with_surviving_calls(
                environment::variable(environment::SURVIVE_VARIABLE).as_deref() != Some("0"),
            )
            .with_snapshots(snapshots)
            .with_disk_limit(self.bounds.disk)
            .with_grants(grants)
            .with_mailbox()
            .with_live_output(shows_live_output(options) || prints_pieces(options))
            .drive(run);
        if let Some(input) = input {
            input.pause();
            run.notify(RunNotice::Input(None));
        }
        if let Some(problem) = share.and_then(|share| share.give_back().err()) {
            run.notify(RunNotice::Warning(&format!(
                "could not return the remaining budget of the sweep: {}",
                problem.message()
            )));
        }
        if let Err(error) = driven {
            return lost_journal::end_unrecorded_run(run, error, options);
        }
        if let Some(anchor) = &options.anchor {
            anchor.append_head(run, &cleanup);
        }
        let mut result = RunResult::from_state(run.state())
            .ok_or_else(|| CommandFailure::config("the run has no ENGINE_START", None))?
            .with_tree(&run.dir, run.state());
        result.prints_alone = options.result_follows_progress();
        result.follow_up = next_steps::follow_up_command(options, run.state());
        if !lost_journal::print_loss(run, &mut result) {
            next_steps::print_next_steps(options, &run.dir, run.state(), &result);
        }
        Ok(result)
    }

    /// What the operator has allowed, but for tools that ask because of `--approve`, here or in an earlier process of the run.
    /// What config.yaml asks about can be allowed.
    fn grants(
        &self,
        run: &Run,
        workspace: &Workspace,
        options: &RunOptions,
    ) -> Result<OperatorGrants, CommandFailure> {
        let mut asking = options.approvals.operator_approval().ask;
        let earlier = run.state().operator_approval().map_or(&[][..], |one| &one.ask);
        asking.extend(earlier.iter().filter(|tool| !self.asking_tools.contains(tool)).cloned());
        let home = &self.agent.home;
        let listed = match agent_choice::installed_name(home) {
            Some(name) => config::listed_calls(&name, home, &workspace.root)?,
            None => Vec::new(),
        };
        let remembered = state::allowed_calls().ok();
        Ok(OperatorGrants::new(&workspace.root, remembered, listed, asking))
    }

    /// Warns of each program that a tool needs and that the run would not find.
    fn warn_of_missing_programs(&self, run: &mut Run, environment: &ChildEnvironment) {
        let launch = environment.launch(0, &[], []);
        for missing in find_missing_programs(&self.agent, &read_import_path(), &launch) {
            let Diagnostic { file, line, message, help, .. } = missing;
            let file = Path::new(&file).file_name().unwrap_or_default().to_string_lossy();
            let help = help.map_or_else(String::new, |help| format!("; {help}"));
            run.notify(RunNotice::Warning(&format!("{message} ({file}:{line}){help}")));
        }
    }

    /// The snapshots of the run, if the agent or the operator enables them, or the run is staged or has some already. If only
    /// the agent enables them, the size of the workspace decides.
    fn open_snapshots(
        &self,
        run: &Run,
        workspace: &Workspace,
        options: &RunOptions,
    ) -> Result<Option<SnapshotStore>, CommandFailure> {
        let state = run.state();
        let is_required = state.timeline.last().is_some()
            || state.stage.is_some()
            || has_staged_tool(&self.agent.tools)
            || options.snapshots;
        let has_snapshots = is_required
            || match &self.agent.snapshots {
                Some(SnapshotSettings { exclude, limit: Some(limit) }) => {
                    let excess = limit.find_excess(&workspace.root, exclude)?;
                    let note = excess.as_ref().map(|excess| format!("Note: no snapshots, because the workspace has more than {excess}; `--snapshots` takes them"));
                    options.print_notes(note.as_slice());
                    excess.is_none()
                }
                settings => settings.is_some(),
            };
        has_snapshots.then(|| self.open_snapshot_store(&run.dir, state)).transpose()
    }

    fn open_snapshot_store(
        &self,
        run_dir: &Path,
        state: &RunState,
    ) -> Result<SnapshotStore, CommandFailure> {
        let exclude = match (&self.agent.snapshots, state.timeline.last()) {
            (Some(settings), _) => settings.exclude.clone(),
            (None, Some(last)) => ExcludePatterns::parse_recorded(&last.exclude)
                .map_err(|problem| CommandFailure::damaged(problem, None))?,
            (None, None) => ExcludePatterns::default(),
        };
        Ok(restore_point::open_store_excluding(run_dir, state, exclude)?)
    }

    /// The stage of a process whose layers are new: the snapshot of the workspace as it is.
    pub fn new_stage(
        &self,
        run_dir: &Path,
        state: &RunState,
        workspace: &Workspace,
        cancel: &CancelToken,
    ) -> Result<RunStage, CommandFailure> {
        let mut store = self.open_snapshot_store(run_dir, state)?;
        let base = store.take(&workspace.root, &self.secrets, Some(cancel))?.tree;
        // The first snapshot of the run then reads no file again.
        store.save_index()?;
        Ok(RunStage { base })
    }

    /// Drives a run with others instead of the agent's LLM and the terminal.
    pub fn drive_with(
        &self,
        run: &mut Run,
        workspace: &Workspace,
        Impersonators { provider, human }: Impersonators,
        sandbox: Option<Arc<RunSandbox>>,
        budget: Budget,
        cancel: CancelToken,
    ) -> Result<(), CommandFailure> {
        let environment = self
            .environment(run.id.as_str(), &run.dir, workspace, budget.ledger_path())
            .with_inner_seal(derive_inner_seal(sandbox.as_deref(), run))
            .with_sandbox(sandbox);
        let agent = &self.agent;
        let clock = time::current_time;
        let servers = self.mcp_servers(&environment)?;
        let snapshots = has_staged_tool(&agent.tools)
            .then(|| self.open_snapshot_store(&run.dir, run.state()))
            .transpose()?;
        Engine::new(agent, environment, provider, cancel, Some(human), clock, budget)
            .with_mcp_servers(servers)
            .with_parallel_calls(self.bounds.max_parallel())
            .with_surviving_calls(
                environment::variable(environment::SURVIVE_VARIABLE).as_deref() != Some("0"),
            )
            .with_snapshots(snapshots)
            .drive(run)?;
        Ok(())
    }
}

/// The keys for the runs that tools in the sandboxes of a run start, if any of them may.
fn derive_inner_seal(sandbox: Option<&RunSandbox>, run: &Run) -> Option<String> {
    sandbox.filter(|sandbox| sandbox.starts_runs())?;
    // Without a key, the inner runs have no seals either.
    Some(run.seal_key()?.derive_for_inner_runs(&run.id, &run.dir))
}
