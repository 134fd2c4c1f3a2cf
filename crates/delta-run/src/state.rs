//! The state of a run, folded from its events, and the next step that follows from it.
//!
//! Pure: no files, no clock, no processes. The loop asks [`RunState::next_step`], executes that step, records the result
//! and asks again. A new run, a continued one and one whose engine was killed differ only in the length of the journal.

use crate::conversation::Conversation;
use crate::event::approval::{
    ApprovalDecision, ApprovalLog, ApprovalRequest, AskedApproval, CallStage, OperatorApproval,
};
use crate::event::{
    ActionResult, EngineStart, ErrorDetails, Event, ForkOrigin, HookEnd, HumanQuestion, LLM_ERROR,
    LimitsChange, MessageTime, Payload, ReceivedRun, RunFork, RunStatus, SandboxRecord, SentRun,
    Thought, UsageSummary, WaitsFor,
};
use crate::limits::token_estimate::TokenRatio;
use crate::state::active_time::ActiveTime;
use crate::state::answer_calls::{AnswerCalls, CallPhase};
use crate::state::repeats::Repeats;
use crate::state::request_event::RequestEvent;
use crate::state::sensitive_questions::SensitiveQuestions;
use crate::state::snapshot_timeline::SnapshotTimeline;
use crate::state::stage::StageState;
use delta_base::id::{RunId, SnapshotId};
use delta_base::json::ExactJson;
use delta_base::time::Timestamp;
use delta_words::{CallArguments, Usage, is_retried_status};
use serde_json::Value as Json;
use std::collections::HashSet;

pub mod active_time;
pub(crate) mod answer_calls;
mod repeats;
pub(crate) mod request_event;
pub mod run_metadata;
pub mod sensitive_questions;
pub mod snapshot_timeline;
pub mod stage;

/// The built-in tool that ends a run.
pub const FINISH_TOOL: &str = "finish";
/// The message after an answer without calls, if the agent requires a call of `finish`. Recorded requests contain it, so its
/// wording is a format.
pub const FINISH_REMINDER: &str = "[Your answer has no call, and this run ends only with a call of `finish`. \
    If the task is done, call `finish` with its result; if it is not, continue.]";
/// The message after an answer that announced a call and had none.
pub const MISSING_CALL_REMINDER: &str =
    "[Your answer announced a call, but no call arrived. Make the call, or write the answer.]";
/// The built-in tool that asks a human.
pub const ASK_HUMAN_TOOL: &str = "ask_human";
/// The hook that runs at the start of an iteration.
pub const ON_ITERATION_START: &str = "on_iteration_start";
/// The hook that runs after the last result of an iteration.
pub const ON_ITERATION_END: &str = "on_iteration_end";

/// A tool call of the last answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// The id of the call, unique in the run.
    pub id: String,
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The index of the call in the answer.
    pub index: usize,
    /// The name of the tool as the LLM sent it.
    pub tool: String,
    /// The arguments as the LLM sent them.
    pub arguments: CallArguments,
    /// Whether the arguments contained a key, so that the call must not run.
    pub is_redacted: bool,
}

/// What the engine does next.
#[derive(Debug, Clone, PartialEq)]
pub enum RunStep {
    /// Request an answer of the LLM.
    Think {
        /// The number of the answer.
        iteration: u32,
    },
    /// Execute a call.
    Act(PendingCall),
    /// Record a result for a call that had started a process when its engine died.
    Settle {
        /// The call.
        call: PendingCall,
        /// The io/ record, which may contain the output of the process.
        execution: Option<String>,
    },
    /// Wait for a human to answer a question.
    Wait(HumanQuestion),
    /// Wait for an operator to approve a call.
    AskApproval(Box<ApprovalRequest>),
    /// Record the answer of a human as the result of a call.
    Reply {
        /// The call.
        call: PendingCall,
        /// The answer.
        response: String,
    },
    /// Apply or discard what a call has changed, as was decided, and record its result.
    EndStagedCall(PendingCall),
    /// Exit.
    End(RunEnding),
}

/// Why a process exits.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnding {
    /// The run has its result.
    Completed,
    /// The run ended without a result.
    Failed,
    /// The run waits for a human to answer a question.
    Waiting,
    /// The run was stopped.
    Interrupted,
    /// A hook ended the run as FAILED.
    FailedByHook {
        /// The error, in the hook's words.
        message: String,
    },
    /// The process requested as many LLM answers as it may.
    OutOfIterations,
}

impl RunEnding {
    /// The status that the run has from then on.
    pub fn status(&self) -> RunStatus {
        match self {
            Self::Completed => RunStatus::Completed,
            Self::Failed | Self::FailedByHook { .. } | Self::OutOfIterations => RunStatus::Failed,
            Self::Waiting => RunStatus::WaitingForInput,
            Self::Interrupted => RunStatus::Interrupted,
        }
    }
}

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HumanRequest<'a> {
    /// The answer to a question of the agent.
    Question(&'a HumanQuestion),
    /// The approval of a call.
    Approval(&'a ApprovalRequest),
}

/// What the process of a run does, as its journal says it. Has no text of a person, the LLM or a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunActivity {
    /// It asks the LLM, or prepares that.
    Llm,
    /// It works on a call. Only a tool that was started has its name here: another one may be the LLM's invention.
    Call {
        /// The name of the tool.
        tool: Option<String>,
    },
    /// It asks a person.
    Person,
}

/// The state of a run.
#[derive(Debug, Clone, Default)]
pub struct RunState {
    /// The messages of the run.
    pub conversation: Conversation,
    /// The number of the last event.
    pub seq: u64,
    /// The time of the first event, or of the fork that created the run.
    pub created_at: Option<Timestamp>,
    /// The time of the last event.
    pub updated_at: Option<Timestamp>,
    /// The time of the last event of a process that worked on the run. A rollback does not count as work.
    pub worked_until: Option<Timestamp>,
    /// The last process that started or continued the run.
    pub start: Option<EngineStart>,
    /// The time when that process started or continued the run.
    pub started_at: Option<Timestamp>,
    /// How long processes worked on the run.
    pub active_time: ActiveTime,
    /// The status of the run, `None` before the first event.
    pub status: Option<RunStatus>,
    /// The number of LLM answers.
    pub iterations: u32,
    /// The number of LLM answers before the current process.
    iterations_at_start: u32,
    /// The calls of the last answer.
    calls: AnswerCalls,
    /// The result of the run. A later user message clears it.
    pub result: Option<ExactJson>,
    /// How a hook ended the run. A later user message clears it.
    hook_end: Option<HookEnd>,
    /// The last error of the current process.
    pub error: Option<(String, ErrorDetails)>,
    /// The run that was forked to create this one.
    pub origin: Option<ForkOrigin>,
    /// The usage of this run per model, in the order of first use. Copied events of a fork do not count.
    pub usage: Vec<Usage>,
    /// Whether the usage of some answer is unknown, so that `usage` is incomplete.
    pub unmetered: bool,
    /// How many answers the run got from other runs.
    pub stored_answers: u32,
    /// USD that these answers cost the other runs; `None` if one of the costs is unknown, or there are no such answers.
    pub saved_usd: Option<f64>,
    /// The correction of token estimates by what the endpoint reported.
    pub ratio: TokenRatio,
    /// The iteration whose call gave the newest image; `None` if no tool gave it.
    pub image_iteration: Option<u32>,
    /// The number of oldest iterations that the last request left out because they did not fit.
    pub left_out: usize,
    /// The event that asked a person last.
    last_request: RequestEvent,
    /// The approvals of the last answer's calls.
    approvals: ApprovalLog,
    /// Whether the last answer was cut off at its token limit.
    pub was_cut_off: bool,
    /// Whether the last answer had neither text nor calls.
    pub was_empty: bool,
    /// Whether the LLM was reminded that the last answer lacked the call that it announced.
    pub lacked_call: bool,
    /// The tool that the last answer called, if it was a call that is written as text.
    pub text_call: Option<String>,
    /// How often in a row the LLM was reminded that only a call of `finish` ends the run.
    pub finish_reminders: u32,
    /// How often the last calls had the same results.
    repeats: Repeats,
    /// The text of the last answers, each of which continues where the one before was cut off.
    begun_text: String,
    /// The questions whose answers are hidden on the screen.
    pub sensitive: SensitiveQuestions,
    /// Whether a call left processes running that delta did not end.
    pub has_left_processes: bool,
    /// How often the run has changed to the next model of `llm.fallback` since the last message.
    pub model_changes: usize,
    /// The turn of the script that comes next.
    pub script_turn: usize,
    /// The io/ record of the call that gave the last answer.
    pub last_invocation: Option<String>,
    /// The SHA-256 of that record; `None` in runs of earlier versions.
    pub last_invocation_sha256: Option<String>,
    /// When an event counted calls last, and the record that it names.
    last_counted: Option<(Timestamp, Option<String>)>,
    /// The snapshots of the workspace.
    pub timeline: SnapshotTimeline,
    /// How the run was sent, while it is closed here.
    pub sent: Option<SentRun>,
    /// How the run has come here, until a process starts.
    pub received: Option<ReceivedRun>,
    /// The staged changes, if the run is staged.
    pub stage: Option<StageState>,
    /// The ids of the messages that came through the mailbox.
    received_ids: HashSet<String>,
    /// The most LLM answers of a process, if the operator has changed that.
    changed_iterations: Option<u32>,
    /// Whether a message that was not to wait came before all calls of the last answer had their results.
    is_told_to_stop: bool,
    /// The last iteration whose `on_iteration_start` hook succeeded.
    pub iteration_started: u32,
    /// The last iteration whose `on_iteration_end` hook succeeded.
    pub iteration_ended: u32,
}

/// The message that informs the LLM of a rollback. Recorded requests contain it, so its wording is a format.
pub fn rollback_note(to: Option<u32>) -> String {
    let state = match to {
        Some(0) => "its state at the beginning, before your first answer".to_owned(),
        Some(to) => {
            format!("its state at the end of iteration {to}, after the calls of your answer {to}")
        }
        None => "an earlier state".to_owned(),
    };
    format!(
        "[The working directory was put back to {state}. What was changed in it since then is undone.]"
    )
}

/// The message that informs the LLM of a discard. Recorded requests contain it, so its wording is a format.
pub const DISCARD_NOTE: &str =
    "[Your changes in the working directory were discarded. It is as its owner has it now.]";

impl RunState {
    /// Folds the events of one journal from its start.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        events.into_iter().for_each(|event| state.apply(event));
        state
    }

    /// The sandboxes of the last process, if it had any.
    pub fn sandbox(&self) -> Option<&SandboxRecord> {
        self.start.as_ref()?.config.sandbox.as_ref()
    }

    /// The calls of the last answer that were requested and have no result yet.
    pub fn calls_in_progress(&self) -> impl Iterator<Item = &PendingCall> {
        self.calls
            .open()
            .filter(|(_, phase)| !matches!(phase, CallPhase::Queued))
            .map(|(call, _)| call)
    }

    /// Whether the next call of the last answer was requested with a command.
    pub fn has_started_calls(&self) -> bool {
        let first = self.calls.open().next();
        matches!(first, Some((_, CallPhase::Requested { starts: true, .. })))
    }

    /// What a process does that works on the run.
    pub fn activity(&self) -> RunActivity {
        match self.calls.first_open(self.has_builtin(FINISH_TOOL)) {
            None => RunActivity::Llm,
            Some((_, CallPhase::AwaitingReply(_) | CallPhase::AwaitingApproval(_))) => {
                RunActivity::Person
            }
            Some((call, phase)) => {
                let is_started = matches!(phase, CallPhase::Requested { starts: true, .. });
                RunActivity::Call { tool: is_started.then(|| call.tool.clone()) }
            }
        }
    }

    /// The calls that come after `first` in the order of steps, up to the first that is not simply waiting for its turn.
    pub fn queued_after(&self, first: &PendingCall) -> impl Iterator<Item = &PendingCall> {
        let finish_is_last = self.has_builtin(FINISH_TOOL);
        self.calls
            .open()
            .filter(move |(call, _)| !(finish_is_last && call.tool == FINISH_TOOL))
            .skip_while(move |(call, _)| call.index <= first.index)
            .map_while(|(call, phase)| matches!(phase, CallPhase::Queued).then_some(call))
    }

    /// The call of the last answer with this id.
    pub fn call(&self, call_id: &str) -> Option<&PendingCall> {
        self.calls.get(call_id)
    }

    /// Adds the next event.
    pub fn apply(&mut self, event: &Event) {
        self.note_event(event);
        if let Payload::Thought(_) | Payload::Error { .. } = event.payload {
            let record = event.payload.record_file().map(str::to_owned);
            self.last_counted = Some((event.timestamp, record));
        }
        self.timeline.apply(&event.payload);
        self.sensitive.apply(event);
        StageState::apply_event(&mut self.stage, &event.payload);
        match &event.payload {
            Payload::EngineStart(start) => self.apply_engine_start(start, event.timestamp),
            Payload::UserMessage { content, images, source } => {
                if let Some(source) = source {
                    self.received_ids.insert(source.id.clone());
                    self.is_told_to_stop =
                        source.when == MessageTime::Now && !self.calls.are_done();
                }
                let config = self.start.as_ref().map(|start| &start.config);
                let template = config.and_then(|config| config.task_template.as_deref());
                self.conversation.push_user_message_with(content, images, template);
                self.image_iteration = self.image_iteration.filter(|_| images.is_empty());
                self.result = None;
                self.hook_end = None;
                self.model_changes = 0;
                self.begun_text.clear();
                self.repeats = Repeats::default();
                self.text_call = None;
                self.finish_reminders = 0;
                self.was_empty = false;
                self.lacked_call = false;
            }
            Payload::LimitsChanged(change) => self.apply_limits(change),
            Payload::Thought(thought) => self.apply_thought(thought),
            Payload::ActionRequest(request) => {
                let starts = request.argv.is_some();
                let execution = request.execution.clone();
                let phase = CallPhase::Requested { starts, execution };
                self.calls.set_phase(&request.call_id, Some(phase));
            }
            Payload::ActionResult(result) => self.apply_action_result(result),
            Payload::HumanInputRequest(question) => {
                let phase = CallPhase::AwaitingReply(question.clone());
                self.calls.set_phase(&question.call_id, Some(phase));
                self.last_request = RequestEvent::new(event);
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                self.calls.set_phase(call_id, Some(CallPhase::Replied(response.clone())));
            }
            Payload::ApprovalRequest(request) => {
                self.apply_approval_request(request);
                self.last_request = RequestEvent::new(event);
            }
            Payload::ApprovalDecision(decision) => {
                self.apply_approval_decision(decision, event.timestamp)
            }
            Payload::Error { error_message, error_details } => {
                self.apply_error(error_message, error_details);
            }
            Payload::HookExecution { iteration, hook, exit_code, end, .. } => {
                self.apply_hook(*iteration, hook, *exit_code, end.as_deref());
            }
            Payload::Fork(fork) => self.apply_fork(fork, event.timestamp),
            Payload::Sent(sent) => self.sent = Some((**sent).clone()),
            Payload::RunTrusted { agent_home, received, .. } => {
                self.apply_arrival(agent_home, received.as_deref());
            }
            Payload::Snapshot(_)
            | Payload::Turn { .. }
            | Payload::Apply(_)
            | Payload::ApplyEnd { .. } => {}
            Payload::Rollback { to, .. } => {
                self.conversation.push_engine_note(&rollback_note(*to));
                self.close_iteration();
            }
            Payload::Discard { .. } => {
                self.conversation.push_engine_note(DISCARD_NOTE);
                self.close_iteration();
            }
            Payload::EngineEnd { status, .. } => {
                self.status = Some(*status);
                if matches!(status, RunStatus::Completed | RunStatus::Failed) {
                    self.close_iteration();
                }
            }
        }
    }

    fn apply_engine_start(&mut self, start: &EngineStart, at: Timestamp) {
        self.status = Some(RunStatus::Running);
        self.start = Some(start.clone());
        self.started_at = Some(at);
        self.iterations_at_start = self.iterations;
        self.start_process_approvals(start.config.approve.as_ref());
        self.error = None;
        self.received = None;
    }

    /// Opens a run that was sent, at the place where it has arrived.
    fn apply_arrival(&mut self, agent_home: &str, received: Option<&ReceivedRun>) {
        let Some(received) = received else { return };
        self.sent.take_if(|sent| sent.nonce == received.nonce && !sent.copy);
        self.received = Some(received.clone());
        let Some(start) = &mut self.start else { return };
        agent_home.clone_into(&mut start.agent_home);
        start.work_dir.clone_from(&received.work_dir);
        start.workspace_id.clone_from(&received.workspace_id);
    }

    fn apply_limits(&mut self, change: &LimitsChange) {
        self.received_ids.insert(change.source.id.clone());
        self.changed_iterations = change.max_iterations.or(self.changed_iterations);
        let Some(start) = &mut self.start else { return };
        start.max_iterations = change.max_iterations.unwrap_or(start.max_iterations);
        let limits = change.limits.or(start.config.limits.unwrap_or_default());
        start.config.limits = Some(limits).filter(|limits| !limits.are_none());
    }

    fn apply_hook(
        &mut self,
        iteration: u32,
        hook: &str,
        exit_code: Option<i32>,
        end: Option<&HookEnd>,
    ) {
        match hook {
            ON_ITERATION_START if exit_code == Some(0) => self.iteration_started = iteration,
            ON_ITERATION_END if exit_code == Some(0) => self.iteration_ended = iteration,
            _ => {}
        }
        if let Some(end) = end {
            self.result = (end.status == RunStatus::Completed).then(|| end.result.clone().into());
            self.hook_end = Some(end.clone());
        }
    }

    fn apply_error(&mut self, message: &str, details: &ErrorDetails) {
        self.advance_script(details.script_turn);
        self.count_discarded(&details.discarded_usage);
        if let Some(change) = &details.fallback {
            self.model_changes = change.number;
        }
        if details.is_failure() {
            // What continues the run begins with the first model again.
            self.model_changes = 0;
            self.error = Some((message.to_owned(), details.clone()));
        }
    }

    /// Whether an event counts what the call with the record `name` used, which was made at `started_at`.
    pub fn counts_call(&self, name: &str, started_at: Option<Timestamp>) -> bool {
        self.last_counted.as_ref().is_some_and(|(at, record)| {
            record.as_deref() == Some(name) || started_at.is_some_and(|started_at| started_at < *at)
        })
    }

    fn apply_action_result(&mut self, result: &ActionResult) {
        self.conversation.add_action_result(result);
        if !result.images.is_empty() {
            self.image_iteration = Some(self.iterations);
        }
        self.calls.set_phase(&result.call_id, None);
        self.repeats.add_result(result, self.calls.are_done());
        // Of calls that ran at the same time, the first one ends the run.
        if self.result.is_none() && self.hook_end.is_none() {
            self.result.clone_from(&result.result);
        }
        self.has_left_processes |= !result.left_running.is_empty();
    }

    fn apply_approval_request(&mut self, request: &ApprovalRequest) {
        let phase = self.calls.phase(&request.call_id);
        let repeats = matches!(phase, Some(CallPhase::Requested { starts: true, .. }));
        let epoch = self.start.as_ref().map_or(0, |start| start.epoch);
        self.approvals.add_request(request, epoch, repeats);
        let phase = CallPhase::AwaitingApproval(Box::new(request.clone()));
        self.calls.set_phase(&request.call_id, Some(phase));
    }

    fn apply_approval_decision(&mut self, decision: &ApprovalDecision, at: Timestamp) {
        if self.approvals.add_decision(decision, at) {
            self.calls.set_phase(&decision.call_id, Some(CallPhase::Decided));
        }
    }

    /// Forgets what only the last process had approved; with `renew` of the operator, what earlier ones had decided, too.
    fn start_process_approvals(&mut self, operator: Option<&OperatorApproval>) {
        let renews = operator.is_some_and(|operator| operator.renew);
        for request in self.approvals.start_process(renews) {
            let id = request.call_id.clone();
            if matches!(self.calls.phase(&id), Some(CallPhase::Decided)) {
                self.calls.set_phase(&id, Some(CallPhase::AwaitingApproval(Box::new(request))));
            }
        }
    }

    fn note_event(&mut self, event: &Event) {
        self.seq = event.seq;
        self.active_time.apply(event);
        self.created_at.get_or_insert(event.timestamp);
        self.updated_at = Some(event.timestamp);
        if self.status == Some(RunStatus::Running)
            || matches!(event.payload, Payload::EngineStart(_) | Payload::Fork(_))
        {
            self.worked_until = Some(event.timestamp);
        }
    }

    /// How often the calls of the last answer have had these results in a row with `result`, if it ends the answer and the
    /// limit of repeats is reached; otherwise 0.
    pub(crate) fn repeats_with(&self, result: &ActionResult) -> u32 {
        let Some(limit) = self.repeat_limit() else { return 0 };
        let mut open = self.calls.open().map(|(call, _)| &call.id);
        let is_last = open.next() == Some(&result.call_id) && open.next().is_none();
        let count = self.repeats.count_with(result);
        if is_last && count >= limit { count } else { 0 }
    }

    /// How often the last calls have had the same results in a row, if that is more often than the limit allows.
    pub fn excessive_repeats(&self) -> Option<u32> {
        let limit = self.repeat_limit()?;
        Some(self.repeats.count()).filter(|count| *count > limit)
    }

    fn repeat_limit(&self) -> Option<u32> {
        self.start.as_ref()?.repeats
    }

    /// Whether the run has received the message with this id.
    pub fn has_received(&self, message_id: &str) -> bool {
        self.received_ids.contains(message_id)
    }

    /// The most LLM answers that a process may request, if the operator has changed that while the run worked.
    pub fn changed_iterations(&self) -> Option<u32> {
        self.changed_iterations
    }

    /// Whether the operator has sent a message that ends the last answer: its other calls do not start.
    pub fn is_told_to_stop(&self) -> bool {
        self.is_told_to_stop
    }

    /// Whether the process may request another LLM answer.
    pub fn may_think(&self) -> bool {
        self.remaining_iterations() > 0
    }

    /// Whether every call of the last answer has its result.
    pub fn is_between_iterations(&self) -> bool {
        self.calls.are_done()
    }

    /// Closes the last iteration if it is complete, so that later snapshots are not its end.
    fn close_iteration(&mut self) {
        if self.is_between_iterations() {
            self.timeline.close(self.iterations);
        }
    }

    /// The snapshot of the workspace at the end of an iteration; `None` if the run has none, or has not seen that end yet:
    /// until then, the last snapshot is an earlier one.
    pub fn snapshot_at_end_of(&self, iteration: u32) -> Option<SnapshotId> {
        let has_ended = iteration < self.iterations || self.timeline.is_closed(iteration);
        let point = self.timeline.at_end_of(iteration).filter(|_| has_ended);
        point.map(|point| point.tree)
    }

    /// Starts the identity and the usage of the fork; the copied conversation stays.
    fn apply_fork(&mut self, fork: &RunFork, at: Timestamp) {
        let status =
            if self.result.is_some() { RunStatus::Completed } else { RunStatus::Interrupted };
        self.status = Some(status);
        self.created_at = Some(at);
        self.started_at = Some(at);
        if let Some(start) = &mut self.start {
            start.run_id.clone_from(&fork.run_id);
            start.work_dir.clone_from(&fork.work_dir);
            start.workspace_id.clone_from(&fork.workspace_id);
            start.config.limits = None;
            self.changed_iterations = None;
        }
        self.usage.clear();
        self.unmetered = false;
        self.stored_answers = 0;
        self.saved_usd = None;
        self.model_changes = 0;
        self.error = None;
        self.sent = None;
        self.origin = Some(fork.from.clone());
    }

    fn apply_thought(&mut self, thought: &Thought) {
        self.is_told_to_stop = false;
        self.last_invocation.clone_from(&thought.invocation);
        self.last_invocation_sha256.clone_from(&thought.record_sha256);
        self.iterations = thought.iteration;
        self.repeats.start_answer(thought);
        self.was_empty = thought.is_empty();
        self.lacked_call = thought.reminder.as_deref() == Some(MISSING_CALL_REMINDER);
        self.text_call.clone_from(&thought.text_call);
        let is_reminded = thought.reminder.as_deref() == Some(FINISH_REMINDER);
        self.finish_reminders = if is_reminded { self.finish_reminders + 1 } else { 0 };
        // Runs of earlier versions have the endpoint's word alone.
        self.was_cut_off = thought.cut_off || thought.finish_reason.as_deref() == Some("length");
        let ids = self.conversation.push_thought(thought);
        let calls = thought.tool_calls.iter().zip(ids).enumerate();
        let redacted: HashSet<usize> = thought.redacted_calls.iter().copied().collect();
        let calls = calls.map(|(index, (call, id))| PendingCall {
            is_redacted: redacted.contains(&index),
            id,
            iteration: thought.iteration,
            index,
            tool: call.function.name.clone(),
            arguments: call.function.arguments.clone(),
        });
        self.calls = AnswerCalls::new(calls.collect());
        self.approvals.start_answer();
        if self.hook_end.is_none() {
            let has_calls = !self.calls.is_empty();
            let is_result = !has_calls && thought.reminder.is_none();
            self.result =
                is_result.then(|| Json::from(self.begun_text.clone() + &thought.content).into());
            if thought.cut_off && !has_calls && !is_result {
                self.begun_text.push_str(&thought.content);
            } else {
                self.begun_text.clear();
            }
        }
        self.advance_script(thought.script_turn);
        self.left_out = thought.left_out;
        self.count_discarded(&thought.discarded_usage);
        match &thought.usage {
            Some(usage) => {
                if let Some(estimated) = thought.estimated_tokens.filter(|_| usage.input_tokens > 0)
                {
                    self.ratio = TokenRatio::new(usage.input_tokens, estimated);
                }
                self.add_usage(usage);
            }
            None => self.unmetered |= thought.from.is_none(),
        }
        if thought.from.is_some() {
            let before = if self.stored_answers == 0 { Some(0.0) } else { self.saved_usd };
            self.saved_usd = before.zip(thought.saved_usd).map(|(sum, cost)| sum + cost);
            self.stored_answers += 1;
        }
    }

    fn advance_script(&mut self, turn: Option<usize>) {
        self.script_turn = turn.map_or(self.script_turn, |turn| turn + 1);
    }

    /// Counts answers that were paid for and discarded.
    fn count_discarded(&mut self, usages: &[Option<Usage>]) {
        self.unmetered |= usages.iter().any(Option::is_none);
        usages.iter().flatten().for_each(|usage| self.add_usage(usage));
    }

    fn add_usage(&mut self, usage: &Usage) {
        let Some(known) = self.usage.iter_mut().find(|known| known.model == usage.model) else {
            self.usage.push(usage.clone());
            return;
        };
        known.add(usage);
    }

    /// The tokens and the cost of the run so far.
    pub fn usage_summary(&self) -> UsageSummary {
        UsageSummary::from_models(&self.usage, self.unmetered)
    }

    /// The event with which a process ends its work on the run `run_id` with `status`.
    pub fn engine_end(&self, run_id: &RunId, status: RunStatus) -> Payload {
        Payload::EngineEnd {
            run_id: run_id.to_string(),
            status,
            final_iteration: self.iterations,
            agent_name: self.start.as_ref().map(|start| start.agent_name.clone()),
            usage: Some(self.usage_summary()),
            waits_for: self.waits_for(),
            seal: None,
        }
    }

    /// The next step of the engine. It depends on nothing but the events so far.
    pub fn next_step(&self) -> RunStep {
        // `finish` ends the run, so other calls of the answer come first. An agent's own tool of that name is not moved.
        if let Some((call, phase)) = self.calls.first_open(self.has_builtin(FINISH_TOOL)) {
            let call = call.clone();
            match phase {
                CallPhase::Requested { starts: true, execution } => {
                    return RunStep::Settle { call, execution: execution.clone() };
                }
                CallPhase::Decided if self.staged_call(&call.id).is_some() => {
                    return RunStep::EndStagedCall(call);
                }
                // A call that starts no process can be repeated. What was decided is in the state.
                CallPhase::Queued
                | CallPhase::Requested { starts: false, .. }
                | CallPhase::Decided => {
                    return RunStep::Act(call);
                }
                CallPhase::AwaitingReply(question) => return RunStep::Wait(question.clone()),
                CallPhase::AwaitingApproval(request) => {
                    return RunStep::AskApproval(request.clone());
                }
                CallPhase::Replied(response) => {
                    return RunStep::Reply { call, response: response.clone() };
                }
            }
        }
        match &self.hook_end {
            Some(HookEnd { status: RunStatus::Failed, result }) => {
                let message = result.as_str().unwrap_or_default().to_owned();
                return RunStep::End(RunEnding::FailedByHook { message });
            }
            _ if self.result.is_some() => return RunStep::End(RunEnding::Completed),
            _ => {}
        }
        if self.remaining_iterations() == 0 {
            return RunStep::End(RunEnding::OutOfIterations);
        }
        RunStep::Think { iteration: self.iterations.saturating_add(1) }
    }

    /// How many LLM answers the process has had.
    pub fn own_iterations(&self) -> u32 {
        self.iterations.saturating_sub(self.iterations_at_start)
    }

    /// How many LLM answers the process may still request.
    fn remaining_iterations(&self) -> u32 {
        let allowed = self.start.as_ref().map_or(0, |start| start.max_iterations);
        allowed.saturating_sub(self.own_iterations())
    }

    /// Whether the next LLM answer is the last that the process may request, and not its first.
    pub fn is_last_of_several(&self) -> bool {
        let replay = self.start.as_ref().and_then(|start| start.config.replay.as_ref());
        let ends_early = replay.is_some_and(|replay| replay.ends_early);
        self.own_iterations() > 0 && self.remaining_iterations() == 1 && !ends_early
    }

    /// Whether the process follows the rules that came with this number: see [`crate::event::CURRENT_RULES`].
    pub fn has_rules(&self, number: u32) -> bool {
        self.start
            .as_ref()
            .and_then(|start| start.config.rules)
            .is_some_and(|rules| rules >= number)
    }

    /// Whether a hook ended the run.
    pub fn is_ended_by_hook(&self) -> bool {
        self.hook_end.is_some()
    }

    /// Whether the run has FAILED because the LLM did not answer, so that the same request may be answered now. An error of
    /// a script is one of its turns, and the next turn is another answer.
    pub fn failed_at_endpoint(&self) -> bool {
        self.failed_with(LLM_ERROR) && !self.was_refused()
    }

    /// Whether the run has FAILED because the endpoint refused the request, as it would refuse it again.
    pub fn was_refused(&self) -> bool {
        let status = self.error.as_ref().and_then(|(_, details)| details.status);
        self.failed_with(LLM_ERROR)
            && status.is_some_and(|it| (400..500).contains(&it) && !is_retried_status(it))
    }

    /// Whether the run has FAILED with an error of this type after which its next step can be tried again. A turn of a
    /// script that is an error cannot.
    pub fn failed_with(&self, kind: &str) -> bool {
        let details = self.error.as_ref().map(|(_, details)| details);
        self.status == Some(RunStatus::Failed)
            && details.is_some_and(|details| details.kind == kind && details.script_turn.is_none())
    }

    /// Whether the engine provides the tool `name` in the current process.
    pub fn has_builtin(&self, name: &str) -> bool {
        self.start.as_ref().is_some_and(|start| start.config.has_builtin(name))
    }

    /// The question that the run waits for.
    pub fn question(&self) -> Option<&HumanQuestion> {
        self.calls.open().find_map(|(_, phase)| match phase {
            CallPhase::AwaitingReply(question) => Some(question),
            _ => None,
        })
    }

    /// What the run waits for a person to answer.
    pub fn human_request(&self) -> Option<HumanRequest<'_>> {
        self.calls.open().find_map(|(_, phase)| match phase {
            CallPhase::AwaitingReply(question) => Some(HumanRequest::Question(question)),
            CallPhase::AwaitingApproval(request) => Some(HumanRequest::Approval(request)),
            _ => None,
        })
    }

    /// The kind of what the run waits for a person to say.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        self.human_request().map(|request| match request {
            HumanRequest::Question(_) => WaitsFor::Question,
            HumanRequest::Approval(_) => WaitsFor::Approval,
        })
    }

    /// The id of what the run waits for, a UUID. It is the same as long as the run waits for that. No other question of any
    /// run has it, not even of another run with the same id.
    pub fn request_id(&self) -> Option<String> {
        let request = self.human_request()?;
        let run_id = &self.start.as_ref()?.run_id;
        Some(self.last_request.request_id(run_id, self.created_at, request))
    }

    /// Whether a person has answered what the run asked last, and the answer has had no effect yet.
    pub fn has_unused_answer(&self) -> bool {
        let mut phases = self.calls.open().map(|(_, phase)| phase);
        phases.any(|phase| matches!(phase, CallPhase::Decided | CallPhase::Replied(_)))
    }

    /// The approval that was asked for a call of the last answer.
    pub fn asked_approval(&self, call_id: &str) -> Option<&AskedApproval> {
        self.approvals.find_asked(call_id)
    }

    /// The staged changes of a call of the last answer about which a person is or was asked.
    pub fn staged_call(&self, call_id: &str) -> Option<&CallStage> {
        self.asked_approval(call_id)?.request.stage.as_deref()
    }

    /// The time since which this process approves every call of a tool that would ask.
    pub fn tool_approved_since(&self, tool: &str) -> Option<Timestamp> {
        self.approvals.approved_since(tool)
    }

    /// What the operator said about approvals in the current process.
    pub fn operator_approval(&self) -> Option<&OperatorApproval> {
        self.start.as_ref()?.config.approve.as_ref()
    }

    /// Whether an earlier process had started the call, so that it may have taken effect.
    pub fn had_started(&self, call_id: &str) -> bool {
        let phase = self.calls.phase(call_id);
        matches!(phase, Some(CallPhase::Requested { starts: true, .. }))
            || self.asked_approval(call_id).is_some_and(|approval| approval.repeats_call)
    }

    /// Whether the call was requested and has no result or question yet.
    pub fn is_requested(&self, call_id: &str) -> bool {
        matches!(self.calls.phase(call_id), Some(CallPhase::Requested { .. }))
    }
}
