//! `delta show`: prints one run.

use crate::context::iteration_request::IterationRequest;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::id::RunId;
use delta_base::redact::redact_answers;
use delta_base::signal::CancelToken;
use delta_base::terminal::input_line::InputLine;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time;
use delta_engine::progress::{ProgressPrinter, Verbosity};
use delta_engine::result_output::{OutputFormat, render_run_result};
use delta_operator::arguments::completion_candidates;
use delta_operator::failure::{CommandFailure, status_exit_code};
use delta_operator::runs::agent_hint::AgentHint;
use delta_operator::runs::own_run::{self, process_is_gone};
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::run_input::{self, RunInput};
use delta_operator::runs::run_list;
use delta_operator::{cancel, environment};
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_report::sweep_facts::SweepRunFacts;
use delta_run::budget::budget_account::BudgetAccount;
use delta_run::budget::ledger::Ledger;
use delta_run::conversation::history::{CallHistory, Iteration, RunHistory};
use delta_run::event::image_file::ImageFile;
use delta_run::event::{Event, ProcessInfo, RunStatus};
use delta_run::mailbox::{self, Mailbox, MessageSeal};
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run::RunNotice;
use delta_run::run_result::{
    ContinueCommand, RunResult, UsageTotal, describe_tree, describe_waiting,
};
use delta_run::run_summary;
use delta_run::run_tree::sensitive_answers;
use delta_run::run_tree::{self, ChildRunEntry, RunTreeTotal};
use delta_run::state::stage::StageDir;
use delta_run::state::{HumanRequest, RunState};
use delta_run::workspace;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often `--follow` looks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// How long `--follow` waits for the exit of a process that has ended its work: one in a conversation stays.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it looks whether the process has exited.
const EXIT_INTERVAL: Duration = Duration::from_millis(10);
/// The number of child runs of which each has a line.
const MAX_LISTED_CHILDREN: usize = 8;

/// Show a run: its task, its iterations and what it waits for
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ShowArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Print the exact request of iteration N, byte for byte
    #[arg(long, value_name = "N", value_parser = parse_number_in(0..=u32::MAX), conflicts_with_all = ["follow", "format"])]
    request: Option<u32>,
    /// With --request: print the body that was sent to the endpoint, in its own form
    #[arg(long, requires = "request")]
    wire: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = ShowFormat::Text)]
    format: ShowFormat,
    /// Keep showing events as they are recorded, until the run's process exits; with `--format json`, one event per line
    #[arg(short, long)]
    follow: bool,
    /// Show complete results
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta show RUN -w ./work --follow
  delta show RUN -w ./work --follow --format raw   # wait for the result
  delta show RUN -w ./work --request 3 | jq .messages
  delta show RUN -w ./work --request 3 --wire | jq .system   # as sent
  delta show RUN -w ./work --format json | jq '.iterations[].calls[].tool'";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShowFormat {
    /// Readable report
    Text,
    /// One JSON object; with --follow, one event per line
    Json,
    /// The result alone; with --follow, when the process exits. Exits with the code of the run
    Raw,
}

/// Prints a run.
///
/// # Errors
/// The run cannot be read.
pub fn show_command(args: &ShowArgs) -> Result<ExitCode, CommandFailure> {
    let (run, events) = args.run.find_and_read(&args.work_dir)?;
    if let Some(iteration) = args.request {
        print_request(&run.dir, &events, iteration, args.wire)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.format == ShowFormat::Json && !args.follow {
        let mut json = run_json(&run.dir, &events);
        if let Some(facts) = read_sweep_facts(&run, &RunState::from_events(&events)) {
            json["sweep"] = json!(facts);
        }
        stdio::print_text(&format!("{json}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    follow_run(args, &run, events)
}

/// Prints the events, and with `--follow` new events as they come.
fn follow_run(
    args: &ShowArgs,
    run: &LocatedRun,
    mut events: Vec<Event>,
) -> Result<ExitCode, CommandFailure> {
    let verbosity = if args.verbose { Verbosity::Verbose } else { Verbosity::Normal };
    let mut progress = ProgressPrinter::for_stdout(verbosity, time::current_time);
    let cancel = if args.follow { Some(cancel::install_cancel()?) } else { None };
    progress.hide_answers(sensitive_answers::read_enclosing_answers(&run.dir));
    if cancel.is_some() && args.format == ShowFormat::Text && environment::can_repaint() {
        progress.enable_live_output();
    }
    let input = match &cancel {
        Some(_) if args.format == ShowFormat::Text => open_input(run),
        _ => None,
    };
    let line = input.as_ref().map(|input| input.line());
    progress.set_input(line);
    let mut state = RunState::default();
    let mut shown_count = 0;
    loop {
        for event in &events[shown_count..] {
            state.apply(event);
            match args.format {
                ShowFormat::Text => {
                    let notices = [
                        RunNotice::EventsWritten(std::slice::from_ref(event)),
                        RunNotice::EventDurable(event, &state),
                    ];
                    notices.iter().for_each(|notice| progress.show_notice(notice));
                }
                ShowFormat::Json if !stdio::print_json(&event.to_line()) => {
                    return Ok(ExitCode::SUCCESS);
                }
                ShowFormat::Json | ShowFormat::Raw => {}
            }
        }
        shown_count = events.len();
        let is_running = state.status == Some(RunStatus::Running);
        if is_running && args.format != ShowFormat::Raw {
            progress.show_activity(&state);
        }
        // There is a token only with `--follow`; a signal ends the wait.
        if !is_running || cancel.as_ref().is_none_or(|cancel| cancel.wait(FOLLOW_INTERVAL)) {
            break;
        }
        // Checked before the journal is read, so that the last events of a process that ends now are shown.
        let is_gone = process_is_gone(&state);
        events = own_run::read_journal(&run.id, &run.dir)?.events;
        if is_gone && events.len() == shown_count {
            break;
        }
    }
    if let Some(input) = &input {
        input.pause();
    }
    progress.set_input(None);
    if args.format == ShowFormat::Raw {
        if let Some(cancel) = &cancel {
            wait_for_run_process(&state, cancel);
        }
        let is_interrupted = cancel.is_some_and(|cancel| cancel.is_requested());
        return Ok(print_raw_result(&state, run, is_interrupted));
    }
    if args.format == ShowFormat::Text {
        print_summary(&mut progress, &state, run, args.verbose);
    }
    progress.take_stdout_failure().into_iter().for_each(stdio::remember_write_failure);
    if let Some(input) = &input {
        run_input::print_unsent(input.line());
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the process of the run has exited on this host: before that, no other one can continue the run.
fn wait_for_run_process(state: &RunState, cancel: &CancelToken) {
    let Some(start) = &state.start else { return };
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while owner_process::owner_status(&start.process) == OwnerStatus::Alive
        && Instant::now() < deadline
        && !cancel.wait(EXIT_INTERVAL)
    {}
}

/// The line of input for messages to the run, where the user is at the terminal and may send some.
fn open_input(run: &LocatedRun) -> Option<Arc<RunInput>> {
    let is_here = environment::can_prompt_here() && environment::can_repaint();
    if !is_here || !run.is_in_workspace() || run.unpacked_from.is_some() {
        return None;
    }
    own_run::check_caller(&run.id, &run.dir).ok()?;
    let (state, key) = own_run::fold_with_its_key(&run.id, &run.dir).ok()?;
    let is_running = state.status == Some(RunStatus::Running) && !process_is_gone(&state);
    let mailbox = Mailbox::new(&run.dir, Some(MessageSeal::new(key, &state)));
    if !is_running {
        return None;
    }
    RunInput::open(&InputLine::default(), &run.id, &run.dir, mailbox)
}

/// What the sweep of the run knows of its last result; a sweep that cannot be read is reported.
fn read_sweep_facts(run: &LocatedRun, state: &RunState) -> Option<SweepRunFacts> {
    let facts = SweepRunFacts::read(&run.sweep_workspace(), &run.id).unwrap_or_else(|error| {
        stdio::print_error_line(&format!("warning: {error}"));
        None
    });
    Some(facts?.at_epoch(state.start.as_ref()?.epoch))
}

/// Prints the result of the run alone, and why there is none on stderr; returns the exit code of the run, or of a wait that was
/// interrupted.
fn print_raw_result(state: &RunState, run: &LocatedRun, is_interrupted: bool) -> ExitCode {
    let status = state.status.unwrap_or(RunStatus::Running);
    if status == RunStatus::Running && is_interrupted {
        return ExitCode::from(status_exit_code(RunStatus::Interrupted));
    }
    if let Some(result) = RunResult::from_state(state) {
        let text = render_run_result(&result, OutputFormat::Raw);
        if let Err(error) = stdio::print_result(&text) {
            stdio::remember_write_failure(error);
        }
        if let Some(error) = result.error {
            let message = strip_terminal_controls(&error.message);
            let message = redact_answers(&state.sensitive.answers, message);
            stdio::print_error_line(&format!("error: {message}"));
        }
    }
    if status != RunStatus::Completed {
        next_step_lines(state, run).iter().for_each(|line| stdio::print_error_line(line));
    }
    ExitCode::from(status_exit_code(status))
}

/// The runs that the run in `run_dir` has started, with how they are, and what all of them have used. Of many, only those are
/// named that are not COMPLETED.
fn child_run_lines(run_dir: &Path, state: &RunState, is_verbose: bool) -> Vec<String> {
    let children: Vec<(RunId, String)> = run_tree::read_child_runs(run_dir)
        .into_iter()
        .map(|child| (child.run_id.clone(), child_status(run_dir, &child)))
        .collect();
    let mut lines = Vec::new();
    let is_short = children.len() > MAX_LISTED_CHILDREN && !is_verbose;
    if is_short {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        children.iter().for_each(|(_, status)| *counts.entry(status).or_default() += 1);
        let counts: Vec<String> =
            counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
        lines.push(format!("it started {} runs: {}", children.len(), counts.join(", ")));
    }
    let completed = RunStatus::Completed.to_string();
    let listed = children.iter().filter(|(_, status)| !is_short || *status != completed);
    let limit = if is_short { MAX_LISTED_CHILDREN } else { usize::MAX };
    let left_out = listed.clone().count().saturating_sub(limit);
    lines.extend(listed.take(limit).map(|(id, status)| format!("it started run {id}: {status}")));
    if left_out > 0 {
        lines.push(format!("and {left_out} more that are not COMPLETED; -v lists all"));
    }
    lines.extend(RunTreeTotal::collect(run_dir, state).map(|total| describe_tree(&total)));
    lines
}

fn child_status(run_dir: &Path, child: &ChildRunEntry) -> String {
    let Some(dir) = run_tree::locate_child_run(run_dir, child) else {
        return "not found".to_owned();
    };
    match run_summary::summarize_run(&dir) {
        Ok(Some(summary)) if summary.status == RunStatus::Running && !summary.is_active => {
            format!("{} (died)", summary.status)
        }
        Ok(Some(summary)) => summary.status.to_string(),
        Ok(None) => "not started".to_owned(),
        Err(_) => "DAMAGED".to_owned(),
    }
}

/// The calls that outlive the engine and are at work.
fn tools_at_work_lines(run_dir: &Path) -> Vec<String> {
    let calls = SurvivingCall::all_at_work(run_dir).into_iter();
    let lines = calls.filter_map(|call| {
        let tool = call.command().ok()?.tool;
        Some(match call.holder() {
            Some(pid) => format!("{tool} is at work in process {pid}"),
            None => format!("{tool} is at work in a process that is not visible here"),
        })
    });
    lines.collect()
}

/// Prints the cost of the run, its child runs, and how to continue it.
fn print_summary(
    progress: &mut ProgressPrinter,
    state: &RunState,
    run: &LocatedRun,
    is_verbose: bool,
) {
    // The journal and the path of the workspace can contain anything.
    let mut print_line = |text: &str| progress.print_line(&strip_terminal_controls(text));
    if state.start.is_none() {
        return;
    }
    // The last line of a process that has ended says it.
    if state.status == Some(RunStatus::Running)
        && let Some(usage) = UsageTotal::from_state(state).describe()
    {
        print_line(&usage);
    }
    match Ledger::read_account(&run.dir) {
        Ok(ledger) => {
            let shares = ledger.iter().flat_map(BudgetAccount::describe_usage);
            shares.for_each(|share| print_line(&share));
        }
        Err(error) => print_line(&error.to_string()),
    }
    let facts = read_sweep_facts(run, state);
    facts.iter().flat_map(SweepRunFacts::to_lines).for_each(|line| print_line(&line));
    child_run_lines(&run.dir, state, is_verbose).iter().for_each(|line| print_line(line));
    if !run.is_in_workspace() {
        return;
    }
    if state.stage.is_some() && StageDir::new(&run.dir).has_changes() {
        let work_dir = workspace::quote_workspace(&run.workspace_argument);
        print_line(&format!("its changes are staged: delta diff {} -w {work_dir}", run.id));
    }
    tools_at_work_lines(&run.dir).iter().for_each(|line| print_line(line));
    if let Some(sent) = &state.sent {
        let verb = if sent.copy { "a copy of the run at" } else { "sent to" };
        print_line(&format!("{verb} {}", sent.place));
        return;
    }
    for line in next_step_lines(state, run) {
        print_line(&line);
    }
}

/// Which process works on the run, or how to continue it.
fn next_step_lines(state: &RunState, run: &LocatedRun) -> Vec<String> {
    let process = state.start.as_ref().map(|start| &start.process);
    let owner = process.map_or(OwnerStatus::Dead, owner_process::owner_status);
    let is_running = state.status == Some(RunStatus::Running);
    if let Some(process) = process.filter(|_| is_running && owner != OwnerStatus::Dead) {
        let ProcessInfo { pid, hostname, .. } = process;
        return vec![match owner {
            OwnerStatus::OnOtherHost => {
                format!("process {pid} on host {hostname} is working on it or has died")
            }
            _ => format!("process {pid} is working on it"),
        }];
    }
    if state.status == Some(RunStatus::Completed) && state.human_request().is_none() {
        return Vec::new();
    }
    let AgentHint { agent, warning } = AgentHint::new(&run.id, &run.dir, state);
    let name_run = |next: ContinueCommand| {
        next.with_work_dir(&run.workspace_argument).with_agent(agent.clone())
    };
    let next = name_run(ContinueCommand::from_state(state));
    let mut lines: Vec<String> = warning.into_iter().collect();
    lines.extend(describe_waiting(mailbox::count_waiting(&run.dir), state, &next));
    match (state.status, state.human_request()) {
        (Some(RunStatus::Running), _) => {
            lines.push(format!("its process has died; continue with: {next}"));
        }
        // The question itself is printed above.
        (_, Some(HumanRequest::Question(_))) => {
            lines.push(format!("answer with: {} -m ANSWER", next.naming_request(state)));
        }
        (_, Some(HumanRequest::Approval(_))) => {
            let next = next.naming_request(state);
            lines.push(format!("approve with: {}", next.to_reply("approve")));
            lines.push(format!("deny with: {} -m REASON", next.to_reply("deny")));
        }
        (Some(RunStatus::Interrupted), None) => lines.push(format!("continue with: {next}")),
        (Some(RunStatus::Failed), None) => {
            let next = name_run(ContinueCommand::for_failed_run(state));
            lines.push(format!("continue with: {next}"));
        }
        _ => {}
    }
    lines
}

fn print_request(
    dir: &Path,
    events: &[Event],
    iteration: u32,
    is_wire: bool,
) -> Result<(), CommandFailure> {
    let requests = IterationRequest::list(events);
    let request = IterationRequest::find(&requests, Some(iteration))?;
    let text = if is_wire { request.read_wire_body(dir) } else { request.read_text(dir) };
    stdio::print_text(&text?);
    Ok(())
}

/// The run as one JSON object.
fn run_json(run_dir: &Path, events: &[Event]) -> Json {
    let state = RunState::from_events(events);
    let history = RunHistory::from_events(events);
    let messages: Vec<Json> = history
        .user_messages()
        .map(|message| {
            let mut entry =
                json!({"timestamp": message.timestamp, "content": message.value.content});
            set_images(&mut entry, message.value.images);
            entry
        })
        .collect();
    let iterations: Vec<Json> = history.iterations.iter().map(iteration_json).collect();
    let mut json = RunResult::from_state(&state)
        .map_or(Json::Null, |result| json!(result.with_tree(run_dir, &state)));
    if state.status == Some(RunStatus::Running) {
        json["status"] = json!(RunStatus::Running);
    }
    if let Some(origin) = &state.origin {
        json["origin"] = json!(origin);
    }
    if let Some(sandbox) = state.sandbox() {
        json["sandbox"] = json!(sandbox);
    }
    json["messages"] = messages.into();
    json["iterations"] = iterations.into();
    json
}

fn iteration_json(iteration: &Iteration<'_>) -> Json {
    let thought = iteration.thought.value;
    json!({
        "iteration": thought.iteration,
        "timestamp": iteration.thought.timestamp,
        "thought": thought.content,
        "usage": thought.usage,
        "invocation": thought.invocation,
        "calls": iteration.calls.iter().filter_map(call_json).collect::<Vec<Json>>(),
    })
}

/// Adds `images` to a message or a result that has any.
fn set_images(entry: &mut Json, images: &[ImageFile]) {
    if !images.is_empty() {
        entry["images"] = json!(images);
    }
}

/// A call as JSON; `None` if it was not started.
fn call_json(call: &CallHistory<'_>) -> Option<Json> {
    let request = call.request?.value;
    let result = call.result.map(|result| {
        let result = result.value;
        let mut entry = json!({
            "observation": result.observation_content,
            "exit_code": result.exit_code,
            "duration_ms": result.duration_ms,
            "execution": result.execution,
            "truncated": result.truncated,
        });
        set_images(&mut entry, &result.images);
        if let Some(sandbox) = &result.sandbox {
            entry["sandbox"] = json!(sandbox);
        }
        entry
    });
    let mut entry = json!({
        "call_id": request.call_id,
        "tool": request.tool_name,
        "arguments": request.tool_args,
        "argv": request.argv,
        "approval": request.approval,
        "result": result,
    });
    if let Some(sandbox) = &request.sandbox {
        entry["sandbox"] = json!(sandbox);
    }
    Some(entry)
}
