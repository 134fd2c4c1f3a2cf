//! `delta inbox`: what waits for an answer or an approval in all workspaces below some directories. A question stays open when
//! the process that asked it is interrupted, fails or dies, so such runs wait too.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::approval_prompt::{ApprovalPrompt, approval_verb};
use delta_base::redact::redact_answers;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal;
use delta_base::terminal_text::{escape_terminal_controls, strip_terminal_controls};
use delta_base::time::{self, Timestamp};
use delta_operator::arguments::completion_candidates;
use delta_operator::arguments::terminal_prompt::{self, InboxExit, InboxReply};
use delta_operator::failure::CommandFailure;
use delta_operator::runs::agent_hint::AgentHint;
use delta_operator::runs::approval_preview;
use delta_operator::runs::own_run::process_is_gone;
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::run_list::{self, RunListEntry, RunListStatus};
use delta_operator::{cancel, command_line};
use delta_program::stdio;
use delta_run::event::{ProcessInfo, RunStatus};
use delta_run::interaction_request::{InteractionRequest, short_command_line};
use delta_run::journal;
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::run_result::{ContinueCommand, call_diff_command};
use delta_run::run_tree::sensitive_answers::read_enclosing_answers;
use delta_run::state::{HumanRequest, RunState};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// The number of lines of a question, a command line or a diff in the list.
const MAX_QUESTION_LINES: usize = 12;
/// The number of changes of a staged call in the list.
const MAX_CHANGE_LINES: usize = 100;

/// List the runs that wait for an answer or an approval
///
/// Searches all workspaces below the directories, and prints the longest wait first, with the commands that answer. Includes
/// runs that were interrupted, FAILED or killed while they waited.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct InboxArgs {
    /// Directories to search [default: .]
    #[arg(value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    dirs: Vec<PathBuf>,
    /// The same as DIR: the search goes to any depth
    #[arg(short, long, value_name = "DIR", num_args = 0.., hide = true, conflicts_with = "dirs", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    recursive: Option<Vec<PathBuf>>,
    /// Answer one after the other at this terminal; each run continues at once
    #[arg(short, long, conflicts_with = "json")]
    interactive: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta inbox
  delta inbox ~/projects -i
  delta inbox --json | jq -r '.[] | select(.kind == \"approval\") | .run_id'";

/// A run that waits.
struct WaitingRun {
    entry: RunListEntry,
    state: RunState,
    /// The sensitive answers that its texts can contain.
    hidden: Vec<String>,
    /// The process that asks at its terminal, where it gets the answer.
    asking: Option<ProcessInfo>,
    /// The agent that the commands have to name.
    hint: AgentHint,
}

/// A waiting run as JSON.
#[derive(Serialize)]
struct InboxEntry<'a> {
    run_id: &'a str,
    workspace: &'a PathBuf,
    agent_name: &'a str,
    task_summary: &'a str,
    waiting_since: Timestamp,
    #[serde(flatten)]
    interaction: InteractionRequest,
    /// What a staged call has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    /// The process that asks at its terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    terminal_process: Option<u32>,
    /// Whether no seal of the operator covers the agent, or it has moved.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    needs_agent: bool,
    /// The commands that answer.
    commands: Vec<String>,
}

/// Continues a run in a workspace with a message, which answers the request with this id; returns the exit code.
pub type ContinueRun = fn(&RunArgument, PathBuf, Option<String>, &InboxExit, String) -> ExitCode;

/// Lists waiting runs, or asks about them and continues each with `continue_run`.
pub fn inbox_command(args: &InboxArgs, continue_run: ContinueRun) -> Result<(), CommandFailure> {
    if args.interactive && !terminal::can_prompt() {
        let hint = "without `-i` it lists what waits, with the commands that answer";
        return Err(CommandFailure::usage("`-i` needs a terminal", hint.to_owned()));
    }
    let runs = find_waiting_runs(args.recursive.as_ref().unwrap_or(&args.dirs))?;
    if args.json {
        let entries: Vec<InboxEntry<'_>> = runs.iter().filter_map(WaitingRun::to_json).collect();
        let text = serde_json::to_string(&entries).unwrap_or_default();
        stdio::print_json(&format!("{text}\n"));
        return Ok(());
    }
    if runs.is_empty() {
        stdio::print_error_line("Note: no run in these directories waits for an answer");
        return Ok(());
    }
    if args.interactive {
        return answer_all(&runs, continue_run);
    }
    let texts: Vec<String> = runs.iter().map(WaitingRun::render).collect();
    stdio::print_text(&texts.join("\n"));
    if terminal::can_prompt() && terminal::is_stdout_terminal() {
        stdio::print_error_line(
            "\nNote: `delta inbox -i` asks you about one after the other, here",
        );
    }
    Ok(())
}

/// Finds the runs that wait, the longest wait first. A note reports runs that cannot be read.
fn find_waiting_runs(dirs: &[PathBuf]) -> Result<Vec<WaitingRun>, CommandFailure> {
    let mut entries = run_list::read_runs_of(&run_list::find_below(dirs)?);
    entries
        .retain(|entry| !matches!(entry.status, RunListStatus::Completed | RunListStatus::Damaged));
    entries.sort_by(|one, other| {
        (one.last_updated, &one.run_id).cmp(&(other.last_updated, &other.run_id))
    });
    let mut runs = Vec::new();
    for entry in entries {
        match journal::fold_run_journal(&entry.dir()) {
            Ok(state) if state.human_request().is_some() => {
                runs.push(WaitingRun::new(entry, state));
            }
            Ok(_) => {}
            Err(error) => stdio::print_error_line(&format!("Note: {error}")),
        }
    }
    Ok(runs)
}

impl WaitingRun {
    fn new(entry: RunListEntry, state: RunState) -> Self {
        let is_active = state.status == Some(RunStatus::Running) && !process_is_gone(&state);
        let start = state.start.as_ref().filter(|_| is_active);
        let asking = start.map(|start| start.process.clone());
        let id = state.start.as_ref().map(|start| start.run_id.clone());
        let hint = id.map(|id| AgentHint::new(&id, &entry.dir(), &state)).unwrap_or_default();
        let mut hidden = read_enclosing_answers(&entry.dir());
        hidden.extend(state.sensitive.answers.iter().cloned());
        Self { entry, state, hidden, asking, hint }
    }

    fn to_json(&self) -> Option<InboxEntry<'_>> {
        let mut interaction = InteractionRequest::new(&self.state)?;
        interaction.kind.get_or_insert("question");
        Some(InboxEntry {
            run_id: &self.entry.run_id,
            workspace: &self.entry.workspace,
            agent_name: &self.entry.agent_name,
            task_summary: &self.entry.task_summary,
            waiting_since: self.entry.last_updated,
            interaction,
            preview: self.staged_changes(),
            terminal_process: self.asking.as_ref().map(|process| process.pid),
            needs_agent: self.hint.agent.is_some(),
            // Whether to load an agent that only the journal names is for a person to decide.
            commands: self.commands(None),
        })
    }

    /// The commands that answer; none if the answer is given elsewhere.
    fn commands(&self, agent: Option<PathBuf>) -> Vec<String> {
        if self.asking.is_some() {
            return Vec::new();
        }
        let next = ContinueCommand::from_state(&self.state)
            .with_work_dir(&self.entry.workspace)
            .with_agent(agent)
            .naming_request(&self.state);
        match self.state.human_request() {
            Some(HumanRequest::Question(question)) if question.sensitive => {
                vec![format!("{next} -i")]
            }
            Some(HumanRequest::Question(_)) => vec![format!("{} TEXT", next.to_reply("answer"))],
            Some(HumanRequest::Approval(_)) => vec![
                next.to_reply("approve").to_string(),
                format!("{} -m REASON", next.to_reply("deny")),
            ],
            None => Vec::new(),
        }
    }

    /// How to answer, line by line.
    fn answer_lines(&self) -> Vec<String> {
        let asking = self.asking.iter().map(|ProcessInfo { pid, hostname, .. }| {
            let is_here = self.state.start.as_ref().is_some_and(|start| {
                owner_process::owner_status(&start.process) == OwnerStatus::Alive
            });
            let host = if is_here {
                String::new()
            } else {
                format!(" on host {}, if it is alive", strip_terminal_controls(hostname))
            };
            format!("asked at the terminal of process {pid}{host}: answer it there")
        });
        let warning = self.hint.warning.iter().filter(|_| self.asking.is_none());
        let warning = warning.map(|warning| format!("! {}", strip_terminal_controls(warning)));
        asking.chain(warning).chain(self.commands(self.hint.agent.clone())).collect()
    }

    /// The run, its agent and workspace, and for how long it waits.
    fn heading(&self) -> String {
        let now = time::current_time().as_millis();
        let age = u64::try_from(now - self.entry.last_updated.as_millis()).unwrap_or(0);
        let agent = strip_terminal_controls(&self.entry.agent_name);
        let root = shell_quote_path(&self.entry.workspace);
        let age = run_list::format_age(age);
        format!("{}  {agent}  {root}  waits {age}", self.entry.run_id)
    }

    /// The agent directory that the journal names.
    fn agent_home(&self) -> &str {
        self.state.start.as_ref().map_or("", |start| &start.agent_home)
    }

    fn render(&self) -> String {
        let mut text = format!("{}\n  \"{}\"\n", self.heading(), self.entry.task_summary);
        let home = if terminal::is_stdout_terminal() { self.agent_home() } else { "" };
        let question = match self.state.human_request() {
            Some(HumanRequest::Question(question)) => question.prompt.clone(),
            Some(HumanRequest::Approval(request)) => {
                let verb = approval_verb(request);
                format!("{verb} {}: {}", request.tool_name, short_command_line(request, home))
            }
            None => String::new(),
        };
        let more = push_lines(&mut text, "?", &redact_answers(&self.hidden, question));
        if more > 0 {
            text.push_str(&format!("    … {more} more lines\n"));
        }
        self.push_staged_changes(&mut text);
        self.answer_lines().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        text
    }

    fn preview(&self) -> Option<String> {
        approval_preview::pending_preview(&self.state, &self.entry.dir(), &self.entry.workspace)
    }

    /// What a staged call has changed, which is what the question is about.
    fn staged_changes(&self) -> Option<String> {
        let HumanRequest::Approval(request) = self.state.human_request()? else { return None };
        let changes = request.stage.as_ref()?.described_changes(&self.diff_command());
        Some(redact_answers(&self.hidden, changes))
    }

    /// Appends what a staged call has changed: all paths, and the beginning of the diff.
    fn push_staged_changes(&self, text: &mut String) {
        let Some(HumanRequest::Approval(request)) = self.state.human_request() else { return };
        let Some(stage) = &request.stage else { return };
        let diff_command = self.diff_command();
        for line in stage.change_lines(MAX_CHANGE_LINES, &diff_command) {
            let line = redact_answers(&self.hidden, line);
            text.push_str(&format!("    {}\n", escape_terminal_controls(&line)));
        }
        let diff = stage.described_diff(&diff_command);
        let more = push_lines(text, " ", &redact_answers(&self.hidden, diff));
        if more > 0 {
            text.push_str(&format!("    … `{diff_command}` prints the whole diff\n"));
        }
    }

    fn diff_command(&self) -> String {
        call_diff_command(self.state.start.as_ref())
    }
}

/// Appends the first lines of `lines`, the first one with `mark`. Returns the number of the others.
fn push_lines(text: &mut String, mark: &str, lines: &str) -> usize {
    let lines = escape_terminal_controls(lines);
    for (index, line) in lines.lines().take(MAX_QUESTION_LINES).enumerate() {
        let mark = if index == 0 { mark } else { " " };
        text.push_str(&format!("  {mark} {line}\n"));
    }
    lines.lines().count().saturating_sub(MAX_QUESTION_LINES)
}

/// Asks about each run, and continues it with the answer.
fn answer_all(runs: &[WaitingRun], continue_run: ContinueRun) -> Result<(), CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let exit = InboxExit::default();
    let waiting =
        if runs.len() == 1 { "1 run waits" } else { &format!("{} runs wait", runs.len()) };
    stdio::print_error_line(&format!(
        "{waiting} for you. An answered run continues at once; a skipped one waits as before."
    ));
    let mut unasked_count = 0;
    for (run, number) in runs.iter().zip(1..) {
        let count = runs.len();
        stdio::print_error_line(&format!("\n[{number}/{count}] {}", run.heading()));
        stdio::print_error_line(&format!("task: \"{}\"", run.entry.task_summary));
        let is_staged = run.state.stage.is_some();
        // The answer would be refused once it is typed.
        let needs_agent = run.hint.agent.is_some() && run.asking.is_none();
        if is_staged || run.asking.is_some() || needs_agent {
            unasked_count += usize::from(needs_agent);
            // This process could not leave the stage for the next run.
            let reason = if is_staged { "the run is staged; " } else { "" };
            stdio::print_error_line(&format!("{reason}not answered here:"));
            run.answer_lines().iter().for_each(|line| stdio::print_error_line(line));
            continue;
        }
        let reply = match run.state.human_request() {
            Some(HumanRequest::Question(question)) => {
                terminal_prompt::ask_in_inbox(question, &run.hidden, &cancel)
            }
            Some(HumanRequest::Approval(request)) => {
                let preview = run.preview();
                let prompt = ApprovalPrompt {
                    request,
                    preview: preview.as_deref(),
                    hidden: &run.hidden,
                    agent_home: run.agent_home(),
                    remember: None,
                };
                terminal_prompt::approve_in_inbox(&prompt, &cancel)
            }
            None => continue,
        };
        let hint = "what was not answered still waits";
        let reply = reply
            .map_err(|error| CommandFailure::unanswered("no answer was given", &error, hint))?;
        match reply {
            InboxReply::Quit => return Ok(()),
            InboxReply::Skip => {}
            InboxReply::Message(message) => {
                // Refused if the run waits for something else than the user was shown. That keeps no other run waiting.
                let argument = RunArgument::Dir(run.entry.dir());
                let work_dir = run.entry.workspace.clone();
                continue_run(&argument, work_dir, run.state.request_id(), &exit, message);
            }
        }
        if cancel.is_requested() {
            return Err(CommandFailure::interrupted("interrupted"));
        }
        if exit.is_requested() {
            return Ok(());
        }
    }
    if unasked_count > 0 {
        let runs = command_line::pluralize(unasked_count, "run");
        let message = format!("{runs} can only be answered with `--agent`");
        return Err(CommandFailure::conflict(message, "the lines above have the commands"));
    }
    Ok(())
}
