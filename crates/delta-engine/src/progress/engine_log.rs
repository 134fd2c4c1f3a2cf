//! engine.log: what this process recorded and when, and its warnings; for diagnosis.

use super::{describe_apply, describe_rollback};
use delta_base::durable::LogFile;
use delta_base::redact::redact_answers;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time::Clock;
use delta_run::event::{ActionResult, Event, Payload, WorkspaceSnapshot};
use std::fmt::Write;

/// Enough bytes for most lines.
const LINE_CAPACITY: usize = 96;

/// The engine.log of a run, once its file is known.
pub(super) struct EngineLog {
    file: Option<LogFile>,
    clock: Clock,
}

impl EngineLog {
    pub(super) fn disabled(clock: Clock) -> Self {
        Self { file: None, clock }
    }

    pub(super) fn set_file(&mut self, file: LogFile) {
        self.file = Some(file);
    }

    pub(super) fn write_note(&mut self, text: &str) {
        let mut line = format!("{} ", (self.clock)());
        push_log_line(&mut line, text);
        self.append(&line);
    }

    /// Writes one line for each event, all in one write; `hidden` answers are redacted.
    pub(super) fn write_events(&mut self, events: &[Event], hidden: &[String]) {
        if self.file.is_none() {
            return;
        }
        let mut lines = String::with_capacity(events.len() * LINE_CAPACITY);
        for event in events {
            let _ = write!(lines, "{} #{} ", event.timestamp, event.seq);
            push_log_line(&mut lines, &redact_answers(hidden, describe_event(&event.payload)));
        }
        self.append(&lines);
    }

    fn append(&mut self, lines: &str) {
        if let Some(file) = &mut self.file {
            file.write(lines);
        }
    }
}

fn push_log_line(lines: &mut String, text: &str) {
    let mut parts = text.split('\n');
    lines.push_str(parts.next().unwrap_or_default());
    for part in parts {
        lines.push_str("\\n");
        lines.push_str(part);
    }
    lines.push('\n');
}

fn describe_event(payload: &Payload) -> String {
    let code = |code: &Option<i32>| code.map_or_else(|| "-".to_owned(), |code| code.to_string());
    match payload {
        Payload::EngineStart(start) => {
            format!("start pid {} epoch {}", start.process.pid, start.epoch)
        }
        Payload::UserMessage { .. } => "user message".to_owned(),
        Payload::LimitsChanged(change) => format!("limits changed: {}", change.describe()),
        Payload::Thought(thought) => {
            format!("answer {} with {} tool calls", thought.iteration, thought.tool_calls.len())
        }
        Payload::ActionRequest(request) => {
            let started = if request.argv.is_some() { "" } else { " (nothing started)" };
            format!("call {} of {:?}{started}", request.call_id, request.tool_name)
        }
        Payload::ActionResult(result) => {
            let ActionResult { call_id, exit_code, duration_ms, .. } = &**result;
            format!("result of {call_id} exit code {} after {duration_ms} ms", code(exit_code))
        }
        Payload::HumanInputRequest(_) => "question asked".to_owned(),
        Payload::HumanInputReceived { .. } => "answer received".to_owned(),
        Payload::ApprovalRequest(request) => {
            format!("approval of {} requested", request.call_id)
        }
        Payload::ApprovalDecision(decision) => {
            let verb = if decision.approved { "approved" } else { "denied" };
            format!("{verb} {} by {:?}", decision.call_id, decision.by)
        }
        Payload::Error { error_message, error_details } => {
            let message = strip_terminal_controls(error_message);
            format!("error {}: {message}", error_details.kind)
        }
        Payload::HookExecution { hook, exit_code, record, changed, .. } => {
            let changed = if *changed { " changed something" } else { "" };
            format!("hook {hook} exit code {}{changed} ({record})", code(exit_code))
        }
        Payload::Snapshot(snapshot) => {
            let initial = if snapshot.found { " as it was found" } else { "" };
            let WorkspaceSnapshot { tree, files, written, .. } = &**snapshot;
            format!("snapshot{initial} {tree}: {files} files, {written} bytes written")
        }
        Payload::Rollback { to, tree, saved, .. } => {
            format!("rollback: {}; the previous state is {saved}", describe_rollback(*to, *tree))
        }
        Payload::Apply(apply) => {
            format!("apply: {}; the previous state is {}", describe_apply(apply), apply.saved)
        }
        Payload::ApplyEnd { rest: true, .. } => "apply ended in part".to_owned(),
        Payload::ApplyEnd { .. } => "apply ended".to_owned(),
        Payload::Discard { saved, .. } => {
            format!("staged changes discarded; the previous state is {saved}")
        }
        Payload::Fork(fork) => {
            format!("forked from {} at iteration {}", fork.from.run_id, fork.from.iteration)
        }
        Payload::EngineEnd { status, .. } => format!("end {status}"),
        Payload::Turn { turn, .. } => format!("takes turn {turn}"),
        Payload::Sent(sent) => format!("sent to {:?}", sent.place),
        Payload::RunTrusted { received: Some(received), .. } => {
            format!("received from {}", received.from)
        }
        Payload::RunTrusted { agent_home, .. } => {
            format!("trusted by the operator, with the agent directory {agent_home:?}")
        }
    }
}
