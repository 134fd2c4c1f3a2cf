//! `delta replay`: verifies the records of a run, or repeats its tools or its LLM calls.

use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_agent::agent;
use delta_base::id::RunId;
use delta_base::json::merge_objects;
use delta_base::terminal_text::{escape_to_line, strip_terminal_controls};
use delta_llm::llm::ModelChoice;
use delta_operator::arguments::{agent_choice, completion_candidates};
use delta_operator::command_line::pluralize;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::{own_run, run_list};
use delta_operator::sandbox_options::SandboxOptions;
use delta_program::default_format::TextOrJson;
use delta_program::stdio;
use delta_report::replay::{self, ReplayDifference, ReplayReport};
use delta_run::event::{EngineStart, Event};
use delta_run::journal::{self, JournalError};
use delta_run::run_files::JOURNAL_FILE;
use delta_run::state::RunState;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod model;
mod tools;
mod workspace_files;

/// The exit code of a replay that differs from the run.
const EXIT_DIFFERENT: u8 = 3;

/// The number of differences that text output shows.
const MAX_SHOWN_DIFFERENCES: usize = 10;

/// Replay a run from its records and report differences
///
/// Never changes the run. `tools` works in another workspace; `model` stops at the first answer with different calls.
#[derive(Debug, Args)]
#[command(mut_arg("sandbox_without", |arg| arg.hide_long_help(true)), after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// What to run again
    #[arg(long, value_enum, default_value_t = ReplayMode::Verify)]
    mode: ReplayMode,
    /// For `tools` and `model`: agent directory [default: the agent of the run]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// For `tools`: workspace, created if missing [default: a new one]
    ///
    /// By default, it is in the agent's workspaces/; for a run of a sweep, it is in forks/ of the sweep.
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    into: Option<PathBuf>,
    /// For `tools`: show progress as `delta run` does
    #[arg(short, long)]
    verbose: bool,
    /// For `model`: use another LLM, as with `delta run`
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    model: Option<ModelChoice>,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    env_files: EnvFileOptions,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayMode {
    /// Nothing: rebuild each line, request, call and result, and compare them with the records
    Verify,
    /// The tools, with the recorded answers of the LLM
    Tools,
    /// The LLM, with the recorded results of the tools
    Model,
}

const EXAMPLES: &str = "\
Examples:
  delta replay RUN -w ./work                             # check the records
  delta replay RUN -w ./work --mode tools --into ./fresh # run the tools
  delta replay RUN -w ./work --mode model --model gpt-4o # ask another LLM

Exit codes: 0 no differences, 3 differences, 2 usage error, 1 or 126 replay failed";

/// The result of a replay.
struct ReplayOutcome {
    id: RunId,
    /// One line with the verdict and the counts.
    heading: String,
    differences: Vec<ReplayDifference>,
    not_checked: Vec<String>,
    /// Further lines of the text output.
    notes: Vec<String>,
    /// The label of the value that is compared with the recorded one.
    other_label: &'static str,
    /// Further members of the JSON output.
    extra_json: Json,
}

/// Replays a run; returns the exit code.
pub fn replay_command(args: &ReplayArgs) -> Result<ExitCode, CommandFailure> {
    args.check_mode_options()?;
    let LocatedRun { id, dir, .. } = args.run.find_readable(&args.work_dir)?;
    let outcome = match args.mode {
        ReplayMode::Verify => verify_run(id, &dir),
        ReplayMode::Tools => tools::replay_tools(args, OriginalRun::read(id, dir)?),
        ReplayMode::Model => model::replay_model(args, &OriginalRun::read(id, dir)?),
    }?;
    stdio::print_text(&match args.format {
        TextOrJson::Text => outcome.render_text(),
        TextOrJson::Json => outcome.render_json(args),
    });
    Ok(ExitCode::from(if outcome.differences.is_empty() { 0 } else { EXIT_DIFFERENT }))
}

impl ReplayArgs {
    /// Refuses options that have no effect with the mode.
    fn check_mode_options(&self) -> Result<(), CommandFailure> {
        let options = [
            ("--agent", self.agent.is_some(), &[ReplayMode::Tools, ReplayMode::Model][..]),
            ("--into", self.into.is_some(), &[ReplayMode::Tools]),
            ("--verbose", self.verbose, &[ReplayMode::Tools]),
            ("--model", self.model.is_some(), &[ReplayMode::Model]),
        ];
        for (option, is_given, modes) in options {
            if is_given && !modes.contains(&self.mode) {
                let modes: Vec<String> =
                    modes.iter().map(|mode| format!("`--mode {}`", mode.name())).collect();
                let message =
                    format!("`{option}` has no effect with `--mode {}`", self.mode.name());
                let hint = format!("use it with {}", modes.join(" and "));
                return Err(CommandFailure::usage(message, hint));
            }
        }
        Ok(())
    }
}

impl ReplayMode {
    fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Tools => "tools",
            Self::Model => "model",
        }
    }
}

/// The run to replay.
struct OriginalRun {
    id: RunId,
    dir: PathBuf,
    events: Vec<Event>,
    /// The ENGINE_START of the last process.
    start: EngineStart,
}

impl OriginalRun {
    fn read(id: RunId, dir: PathBuf) -> Result<Self, CommandFailure> {
        let events = own_run::read_journal(&id, &dir)?.events;
        let start = RunState::from_events(&events)
            .start
            .ok_or_else(|| CommandFailure::damaged(format!("run {id} never began"), None))?;
        Ok(Self { id, dir, events, start })
    }

    /// The agent directory: the one from `--agent`, or else the one that the run recorded.
    fn agent_home(&self, args: &ReplayArgs) -> Result<PathBuf, CommandFailure> {
        if let Some(home) = &args.agent {
            return Ok(home.clone());
        }
        let folded = own_run::fold_own_journal(&self.id, &self.dir)?;
        own_run::check_is_own(&self.id, &self.dir, &folded)?;
        let home = PathBuf::from(&self.start.agent_home);
        if home.is_dir() {
            return Ok(home);
        }
        let message = agent::missing_agent(&home);
        Err(CommandFailure::config(message, agent_choice::MOVED_AGENT_HINT.to_owned()))
    }
}

fn verify_run(id: RunId, dir: &Path) -> Result<ReplayOutcome, CommandFailure> {
    let bytes = match journal::read_journal_bytes(dir) {
        // A journal that was removed is an empty one: what else is there shows that there was a run.
        Err(JournalError::NoEvents(_)) => Vec::new(),
        bytes => bytes.map_err(|error| own_run::unreadable_journal_failure(&id, error))?,
    };
    let ReplayReport { checked, differences, not_checked, .. } =
        replay::verify_run_records(dir, &bytes);
    if checked.lines == 0 && differences.is_empty() {
        let error = JournalError::NoEvents(dir.join(JOURNAL_FILE));
        return Err(own_run::unreadable_journal_failure(&id, error));
    }
    let heading = match differences.len() {
        0 => {
            let lines = pluralize(checked.lines, "line");
            let requests = pluralize(checked.requests, "request");
            let calls = pluralize(checked.calls, "call");
            let files = pluralize(checked.files, "file");
            format!("run {id} matches its records: {lines}, {requests}, {calls}, {files}")
        }
        count => {
            let count = pluralize(count, "difference");
            format!("run {id} does not match its records: {count}")
        }
    };
    Ok(ReplayOutcome {
        id,
        heading,
        differences,
        not_checked,
        notes: Vec::new(),
        other_label: "expected",
        extra_json: json!({"checked": checked}),
    })
}

impl ReplayOutcome {
    fn render_text(&self) -> String {
        let mut lines = vec![self.heading.clone()];
        let width = "recorded".len().max(self.other_label.len()) + 1;
        for (index, difference) in self.differences.iter().take(MAX_SHOWN_DIFFERENCES).enumerate() {
            let mut recorded = escape_to_line(&difference.recorded);
            let mut expected = escape_to_line(&difference.expected);
            if recorded == expected && difference.recorded != difference.expected {
                // One of them has an escape as text.
                recorded = escape_to_line(&difference.recorded.replace('\\', "\\\\"));
                expected = escape_to_line(&difference.expected.replace('\\', "\\\\"));
            }
            let word = if index == 0 { "first" } else { "then" };
            lines.push(format!("{word}: {}", difference.location()));
            lines.push(format!("  {:width$} {recorded}", "recorded:"));
            lines.push(format!("  {:width$} {expected}", format!("{}:", self.other_label)));
        }
        if self.differences.len() > MAX_SHOWN_DIFFERENCES {
            let more = self.differences.len() - MAX_SHOWN_DIFFERENCES;
            lines.push(format!("and {more} more; `--format json` lists all of them"));
        }
        lines.extend(self.not_checked.iter().map(|subject| format!("not checked: {subject}")));
        lines.extend(self.notes.iter().cloned());
        lines.push(String::new());
        strip_terminal_controls(&lines.join("\n"))
    }

    fn render_json(&self, args: &ReplayArgs) -> String {
        let differences = self.differences.iter().map(|difference| {
            let mut value = json!(difference);
            if self.other_label != "expected"
                && let Some(fields) = value.as_object_mut()
                && let Some(other) = fields.shift_remove("expected")
            {
                fields.insert(self.other_label.to_owned(), other);
            }
            value
        });
        let summary = json!({
            "run_id": self.id.as_str(),
            "mode": args.mode.name(),
            "equal": self.differences.is_empty(),
            "differences": differences.collect::<Vec<Json>>(),
            "not_checked": self.not_checked,
        });
        format!("{}\n", merge_objects(summary, self.extra_json.clone()))
    }
}
