//! engine.log: when this process recorded what, and what it warned of; for the one who looks for the cause of something.

use super::put_back;
use crate::durable::LogFile;
use crate::event::{Event, Payload};
use crate::text::{hide_answers, printable};
use crate::time::Clock;
use std::fmt::Write;

/// As many bytes as most lines have.
const ROOM: usize = 96;

/// The log of a run, when there is one.
pub(super) struct Log {
    file: Option<LogFile>,
    clock: Clock,
}

impl Log {
    /// Nothing is written, until there is a file.
    pub(super) fn none(clock: Clock) -> Self {
        Self { file: None, clock }
    }

    /// Writes to `file` from now on.
    pub(super) fn write_to(&mut self, file: LogFile) {
        self.file = Some(file);
    }

    /// A line of its own.
    pub(super) fn note(&mut self, text: &str) {
        let mut line = format!("{} ", (self.clock)());
        push_line(&mut line, text);
        self.write(&line);
    }

    /// A line for each event, all in one write; without the answers that are to stay `hidden`.
    pub(super) fn events(&mut self, events: &[Event], hidden: &[String]) {
        if self.file.is_none() {
            return;
        }
        let mut lines = String::with_capacity(events.len() * ROOM);
        for event in events {
            let _ = write!(lines, "{} #{} ", event.timestamp, event.seq);
            push_line(&mut lines, &words(&event.payload, hidden));
        }
        self.write(&lines);
    }

    fn write(&mut self, lines: &str) {
        if let Some(file) = &mut self.file {
            file.write(lines);
        }
    }
}

/// A text as the rest of a line.
fn push_line(lines: &mut String, text: &str) {
    let mut parts = text.split('\n');
    lines.push_str(parts.next().unwrap_or_default());
    for part in parts {
        lines.push_str("\\n");
        lines.push_str(part);
    }
    lines.push('\n');
}

/// What an event says, in a few words.
fn words(payload: &Payload, hidden: &[String]) -> String {
    let code = |code: &Option<i32>| code.map_or_else(|| "-".to_owned(), |code| code.to_string());
    match payload {
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
            let (id, code, took) = (&result.call_id, code(&result.exit_code), result.duration_ms);
            format!("result of {id} exit code {code} after {took} ms")
        }
        Payload::HumanInputRequest(_) => "a person is asked".to_owned(),
        Payload::HumanInputReceived { .. } => "a person answered".to_owned(),
        Payload::Error { error_message, error_details } => {
            let message = hide_answers(hidden, printable(error_message));
            format!("error {}: {message}", error_details.kind)
        }
        Payload::HookExecution { hook, exit_code, record, changed, .. } => {
            let changed = if *changed { " changed something" } else { "" };
            format!("hook {hook} exit code {}{changed} ({record})", code(exit_code))
        }
        Payload::Snapshot(taken) => {
            let found = if taken.found { " as it was found" } else { "" };
            let (tree, files, written) = (&taken.tree, taken.files, taken.written);
            format!("snapshot{found} {tree}: {files} files, {written} bytes written")
        }
        Payload::Rollback { to, tree, saved, .. } => {
            format!("rollback: {}; until then it was {saved}", put_back(*to, tree))
        }
        Payload::Fork(fork) => {
            format!("forked from {} at iteration {}", fork.from.run_id, fork.from.iteration)
        }
        Payload::EngineEnd { status, .. } => format!("end {status}"),
    }
}
