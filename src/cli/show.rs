//! `delta show`: an account of one run.

use super::context::asked::Asked;
use super::failure::Failure;
use super::named::{Found, Named};
use super::{completions, drive, resume, stdout};
use crate::event::{Event, RunStatus};
use crate::family;
use crate::history::{Call, History, Iteration};
use crate::ledger::Ledger;
use crate::limits::Account;
use crate::outcome::{GoOn, RunResult};
use crate::ownership::{self, Owner};
use crate::progress::{Progress, Verbosity};
use crate::run::Notice;
use crate::signal::Cancel;
use crate::state::RunState;
use crate::time;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often `--follow` looks for more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// Show one run: its task, its iterations, what it waits for
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ShowArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// Print the exact request of iteration N, byte for byte as it was sent
    #[arg(long, value_name = "N", conflicts_with_all = ["follow", "format"])]
    request: Option<u32>,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Go on showing what happens until the run's process leaves it
    #[arg(short, long)]
    follow: bool,
    /// Show whole results
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta show RUN -w ./work
  delta show RUN -w ./work --follow
  delta show RUN -w ./work --request 3 | jq .messages
  delta show RUN -w ./work --format json | jq '.iterations[].calls[].tool'";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// An account for people
    Text,
    /// One JSON object; with --follow, every event on a line
    Json,
}

/// Shows a run; gives the exit code.
pub fn show(args: &ShowArgs) -> ExitCode {
    match perform(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &ShowArgs) -> Result<(), Failure> {
    let (found, events) = args.run.read(&args.work_dir)?;
    if let Some(iteration) = args.request {
        return print_request(&found.dir, &events, iteration);
    }
    match (args.format, args.follow) {
        (Format::Json, false) => {
            stdout::write(&format!("{}\n", account(&events)));
            Ok(())
        }
        _ => follow(args, &found, events),
    }
}

/// Shows the events, and with `--follow` those that come.
fn follow(args: &ShowArgs, found: &Found, mut events: Vec<Event>) -> Result<(), Failure> {
    let verbosity = if args.verbose { Verbosity::Verbose } else { Verbosity::Normal };
    let mut progress = Progress::account(verbosity, time::now);
    let cancel = if args.follow { Some(drive::cancel()?) } else { None };
    let mut state = RunState::default();
    let mut shown = 0;
    loop {
        for event in &events[shown..] {
            state.apply(event);
            match args.format {
                Format::Text => {
                    let notices =
                        [Notice::Written(std::slice::from_ref(event)), Notice::Recorded(event)];
                    notices.iter().for_each(|notice| progress.show(notice));
                }
                Format::Json if !stdout::write(&event.to_line()) => return Ok(()),
                Format::Json => {}
            }
        }
        shown = events.len();
        let running = state.status == Some(RunStatus::Running);
        // Without `--follow` there is nothing to wait with; a signal ends the wait.
        if !running || cancel.as_ref().is_none_or(wait) {
            break;
        }
        events = resume::read_journal(&found.id, &found.dir)?.events;
    }
    if args.format == Format::Text {
        close(&mut progress, &state, found);
    }
    Ok(())
}

/// Waits a moment; true when the stop was asked for.
fn wait(cancel: &Cancel) -> bool {
    cancel.wait(FOLLOW_INTERVAL)
}

/// Says what the run cost and what it waits for.
fn close(progress: &mut Progress, state: &RunState, found: &Found) {
    let Some(result) = RunResult::of(state) else { return };
    let usage = &result.metrics.usage;
    if usage.input_tokens + usage.output_tokens > 0 {
        let cost = usage.total_cost_usd.map_or(String::new(), |cost| format!(", {cost:.4} USD"));
        let tokens = format!("{} tokens in, {} out", usage.input_tokens, usage.output_tokens);
        progress.line(&format!("{tokens}{cost}"));
    }
    match Ledger::in_run(&found.dir) {
        Ok(account) => {
            let shares = account.iter().flat_map(Account::shares);
            shares.for_each(|share| progress.line(&share));
        }
        Err(error) => progress.line(&error.to_string()),
    }
    let below = family::children(&found.dir);
    below.iter().for_each(|child| progress.line(&format!("it began run {}", child.run_id)));
    let next = GoOn::of(state).at(&found.called);
    match (state.status, state.question()) {
        (Some(RunStatus::Running), _) => {
            let process = state.start.as_ref().map(|start| &start.process);
            let owner = process.map_or(Owner::Gone, ownership::inspect);
            progress.line(&match (owner, process) {
                (Owner::Alive, Some(process)) => format!("process {} works on it", process.pid),
                (Owner::Elsewhere, Some(process)) => {
                    format!(
                        "process {} on host {} works on it, or died",
                        process.pid, process.hostname
                    )
                }
                _ => format!("its process has died; go on with: {next}"),
            });
        }
        // The question stands above.
        (_, Some(_)) => progress.line(&format!("answer with: {next} -m ANSWER")),
        (Some(RunStatus::Interrupted), None) => progress.line(&format!("go on with: {next}")),
        _ => {}
    }
}

fn print_request(dir: &Path, events: &[Event], iteration: u32) -> Result<(), Failure> {
    let all = Asked::all(events);
    stdout::write(&Asked::of(&all, Some(iteration))?.text(dir)?);
    Ok(())
}

/// The run as one JSON object.
fn account(events: &[Event]) -> Json {
    let state = RunState::of(events);
    let history = History::of(events);
    let messages = history.messages();
    let messages: Vec<Json> =
        messages.map(|said| json!({"timestamp": said.at, "content": said.what})).collect();
    let iterations: Vec<Json> = history.iterations.iter().map(iteration).collect();
    let mut account = RunResult::of(&state).map_or(Json::Null, |result| json!(result));
    if state.status == Some(RunStatus::Running) {
        account["status"] = json!(RunStatus::Running);
    }
    if let Some(origin) = &state.origin {
        account["origin"] = json!(origin);
    }
    account["messages"] = messages.into();
    account["iterations"] = iterations.into();
    account
}

fn iteration(told: &Iteration<'_>) -> Json {
    let thought = told.thought.what;
    json!({
        "iteration": thought.iteration,
        "timestamp": told.thought.at,
        "thought": thought.content,
        "usage": thought.usage,
        "invocation": thought.invocation,
        "calls": told.calls.iter().filter_map(call).collect::<Vec<Json>>(),
    })
}

/// A call that has begun.
fn call(told: &Call<'_>) -> Option<Json> {
    let request = told.request?.what;
    let result = told.result.map(|found| {
        let result = found.what;
        json!({
            "observation": result.observation_content,
            "exit_code": result.exit_code,
            "duration_ms": result.duration_ms,
            "execution": result.execution,
            "truncated": result.truncated,
        })
    });
    Some(json!({
        "call_id": request.call_id,
        "tool": request.tool_name,
        "arguments": request.tool_args,
        "argv": request.argv,
        "result": result,
    }))
}
