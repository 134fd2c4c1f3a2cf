//! `delta run`: a new run, from the arguments to the exit code.

use super::completions;
use super::drive::{self, Options, Ready};
use super::failure::Failure;
use super::resume;
use crate::agent::Agent;
use crate::environment::HOOK_NAME;
use crate::event::{Parent, Payload};
use crate::family;
use crate::id::RunId;
use crate::limits::Amount;
use crate::outcome::RunResult;
use crate::ownership::Ownership;
use crate::run::{Notice, Run};
use crate::signal::Cancel;
use crate::state::RunState;
use crate::terminal;
use crate::time;
use crate::workspace::{Workspace, WorkspaceError};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run an agent on a task
///
/// Makes a new run in a workspace, and drives it until the task is done, a person has to answer, or something fails. The
/// result goes to stdout; what happens meanwhile to stderr.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RunArgs {
    /// The agent directory
    #[arg(long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Agents))]
    agent: PathBuf,
    /// The task; `-` reads it from stdin
    #[arg(short, long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    message: String,
    /// The directory to work in, made when missing; a new one in the agent's workspaces/ by default
    #[arg(short, long, value_name = "DIR", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: Option<PathBuf>,
    /// The id of the run, for those who track it themselves (made by default)
    #[arg(long, value_name = "ID", value_parser = super::parse_run_id)]
    run_id: Option<RunId>,
    /// Make sure that the run `--run-id` is done: create it, or continue it when it was interrupted, or wait for the
    /// process that works on it, or print its stored result
    #[arg(long, requires = "run_id", requires = "work_dir")]
    ensure: bool,
    /// Never ask which workspace to use: make a new one
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  delta run --agent ./my-agent -m \"Summarise the logs\"
  delta run -m - < task.md                      the task from a file
  delta run -w . -m \"Fix the test\"              work in this directory
  delta run -m \"...\" --format json | jq .result
  delta run --run-id \"$(uuidgen)\" -m \"...\"      an id of your own
  delta run --model openai:gpt-4o -m \"...\"      another LLM
  delta run --ensure --run-id nightly -w . -m \"...\"   the same line any number of times: the work is done once";

/// Makes a run and drives it.
pub fn run(args: &RunArgs) -> ExitCode {
    let id = args.run_id.as_ref().map(ToString::to_string);
    drive::finish(perform(args), args.options.format, id)
}

fn perform(args: &RunArgs) -> Result<RunResult, Failure> {
    let message = drive::message(&args.message)?;
    let agent = drive::load(&args.agent, &args.options)?;
    let cancel = drive::cancel()?;
    let choice = choose_workspace(args, &agent, &cancel)?;
    let ready = Ready::new(agent, choice.path(), &args.options)?;
    let workspace = choice.open(&ready.agent)?;
    loop {
        match create_run(args.run_id.as_ref(), &workspace) {
            Ok(new) => {
                let id = new.0.clone();
                let result = begin(args, new, message, &ready, &workspace, cancel);
                return result.map_err(|failure| failure.of_run(&id));
            }
            Err(WorkspaceError::Exists { id, .. }) if args.ensure => {
                // Nothing to give means that its process died before the run began: it is made again.
                if let Some(result) =
                    resume::ensure(&id, &message, &workspace, &ready, &args.options, &cancel)?
                {
                    return Ok(result);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A run directory that was made just now.
pub type New = (RunId, PathBuf, Ownership);

fn begin(
    args: &RunArgs,
    (id, dir, ownership): New,
    message: String,
    ready: &Ready,
    workspace: &Workspace,
    cancel: Cancel,
) -> Result<RunResult, Failure> {
    let kept = ready.keep(&dir, ownership.epoch(), None)?;
    let observer = drive::observer(&args.options, &dir, &RunState::default())?;
    let budget = ready.budget((&id, &dir), &args.options, Amount::default(), &cancel)?;
    let mut run = Run::create(id, &dir, ownership, ready.secrets.clone(), time::now, observer)?;
    let mut start = ready.start(&run, workspace, &args.options, kept);
    start.parent = parent();
    let parent = start.parent.clone();
    run.record(Payload::EngineStart(Box::new(start)));
    run.record(Payload::UserMessage { content: message });
    run.commit()?;
    if let Some(parent) = parent
        && let Err(error) = family::announce(&parent, run.id.as_str(), &run.dir)
    {
        run.tell(Notice::Warning(&format!(
            "run {} does not know of this run: {error}",
            parent.run_id
        )));
    }
    ready.drive(&mut run, workspace, &args.options, (budget, cancel))
}

/// The run whose tool, hook or generator this process is.
fn parent() -> Option<Parent> {
    let run_dir = drive::variable("RUN_DIR")?;
    // A hook has an id of its own there, which is no call's.
    let is_hook = drive::variable(HOOK_NAME).is_some();
    let call_id = drive::variable("DELTA_CALL_ID").filter(|_| !is_hook);
    family::parent(&drive::variable("DELTA_RUN_ID")?, Path::new(&run_dir), call_id)
}

/// A workspace that was chosen, and is not made yet.
enum Choice {
    /// The directory that the operator names.
    Named(PathBuf),
    /// One of the agent's, chosen by a person.
    Numbered(PathBuf),
    /// The next free one of the agent's.
    New,
}

impl Choice {
    /// Where it is, when that is known.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Named(path) | Self::Numbered(path) => Some(path),
            Self::New => None,
        }
    }

    /// The workspace, made when it is missing.
    fn open(&self, agent: &Agent) -> Result<Workspace, WorkspaceError> {
        let workspace = match self {
            Self::Named(path) => return Workspace::open(path),
            Self::Numbered(path) => Workspace::open(path)?,
            Self::New => Workspace::next_of(&agent.home)?,
        };
        workspace.mark_last_used(&agent.home);
        Ok(workspace)
    }
}

fn choose_workspace(args: &RunArgs, agent: &Agent, cancel: &Cancel) -> Result<Choice, Failure> {
    if let Some(dir) = &args.work_dir {
        return Ok(Choice::Named(dir.clone()));
    }
    let names = Workspace::names_of(&agent.home);
    if args.yes || names.is_empty() || !terminal::can_ask() {
        return Ok(Choice::New);
    }
    let mut prompt = String::from("Workspace?\n");
    let last_used = Workspace::last_used(&agent.home);
    for (index, name) in names.iter().enumerate() {
        let last = if *name == last_used { "  (last used)" } else { "" };
        prompt.push_str(&format!("  {}) {name}{last}\n", index + 1));
    }
    prompt.push_str("  n) a new one\nchoose [n]> ");
    loop {
        let answer = terminal::ask(&prompt, cancel).map_err(|error| {
            let hint = "name one with `-w DIR`, or give `-y` for a new one";
            Failure::unanswered("no workspace was chosen", &error, hint)
        })?;
        let answer = answer.trim();
        if answer.is_empty() || answer.eq_ignore_ascii_case("n") {
            return Ok(Choice::New);
        }
        let by_number =
            answer.parse::<usize>().ok().and_then(|number| names.get(number.checked_sub(1)?));
        if let Some(name) =
            by_number.or_else(|| names.iter().find(|name| name.eq_ignore_ascii_case(answer)))
        {
            return Ok(Choice::Numbered(agent.home.join("workspaces").join(name)));
        }
        prompt = format!("`{answer}` is not among them; a number, a name, or n> ");
    }
}

/// Makes the directory of a run with this id, or with a new one.
pub fn create_run(wanted: Option<&RunId>, workspace: &Workspace) -> Result<New, WorkspaceError> {
    loop {
        let id = wanted.cloned().unwrap_or_else(|| {
            let [a, b, c, ..] = *uuid::Uuid::new_v4().as_bytes();
            RunId::mint(time::now(), [a, b, c])
        });
        match workspace.create_run(&id) {
            Ok((dir, ownership)) => return Ok((id, dir, ownership)),
            Err(WorkspaceError::Exists { .. }) if wanted.is_none() => {}
            Err(error) => return Err(error),
        }
    }
}
