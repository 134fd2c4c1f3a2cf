//! `delta fork`: creates a run from the first iterations of another one, which is only read.
//!
//! A fork that continues at once does so in the same way as `delta continue`.

use crate::drive::continue_run::{self, ClaimedRun, MissingMessage};
use crate::drive::run::{self, NewRun};
use crate::prepare::prepared_agent::PreparedAgent;
use crate::prepare::run_result;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_agent::agent::{self, Agent};
use delta_base::id::RunId;
use delta_base::{durable, time};
use delta_engine::result_output::OutputFormat;
use delta_operator::arguments::options::{CONTINUE_OPTIONS, RunOptions, show_only};
use delta_operator::arguments::{agent_choice, completion_candidates, message};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::separate_copy::separate_copy;
use delta_operator::runs::{agent_hint, own_run, run_list};
use delta_operator::{cancel, command_line, state};
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_run::event::{EngineStart, Event, ForkFiles, ForkOrigin, Payload, RunFork};
use delta_run::fork::{self, ForkError, ForkPoint};
use delta_run::journal::seal::{SealStatus, Sealer};
use delta_run::ownership::Ownership;
use delta_run::run::repair_metadata;
use delta_run::run_result::RunResult;
use delta_run::state::RunState;
use delta_run::workspace::Workspace;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod initial_files;

use initial_files::SourceSnapshots;

/// Create a run from the first iterations of another
///
/// Prints the id of the new run; with TEXT, --model, --agent or --continue, it continues at once. RUN may be active. The
/// workspace gets the snapshot of iteration N, or, without one, the current files; a note reports which.
#[derive(Debug, Args)]
#[command(mut_args = show_only(FORK_OPTIONS), after_help = CONTINUE_OPTIONS, after_long_help = format!("{CONTINUE_OPTIONS}\n\n{EXAMPLES}"))]
pub struct ForkArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Continue with this message; `-` reads it from stdin
    #[arg(value_name = "TEXT", value_parser = parse_message, conflicts_with = "message")]
    text: Option<String>,
    /// Copy the first N iterations; 0 copies only the task [default: all complete ones]
    #[arg(long, value_name = "N", value_parser = parse_number_in(0..=u32::MAX))]
    at: Option<u32>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Workspace of the new run: new, empty, or RUN's own, whose files stay unchanged [default: a new one]
    ///
    /// By default, it is in the agent's workspaces/; for an installed, default or built-in agent, it is NAME-fork next to RUN's
    /// workspace NAME; for a run of a sweep, it is in forks/ of the sweep.
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    into: Option<PathBuf>,
    /// Id of the new run [default: generated]
    #[arg(long, value_name = "ID", value_parser = command_line::parse_run_id)]
    run_id: Option<RunId>,
    /// TEXT as an option
    #[arg(short, long, value_name = "TEXT", value_parser = parse_message)]
    message: Option<String>,
    /// Continue with this agent [default: RUN's agent]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// Continue without any change
    #[arg(long = "continue")]
    go_on: bool,
    #[command(flatten)]
    options: RunOptions,
}

/// The options that only `delta fork` has, and the one that makes the new run continue.
const FORK_OPTIONS: &[&str] =
    &["run", "text", "at", "work_dir", "into", "run_id", "message", "agent", "go_on", "model"];

/// Parses a message.
fn parse_message(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("the message is empty".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

const EXAMPLES: &str = "\
Examples:
  delta fork RUN -w ./work --at 3                          # print its id
  delta fork RUN -w ./work --at 3 \"Try it without sed\"     # and continue it
  delta fork RUN -w ./work --at 3 --model openai:gpt-4o    # another LLM
  delta fork RUN -w ./work --at 3 --agent ./new-version    # another agent
  delta diff RUN ./elsewhere/.delta/FORK -w ./work         # compare both runs";

/// Creates a fork, and drives it if it continues at once; returns the exit code.
pub fn fork_command(args: &ForkArgs) -> ExitCode {
    let id = args.run_id.as_ref().map(ToString::to_string);
    if !args.continues_at_once() && args.options.has_engine_option() {
        return command_line::print_usage_error::<ForkArgs>(
            "fork",
            "-i, --snapshots, --max-iterations and limits require that the new run continues: \
             add TEXT, --model, --agent or --continue",
        );
    }
    match fork_run(args) {
        Ok(ForkOutcome::Continued(result)) => {
            run_result::print_run_result(Ok(*result), &args.options, id)
        }
        Ok(ForkOutcome::Created(text)) => {
            stdio::print_text(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => run_result::print_run_result(Err(failure), &args.options, id),
    }
}

enum ForkOutcome {
    /// The fork was created; contains the text for stdout.
    Created(String),
    Continued(Box<RunResult>),
}

impl ForkArgs {
    fn message(&self) -> Option<&str> {
        self.text.as_deref().or(self.message.as_deref())
    }

    fn continues_at_once(&self) -> bool {
        self.go_on
            || self.message().is_some()
            || self.agent.is_some()
            || self.options.model.is_some()
    }
}

fn fork_run(args: &ForkArgs) -> Result<ForkOutcome, CommandFailure> {
    let message = args.message().map(message::read_message).transpose()?;
    let source = ForkSource::find(args)?;
    source.check_message(args, message.as_deref())?;
    let mut agent = None;
    if args.continues_at_once() {
        let loaded =
            continue_run::load_run_agent(args.agent.as_deref(), &source.start, &args.options)?;
        // The new workspace does not exist yet. The one of the source is checked in its place.
        agent = Some(PreparedAgent::check(loaded, &source.run.workspace.root, &args.options)?);
    }
    let destination = ForkDestination::choose(args, &source)?;
    let fork = create_fork(args, &source, &destination)?;
    let id = fork.id.clone();
    let outcome = match agent {
        Some(agent) => continue_fork(args, fork, agent, message),
        None => fork.render(args, &source).map(ForkOutcome::Created),
    };
    outcome.map_err(|failure| failure.with_run_id(&id))
}

/// The run to fork, and the point of the fork.
struct ForkSource {
    run: LocatedRun,
    events: Vec<Event>,
    cut: ForkPoint,
    /// The last ENGINE_START before the fork point.
    start: EngineStart,
    /// Whether the run has its result at the fork point.
    has_result: bool,
    /// What its seals say.
    seals: SealStatus,
}

impl ForkSource {
    fn find(args: &ForkArgs) -> Result<Self, CommandFailure> {
        let run = args.run.find(&args.work_dir)?;
        let folded = own_run::fold_own_journal(&run.id, &run.dir)?;
        if args.agent.is_none() {
            own_run::check_is_own(&run.id, &run.dir, &folded)?;
        }
        if folded.seals.is_edited && folded.seals.is_own() {
            stdio::print_error_line(&format!("warning: {}", own_run::EDITED_JOURNAL));
        }
        let events = own_run::read_journal(&run.id, &run.dir)?.events;
        let cut = ForkPoint::find(&events, args.at).map_err(|error| {
            let hint = format!(
                "`delta show {} -w {}` lists the iterations",
                run.id,
                run.quoted_workspace()
            );
            CommandFailure::not_found(error.to_string(), hint)
        })?;
        let state = RunState::from_events(&events[..cut.event_count]);
        let has_result = state.result.is_some();
        let mut start = state.start.ok_or_else(|| {
            CommandFailure::damaged(format!("run {} has no ENGINE_START", run.id), None)
        })?;
        // What a process recorded elsewhere is a path of another host: the agent came with the run.
        if let Some(agent_home) = events[cut.event_count..].iter().find_map(arrived_agent) {
            start.agent_home.clone_from(agent_home);
        }
        Ok(Self { run, events, cut, start, has_result, seals: folded.seals })
    }

    /// A fork at the result of the run needs a message to continue.
    fn check_message(&self, args: &ForkArgs, message: Option<&str>) -> Result<(), CommandFailure> {
        if !self.has_result || !args.continues_at_once() || message.is_some() {
            return Ok(());
        }
        let iteration = self.cut.iteration;
        let message = format!("the run ends at iteration {iteration}");
        let hint = "add the next message with -m, or fork an earlier iteration with --at";
        Err(CommandFailure::message_required(message, hint))
    }
}

/// The agent directory of a run that has arrived with this event.
fn arrived_agent(event: &Event) -> Option<&String> {
    match &event.payload {
        Payload::RunTrusted { agent_home, received: Some(_), .. } => Some(agent_home),
        _ => None,
    }
}

/// The workspace of the fork, which may not exist yet.
enum ForkDestination {
    /// The workspace of the source.
    SameWorkspace,
    /// A new or empty directory.
    Directory(PathBuf),
    /// A new one of the workspaces in this directory: the agent's, or the one for forks of a sweep.
    NextWorkspace(PathBuf),
    /// A new directory next to the workspace of the source.
    Sibling,
}

impl ForkDestination {
    fn choose(args: &ForkArgs, source: &ForkSource) -> Result<Self, CommandFailure> {
        let Some(dir) = &args.into else {
            let home = Path::new(&source.start.agent_home);
            let named = args.agent.as_deref().map(agent_choice::resolve_agent_dir);
            let home = named.as_deref().unwrap_or(home);
            if !home.is_dir() {
                let message = agent::missing_agent(home);
                let hint = "name the workspace of the new run with `--into DIR`";
                return Err(CommandFailure::config(message, hint));
            }
            let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
            if agent_choice::works_in_current_dir(&home) {
                return Ok(Self::Sibling);
            }
            return Ok(Self::NextWorkspace(agent_choice::workspaces_home(&home)));
        };
        if dir.canonicalize().is_ok_and(|dir| dir == source.run.workspace.root) {
            return Ok(Self::SameWorkspace);
        }
        // A directory that cannot be read fails when it is opened.
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let Some(name) = entries.map(|entry| entry.file_name()).find(|name| name != ".delta")
        else {
            return Ok(Self::Directory(dir.clone()));
        };
        let name = Path::new(&name).display();
        let message = format!("{} is not empty: it contains `{name}`", dir.display());
        let workspace = source.run.quoted_workspace();
        let hint = format!("name a new directory, or {workspace} to keep the files there");
        Err(CommandFailure::already_exists(message, hint))
    }

    fn open(&self, source: &ForkSource) -> Result<Workspace, CommandFailure> {
        Ok(match self {
            Self::SameWorkspace => source.run.workspace.clone(),
            Self::Directory(dir) => Workspace::open(dir)?,
            Self::NextWorkspace(home) => {
                let workspace = Workspace::create_next(home)?;
                workspace.mark_last_used(home);
                workspace
            }
            Self::Sibling => source.run.workspace.create_sibling().map_err(|error| {
                let hint = "name the workspace of the new run with `--into DIR`";
                CommandFailure::from(error).with_hint(hint)
            })?,
        })
    }
}

struct NewFork {
    id: RunId,
    dir: PathBuf,
    workspace: Workspace,
    ownership: Ownership,
    files: ForkFiles,
}

fn create_fork(
    args: &ForkArgs,
    source: &ForkSource,
    destination: &ForkDestination,
) -> Result<NewFork, CommandFailure> {
    let workspace = destination.open(source)?;
    let is_same_workspace = matches!(destination, ForkDestination::SameWorkspace);
    if is_same_workspace && RunState::from_events(&source.events).stage.is_some() {
        let message =
            format!("run {} is staged: its files are not in its workspace", source.run.id);
        let hint = "fork it into another directory, or apply its changes first";
        return Err(CommandFailure::usage(message, hint));
    }
    let NewRun { id, dir, mut ownership, .. } =
        run::create_run_dir(args.run_id.as_ref(), &workspace)?;
    let source_dir = &source.run.dir;
    let cut = source.cut;
    fork::copy_records(source_dir, &dir, &source.events[..cut.event_count])?;
    let mut store = None;
    let mut tree = None;
    if let Some(snapshots) = SourceSnapshots::open(source)? {
        let copied = snapshots.copy_to(source, &dir, !is_same_workspace)?;
        store = Some(copied.0);
        tree = copied.1;
    }
    let files = if is_same_workspace {
        ForkFiles::Kept
    } else {
        let files = initial_files::fill_workspace(args, source, &workspace, store.zip(tree))?;
        let root = &workspace.root;
        let separated = separate_copy(root, &source.run.workspace.root, root)?;
        args.options.print_notes(&separated.notes);
        args.options.print_notes(&separated.shared);
        // The fork exists with its journal: a power failure must not leave it without its files.
        durable::sync_file_system(&workspace.root)?;
        files
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let origin = RunFork {
        run_id: id.clone(),
        work_dir: text(&workspace.root),
        workspace_id: workspace.name(),
        from: ForkOrigin {
            run_id: source.run.id.clone(),
            iteration: cut.iteration,
            run_dir: text(source_dir),
            work_dir: text(&source.run.workspace.root),
        },
        files,
        tree,
        seal: None,
    };
    let sealer = Some(Sealer::new(state::seal_keys(), id.clone()));
    let clock = time::current_time;
    fork::begin_fork(source_dir, &dir, &mut ownership, cut, origin, clock, sealer).map_err(
        |error| match error {
            ForkError::File(error) => error.into(),
            ForkError::Journal(error) => CommandFailure::damaged(error.to_string(), None),
        },
    )?;
    let fork = NewFork { id, dir, workspace, ownership, files };
    fork.print_files_note(args, source);
    Ok(fork)
}

impl NewFork {
    /// Prints which files the fork starts with.
    fn print_files_note(&self, args: &ForkArgs, source: &ForkSource) {
        let dir = self.workspace.root.display();
        let iteration = source.cut.iteration;
        let line = match self.files {
            ForkFiles::Snapshot => {
                format!("Restored the files of iteration {iteration} in {dir}")
            }
            ForkFiles::Present => format!(
                "Note: copied the current files of {} to {dir}; the run has no snapshot of iteration {iteration}",
                source.run.workspace.root.display()
            ),
            ForkFiles::Kept => {
                format!("Note: the files in {dir} are unchanged; both runs work on them")
            }
        };
        args.options.print_notes(&[line]);
    }

    /// The text for stdout of a fork that does not continue yet; prints to stderr how to continue it.
    fn render(&self, args: &ForkArgs, source: &ForkSource) -> Result<String, CommandFailure> {
        let events = own_run::read_journal(&self.id, &self.dir)?.events;
        let state = RunState::from_events(&events);
        repair_metadata(&self.dir, &state, &self.ownership)?;
        let next = agent_hint::own_continue_command(&state);
        let next = if source.has_result { next.with_message("MESSAGE") } else { next };
        args.options.print_notes(&[format!("Continue with: {next}")]);
        Ok(match args.options.format {
            OutputFormat::Text | OutputFormat::Raw => format!("{}\n", self.id),
            OutputFormat::Json | OutputFormat::Jsonl => {
                let summary = json!({
                    "run_id": self.id.to_string(),
                    "status": state.status,
                    "run_dir": self.dir,
                    "workspace_path": self.workspace.root,
                    "origin": state.origin,
                });
                format!("{summary}\n")
            }
        })
    }
}

/// Continues the fork as `delta continue` does.
fn continue_fork(
    args: &ForkArgs,
    fork: NewFork,
    agent: Agent,
    message: Option<String>,
) -> Result<ForkOutcome, CommandFailure> {
    let NewFork { id, dir, workspace, ownership, .. } = fork;
    let options = &args.options;
    let folded = own_run::fold_own_journal(&id, &dir)?;
    let claimed = ClaimedRun::new(&id, dir, ownership, folded, None)?;
    let next = agent_hint::own_continue_command(claimed.state())
        .with_model(options.model.as_ref().map(ToString::to_string));
    let next = message.iter().fold(next, |next, message| next.with_message(message));
    let payload = claimed
        .interpret_message(message, options, &workspace.root)
        .map_err(MissingMessage::into_failure)?;
    // The new workspace exists now, and its `.env` file counts, too.
    let agent = PreparedAgent::new(agent, Some(&workspace.root), options).inspect_err(|_| {
        options.print_notes(&[format!("The new run exists; continue with: {next}")]);
    })?;
    let cancel = cancel::install_cancel()?;
    let result = claimed.resume(&workspace, &agent, options, payload, cancel)?;
    Ok(ForkOutcome::Continued(Box::new(result)))
}
