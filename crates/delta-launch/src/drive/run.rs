//! `delta run`: creates a run and drives it.

use crate::drive::continue_run::{self, AskedAgent, EnsuredTask, RetriedError};
use crate::drive::conversation::{self, NextTurn};
use crate::drive::drive_agent::lost_journal;
use crate::drive::{detach, sealer};
use crate::prepare::images::AttachOptions;
use crate::prepare::prepared_agent::PreparedAgent;
use crate::prepare::{observer, run_result};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_agent::tool::has_staged_tool;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::{CancelToken, PassingRequest};
use delta_base::{random, terminal, time};
use delta_operator::arguments::agent_choice::{self, ChosenAgent};
use delta_operator::arguments::budget::{OwnedRun, PastUse};
use delta_operator::arguments::completion_candidates;
use delta_operator::arguments::message::{self, NewMessage};
use delta_operator::arguments::options::RunOptions;
use delta_operator::environment::parent_run;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::{page, page_server, stage};
use delta_operator::{cancel, command_line};
use delta_run::event::Payload;
use delta_run::ownership::Ownership;
use delta_run::run::{Run, RunNotice};
use delta_run::run_result::RunResult;
use delta_run::run_tree;
use delta_run::state::RunState;
use delta_run::workspace::{Workspace, WorkspaceError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run an agent on a task
///
/// Prints the result to stdout and progress to stderr.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = "delta run [OPTIONS] [TEXT]")]
pub struct RunArgs {
    /// Task for the agent, as one argument; `-` reads it from stdin
    ///
    /// Text piped into stdin follows it after an empty line. Without it, delta asks for it at a terminal, and for the next message
    /// when the run ends.
    #[arg(value_name = "TEXT", value_parser = parse_task)]
    words: Vec<String>,
    /// Agent directory, or the name of an installed agent
    ///
    /// [default: the current directory if it is an agent, else `default_agent` in config.yaml, else the built-in coding agent]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// TEXT as an option
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    attached: AttachOptions,
    /// Workspace, created if missing
    ///
    /// [default: a new one in the agent's workspaces/; for an installed, default or built-in agent, the current directory]
    #[arg(short, long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: Option<PathBuf>,
    /// Id of the new run [default: generated]
    #[arg(long, value_name = "ID", value_parser = command_line::parse_run_id)]
    run_id: Option<RunId>,
    /// Make sure that the run `--run-id` is done
    ///
    /// Creates the run, continues it if it was interrupted, waits for the process that works on it, or prints its result.
    #[arg(long, requires = "run_id", requires = "work_dir")]
    ensure: bool,
    /// With `--ensure`: continue a run that FAILED with one of these errors: llm, io, context, length, empty_response,
    /// max_iterations
    #[arg(
        long,
        value_name = "TYPES",
        requires = "ensure",
        value_delimiter = ',',
        hide_possible_values = true,
        hide_short_help = true
    )]
    retry: Vec<RetriedError>,
    /// Work on a staged copy: the workspace does not change until `delta apply`
    #[arg(long)]
    stage: bool,
    /// Do not ask which workspace to use; create a new one
    #[arg(short, long)]
    yes: bool,
    /// Open the page of the run in a browser, and update it there
    #[arg(long, conflicts_with = "ensure")]
    open: bool,
    /// Print the id of the run when TEXT is durable, and work on it in the background
    #[arg(long, conflicts_with_all = ["ensure", "open", "verbose", "interactive"])]
    detach: bool,
    #[command(flatten)]
    options: RunOptions,
}

const EXAMPLES: &str = "\
Examples:
  delta run --agent ./my-agent \"Summarise the logs\"
  delta run \"Fix the failing test\"           # the built-in agent, here
  git diff | delta run \"Review this\"         # a pipe is added to the task
  delta run - < task.md                       # read the task from a file
  delta run --model openai:gpt-4o \"...\"       # use another LLM
  delta run --detach \"...\"                    # work in the background
  delta run \"...\" --format json | jq .result
  delta run --ensure --run-id nightly -w . \"...\"   # safe to repeat";

/// Parses a task.
pub fn parse_task(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("the task is empty".to_owned()) } else { Ok(text.to_owned()) }
}

impl RunArgs {
    /// The task: TEXT or `--message`.
    fn task(&self) -> Result<&str, String> {
        let agent_tip = |word: &str| {
            let word = shell_quote(word);
            format!("\n\n  tip: name the agent with `--agent {word}`")
        };
        match (self.words.as_slice(), &self.message) {
            ([], Some(message)) if message.trim().is_empty() && self.attached.is_empty() => {
                Err("the task is empty".to_owned())
            }
            ([], Some(message)) => Ok(message),
            ([], None) => Err("the task is missing\n\n  tip: write `delta run TEXT`, or `delta run -` to read it from stdin".to_owned()),
            ([word], None) if Path::new(word).join("agent.yaml").is_file() => {
                Err(format!("`{word}` is an agent, and the task is missing{}", agent_tip(word)))
            }
            ([word], None) => Ok(word),
            ([word, ..], Some(_)) if Path::new(word).is_dir() => {
                Err(format!("unexpected argument '{word}': the task is in `-m`{}", agent_tip(word)))
            }
            ([word, ..], Some(_)) => Err(format!("unexpected argument '{word}': the task is in `-m`")),
            ([word, ..], None) if Path::new(word).join("agent.yaml").is_file() => {
                Err(format!("`{word}` is an agent, and the task is one argument{}", agent_tip(word)))
            }
            (words, None) => Err(format!(
                "expected one argument as the task, found {}\n\n  tip: quote it: `delta run {}`",
                words.len(),
                shell_quote(&words.join(" "))
            )),
        }
    }
}

/// Creates a run and drives it; returns the exit code.
pub fn run_command(args: &RunArgs) -> ExitCode {
    let options = &args.options;
    let has_task = args.message.is_some() || !args.words.is_empty();
    if !has_task && !args.detach && !args.ensure && options.takes_input() {
        return conversation::converse(options, NextTurn::Begin(&|task| run_agent(args, task)));
    }
    let task = match args.task() {
        Ok(task) => task,
        Err(message) => return command_line::print_usage_error::<RunArgs>("run", &message),
    };
    if args.detach {
        return detach::detach_command();
    }
    let id = args.run_id.as_ref().map(ToString::to_string);
    let result = message::read_task(task, options).and_then(|task| run_agent(args, task));
    run_result::print_run_result(result, options, id)
}

fn run_agent(args: &RunArgs, task: String) -> Result<RunResult, CommandFailure> {
    let message = NewMessage { text: task, images: args.attached.read(&args.options)? };
    let chosen = agent_choice::choose_agent(args.agent.as_deref(), args.options.model.as_ref())?;
    let existing = existing_run(args, &chosen)?;
    let agent = agent_choice::load_agent(&chosen.home, &args.options)?;
    let cancel = cancel::install_cancel()?;
    let choice = match (&args.work_dir, &chosen.origin) {
        (Some(dir), _) => WorkspaceChoice::Directory(dir.clone()),
        (None, Some(_)) => WorkspaceChoice::Directory(PathBuf::from(".")),
        (None, None) => choose_workspace(args, &agent, &cancel)?,
    };
    if let Some(origin) = &chosen.origin {
        args.options.print_notes(&[format!("Agent: {origin}")]);
    }
    let asked_agent = AskedAgent::new(&agent, &args.options);
    let mut agent = match existing {
        Some((id, dir)) => match PreparedAgent::for_existing_run(agent, dir, &args.options) {
            Ok(agent) => agent,
            Err(failure) => {
                let stored = continue_run::settled_result(id, dir, &args.retry, &asked_agent)?;
                return stored.ok_or(failure);
            }
        },
        None => PreparedAgent::new(agent, choice.path(), &args.options)?,
    }
    .named_by(choice.path());
    if args.stage || has_staged_tool(&agent.agent.tools) {
        stage::check_can_stage(choice.path())?;
    }
    let is_new = !choice.path().is_some_and(Path::exists);
    let workspace = choice.open(&agent.agent)?;
    loop {
        match create_run_dir(args.run_id.as_ref(), &workspace) {
            Ok(new_run) => {
                let new_run = NewRun { has_new_workspace: is_new, ..new_run };
                let id = new_run.id.clone();
                let dir = new_run.dir.clone();
                let result = start_run(args, new_run, &message, &agent, &workspace, cancel.clone());
                match result {
                    Err(failure) if args.ensure && has_successor(&failure, &dir) => {
                        wait_for_successor(&failure, args, &cancel);
                    }
                    result => return result.map_err(|failure| failure.with_run_id(&id)),
                }
            }
            Err(WorkspaceError::RunExists { id, .. }) if args.ensure => {
                let task = EnsuredTask { message: &message, retry: &args.retry };
                if let Some(result) =
                    ensure_existing_run(args, &id, &task, &workspace, &mut agent, &cancel)?
                {
                    return Ok(result);
                }
            }
            Err(error @ WorkspaceError::RunExists { .. }) => {
                let hint =
                    "choose another `--run-id`, or add `--ensure` to get the result of this run";
                return Err(CommandFailure::already_exists(error.to_string(), hint));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The result of a run of `--ensure` that exists. `None` if it has to be looked at again: another process has taken it over,
/// or its process died before the run began, and the run is created again.
fn ensure_existing_run(
    args: &RunArgs,
    id: &RunId,
    task: &EnsuredTask<'_>,
    workspace: &Workspace,
    agent: &mut PreparedAgent,
    cancel: &CancelToken,
) -> Result<Option<RunResult>, CommandFailure> {
    if args.stage {
        stage::check_is_staged(id, workspace)?;
    }
    match continue_run::ensure_run(id, task, workspace, agent, &args.options, cancel) {
        Err(failure) if failure.is_replaced() => {
            wait_for_successor(&failure, args, cancel);
            Ok(None)
        }
        result => result,
    }
}

/// Whether a process failed because another one owns its run. One that was silent at its start may find the files of the
/// other before it learns that.
fn has_successor(failure: &CommandFailure, run_dir: &Path) -> bool {
    failure.is_replaced() || Ownership::was_replaced(run_dir)
}

/// Says that another process has taken over the run of `--ensure`. This one waits for it, as any other does.
fn wait_for_successor(failure: &CommandFailure, args: &RunArgs, cancel: &CancelToken) {
    args.options.print_notes(&[format!("Note: {}", failure.message())]);
    cancel.withdraw(PassingRequest::LostRun);
}

/// The id of the run of `--ensure`, and the workspace in which it already exists.
fn existing_run<'a>(
    args: &'a RunArgs,
    chosen: &ChosenAgent,
) -> Result<Option<(&'a RunId, &'a Path)>, CommandFailure> {
    let current_dir = chosen.origin.as_ref().map(|_| Path::new("."));
    let Some(dir) = args.work_dir.as_deref().or(current_dir) else { return Ok(None) };
    match &args.run_id {
        // Opening a directory that does not exist would create it.
        Some(id) if args.ensure && dir.is_dir() => {
            Ok(Workspace::open(dir)?.find_run(id)?.map(|_| (id, dir)))
        }
        _ => Ok(None),
    }
}

/// A new run directory, owned by this process.
pub struct NewRun {
    /// The id of the run.
    pub id: RunId,
    /// Its directory, which exists.
    pub dir: PathBuf,
    /// The lock or the lease of this process.
    pub ownership: Ownership,
    /// Whether the workspace was created for it.
    pub has_new_workspace: bool,
}

fn start_run(
    args: &RunArgs,
    new_run: NewRun,
    message: &NewMessage,
    agent: &PreparedAgent,
    workspace: &Workspace,
    cancel: CancelToken,
) -> Result<RunResult, CommandFailure> {
    let NewRun { id, dir, ownership, has_new_workspace } = new_run;
    let options = &args.options;
    let mut stage = None;
    if args.stage {
        stage::enter_run_stage(workspace, &dir).inspect_err(|_| {
            workspace.remove_unbegun_run(&dir, has_new_workspace);
        })?;
        stage = Some(agent.new_stage(&dir, &RunState::default(), workspace, &cancel)?);
    }
    let agent_copy = agent.copy_agent_files(&dir, ownership.epoch(), None)?;
    let observer = observer::open_run_observer(options, &dir, &RunState::default(), &cancel)?;
    let owned = OwnedRun { id: &id, dir: &dir, ownership: &ownership };
    let budget = agent.open_budget(&owned, workspace, options, PastUse::default(), &cancel)?;
    let secrets = agent.secrets.clone();
    let sealer = sealer::new_sealer(&id, options)?;
    let mut run = Run::create(id, &dir, ownership, secrets, time::current_time, observer, sealer)?;
    let sandbox = agent.prepare_sandbox(&dir, workspace).inspect_err(|_| {
        workspace.remove_unbegun_run(&dir, has_new_workspace);
    })?;
    let mut start = agent.engine_start(&run, workspace, options, agent_copy, sandbox.as_deref());
    start.config.stage = stage;
    start.config.limits = budget.budget.given_limits();
    start.parent = parent_run();
    let parent = start.parent.clone();
    run.record(Payload::EngineStart(Box::new(start)));
    message.images.iter().try_for_each(|image| image.store(&run.dir))?;
    let images = message.images.iter().map(|image| image.image.clone()).collect();
    run.record(Payload::user_message(&message.text, images));
    if let Err(error) = run.commit() {
        return lost_journal::end_unbegun_run(&run, error, options);
    }
    if let Some(parent) = parent
        && let Err(error) = run_tree::register_child_run(&parent, &run.id, &run.dir)
    {
        run.notify(RunNotice::Warning(&format!(
            "could not register with parent run {}: {error}",
            parent.run_id
        )));
    }
    if args.open {
        open_page(&mut run, options, &cancel);
    }
    if options.detached {
        detach::leave_command(&run)?;
    }
    agent.drive(&mut run, workspace, options, sandbox, budget, cancel)
}

/// Opens the page of the run. No run fails because of its page.
fn open_page(run: &mut Run, options: &RunOptions, cancel: &CancelToken) {
    match page_server::start_in_background(&run.dir, cancel) {
        Ok(address) => {
            options.print_notes(&[format!("page: {address}")]);
            // The server is detached: its error would be lost.
            if let Err(reason) = page::find_opener() {
                let text = format!("could not open a browser: {reason}; open {address} yourself");
                run.notify(RunNotice::Warning(&text));
            }
        }
        Err(reason) => {
            run.notify(RunNotice::Warning(&format!("could not open the page: {reason}")))
        }
    }
}

/// The chosen workspace, which may not exist yet.
enum WorkspaceChoice {
    /// The directory of `-w`.
    Directory(PathBuf),
    /// One of the agent's workspaces, chosen at the terminal.
    Existing(PathBuf),
    /// A new one of the agent's workspaces.
    New,
}

impl WorkspaceChoice {
    /// The path of the workspace, unless it will be a new one.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) | Self::Existing(path) => Some(path),
            Self::New => None,
        }
    }

    /// Opens the workspace and creates it if it is missing.
    fn open(&self, agent: &Agent) -> Result<Workspace, WorkspaceError> {
        let workspace = match self {
            Self::Directory(path) => return Workspace::open(path),
            Self::Existing(path) => Workspace::open(path)?,
            Self::New => Workspace::create_next(&agent_choice::workspaces_home(&agent.home))?,
        };
        workspace.mark_last_used(&agent_choice::workspaces_home(&agent.home));
        Ok(workspace)
    }
}

fn choose_workspace(
    args: &RunArgs,
    agent: &Agent,
    cancel: &CancelToken,
) -> Result<WorkspaceChoice, CommandFailure> {
    let home = agent_choice::workspaces_home(&agent.home);
    let names = Workspace::list_names(&home);
    if args.yes || names.is_empty() || !terminal::can_prompt() {
        return Ok(WorkspaceChoice::New);
    }
    let mut prompt = String::from("Workspace?\n");
    let last_used = Workspace::last_used_name(&home);
    for (index, name) in names.iter().enumerate() {
        let last = if *name == last_used { "  (last used)" } else { "" };
        prompt.push_str(&format!("  {}) {name}{last}\n", index + 1));
    }
    prompt.push_str("  n) create a new one\nchoose [n]> ");
    loop {
        let answer = terminal::prompt_line(&prompt, cancel).map_err(|error| {
            let hint = "pass `-w DIR`, or `-y` for a new one";
            CommandFailure::unanswered("no workspace was chosen", &error, hint)
        })?;
        let answer = answer.trim();
        if answer.is_empty() || answer.eq_ignore_ascii_case("n") {
            return Ok(WorkspaceChoice::New);
        }
        let by_number =
            answer.parse::<usize>().ok().and_then(|number| names.get(number.checked_sub(1)?));
        if let Some(name) =
            by_number.or_else(|| names.iter().find(|name| name.eq_ignore_ascii_case(answer)))
        {
            return Ok(WorkspaceChoice::Existing(home.join("workspaces").join(name)));
        }
        prompt = format!("expected a number, a name or n, found `{answer}`> ");
    }
}

/// Creates the directory of a run with this id, or with a generated one.
pub fn create_run_dir(
    requested_id: Option<&RunId>,
    workspace: &Workspace,
) -> Result<NewRun, WorkspaceError> {
    loop {
        let id = requested_id
            .cloned()
            .unwrap_or_else(|| RunId::new(time::current_time(), random::random_bytes()));
        match workspace.create_run(&id) {
            Ok((dir, ownership)) => {
                return Ok(NewRun { id, dir, ownership, has_new_workspace: false });
            }
            Err(WorkspaceError::RunExists { .. }) if requested_id.is_none() => {}
            Err(error) => return Err(error),
        }
    }
}
