//! A call of a tool that waits for its run.

use super::client_request::ClientRequest;
use crate::supervisor::ServedRun;
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_mcp::json_rpc::{RpcId, RpcMessage};
use delta_operator::runs::own_run;
use delta_run::event::{Payload, Thought};
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

/// The time after which a client that polls tasks gets a task.
const TASK_AFTER: Duration = Duration::from_secs(2);
/// The longest message of a progress notification, in characters.
const MAX_PROGRESS_CHARS: usize = 200;

/// A call without an answer yet.
pub struct WaitingCall {
    pub request: ClientRequest,
    pub run: ServedRun,
    /// Whether a client that cancels the call wants the run to stop.
    pub drives_run: bool,
    /// The request to the client that asks its user, and the event after which it was asked.
    pub asked: Option<(RpcId, u64)>,
    started: Instant,
    wait: Duration,
    progress: Option<ProgressFeed>,
}

impl WaitingCall {
    /// A call about what the run does after its event `seq`.
    pub fn new(
        request: ClientRequest,
        run: ServedRun,
        seq: u64,
        wait: Duration,
        drives_run: bool,
    ) -> Self {
        let progress = request.progress_token().map(|token| ProgressFeed {
            token,
            journal_bytes: 0,
            seq,
            reported: None,
        });
        Self { request, run, drives_run, asked: None, started: Instant::now(), wait, progress }
    }

    /// Whether the call has waited as long as it should.
    pub fn is_overdue(&self) -> bool {
        self.started.elapsed() >= self.wait
    }

    /// Whether the client should poll the run as a task from now on.
    pub fn is_due_as_task(&self) -> bool {
        self.request.abilities.has_tasks && self.drives_run && self.started.elapsed() >= TASK_AFTER
    }

    /// Begins the wait again, after the user has answered.
    pub fn restart_wait(&mut self) {
        self.started = Instant::now();
    }

    /// What the run did since the last time, for a client that asked for progress.
    pub fn take_progress(&mut self) -> Vec<RpcMessage> {
        self.progress.as_mut().map(|feed| feed.read(&self.run)).unwrap_or_default()
    }
}

/// Follows the journal of a run.
struct ProgressFeed {
    token: Json,
    journal_bytes: u64,
    /// The last event before the call.
    seq: u64,
    /// The last iteration that was reported, counted from the call; `None` before the first report.
    reported: Option<u32>,
}

impl ProgressFeed {
    fn read(&mut self, run: &ServedRun) -> Vec<RpcMessage> {
        let mut messages = Vec::new();
        if self.reported.is_none() {
            self.reported = Some(0);
            messages.push(self.notification(0, &format!("run {}", run.id)));
        }
        let bytes = run.journal_bytes();
        if bytes == self.journal_bytes {
            return messages;
        }
        let Ok(contents) = own_run::read_journal(&run.id, &run.dir()) else { return messages };
        self.journal_bytes = bytes;
        let mut earlier_iterations = 0;
        for event in &contents.events {
            let Payload::Thought(thought) = &event.payload else { continue };
            if event.seq <= self.seq {
                earlier_iterations = thought.iteration;
                continue;
            }
            let count = thought.iteration.saturating_sub(earlier_iterations);
            if self.reported.is_some_and(|reported| count > reported) {
                self.reported = Some(count);
                let text = strip_terminal_controls(&thought.content);
                let text = if text.trim().is_empty() { called_tools(thought) } else { text };
                messages
                    .push(self.notification(count, &truncate_to_line(&text, MAX_PROGRESS_CHARS)));
            }
        }
        messages
    }

    fn notification(&self, progress: u32, message: &str) -> RpcMessage {
        let params = json!({"progressToken": self.token, "progress": progress, "message": message});
        RpcMessage::notification("notifications/progress", params)
    }
}

/// The names of the tools that an answer calls.
fn called_tools(thought: &Thought) -> String {
    let names: Vec<&str> =
        thought.tool_calls.iter().map(|call| call.function.name.as_str()).collect();
    names.join(", ")
}
