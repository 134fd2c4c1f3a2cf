//! `delta fork`: a new run that begins as another one, from the arguments to the exit code.
//!
//! The other run is only read. When the fork is to go on at once, it does so as `delta continue` lets it.

use super::completions;
use super::drive::{self, Options, Ready};
use super::failure::Failure;
use super::named::{Found, Named};
use super::resume::{self, Held, Missing};
use super::{run, stdout};
use crate::agent::Agent;
use crate::event::{EngineStart, Event, Files, Fork, Origin};
use crate::fork::{self, Cut, ForkError};
use crate::id::RunId;
use crate::outcome::{GoOn, RunResult};
use crate::output::Format;
use crate::ownership::Ownership;
use crate::run::mend_metadata;
use crate::state::RunState;
use crate::time;
use crate::workspace::Workspace;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod files;

use files::Snapshots;

/// Make a new run that begins as another one
///
/// The first N iterations of a run become those of a new one, whose id goes to stdout; the run itself is only read, and
/// may be at work. With -m, --model, --agent or --continue the new run goes on at once, as `delta continue` lets it. Its
/// files are those of the snapshot of iteration N, or else, as a note says, those that the run has now.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ForkArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// How many of its iterations the new run begins with; 0 is the task alone (all whole ones by default)
    #[arg(long, value_name = "N")]
    at: Option<u32>,
    /// The workspace that holds RUN
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// The workspace of the new run: a new or empty directory, or that of RUN, whose files then stay as they are; a new
    /// one in the agent's workspaces/ by default
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::Workspaces))]
    into: Option<PathBuf>,
    /// The id of the new run (made by default)
    #[arg(long, value_name = "ID", value_parser = super::parse_run_id)]
    run_id: Option<RunId>,
    /// Go on with this message; `-` reads it from stdin
    #[arg(short, long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    message: Option<String>,
    /// Go on with this agent (that of RUN by default)
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::Agents))]
    agent: Option<PathBuf>,
    /// Go on, although nothing else is new
    #[arg(long = "continue")]
    go_on: bool,
    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  delta fork RUN -w ./work --at 3                         make the new run, and print its id
  delta fork RUN -w ./work --at 3 -m \"Try it without sed\" go on with another message
  delta fork RUN -w ./work --at 3 --model openai:gpt-4o   or with another LLM
  delta fork RUN -w ./work --at 3 --agent ./new-version   or with another agent
  delta diff RUN ./elsewhere/.delta/FORK -w ./work        what became of it";

/// Makes a fork, and drives it when it is to go on; gives the exit code.
pub fn fork(args: &ForkArgs) -> ExitCode {
    let id = args.run_id.as_ref().map(ToString::to_string);
    if !args.goes_on() && args.options.is_for_work() {
        return super::usage_error(
            "fork",
            "-i, --snapshots, --max-iterations and limits have an effect only when the new run goes on: \
             add -m, --model, --agent or --continue",
        );
    }
    match perform(args) {
        Ok(Done::Driven(result)) => drive::finish(Ok(*result), args.options.format, id),
        Ok(Done::Made(text)) => {
            stdout::write(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => drive::finish(Err(failure), args.options.format, id),
    }
}

enum Done {
    /// The fork was made; with what stdout carries.
    Made(String),
    /// It went on.
    Driven(Box<RunResult>),
}

impl ForkArgs {
    fn goes_on(&self) -> bool {
        self.go_on || self.message.is_some() || self.agent.is_some() || self.options.model.is_some()
    }
}

fn perform(args: &ForkArgs) -> Result<Done, Failure> {
    let message = args.message.as_deref().map(drive::message).transpose()?;
    let source = Source::find(args)?;
    source.check_message(args, message.as_deref())?;
    let agent = match args.goes_on() {
        true => {
            let agent = resume::load_agent(args.agent.as_deref(), &source.start, &args.options)?;
            // The new workspace, which is not there yet, has at most what this one has.
            Some(Ready::check(agent, &source.found.workspace.root, &args.options)?)
        }
        false => None,
    };
    let place = Place::choose(args, &source)?;
    let made = make(args, &source, &place)?;
    let id = made.id.clone();
    let done = match agent {
        Some(agent) => drive_on(args, made, agent, message),
        None => made.account(args, &source).map(Done::Made),
    };
    done.map_err(|failure| failure.of_run(&id))
}

/// The run that is forked, and where.
struct Source {
    found: Found,
    events: Vec<Event>,
    cut: Cut,
    /// Of the process that was at work there.
    start: EngineStart,
    /// Whether the run has its result there.
    is_over: bool,
}

impl Source {
    fn find(args: &ForkArgs) -> Result<Self, Failure> {
        let found = args.run.find(&args.work_dir)?;
        let events = resume::read_journal(&found.id, &found.dir)?.events;
        let cut = Cut::at(&events, args.at).map_err(|error| {
            let hint = format!("`delta show {} -w {}` shows them", found.id, found.place());
            Failure::no_run(error.to_string(), hint)
        })?;
        let state = RunState::of(&events[..cut.events]);
        let is_over = state.result.is_some();
        let start = state.start.ok_or_else(|| {
            Failure::damaged(format!("run {} has no ENGINE_START", found.id), None)
        })?;
        Ok(Self { found, events, cut, start, is_over })
    }

    /// Where the run has its result, it goes on with a message only.
    fn check_message(&self, args: &ForkArgs, message: Option<&str>) -> Result<(), Failure> {
        if !self.is_over || !args.goes_on() || message.is_some() {
            return Ok(());
        }
        let iteration = self.cut.iteration;
        let message = format!("the run has its result at iteration {iteration}");
        let hint = "say with -m what is next, or fork it earlier with --at";
        Err(Failure::needs_message(message, hint))
    }
}

/// Where the fork is to work. Nothing is made yet.
enum Place {
    /// In the workspace of the other run.
    Same,
    /// In a directory of which nothing stands in the way.
    Named(PathBuf),
    /// In the next free one of the agent's workspaces.
    Next(PathBuf),
}

impl Place {
    fn choose(args: &ForkArgs, source: &Source) -> Result<Self, Failure> {
        let Some(dir) = &args.into else {
            let home = Path::new(&source.start.agent_home);
            let home = args.agent.as_deref().unwrap_or(home);
            if !home.is_dir() {
                let message = format!("the agent is not in {} any more", home.display());
                let hint = "say with `--into DIR` where the new run is to work";
                return Err(Failure::config(message, hint.to_owned()));
            }
            let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
            return Ok(Self::Next(home));
        };
        if dir.canonicalize().is_ok_and(|dir| dir == source.found.workspace.root) {
            return Ok(Self::Same);
        }
        // What cannot be read is refused where it is opened.
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        match entries.map(|entry| entry.file_name()).find(|name| name != ".delta") {
            None => Ok(Self::Named(dir.clone())),
            Some(name) => {
                let (dir, name) = (dir.display(), Path::new(&name).display());
                let message = format!("{dir} is not empty: `{name}` is in it");
                let hint = format!(
                    "name a new directory, or {} to leave the files there as they are",
                    source.found.place()
                );
                Err(Failure::exists(message, hint))
            }
        }
    }

    fn open(&self, source: &Source) -> Result<Workspace, Failure> {
        Ok(match self {
            Self::Same => source.found.workspace.clone(),
            Self::Named(dir) => Workspace::open(dir)?,
            Self::Next(home) => {
                let workspace = Workspace::next_of(home)?;
                workspace.mark_last_used(home);
                workspace
            }
        })
    }
}

/// A fork that is there.
struct Made {
    id: RunId,
    dir: PathBuf,
    workspace: Workspace,
    ownership: Ownership,
    files: Files,
}

fn make(args: &ForkArgs, source: &Source, place: &Place) -> Result<Made, Failure> {
    let workspace = place.open(source)?;
    let (id, dir, ownership) = run::create_run(args.run_id.as_ref(), &workspace)?;
    let (from, cut) = (&source.found, source.cut);
    fork::copy_records(&from.dir, &dir, &source.events[..cut.events])?;
    let snapshots = Snapshots::of(source)?;
    let needed = !matches!(place, Place::Same);
    let handed = snapshots.map(|snapshots| snapshots.hand_on(source, &dir, needed)).transpose()?;
    let (store, tree) = handed.map_or((None, None), |(store, tree)| (Some(store), tree));
    let files = match place {
        Place::Same => Files::Kept,
        Place::Named(_) | Place::Next(_) => files::fill(args, source, &workspace, store.zip(tree))?,
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let origin = Fork {
        run_id: id.to_string(),
        work_dir: text(&workspace.root),
        workspace_id: workspace.name(),
        from: Origin {
            run_id: from.id.to_string(),
            iteration: cut.iteration,
            run_dir: text(&from.dir),
            work_dir: text(&from.workspace.root),
        },
        files,
        tree: tree.map(|tree| tree.to_string()),
    };
    fork::begin(&from.dir, &dir, cut, origin, time::now).map_err(|error| match error {
        ForkError::File(error) => error.into(),
        ForkError::Journal(error) => Failure::damaged(error.to_string(), None),
    })?;
    let made = Made { id, dir, workspace, ownership, files };
    made.say_what_files(args, source);
    Ok(made)
}

impl Made {
    /// Says which files the fork begins with.
    fn say_what_files(&self, args: &ForkArgs, source: &Source) {
        let (place, of) = (self.workspace.root.display(), source.found.workspace.root.display());
        let iteration = source.cut.iteration;
        let line = match self.files {
            Files::Snapshot => format!("The files in {place} are those of iteration {iteration}"),
            Files::Present => format!(
                "Note: the files in {place} are the present ones of {of}; the run has no snapshot of iteration {iteration}"
            ),
            Files::Kept => {
                format!("Note: the files in {place} stay as they are, and both runs work on them")
            }
        };
        args.options.note(&[line]);
    }

    /// What stdout carries of a fork that does not go on yet; how it does is told on stderr.
    fn account(&self, args: &ForkArgs, source: &Source) -> Result<String, Failure> {
        let events = resume::read_journal(&self.id, &self.dir)?.events;
        let state = RunState::of(&events);
        mend_metadata(&self.dir, &state)?;
        let next = GoOn::of(&state);
        let next = if source.is_over { next.saying("MESSAGE") } else { next };
        args.options.note(&[format!("Go on with: {next}")]);
        Ok(match args.options.format {
            Format::Text | Format::Raw => format!("{}\n", self.id),
            Format::Json | Format::Jsonl => {
                let account = json!({
                    "run_id": self.id.to_string(),
                    "status": state.status,
                    "run_dir": self.dir,
                    "workspace_path": self.workspace.root,
                    "origin": state.origin,
                });
                format!("{account}\n")
            }
        })
    }
}

/// Goes on with the fork, as `delta continue` does.
fn drive_on(
    args: &ForkArgs,
    made: Made,
    agent: Agent,
    message: Option<String>,
) -> Result<Done, Failure> {
    let Made { id, dir, workspace, ownership, .. } = made;
    let folded = resume::fold_journal(&id, &dir)?;
    let held = Held::new(&id, dir, ownership, folded, false)?;
    let next = GoOn::of(held.state()).asking(args.options.model.as_ref());
    let next = message.iter().fold(next, |next, message| next.saying(message));
    let said =
        held.meaning(message, &args.options, &workspace.root).map_err(Missing::into_failure)?;
    // The files of the workspace count too, and are there now.
    let ready = Ready::new(agent, Some(&workspace.root), &args.options).inspect_err(|_| {
        args.options.note(&[format!("The new run is there; go on with: {next}")]);
    })?;
    let result = held.take_up(&workspace, &ready, &args.options, said, drive::cancel()?)?;
    Ok(Done::Driven(Box::new(result)))
}
