//! The stream of thoughts, calls and results on stderr, and the run's engine.log.
//!
//! Terminal controls are stripped from the text of LLMs and tools. Nothing here can fail a run:
//! errors of a closed stderr are ignored.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use delta_base::durable::LogFile;
use delta_base::id::SnapshotId;
use delta_base::redact::{is_redactable_answer, redact_answers};
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_base::terminal::input_line::InputLine;
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_base::text::text_width::{clip_to_width, wrap_words};
use delta_base::time::{Clock, format_duration};
use delta_run::event::{
    EngineStart, Event, Payload, RunStatus, SandboxRecord, StageApply, Thought, image_file,
};
use delta_run::run::RunNotice;
use delta_run::run_result::{UsageTotal, call_diff_command};
use delta_run::state::sensitive_questions::SensitiveQuestions;
use delta_run::state::{MISSING_CALL_REMINDER, RunState};
use delta_run::workspace;
use delta_words::{Attempt, TryNumber};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

mod call_lines;
mod diff_lines;
mod engine_log;
mod live_area;
mod live_text;
mod question_lines;
mod sandbox_lines;
mod screen_region;

use call_lines::UnprintedCall;
pub use diff_lines::print_diff_to_stderr;
use engine_log::EngineLog;
use live_area::{LiveArea, LiveOptions, LiveStatus};
use live_text::push_block_lines;
pub use sandbox_lines::{describe_profile_record, push_wrapped};

/// How much of a run is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Nothing; engine.log still gets everything.
    Silent,
    /// Errors only.
    Quiet,
    /// Thoughts, calls and results.
    Normal,
    /// Also reasoning and complete results.
    Verbose,
}

/// The number of lines printed of a message of the user.
const MAX_MESSAGE_LINES: usize = 6;
/// The maximum number of characters of a line.
const MAX_LINE_WIDTH: usize = 160;

/// The maximum number of characters of the reason for another attempt.
const MAX_REASON_CHARS: usize = 300;
/// The start of an error that begins with the status.
const ENDPOINT_ANSWER_PREFIX: &str = "the endpoint answered ";

const CUT_OFF: &str = "the answer was cut off at the token limit";
/// After a sensitive answer that [`redact_answers`] does not replace.
const SHORT_ANSWER: &str =
    "the answer is too short to be hidden in other texts: fewer than 4 characters";
/// The line after an answer that announced a call and had none.
const MISSING_CALL: &str = "the call that the answer announced is missing; the LLM is asked for it";
/// The line after an answer without calls, if the agent requires a call of `finish`.
const MISSING_FINISH: &str = "the agent requires a call of `finish`; the LLM is asked again";

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const CALL: Style = AnsiColor::Cyan.on_default();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();

/// Prints the progress of a run for its operator.
pub struct ProgressPrinter {
    verbosity: Verbosity,
    is_terminal: bool,
    /// Whether the end of the terminal may be repainted.
    is_live: bool,
    live: Option<LiveArea>,
    /// The reasoning that is on the screen since it arrived.
    live_reasoning: Option<String>,
    /// The line for the failed attempts of the current call, which follows the repainted one.
    failed_attempts: Option<String>,
    log: EngineLog,
    /// The agent directory of the last ENGINE_START.
    agent_home: String,
    /// The command that shows all of the run.
    show_command: String,
    /// What prints the changes of a staged call.
    diff_command: String,
    /// Whether the user is asked at this terminal.
    asks_here: bool,
    /// The sandboxes of the last ENGINE_START; only for `show`.
    sandbox: Option<SandboxRecord>,
    /// Their answers are redacted wherever they occur.
    sensitive: SensitiveQuestions,
    /// The call whose question was printed last.
    shown_question: Option<String>,
    /// The line for a failed hook, unless the next event describes the failure better.
    pending_hook_failure: Option<String>,
    /// Calls whose lines were not printed: requested in an earlier process, or with the result that follows.
    unprinted_calls: HashMap<String, UnprintedCall>,
    /// The call whose line was printed last.
    last_call: String,
    /// Whether the result is printed to the same terminal when the run ends.
    result_follows: bool,
    /// A result that was not printed; it does not follow if a message does, or the run fails.
    unprinted_result: Option<String>,
    /// Whether another process asks what the run waits for.
    omits_questions: bool,
    /// Whether the lines are the output of `show`, on stdout.
    to_stdout: bool,
    /// The first line that could not be written to stdout.
    stdout_failure: Option<std::io::Error>,
    colours: bool,
    cancel: Option<CancelToken>,
    /// The line into which the user types.
    input: Option<InputLine>,
    /// Whether the user answers a question, and types into nothing else.
    is_asking: bool,
    /// Whether the agent, the workspace and the model of an ENGINE_START are printed.
    omits_start: bool,
}

impl ProgressPrinter {
    /// Prints to stderr; `is_terminal` says whether that is a terminal.
    pub fn new(verbosity: Verbosity, is_terminal: bool, clock: Clock) -> Self {
        Self {
            verbosity,
            is_terminal,
            is_live: is_terminal,
            live: None,
            live_reasoning: None,
            failed_attempts: None,
            log: EngineLog::disabled(clock),
            agent_home: String::new(),
            show_command: String::new(),
            diff_command: String::new(),
            asks_here: false,
            sandbox: None,
            sensitive: SensitiveQuestions::default(),
            shown_question: None,
            pending_hook_failure: None,
            unprinted_calls: HashMap::new(),
            last_call: String::new(),
            result_follows: false,
            unprinted_result: None,
            omits_questions: false,
            to_stdout: false,
            stdout_failure: None,
            colours: has_colours(&std::io::stderr()),
            cancel: None,
            input: None,
            is_asking: false,
            omits_start: false,
        }
    }

    /// Prints the events of a recorded run to stdout.
    pub fn for_stdout(verbosity: Verbosity, clock: Clock) -> Self {
        let colours = has_colours(&std::io::stdout());
        Self { to_stdout: true, colours, ..Self::new(verbosity, false, clock) }
    }

    /// Returns why the first missing line could not be written to stdout.
    pub fn take_stdout_failure(&mut self) -> Option<std::io::Error> {
        self.stdout_failure.take()
    }

    /// Prints only whole lines from now on, for a terminal that cannot move its cursor.
    pub fn disable_live_output(&mut self) {
        self.is_live = false;
    }

    /// Repaints the end of the terminal from now on.
    pub fn enable_live_output(&mut self) {
        self.is_live = true;
    }

    /// Shows what the process of a recorded run is doing, until the next line is printed.
    pub fn show_activity(&mut self, state: &RunState) {
        if !self.is_live || self.live.as_ref().is_some_and(|live| !live.is_idle()) {
            return;
        }
        let activity = match state.human_request() {
            Some(_) => "waiting for an answer at the terminal of its process",
            None if state.calls_in_progress().next().is_some() => "running",
            None => "thinking",
        };
        self.start_live(LiveStatus::Activity(activity));
    }

    /// Reports from now on that delta is stopping, while a tool has not ended.
    pub fn report_stopping(&mut self, cancel: &CancelToken) {
        self.cancel = Some(cancel.clone());
    }

    /// Omits the final answer from now on, because the result is printed to the same terminal when
    /// the run ends.
    pub fn omit_result(&mut self) {
        self.result_follows = true;
    }

    /// Prints no agent, workspace and model from now on: the user has seen them.
    pub fn omit_start(&mut self) {
        self.omits_start = true;
    }

    /// Shows the line into which the user types below everything else, or no longer.
    pub fn set_input(&mut self, input: Option<&InputLine>) {
        self.input = input.cloned();
        self.show_input();
    }

    /// Shows the line of input where nothing else is shown below the printed lines.
    fn show_input(&mut self) {
        if self.input.is_none() || self.is_asking {
            self.close_live();
        } else if self.live.is_none() {
            self.start_live(LiveStatus::Idle);
        }
    }

    /// Prints no question and no call to approve from now on, because a server asks them.
    pub fn omit_questions(&mut self) {
        self.omits_questions = true;
    }

    /// Reports from now on that the user is asked at this terminal.
    pub fn set_asks_here(&mut self, asks_here: bool) {
        self.asks_here = asks_here;
    }

    /// Takes the sensitive answers and the unfinished calls of a continued run from `state`.
    pub fn load_state(&mut self, state: &RunState) {
        self.sensitive.clone_from(&state.sensitive);
        self.unprinted_calls.extend(
            state.calls_in_progress().map(|call| (call.id.clone(), UnprintedCall::from(call))),
        );
    }

    /// Redacts the answers too, which other runs have.
    pub fn hide_answers(&mut self, answers: Vec<String>) {
        self.sensitive.answers.extend(answers);
    }

    /// Also writes to engine.log from now on.
    pub fn log_to(&mut self, file: LogFile) {
        self.log.set_file(file);
    }

    /// Prints one notice.
    pub fn show_notice(&mut self, notice: &RunNotice<'_>) {
        self.is_asking =
            matches!(notice, RunNotice::WaitingForAnswer(_) | RunNotice::WaitingForApproval(_));
        self.print_notice(notice);
        if self.input.is_some() || matches!(notice, RunNotice::Input(_)) {
            self.show_input();
        }
    }

    fn print_notice(&mut self, notice: &RunNotice<'_>) {
        match notice {
            RunNotice::Input(input) => self.input = input.cloned(),
            RunNotice::EventsWritten(events) => {
                events.iter().for_each(|event| self.sensitive.apply(event));
                self.log.write_events(events, &self.sensitive.answers);
            }
            RunNotice::EventDurable(event, state) => self.show_event(event, state),
            RunNotice::LlmCallStarted => self.start_live(LiveStatus::Activity("thinking")),
            RunNotice::AnswerPiece(piece) => self.show_piece(|live| live.push_content(piece)),
            RunNotice::ReasoningPiece(piece) if self.verbosity == Verbosity::Verbose => {
                self.show_piece(|live| live.push_reasoning(piece));
            }
            RunNotice::ReasoningPiece(_) => {}
            RunNotice::OutputPiece { call_id, piece } => {
                if let Some(live) = &mut self.live {
                    live.push_output(call_id, piece.is_stderr, piece.bytes);
                }
            }
            RunNotice::LlmCallEnded => self.end_llm_call(),
            RunNotice::Reasoning(text) => {
                self.log.write_note("reasoning received");
                if self.live.as_ref().is_some_and(LiveArea::has_reasoning) {
                    self.live_reasoning = Some(self.sanitize(text));
                } else if self.verbosity == Verbosity::Verbose {
                    self.print_block("~", DIM, text, usize::MAX);
                }
            }
            RunNotice::AttemptFailed(attempt, next) => self.show_failed_attempt(attempt, *next),
            RunNotice::WaitingForAnswer(question) => {
                if self.shown_question.as_ref() != Some(&question.call_id) {
                    self.show_question(question);
                }
            }
            RunNotice::WaitingForApproval(request) => {
                if self.shown_question.as_ref() != Some(&request.call_id) {
                    self.show_approval_request(request);
                }
            }
            RunNotice::Warning(text) => self.show_warning(text),
            RunNotice::EditedJournal(text) => self.show_edited_journal(text),
        }
    }

    /// Reports a failed attempt that another one follows; the error of the run reports the last.
    fn show_failed_attempt(&mut self, attempt: &Attempt, next: TryNumber) {
        let Some(delay_ms) = attempt.retry_in_ms else {
            self.failed_attempts = None;
            return;
        };
        let TryNumber { number, of } = next;
        let delay = match delay_ms {
            0 => "now".to_owned(),
            delay_ms => format!("in {}", format_duration(delay_ms)),
        };
        let reason = self.sanitize(&attempt.error);
        let reason = reason.strip_prefix(ENDPOINT_ANSWER_PREFIX).unwrap_or(&reason);
        // The words of some servers begin with a line break.
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = truncate_to_line(&reason, MAX_REASON_CHARS);
        let next = match of {
            Some(of) => format!("try {number} of {of}"),
            None => format!("try {number}"),
        };
        if self.live.is_none() {
            return self.show_warning(&format!("{next} {delay}: {reason}"));
        }
        self.log.write_note(&format!("warning: {next} {delay}: {reason}"));
        if self.live.as_ref().is_some_and(LiveArea::has_answer) {
            let line = format!("this answer broke off and is ignored: {reason}");
            self.print_block("!", WARN, &line, usize::MAX);
            self.failed_attempts = None;
        } else {
            let line = match number.saturating_sub(1) {
                0 => None,
                1 => Some(format!("! 1 try failed: {reason}")),
                failed => Some(format!("! {failed} tries failed, the last: {reason}")),
            };
            let line = line.map(|line| clip_to_width(&line, self.line_width()));
            self.failed_attempts = line.map(|line| format!("{WARN}{line}{WARN:#}"));
        }
        let at = Instant::now() + Duration::from_millis(delay_ms);
        let status = LiveStatus::Retry { attempt: next, at, reason };
        match &mut self.live {
            Some(live) => live.set_status(status),
            None => self.start_live(status),
        }
    }

    /// Prints the line for the failed attempts before what the next one brings.
    fn print_failed_attempts(&mut self) {
        if let Some(line) = self.failed_attempts.take() {
            self.print_line(&line);
        }
    }

    /// Shows a piece of an answer.
    fn show_piece(&mut self, push: impl FnOnce(&mut LiveArea)) {
        if self.failed_attempts.is_some() {
            self.print_failed_attempts();
            self.start_live(LiveStatus::Activity("thinking"));
        }
        if let Some(live) = &mut self.live {
            push(live);
        }
    }

    /// Leaves the text of an answer on the screen until its event is durable.
    fn end_llm_call(&mut self) {
        self.print_failed_attempts();
        match &mut self.live {
            Some(live) if live.has_answer() => live.stop(),
            _ => self.close_live(),
        }
    }

    fn show_event(&mut self, event: &Event, state: &RunState) {
        // The observation of a denied call names the hook.
        let denied = matches!(&event.payload, Payload::ActionRequest(call) if call.argv.is_none());
        if let Some(text) = self.pending_hook_failure.take().filter(|_| !denied) {
            self.print_line(&text);
        }
        match &event.payload {
            Payload::EngineStart(start) => self.show_start(start),
            Payload::UserMessage { content, images, source } => {
                if let (Some(input), Some(source)) = (&self.input, source) {
                    input.remove_waiting(&source.id);
                }
                self.print_unprinted_result();
                self.print_line("");
                let text = image_file::text_with_images(content, images);
                self.print_block(">", BOLD, &text, MAX_MESSAGE_LINES);
            }
            Payload::LimitsChanged(change) => {
                let change = strip_terminal_controls(&change.describe());
                self.print_line(&format!("{WARN}!{WARN:#} limits changed: {change}"));
            }
            Payload::Thought(thought) => self.show_answer(thought),
            Payload::ActionRequest(request) => {
                self.show_call(request);
                self.show_missing_sandbox(request);
            }
            Payload::ActionResult(result) => {
                self.show_observation(result, state);
                self.show_refusals(result);
            }
            Payload::HumanInputRequest(question) => self.show_question(question),
            Payload::ApprovalRequest(request) => self.show_approval_request(request),
            Payload::ApprovalDecision(decision) => self.show_approval_decision(decision, state),
            Payload::Error { error_message, error_details } if !error_details.is_failure() => {
                let line = format!("{WARN}!{WARN:#} {}", self.sanitize(error_message));
                // Whose answers the run has from now on is said whatever the operator wants to see.
                if error_details.fallback.is_some() && self.verbosity == Verbosity::Quiet {
                    self.write_line(&line);
                } else {
                    self.print_line(&line);
                }
            }
            Payload::Error { error_message, error_details } => {
                self.show_error(error_message, error_details.hint.as_deref());
            }
            Payload::HookExecution { hook, exit_code, changed, end, .. } => {
                self.show_hook(hook, *exit_code, *changed, end.is_some());
            }
            Payload::HumanInputReceived { call_id, response, .. }
                if self.sensitive.call_ids.contains(call_id) && !is_redactable_answer(response) =>
            {
                self.print_line(&format!("{WARN}! {SHORT_ANSWER}{WARN:#}"));
            }
            Payload::HumanInputReceived { .. }
            | Payload::Snapshot(_)
            | Payload::RunTrusted { .. }
            | Payload::Sent(_)
            | Payload::Turn { .. }
            | Payload::ApplyEnd { .. } => {}
            Payload::Apply(apply) => {
                let text = describe_apply(apply);
                self.print_line(&format!("{WARN}<{WARN:#} the workspace: {text}"));
            }
            Payload::Discard { .. } => {
                self.print_line(&format!("{WARN}<{WARN:#} the staged changes were discarded"));
            }
            Payload::Rollback { to, tree, .. } => {
                let text = describe_rollback(*to, *tree);
                self.print_line(&format!("{WARN}<{WARN:#} the workspace: {text}"));
            }
            Payload::Fork(fork) => {
                self.print_line("");
                self.print_line(&format!(
                    "{BOLD}{}{BOLD:#} {DIM}forked from {} at iteration {}{DIM:#}",
                    fork.run_id, fork.from.run_id, fork.from.iteration
                ));
                let work_dir = strip_terminal_controls(&fork.work_dir);
                self.print_line(&format!("{DIM}workspace {work_dir}{DIM:#}"));
            }
            Payload::EngineEnd { status, final_iteration, .. } => {
                if *status == RunStatus::Completed {
                    self.unprinted_result = None;
                }
                self.print_unprinted_result();
                // The end that is recorded for a dead process: a warning has reported it, and the next one begins.
                // The turn for an end follows it.
                if state.seq > event.seq + 1 || state.status == Some(RunStatus::Running) {
                    return;
                }
                let duration = format_duration(state.active_time.millis());
                self.show_end(*status, *final_iteration, &UsageTotal::from_state(state), duration);
            }
        }
    }

    /// Prints the last line of a process of a run: what the run has used so far, and how long its processes worked on it.
    fn show_end(
        &mut self,
        status: RunStatus,
        iterations: u32,
        usage: &UsageTotal,
        duration: String,
    ) {
        let style = if status == RunStatus::Completed { GOOD } else { WARN };
        let count = if iterations == 1 { "iteration" } else { "iterations" };
        let totals =
            [Some(format!("after {iterations} {count}")), usage.describe(), Some(duration)];
        let totals: Vec<String> = totals.into_iter().flatten().collect();
        let totals = totals.join(", ");
        let room = self.line_width().saturating_sub(status.to_string().len() + 1);
        let pieces = if self.is_terminal { wrap_words(&totals, room) } else { vec![&*totals] };
        self.print_line("");
        for (index, piece) in pieces.iter().enumerate() {
            let lead =
                if index == 0 { format!("{style}{status}{style:#}") } else { " ".to_owned() };
            self.print_line(&format!("{lead} {DIM}{piece}{DIM:#}"));
        }
    }

    fn show_start(&mut self, start: &EngineStart) {
        self.agent_home.clone_from(&start.agent_home);
        let work_dir = workspace::quote_workspace(Path::new(&start.work_dir));
        self.show_command = format!("delta show {} -w {work_dir} -v", start.run_id);
        self.diff_command = call_diff_command(Some(start));
        let model = strip_terminal_controls(start.config.model().unwrap_or_default());
        let name = strip_terminal_controls(&start.agent_name);
        let work_dir = strip_terminal_controls(&start.work_dir);
        if self.omits_start {
            return;
        }
        self.print_line(&format!("{BOLD}{name}{BOLD:#} {DIM}{}{DIM:#}", start.run_id));
        self.print_line(&format!("{DIM}workspace {work_dir}{DIM:#}"));
        let stand_in = match (&start.config.replay, start.config.provider()) {
            (Some(replayed), _) => format!("the recording of run {}", replayed.run_id),
            (None, Some("script")) => format!("a script ({model})"),
            (None, Some("recorded")) => format!("a recording of {model}"),
            _ => {
                self.print_line(&format!("{DIM}model {model}{DIM:#}"));
                return self.show_sandboxes(start);
            }
        };
        self.print_line(&format!("{WARN}the LLM is {stand_in}; everything else is real{WARN:#}"));
        self.show_sandboxes(start);
    }

    fn show_answer(&mut self, thought: &Thought) {
        self.show_thought(thought);
        if thought.cut_off && thought.tool_calls.is_empty() {
            self.print_line(&format!("{WARN}! {CUT_OFF}{WARN:#}"));
        } else if thought.reminder.is_some() && thought.is_empty() {
            self.print_line(&format!(
                "{WARN}! the LLM's answer was empty; it is asked again{WARN:#}"
            ));
        } else if let Some(tool) = &thought.text_call {
            let tool = self.sanitize(tool);
            self.print_line(&format!(
                "{WARN}! the answer is a call of the tool `{tool}` written as text, which was not run{WARN:#}"
            ));
        } else if let Some(reminder) = thought.reminder.as_deref() {
            let line =
                if reminder == MISSING_CALL_REMINDER { MISSING_CALL } else { MISSING_FINISH };
            self.print_line(&format!("{WARN}! {line}{WARN:#}"));
        }
    }

    /// Prints what is not the result after all.
    fn print_unprinted_result(&mut self) {
        if let Some(result) = self.unprinted_result.take() {
            self.print_line("");
            self.print_block("•", BOLD, &result, usize::MAX);
        }
    }

    fn show_thought(&mut self, thought: &Thought) {
        let is_result = thought.tool_calls.is_empty() && thought.reminder.is_none();
        let is_hidden = is_result && self.result_follows;
        if thought.content.trim().is_empty() {
            return;
        }
        self.unprinted_result = is_hidden.then(|| thought.content.clone());
        let reasoning = self.live_reasoning.take();
        if let Some(live) = self.live.take_if(|live| live.has_answer()) {
            let content = self.sanitize(&thought.content);
            if live.finish(reasoning.as_deref(), Some(&*content).filter(|_| !is_hidden)) {
                return;
            }
            if let Some(reasoning) = reasoning {
                self.print_block("~", DIM, &reasoning, usize::MAX);
            }
        }
        if is_hidden {
            return;
        }
        self.print_line("");
        self.print_block("•", BOLD, &thought.content, usize::MAX);
    }

    /// Prints a hook that changed something or ended the run and, for a recorded run, one that failed: during a run,
    /// a warning says more.
    fn show_hook(&mut self, hook: &str, exit_code: Option<i32>, changed: bool, ends_run: bool) {
        let failed = exit_code != Some(0);
        let how = match (ends_run, changed, exit_code) {
            (true, _, _) => "ended the run".to_owned(),
            (false, true, _) => "made a change".to_owned(),
            (false, false, Some(0)) => "ran".to_owned(),
            (false, false, Some(code)) => format!("exited with code {code}"),
            (false, false, None) => "did not exit".to_owned(),
        };
        let style = if failed { WARN } else { DIM };
        let text = format!("{style}  hook {} {how}{style:#}", strip_terminal_controls(hook));
        if changed || ends_run || self.verbosity == Verbosity::Verbose {
            self.print_line(&text);
        } else if failed && self.to_stdout {
            self.pending_hook_failure = Some(text);
        }
    }

    fn show_warning(&mut self, text: &str) {
        let text = self.sanitize(text);
        self.log.write_note(&format!("warning: {text}"));
        let text = text.replace('\n', "\n  ");
        self.print_line(&format!("{WARN}! {text}{WARN:#}"));
    }

    fn show_edited_journal(&mut self, text: &str) {
        if self.verbosity > Verbosity::Quiet {
            return self.show_warning(text);
        }
        let text = self.sanitize(text);
        self.log.write_note(&format!("warning: {text}"));
        self.write_line(&format!("{WARN}!{WARN:#} {text}"));
    }

    fn show_error(&mut self, message: &str, hint: Option<&str>) {
        let message = self.sanitize(message);
        self.write_line(&format!("{BAD}error:{BAD:#} {message}"));
        if let Some(hint) = hint {
            self.write_line(&format!("help: {}", self.sanitize(hint)));
        }
    }

    /// Prints a text of several lines after a mark.
    fn print_block(&mut self, mark: &str, style: Style, text: &str, limit: usize) {
        let text = self.sanitize(text.trim_end());
        let count = text.lines().count();
        // Only a terminal would break the lines elsewhere; the mark and the space after it take two columns.
        let room = self.is_terminal.then(|| self.line_width().saturating_sub(2));
        let mut rows = Vec::new();
        for line in text.lines().take(limit) {
            push_block_lines(&mut rows, mark, style, line, room);
        }
        rows.iter().for_each(|row| self.print_line(row));
        if count > limit {
            self.print_line(&format!("{DIM}  … {} more lines{DIM:#}", count - limit));
        }
    }

    /// `text` without terminal controls and sensitive answers.
    fn sanitize(&self, text: &str) -> String {
        redact_answers(&self.sensitive.answers, strip_terminal_controls(text))
    }

    /// The maximum number of characters of a line.
    fn line_width(&self) -> usize {
        let terminal = self.is_terminal.then(terminal::stderr_width).flatten();
        terminal.map_or(MAX_LINE_WIDTH, text_columns)
    }

    /// Prints one line, unless only errors are printed.
    pub fn print_line(&mut self, text: &str) {
        if self.verbosity > Verbosity::Quiet {
            self.write_line(text);
        }
    }

    fn write_line(&mut self, text: &str) {
        self.close_live();
        if self.verbosity == Verbosity::Silent {
            return;
        }
        let mut line = if self.colours {
            text.to_owned()
        } else {
            anstream::adapter::strip_str(text).to_string()
        };
        line.push('\n');
        // In one write, so that lines of processes sharing a terminal do not mix.
        if self.to_stdout {
            let written = std::io::stdout().write_all(line.as_bytes());
            self.stdout_failure = self.stdout_failure.take().or(written.err());
        } else {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn start_live(&mut self, status: LiveStatus) {
        self.close_live();
        if !self.is_live || self.verbosity <= Verbosity::Quiet {
            return;
        }
        let options = LiveOptions {
            is_erasable: self.result_follows,
            is_verbose: self.verbosity == Verbosity::Verbose,
            sensitive_answers: &self.sensitive.answers,
            cancel: self.cancel.as_ref(),
            input: self.input.as_ref(),
        };
        self.live = Some(LiveArea::start(status, &options));
    }

    fn close_live(&mut self) {
        self.live = None;
    }
}

/// Shows a line of input at the end of the terminal on stderr until it is dropped.
pub struct InputScreen(#[expect(dead_code, reason = "it paints until it is dropped")] LiveArea);

impl InputScreen {
    /// Shows the line.
    pub fn show(input: &InputLine) -> Self {
        let options = LiveOptions {
            is_erasable: false,
            is_verbose: false,
            sensitive_answers: &[],
            cancel: None,
            input: Some(input),
        };
        Self(LiveArea::start(LiveStatus::Idle, &options))
    }
}

/// The maximum number of columns of a line at a terminal.
fn text_columns(terminal: usize) -> usize {
    terminal.clamp(40, MAX_LINE_WIDTH)
}

/// Whether output to `stream` may be coloured: depends on the environment and on whether it is a
/// terminal.
fn has_colours(stream: &impl RawStream) -> bool {
    !matches!(AutoStream::choice(stream), ColorChoice::Never)
}

/// What an apply changed, in words.
fn describe_apply(apply: &StageApply) -> &'static str {
    if apply.rest { "some staged changes were applied" } else { "the staged changes were applied" }
}

/// The state that a rollback restored, in words.
fn describe_rollback(to: Option<u32>, tree: SnapshotId) -> String {
    match to {
        Some(0) => "restored to the beginning of the run".to_owned(),
        Some(to) => format!("restored to the end of iteration {to}"),
        None => format!("restored to {tree}"),
    }
}
