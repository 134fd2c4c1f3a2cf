//! `delta replay`: a run once more, from its records: only looked at, or with its tools, or with its LLM.

use super::failure::Failure;
use super::named::{self, Named};
use super::{completions, resume, stdout};
use crate::event::{EngineStart, Event};
use crate::id::RunId;
use crate::journal;
use crate::llm::config::ModelChoice;
use crate::replay::{self, Difference, Report};
use crate::state::RunState;
use crate::text::printable;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod model;
mod tools;
mod world;

/// The exit code of a replay that is not as the run was.
const DIVERGED: u8 = 3;

/// So many differences are shown to a person.
const SHOWN: usize = 10;

/// Make a run again from its records, and say where it is not the same
///
/// The run itself is never changed. `verify` asks and starts nothing: every line, request, call and result is made again
/// from the journal and the kept agent, and compared. `tools` starts the tools for real, in a workspace of their own, and
/// gives the LLM's recorded answers. `model` asks the LLM for real, shows it the recorded results, and stops where it
/// calls something else.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// What is done again
    #[arg(long, value_enum, default_value_t = Mode::Verify)]
    mode: Mode,
    /// With `tools` or `model`: the agent directory (where the run had it by default)
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::Agents))]
    agent: Option<PathBuf>,
    /// With `tools`: the workspace to work in, made when missing (a new one in the agent's workspaces/ by default)
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::Workspaces))]
    into: Option<PathBuf>,
    /// With `tools`: show what the run does, as `delta run` shows it
    #[arg(short, long)]
    verbose: bool,
    /// With `model`: another LLM than the agent's, as for `run`
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    model: Option<ModelChoice>,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Nothing: the run's files are compared with each other
    Verify,
    /// What the tools did, with the recorded answers of the LLM
    Tools,
    /// What the LLM answered, with the recorded results of the tools
    Model,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// An account for people
    Text,
    /// One JSON object
    Json,
}

const EXAMPLES: &str = "\
Examples:
  delta replay RUN -w ./work                              is the run what its files say?
  delta replay RUN -w ./work --mode tools --into ./fresh  do the tools still do the same?
  delta replay RUN -w ./work --mode model --model gpt-4o  would another LLM do the same?

Exit codes: 0 the same, 3 not the same, 1 or 126 when it cannot be told";

/// What a replay has found.
struct Found {
    id: RunId,
    /// What was replayed, in words, with a number of everything.
    heading: String,
    differences: Vec<Difference>,
    /// What could not be checked.
    not_checked: Vec<String>,
    /// What a person should know beside.
    notes: Vec<String>,
    /// How the other side of a difference is called.
    other: &'static str,
    /// More members of the JSON object.
    more: Json,
}

/// Replays a run; gives the exit code.
pub fn replay(args: &ReplayArgs) -> ExitCode {
    match perform(args) {
        Ok(found) => {
            stdout::write(&match args.format {
                Format::Text => found.text(),
                Format::Json => found.json(args),
            });
            if found.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIVERGED) }
        }
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &ReplayArgs) -> Result<Found, Failure> {
    args.check()?;
    let named::Found { id, dir, .. } = args.run.find(&args.work_dir)?;
    match args.mode {
        Mode::Verify => verify(id, &dir),
        Mode::Tools => tools::replay(args, &Original::read(id, dir)?),
        Mode::Model => model::replay(args, &Original::read(id, dir)?),
    }
}

impl ReplayArgs {
    /// Refuses options that mean nothing to the mode: they would be taken for having had an effect.
    fn check(&self) -> Result<(), Failure> {
        let given = [
            ("--agent", self.agent.is_some(), &[Mode::Tools, Mode::Model][..]),
            ("--into", self.into.is_some(), &[Mode::Tools]),
            ("--verbose", self.verbose, &[Mode::Tools]),
            ("--model", self.model.is_some(), &[Mode::Model]),
        ];
        let name = |mode: &Mode| match mode {
            Mode::Verify => "verify",
            Mode::Tools => "tools",
            Mode::Model => "model",
        };
        for (option, is_given, modes) in given {
            if is_given && !modes.contains(&self.mode) {
                let modes: Vec<String> =
                    modes.iter().map(|mode| format!("`--mode {}`", name(mode))).collect();
                let message = format!("`{option}` means nothing to `--mode {}`", name(&self.mode));
                let hint = format!("it is for {}", modes.join(" and "));
                return Err(Failure::config(message, hint));
            }
        }
        Ok(())
    }
}

/// The run that is replayed.
struct Original {
    id: RunId,
    dir: PathBuf,
    events: Vec<Event>,
    /// Of its last process.
    start: EngineStart,
}

impl Original {
    fn read(id: RunId, dir: PathBuf) -> Result<Self, Failure> {
        let events = resume::read_journal(&id, &dir)?.events;
        let start = RunState::of(&events).start;
        let never = || Failure::damaged(format!("run {id} never began"), None);
        let start = start.ok_or_else(never)?;
        Ok(Self { id, dir, events, start })
    }

    /// Where the agent is now.
    fn agent_home(&self, args: &ReplayArgs) -> Result<PathBuf, Failure> {
        let home = args.agent.clone().unwrap_or_else(|| PathBuf::from(&self.start.agent_home));
        if home.is_dir() || args.agent.is_some() {
            return Ok(home);
        }
        let message = format!("the agent is not in {} any more", home.display());
        Err(Failure::config(message, "say where it is now with `--agent DIR`".to_owned()))
    }
}

fn verify(id: RunId, dir: &Path) -> Result<Found, Failure> {
    let bytes = journal::bytes(dir).map_err(|error| resume::unreadable(&id, error))?;
    let Report { checked, differences, not_checked, .. } = replay::verify(dir, &bytes);
    let (lines, requests) = (count(checked.lines, "line"), count(checked.requests, "request"));
    let (calls, files) = (count(checked.calls, "call"), count(checked.files, "file"));
    let heading = match differences.len() {
        0 => format!("run {id} is as it was recorded: {lines}, {requests}, {calls}, {files}"),
        many => format!("run {id} is not as it was recorded: {}", count(many, "difference")),
    };
    let (other, more) = ("expected", json!({"checked": checked}));
    Ok(Found { id, heading, differences, not_checked, notes: Vec::new(), other, more })
}

impl Found {
    fn text(&self) -> String {
        let mut lines = vec![self.heading.clone()];
        let width = "recorded".len().max(self.other.len()) + 1;
        for (index, difference) in self.differences.iter().take(SHOWN).enumerate() {
            let on_a_line = |text: &str| text.replace('\n', "\\n");
            let (recorded, expected) =
                (on_a_line(&difference.recorded), on_a_line(&difference.expected));
            let word = if index == 0 { "first" } else { "then" };
            lines.push(format!("{word}: {}", difference.place()));
            lines.push(format!("  {:width$} {recorded}", "recorded:"));
            lines.push(format!("  {:width$} {expected}", format!("{}:", self.other)));
        }
        if self.differences.len() > SHOWN {
            let more = self.differences.len() - SHOWN;
            lines.push(format!("and {more} more; `--format json` has them all"));
        }
        lines.extend(self.not_checked.iter().map(|what| format!("not checked: {what}")));
        lines.extend(self.notes.iter().cloned());
        lines.push(String::new());
        printable(&lines.join("\n"))
    }

    fn json(&self, args: &ReplayArgs) -> String {
        let mode = args.mode.to_possible_value().map(|mode| mode.get_name().to_owned());
        let differences = self.differences.iter().map(|difference| {
            let mut value = json!(difference);
            if self.other != "expected"
                && let Some(fields) = value.as_object_mut()
                && let Some(other) = fields.shift_remove("expected")
            {
                fields.insert(self.other.to_owned(), other);
            }
            value
        });
        let mut account = json!({
            "run_id": self.id.as_str(),
            "mode": mode,
            "equal": self.differences.is_empty(),
            "differences": differences.collect::<Vec<Json>>(),
            "not_checked": self.not_checked,
        });
        if let (Some(account), Json::Object(more)) = (account.as_object_mut(), self.more.clone()) {
            account.extend(more);
        }
        format!("{account}\n")
    }
}

fn count(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
