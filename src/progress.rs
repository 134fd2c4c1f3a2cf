//! The calm stream of thoughts, calls and results on stderr, and the run's engine.log.
//!
//! Text from the LLM and from tools is stripped of terminal controls before it is shown. Nothing here can fail a run:
//! a stderr that is closed is not written to any more.

use crate::durable::LogFile;
use crate::event::{
    ActionRequest, ActionResult, EngineStart, Event, Payload, Question, RunStatus, Thought,
};
use crate::run::Notice;
use crate::state::{ASK_HUMAN, Call, RunState};
use crate::terminal;
use crate::text::{argument, hide_answers, one_line, printable};
use crate::time::{Clock, human_duration};
use crate::tool::value_text;
use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};
use std::io::Write;

mod log;
mod spinner;

use log::Log;
use spinner::Spinner;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Nothing; engine.log has it.
    Silent,
    /// Errors only.
    Quiet,
    /// Thoughts, calls, results.
    Normal,
    /// Reasoning and whole results too.
    Verbose,
}

/// Lines of a result that are shown.
const SHOWN_LINES: usize = 6;
/// Characters of a line that are shown, at most.
const SHOWN_WIDTH: usize = 160;
/// Characters of an argument that are shown.
const SHOWN_VALUE: usize = 60;

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
    spinner: Option<Spinner>,
    log: Log,
    /// Calls whose answer stays hidden.
    sensitive: HashSet<String>,
    /// The answers that stay hidden wherever they turn up.
    hidden: Vec<String>,
    /// The call whose question was shown last.
    asked: Option<String>,
    /// What is to be said of a hook that failed, unless what follows says it better.
    failed_hook: Option<String>,
    /// Calls that began in an earlier process, whose line this one has not shown.
    earlier: HashMap<String, Call>,
    /// Whether the result is shown on the same terminal when the run ends.
    result_follows: bool,
    /// Whether this is the result itself, of `show`, and goes to stdout.
    to_stdout: bool,
    /// Whether it is shown in colours.
    colours: bool,
}

impl Progress {
    /// Shows on stderr; `watched` is whether that is a terminal.
    pub fn new(verbosity: Verbosity, watched: bool, clock: Clock) -> Self {
        Self {
            verbosity,
            watched,
            spinner: None,
            log: Log::none(clock),
            sensitive: HashSet::new(),
            hidden: Vec::new(),
            asked: None,
            failed_hook: None,
            earlier: HashMap::new(),
            result_follows: false,
            to_stdout: false,
            colours: has_colours(&std::io::stderr()),
        }
    }

    /// An account of a run on stdout.
    pub fn account(verbosity: Verbosity, clock: Clock) -> Self {
        let colours = has_colours(&std::io::stdout());
        Self { to_stdout: true, colours, ..Self::new(verbosity, false, clock) }
    }

    /// Leaves an answer out that is the result, from now on: it is shown on the same terminal when the run ends.
    pub fn leave_result_out(&mut self) {
        self.result_follows = true;
    }

    /// Takes over what stays hidden of a run that is taken up again, and which calls wait for their results.
    pub fn remember(&mut self, state: &RunState) {
        self.hidden.extend(state.sensitive.iter().cloned());
        let open = state.question().filter(|question| question.sensitive);
        self.sensitive.extend(open.map(|question| question.call_id.clone()));
        self.earlier.extend(state.begun().map(|call| (call.id.clone(), call.clone())));
    }

    /// Writes engine.log too, from now on.
    pub fn log_to(&mut self, file: LogFile) {
        self.log.write_to(file);
    }

    /// Shows one notice.
    pub fn show(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Written(events) => {
                events.iter().for_each(|event| self.keep_hidden(event));
                self.log.events(events, &self.hidden);
            }
            Notice::Recorded(event) => self.event(event),
            Notice::Asking => self.start_spinner("thinking"),
            Notice::Answered => self.stop_spinner(),
            Notice::Reasoning(text) => {
                self.log.note("reasoning received");
                if self.verbosity == Verbosity::Verbose {
                    self.block("~", DIM, text, usize::MAX);
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
            Notice::Waiting(question) => {
                if self.asked.as_ref() != Some(&question.call_id) {
                    self.ask(question);
                }
            }
            Notice::Warning(text) => self.warn(text),
        }
    }

    /// Learns of answers that are not to be shown.
    fn keep_hidden(&mut self, event: &Event) {
        match &event.payload {
            Payload::HumanInputRequest(question) if question.sensitive => {
                self.sensitive.insert(question.call_id.clone());
            }
            Payload::HumanInputReceived { call_id, response, .. }
                if self.sensitive.contains(call_id) =>
            {
                self.hidden.push(response.clone());
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        // A call that was denied says itself that a hook denied it.
        let denied = matches!(&event.payload, Payload::ActionRequest(call) if call.argv.is_none());
        if let Some(text) = self.failed_hook.take().filter(|_| !denied) {
            self.line(&text);
        }
        match &event.payload {
            Payload::EngineStart(start) => self.start(start),
            Payload::UserMessage { content } => {
                self.line("");
                self.block(">", BOLD, content, SHOWN_LINES);
            }
            Payload::Thought(thought) => self.thought(thought),
            Payload::ActionRequest(request) => self.call(request),
            Payload::ActionResult(result) => self.observed(result),
            Payload::HumanInputRequest(question) => self.ask(question),
            Payload::HumanInputReceived { .. } => {}
            Payload::Error { error_message, error_details } => {
                self.error(error_message, error_details.hint.as_deref());
            }
            Payload::HookExecution { hook, exit_code, changed, .. } => {
                self.hook(hook, *exit_code, *changed);
            }
            Payload::Snapshot(_) => {}
            Payload::Rollback { to, tree, .. } => {
                self.line(&format!("{WARN}<{WARN:#} the workspace: {}", put_back(*to, tree)));
            }
            Payload::Fork(fork) => {
                let (from, place) = (printable(&fork.from.run_id), printable(&fork.work_dir));
                let iteration = fork.from.iteration;
                self.line("");
                self.line(&format!(
                    "{BOLD}{}{BOLD:#} {DIM}forked from {from} at iteration {iteration}{DIM:#}",
                    fork.run_id
                ));
                self.line(&format!("{DIM}workspace {place}{DIM:#}"));
            }
            Payload::EngineEnd { status, final_iteration, .. } => {
                let style = if *status == RunStatus::Completed { GOOD } else { WARN };
                let count = if *final_iteration == 1 { "iteration" } else { "iterations" };
                self.line("");
                self.line(&format!(
                    "{style}{status}{style:#} {DIM}after {final_iteration} {count}{DIM:#}"
                ));
            }
        }
    }

    /// Shows a question, also for `-q`: one that nobody sees is never answered.
    fn ask(&mut self, question: &Question) {
        self.asked = Some(question.call_id.clone());
        let prompt = self.shown(&question.prompt);
        for (index, line) in prompt.lines().enumerate() {
            let lead = if index == 0 { "?" } else { " " };
            self.print(&format!("{WARN}{lead}{WARN:#} {line}"));
        }
    }

    fn start(&mut self, start: &EngineStart) {
        let llm = start.config.get("llm");
        let part = |name| llm.and_then(|llm| llm.get(name)).map(value_text).unwrap_or_default();
        let model = printable(&part("model"));
        let (name, place) = (printable(&start.agent_name), printable(&start.work_dir));
        self.line(&format!("{BOLD}{name}{BOLD:#} {DIM}{}{DIM:#}", start.run_id));
        self.line(&format!("{DIM}workspace {place}{DIM:#}"));
        let replayed = start.config.get("replay").and_then(|replay| replay.get("run_id"));
        let stand_in = match (replayed.and_then(Json::as_str), part("provider").as_str()) {
            (Some(run), _) => format!("the recording of run {run}"),
            (None, "script") => format!("a script ({model})"),
            (None, "recorded") => format!("a recording of {model}"),
            _ => return self.line(&format!("{DIM}model {model}{DIM:#}")),
        };
        self.line(&format!("{WARN}the LLM is {stand_in}; everything else is real{WARN:#}"));
    }

    fn thought(&mut self, thought: &Thought) {
        let is_result = thought.tool_calls.is_empty();
        if thought.content.trim().is_empty() || (is_result && self.result_follows) {
            return;
        }
        self.line("");
        self.block("•", BOLD, &thought.content, usize::MAX);
    }

    fn call(&mut self, request: &ActionRequest) {
        self.earlier.remove(&request.call_id);
        // A question shows its prompt itself, whole.
        let asks = request.argv.is_none() && request.tool_name == ASK_HUMAN;
        self.call_line(&request.tool_name, &request.tool_args, asks);
        if request.argv.is_some() {
            self.start_spinner("running");
        }
    }

    fn call_line(&mut self, tool: &str, args: &Json, asks: bool) {
        let args = match args {
            Json::Object(args) => {
                let pairs = args.iter().filter(|(name, value)| {
                    !(asks && name.as_str() == "prompt" && value.is_string())
                });
                let pair = |(name, value): (&String, &Json)| {
                    let text = self.shown(&value_text(value));
                    let value = match value {
                        Json::String(_) => argument(&text, SHOWN_VALUE),
                        _ => one_line(&text, SHOWN_VALUE),
                    };
                    format!(" {}={value}", one_line(&printable(name), SHOWN_VALUE))
                };
                pairs.map(pair).collect::<String>()
            }
            other => format!(" {}", self.shown(&value_text(other))),
        };
        let tool = one_line(&printable(tool), 64);
        // The arrow and the space behind it take two columns.
        let room = self.width().saturating_sub(tool.chars().count() + 2);
        self.line(&format!(
            "{CALL}→ {tool}{CALL:#}{}",
            clip(args.lines().next().unwrap_or_default(), room)
        ));
    }

    fn observed(&mut self, result: &ActionResult) {
        if result.result.is_some() {
            return;
        }
        if let Some(Call { tool, arguments, .. }) = self.earlier.remove(&result.call_id) {
            let args = serde_json::from_str(&arguments).unwrap_or(Json::String(arguments));
            self.call_line(&tool, &args, false);
        }
        let hidden = self.sensitive.remove(&result.call_id);
        let text = if hidden { "[hidden]" } else { &result.observation_content };
        let failed = result.exit_code != Some(0);
        let lines = if self.verbosity == Verbosity::Verbose { usize::MAX } else { SHOWN_LINES };
        self.result(text, failed, lines);
    }

    /// A hook is shown when it made a difference, and, afterwards, when it failed: while it runs a warning says more.
    fn hook(&mut self, hook: &str, exit_code: Option<i32>, changed: bool) {
        let failed = exit_code != Some(0);
        let how = match (changed, exit_code) {
            (true, _) => "changed what goes on".to_owned(),
            (false, Some(0)) => "ran".to_owned(),
            (false, Some(code)) => format!("left with exit code {code}"),
            (false, None) => "did not end by itself".to_owned(),
        };
        let style = if failed { WARN } else { DIM };
        let text = format!("{style}  hook {} {how}{style:#}", printable(hook));
        if changed || self.verbosity == Verbosity::Verbose {
            self.line(&text);
        } else if failed && self.to_stdout {
            self.failed_hook = Some(text);
        }
    }

    fn warn(&mut self, text: &str) {
        let text = self.shown(text);
        self.log.note(&format!("warning: {text}"));
        let text = text.replace('\n', "\n  ");
        self.line(&format!("{WARN}! {text}{WARN:#}"));
    }

    fn error(&mut self, message: &str, hint: Option<&str>) {
        let message = self.shown(message);
        self.print(&format!("{BAD}Error:{BAD:#} {message}"));
        if let Some(hint) = hint {
            self.print(&format!("Hint: {}", printable(hint)));
        }
    }

    fn result(&mut self, text: &str, failed: bool, limit: usize) {
        let style = if failed { WARN } else { DIM };
        let text = self.shown(text);
        let lines: Vec<&str> = text.lines().collect();
        // The bar and the blanks around it take four columns.
        let room = self.width().saturating_sub(4);
        // How a failed call ended stands at its end.
        let tail = usize::from(failed);
        // A line in the place of "1 more line" says more.
        let left_out = lines.len().saturating_sub(limit.saturating_add(tail));
        let left_out = if left_out == 1 { 0 } else { left_out };
        for (index, line) in lines.iter().enumerate() {
            if left_out > 0 && index == limit {
                self.line(&format!("{style}  │ … {left_out} more lines{style:#}"));
            }
            if left_out > 0 && (limit..limit + left_out).contains(&index) {
                continue;
            }
            let line = clip(line, room);
            let gap = if line.trim().is_empty() { "" } else { " " };
            self.line(&format!("{style}  │{gap}{}{style:#}", line.trim_end()));
        }
    }

    /// A text of several lines behind a mark.
    fn block(&mut self, mark: &str, style: Style, text: &str, limit: usize) {
        let text = self.shown(text.trim_end());
        let count = text.lines().count();
        let mut lead = mark;
        for line in text.lines().take(limit) {
            for piece in self.wrapped(line) {
                match piece.trim().is_empty() {
                    true => self.line(""),
                    false => self.line(&format!("{style}{lead}{style:#} {piece}")),
                }
                lead = " ";
            }
        }
        if count > limit {
            self.line(&format!("{DIM}  … {} more lines{DIM:#}", count - limit));
        }
    }

    /// `line` in pieces that fit behind a mark; whole where no terminal would tear it.
    fn wrapped<'t>(&self, line: &'t str) -> Vec<&'t str> {
        if self.watched { wrap(line, self.width().saturating_sub(2)) } else { vec![line] }
    }

    /// `text` as it may be shown: without terminal controls and sensitive answers.
    fn shown(&self, text: &str) -> String {
        hide_answers(&self.hidden, printable(text))
    }

    /// How many characters of a line are shown.
    fn width(&self) -> usize {
        let terminal = self.watched.then(terminal::width).flatten();
        terminal.map_or(SHOWN_WIDTH, |columns| columns.clamp(40, SHOWN_WIDTH))
    }

    /// A line of one's own.
    pub fn line(&mut self, text: &str) {
        if self.verbosity > Verbosity::Quiet {
            self.print(text);
        }
    }

    fn print(&mut self, text: &str) {
        self.stop_spinner();
        if self.verbosity == Verbosity::Silent {
            return;
        }
        let mut line = match self.colours {
            true => text.to_owned(),
            false => anstream::adapter::strip_str(text).to_string(),
        };
        line.push('\n');
        // In one write, so that the lines of processes that share a terminal do not mix.
        let _ = match self.to_stdout {
            true => std::io::stdout().write_all(line.as_bytes()),
            false => std::io::stderr().write_all(line.as_bytes()),
        };
    }

    fn start_spinner(&mut self, doing: &'static str) {
        if !self.watched || self.verbosity <= Verbosity::Quiet {
            return;
        }
        self.stop_spinner();
        self.spinner = Some(Spinner::start(doing));
    }

    fn stop_spinner(&mut self) {
        self.spinner = None;
    }
}

/// Whether what is written there may have colours: by the environment, and when it is a terminal.
fn has_colours(stream: &impl RawStream) -> bool {
    !matches!(AutoStream::choice(stream), ColorChoice::Never)
}

/// At most `room` characters of a line, with `…` where something was left out.
fn clip(line: &str, room: usize) -> String {
    if line.chars().count() <= room {
        return line.to_owned();
    }
    line.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// `line` cut at blanks into pieces of at most `room` characters; a longer word stays whole.
fn wrap(line: &str, room: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some((end, _)) = rest.char_indices().nth(room) {
        let indent = rest.len() - rest.trim_start().len();
        let fits = rest[..end].rfind(' ').filter(|at| *at > indent);
        let blank = if rest[end..].starts_with(' ') { Some(end) } else { fits };
        let Some(at) = blank.or_else(|| rest[end..].find(' ').map(|at| end + at)) else { break };
        pieces.push(&rest[..at]);
        rest = rest[at..].trim_start();
    }
    pieces.push(rest);
    pieces
}

/// Where a rollback leads, in words.
fn put_back(to: Option<u32>, tree: &str) -> String {
    match to {
        Some(0) => "put back to the beginning of the run".to_owned(),
        Some(to) => format!("put back to the end of iteration {to}"),
        None => format!("put back to {tree}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_cut_at_blanks() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 6), ["one", "two", "three"]);
        assert_eq!(wrap("    indented text", 8), ["    indented", "text"]);
        assert_eq!(wrap("https://a.example/long x", 5), ["https://a.example/long", "x"]);
        assert_eq!(wrap("äöü äöü", 3), ["äöü", "äöü"]);
        assert_eq!(wrap("", 3), [""]);
    }

    #[test]
    fn a_line_that_is_cut_says_so() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("äöüß", 3), "äö…");
    }
}
