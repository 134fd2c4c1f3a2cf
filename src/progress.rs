//! The calm stream of thoughts, calls and results on stderr, and the run's engine.log.
//!
//! Text from the LLM and from tools is stripped of terminal controls before it is shown. Nothing here can fail a run:
//! a stderr that is closed is not written to any more.

use crate::durable::LogFile;
use crate::event::{Event, Payload, RunStatus};
use crate::run::Notice;
use crate::text::{one_line, printable};
use crate::time::{Clock, human_duration};
use crate::tool::value_text;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    /// Thoughts, calls, results.
    Normal,
    /// Reasoning and whole results too.
    Verbose,
}

/// Lines of a result that are shown.
const SHOWN_LINES: usize = 6;
/// Characters of a line that are shown.
const SHOWN_WIDTH: usize = 160;

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const CALL: Style = AnsiColor::Cyan.on_default();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();

/// Shows a run to a person.
pub struct Progress {
    verbosity: Verbosity,
    watched: bool,
    spinner: Option<ProgressBar>,
    log: Option<LogFile>,
    clock: Clock,
    /// Calls whose answer stays hidden.
    sensitive: HashSet<String>,
}

impl Progress {
    /// Shows on stderr; `watched` is whether that is a terminal.
    pub fn new(verbosity: Verbosity, watched: bool, clock: Clock) -> Self {
        Self { verbosity, watched, spinner: None, log: None, clock, sensitive: HashSet::new() }
    }

    /// Writes engine.log too, from now on.
    pub fn log_to(&mut self, log: LogFile) {
        self.log = Some(log);
    }

    /// Shows one notice.
    pub fn show(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Recorded(event) => self.event(event),
            Notice::Asking => self.start_spinner(),
            Notice::Answered => self.stop_spinner(),
            Notice::Reasoning(text) => {
                self.note("reasoning received");
                if self.verbosity == Verbosity::Verbose {
                    self.block("thinking", DIM, text, usize::MAX);
                }
            }
            Notice::Attempt(attempt) => {
                let next = match attempt.retry_in_ms {
                    Some(0) => "trying again".to_owned(),
                    Some(wait) => format!("trying again in {}", human_duration(wait)),
                    None => "giving up".to_owned(),
                };
                self.warn(&format!(
                    "LLM call failed: {}; {next}",
                    one_line(&printable(&attempt.error), 300)
                ));
            }
            Notice::Warning(text) => self.warn(text),
        }
    }

    fn event(&mut self, event: &Event) {
        self.log_event(event);
        match &event.payload {
            Payload::EngineStart(start) => {
                let llm = start.config.get("llm");
                let part =
                    |name| llm.and_then(|llm| llm.get(name)).map(value_text).unwrap_or_default();
                let (provider, model) = (part("provider"), part("model"));
                self.line(&format!(
                    "{BOLD}{}{BOLD:#} {DIM}run {}{DIM:#}",
                    printable(&start.agent_name),
                    start.run_id
                ));
                self.line(&format!("{DIM}workspace {}{DIM:#}", printable(&start.work_dir)));
                if provider == "script" {
                    self.line(&format!(
                        "{WARN}the LLM is a script ({}); everything else is real{WARN:#}",
                        printable(&model)
                    ));
                } else {
                    self.line(&format!("{DIM}model {}{DIM:#}", printable(&model)));
                }
            }
            Payload::UserMessage { content } => self.block("you", BOLD, content, SHOWN_LINES),
            Payload::Thought(thought) => {
                if !thought.content.trim().is_empty() {
                    let heading = format!("{}", thought.iteration);
                    self.block(&heading, BOLD, &thought.content, usize::MAX);
                }
            }
            Payload::ActionRequest(request) => {
                let args = match &request.tool_args {
                    serde_json::Value::Object(args) => {
                        let pair = |(name, value): (&String, &serde_json::Value)| {
                            format!("{name}={}", one_line(&value_text(value), 60))
                        };
                        args.iter().map(pair).collect::<Vec<_>>().join(" ")
                    }
                    other => other.to_string(),
                };
                let (tool, args) =
                    (printable(&request.tool_name), one_line(&printable(&args), SHOWN_WIDTH));
                self.line(&format!("{CALL}→ {}{CALL:#} {args}", one_line(&tool, 64)));
            }
            Payload::ActionResult(result) => {
                let hidden = self.sensitive.remove(&result.call_id);
                let text = if hidden { "[hidden]" } else { &result.observation_content };
                let failed = result.exit_code != Some(0);
                let lines =
                    if self.verbosity == Verbosity::Verbose { usize::MAX } else { SHOWN_LINES };
                self.result(text, failed, lines);
            }
            Payload::HumanInputRequest(question) => {
                if question.sensitive {
                    self.sensitive.insert(question.call_id.clone());
                }
                // Also for `-q`: a question that nobody sees is never answered.
                self.print(&format!("{WARN}asks{WARN:#} {}", printable(&question.prompt)));
            }
            Payload::HumanInputReceived { .. } => {}
            Payload::Error { error_message, error_details } => {
                self.error(error_message, error_details.hint.as_deref());
            }
            Payload::EngineEnd { status, final_iteration, .. } => {
                let style = if *status == RunStatus::Completed { GOOD } else { WARN };
                let count = if *final_iteration == 1 { "iteration" } else { "iterations" };
                self.line(&format!(
                    "{style}{status}{style:#} {DIM}after {final_iteration} {count}{DIM:#}"
                ));
            }
        }
    }

    fn log_event(&mut self, event: &Event) {
        let text = match &event.payload {
            Payload::EngineStart(start) => {
                format!("start pid {} epoch {}", start.process.pid, start.epoch)
            }
            Payload::UserMessage { .. } => "user message".to_owned(),
            Payload::Thought(thought) => {
                format!("answer {} with {} tool calls", thought.iteration, thought.tool_calls.len())
            }
            Payload::ActionRequest(request) => {
                let started = if request.argv.is_some() { "" } else { " (nothing is started)" };
                format!("call {} of {:?}{started}", request.call_id, request.tool_name)
            }
            Payload::ActionResult(result) => {
                let code = result.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
                format!(
                    "result of {} exit code {code} after {} ms",
                    result.call_id, result.duration_ms
                )
            }
            Payload::HumanInputRequest(_) => "a person is asked".to_owned(),
            Payload::HumanInputReceived { .. } => "a person answered".to_owned(),
            Payload::Error { error_message, error_details } => {
                format!("error {}: {error_message}", error_details.kind)
            }
            Payload::EngineEnd { status, .. } => format!("end {status}"),
        };
        self.note(&format!("#{} {text}", event.seq));
    }

    /// A line of engine.log.
    fn note(&mut self, text: &str) {
        let stamp = (self.clock)();
        if let Some(log) = &mut self.log {
            log.line(&format!("{stamp} {}", text.replace('\n', "\\n")));
        }
    }

    fn warn(&mut self, text: &str) {
        self.note(&format!("warning: {text}"));
        self.line(&format!("{WARN}! {text}{WARN:#}"));
    }

    fn error(&mut self, message: &str, hint: Option<&str>) {
        self.print(&format!("{BAD}Error:{BAD:#} {}", printable(message)));
        if let Some(hint) = hint {
            self.print(&format!("Hint: {}", printable(hint)));
        }
    }

    fn result(&mut self, text: &str, failed: bool, limit: usize) {
        let style = if failed { WARN } else { DIM };
        let text = printable(text);
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().take(limit) {
            self.line(&format!("{style}  │ {}{style:#}", one_line_or_empty(line)));
        }
        if lines.len() > limit {
            self.line(&format!("{style}  │ … {} more lines{style:#}", lines.len() - limit));
        }
    }

    /// A text of several lines under a heading.
    fn block(&mut self, heading: &str, style: Style, text: &str, limit: usize) {
        let text = printable(text.trim_end());
        let count = text.lines().count();
        for (index, line) in text.lines().take(limit).enumerate() {
            let lead =
                if index == 0 { heading.to_owned() } else { " ".repeat(heading.chars().count()) };
            self.line(&format!("{style}{lead}{style:#} {line}"));
        }
        if count > limit {
            self.line(&format!("{DIM}… {} more lines{DIM:#}", count - limit));
        }
    }

    fn line(&mut self, text: &str) {
        if self.verbosity > Verbosity::Quiet {
            self.print(text);
        }
    }

    fn print(&mut self, text: &str) {
        self.stop_spinner();
        let mut stderr = anstream::AutoStream::auto(std::io::stderr()).lock();
        let _ = writeln!(stderr, "{text}");
    }

    fn start_spinner(&mut self) {
        if !self.watched || self.verbosity == Verbosity::Quiet || self.spinner.is_some() {
            return;
        }
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner:.dim} {msg:.dim} {elapsed:.dim}")
        {
            spinner.set_style(style);
        }
        spinner.set_message("thinking");
        spinner.enable_steady_tick(Duration::from_millis(120));
        self.spinner = Some(spinner);
    }

    fn stop_spinner(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

fn one_line_or_empty(line: &str) -> String {
    if line.trim().is_empty() { String::new() } else { clip(line) }
}

fn clip(line: &str) -> String {
    let cut = line.chars().count() > SHOWN_WIDTH;
    let mut out: String = line.chars().take(SHOWN_WIDTH).collect();
    if cut {
        out.push('…');
    }
    out
}
