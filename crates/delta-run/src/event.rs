//! The events of the journal. One [`Event`] is one line, and these types define the format.
//!
//! Reading ignores unknown fields, so that an older delta reads a newer journal as far as it knows the events. Writing is
//! exact.

use crate::chain::{ChainValue, JournalEdit};
use crate::event::approval::{ApprovalDecision, ApprovalRequest, CallApproval, RequestNaming};
use crate::event::image_file::ImageFile;
use delta_base::id::{RunId, SnapshotId};
use delta_base::json::ExactJson;
use delta_base::time::Timestamp;
use delta_words::{NativeParts, ToolCall, Unavailability, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::fmt;

pub mod approval;
mod config;
pub mod image_file;
mod journal_line;
mod message_source;
mod process_info;
mod sandbox_record;
pub(crate) mod spending;
mod transfer;
mod usage_summary;

pub use config::{AgentCopy, CURRENT_RULES, LlmSummary, ReplayOf, RunConfig, RunStage};
pub(crate) use journal_line::parse_envelope;
pub use message_source::{LimitsBefore, LimitsChange, MessageSource, MessageTime};
pub use process_info::{JournalHead, LeaseKind, ParentRun, ProcessInfo, StartedRun};
pub use sandbox_record::{
    CallSandbox, HostTrafficRecord, MACHINE_POLICY, NO_SANDBOX, PolicySource, ProfileRecord,
    SandboxRecord,
};
pub use transfer::{ReceivedRun, SentRun};
pub use usage_summary::{UsageSummary, round_usd};

/// One line of the journal: a fact about the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The number of the event: 1, 2, 3, without gaps.
    pub seq: u64,
    /// The time when it was recorded.
    pub timestamp: Timestamp,
    /// What is recorded.
    pub payload: Payload,
    /// What was changed before this event by others than delta, if its process found such changes.
    pub edited: Option<Box<JournalEdit>>,
    /// The chain value of its line; `None` for an event that is not in a journal, or in one of an earlier version.
    pub chain: Option<ChainValue>,
}

impl Event {
    /// An event that is not in a journal.
    pub fn new(seq: u64, timestamp: Timestamp, payload: Payload) -> Self {
        Self { seq, timestamp, payload, edited: None, chain: None }
    }
}

/// The status of a run, as metadata.json records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunStatus {
    /// A process works on the run, or died while it did.
    Running,
    /// The run waits for a human to answer a question.
    WaitingForInput,
    /// The run has a result.
    Completed,
    /// The run ended without a result.
    Failed,
    /// The run was stopped and can be continued.
    Interrupted,
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What a run waits for a person to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// The answer to a question.
    Question,
    /// The approval of a call.
    Approval,
}

/// What an event records. Its `type` is the name of the variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Payload {
    /// A process started or continued the run.
    EngineStart(Box<EngineStart>),
    /// The user sent a message to the agent.
    UserMessage {
        /// The text of the message.
        content: String,
        /// The images of the message.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageFile>,
        /// The sender of a message that came through the mailbox; absent if this process was started with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<Box<MessageSource>>,
    },
    /// The operator has changed limits of the run.
    LimitsChanged(Box<LimitsChange>),
    /// The LLM answered.
    Thought(Box<Thought>),
    /// A call is about to be executed.
    ActionRequest(Box<ActionRequest>),
    /// A call has its result.
    ActionResult(Box<ActionResult>),
    /// The run waits for a human to answer a question.
    HumanInputRequest(HumanQuestion),
    /// The question was answered.
    HumanInputReceived {
        /// The LLM answer that contains the call.
        iteration: u32,
        /// The `ask_human` call.
        call_id: String,
        /// The answer, even if it is sensitive.
        response: String,
    },
    /// The run waits for an operator to approve a call.
    ApprovalRequest(Box<ApprovalRequest>),
    /// An operator approved or denied the call.
    ApprovalDecision(Box<ApprovalDecision>),
    /// The engine reports an error.
    Error {
        /// The message for the user.
        error_message: String,
        /// The type of the error and what is known about its cause.
        error_details: ErrorDetails,
    },
    /// A hook has run.
    HookExecution {
        /// The iteration that was passed to the hook.
        iteration: u32,
        /// The name of the hook.
        hook: String,
        /// The exit code; null if a signal ended the hook.
        exit_code: Option<i32>,
        /// The io/ record of the hook, relative to the run directory.
        record: String,
        /// The SHA-256 of the record; absent in runs of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record_sha256: Option<String>,
        /// Whether the output of the hook replaced something.
        changed: bool,
        /// How the hook ended the run, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Box<HookEnd>>,
    },
    /// A snapshot of the workspace was taken.
    Snapshot(Box<WorkspaceSnapshot>),
    /// The workspace is restored to an earlier snapshot.
    Rollback {
        /// The number of LLM answers so far.
        iteration: u32,
        /// The iteration whose end is restored; absent if a snapshot id was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u32>,
        /// The snapshot that is restored.
        tree: SnapshotId,
        /// The snapshot of the workspace just before.
        saved: SnapshotId,
        /// The seal over the journal up to this event, if the operator has a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<String>,
    },
    /// Staged changes of the run are about to be applied to the workspace.
    Apply(Box<StageApply>),
    /// The last APPLY has ended.
    ApplyEnd {
        /// The number of LLM answers so far.
        iteration: u32,
        /// Whether an interrupted APPLY has ended without some of its changes, which stay staged.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rest: bool,
        /// The seal over the journal up to this event, if the operator has a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<String>,
    },
    /// The staged changes of the run are discarded.
    Discard {
        /// The number of LLM answers so far.
        iteration: u32,
        /// The snapshot of the workspace, on which the stage is based from then on.
        base: SnapshotId,
        /// The snapshot of the staged workspace just before.
        saved: SnapshotId,
        /// The seal over the journal up to this event, if the operator has a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<String>,
    },
    /// The run was forked from another one: all events before this one are copies of the other run's events.
    Fork(Box<RunFork>),
    /// The process exits.
    EngineEnd {
        /// The id of the run, as text, because it is redacted if the API key is a part of it.
        run_id: String,
        /// The status of the run from now on.
        status: RunStatus,
        /// The number of LLM answers so far.
        final_iteration: u32,
        /// The name of the agent; absent in runs of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_name: Option<String>,
        /// The tokens and the cost of the run so far; absent in runs of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<UsageSummary>,
        /// What the run waits for a person to say, whatever its status is; also absent in runs of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_for: Option<WaitsFor>,
        /// The seal of the journal up to here: see [`crate::journal::seal`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<String>,
    },
    /// The process is about to take a turn, for the events before this one that have none yet: see [`crate::lease::turns`].
    Turn {
        /// The number of the turn.
        turn: u64,
        /// The number of the first event that counts only if the turn was taken.
        from: u64,
        /// The claim that takes it, as its token names it.
        nonce: String,
    },
    /// The run is handed over to another place.
    Sent(Box<SentRun>),
    /// The operator accepts a run that another one made or changed, as it is; or a run has arrived.
    RunTrusted {
        /// The id of the run.
        run_id: RunId,
        /// The agent directory that may be loaded from now on.
        agent_home: String,
        /// How the run has come here, if it was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Box<ReceivedRun>>,
        /// The seal of the journal up to here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<String>,
    },
}

/// The process that started or continued the run: see [`Payload::EngineStart`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineStart {
    /// The id of the run.
    pub run_id: RunId,
    /// The number of this process in the run: 1 for the first, one more for each process that continues the run.
    pub epoch: u32,
    /// The absolute path of the agent directory.
    pub agent_home: String,
    /// The name of the agent.
    pub agent_name: String,
    /// The hash of the agent directory; absent if it is too large, and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_tree: Option<SnapshotId>,
    /// Where the agent was installed from; absent if no command has installed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_source: Option<AgentSource>,
    /// The absolute path of the workspace.
    pub work_dir: String,
    /// The name of the workspace.
    pub workspace_id: String,
    /// The most LLM answers that this process may request.
    pub max_iterations: u32,
    /// The most calls of an answer that are run; absent for all calls, as in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_answer: Option<u32>,
    /// How often the same calls may have the same results in a row; absent without a limit, as in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// A summary of the agent's configuration; the agent's files are copied to agent/.
    #[serde(deserialize_with = "config::or_default")]
    pub config: RunConfig,
    /// The process itself.
    #[serde(flatten)]
    pub process: ProcessInfo,
    /// The boot of the kernel that the process ran on; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// How the process owned the run; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseKind>,
    /// The version of delta.
    pub engine_version: String,
    /// The run whose tool or hook started this one; only in the first ENGINE_START of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRun>,
    /// The seal of the run id and the agent directory: see [`crate::journal::seal`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// Where an installed agent comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSource {
    /// The directory, archive or repository.
    pub source: String,
    /// The branch, tag or commit that was asked for.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A fork and where it comes from: see [`Payload::Fork`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFork {
    /// The id of the fork, whose journal this is.
    pub run_id: RunId,
    /// The absolute path of the fork's workspace.
    pub work_dir: String,
    /// The name of the fork's workspace.
    pub workspace_id: String,
    /// The run that was forked.
    pub from: ForkOrigin,
    /// Where the files of the fork's workspace come from.
    pub files: ForkFiles,
    /// The snapshot of the other workspace at the end of the iteration; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotId>,
    /// The seal over the journal up to this event, if the operator has a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// The run that was forked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The id of the run.
    pub run_id: RunId,
    /// The last iteration that the fork copies; 0 is the task alone.
    pub iteration: u32,
    /// The absolute path of the run directory.
    pub run_dir: String,
    /// The absolute path of the workspace.
    pub work_dir: String,
}

/// Where the files of a fork's workspace come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkFiles {
    /// The snapshot at the end of the iteration.
    Snapshot,
    /// The workspace of the other run, copied as it was when the fork was created.
    Present,
    /// The workspace of the other run itself, which the fork shares.
    Kept,
}

/// An answer of the LLM: see [`Payload::Thought`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Thought {
    /// The number of the answer: 1 for the first of the run.
    pub iteration: u32,
    /// The text of the answer, empty if there is none.
    pub content: String,
    /// The tool calls as the LLM sent them.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The indices of the calls whose arguments contained a key. They are not run: their arguments are not what the LLM sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted_calls: Vec<usize>,
    /// The message that follows an answer without calls in the conversation, because the agent requires a call of `finish`, or
    /// the answer was cut off, is empty, lacks its call, or is a call as text. Such an answer is not the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<String>,
    /// Reasoning that is sent back to the LLM, with `llm.echo_reasoning` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// What has to go back to the endpoint unchanged: signatures, encrypted reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeParts>,
    /// Why the LLM stopped, in the endpoint's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Whether the answer was cut off at its token limit; also absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// The tool that the text calls, if the answer is a call that is written as text. It was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_call: Option<String>,
    /// The tokens and the cost, if the endpoint reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The tokens of the request, estimated from its bytes alone. Together with `usage` it corrects later estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<u64>,
    /// The number of oldest iterations that the request left out because they did not fit.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub left_out: usize,
    /// The io/ record of the LLM call, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
    /// The SHA-256 of the record; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_sha256: Option<String>,
    /// The turn of the script, for the provider `script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_turn: Option<usize>,
    /// The usage of each answer since the last THOUGHT that was paid for and discarded; null if it was not reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discarded_usage: Vec<Option<Usage>>,
    /// The time that the endpoint refused requests for since the last THOUGHT (429, 529), in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub throttled_ms: u64,
    /// The THOUGHT of another run that has the answer, `RUN#SEQ`; absent if the endpoint was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// USD that the answer cost that run, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_usd: Option<f64>,
}

impl Thought {
    /// Whether the answer has neither text nor calls.
    pub fn is_empty(&self) -> bool {
        self.content.trim().is_empty() && self.tool_calls.is_empty()
    }
}

/// Whether a number is 0 and is not written for that reason.
pub(crate) fn is_zero_number<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// A call that is about to be executed: see [`Payload::ActionRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionRequest {
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The id of the call in the run.
    pub call_id: String,
    /// The name of the tool as the LLM sent it.
    pub tool_name: String,
    /// The arguments; a string if they were not JSON.
    pub tool_args: Json,
    /// The names of the arguments that came as texts, and were taken as what the texts say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coerced: Vec<String>,
    /// The command line; absent if no process is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The io/ record that the execution will have, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
    /// Who approved the call; absent if it starts nothing or its tool needs no approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<CallApproval>,
    /// The name of the profile in `config.sandbox` of ENGINE_START that surrounds the process, or `off`; absent if the run has
    /// no sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// The result of a call: see [`Payload::ActionResult`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionResult {
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The id of the call in the run.
    pub call_id: String,
    /// The name of the tool as the LLM sent it.
    pub tool_name: String,
    /// The observation: the text that the LLM sees.
    pub observation_content: String,
    /// The images of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageFile>,
    /// The exit code; absent if no process ran or a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The duration of the execution.
    pub duration_ms: u64,
    /// The io/ record of the execution, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
    /// The SHA-256 of the record; absent in runs of earlier versions, and if the engine died before it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_sha256: Option<String>,
    /// The runs that the call has started, each with the head of its chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<StartedRun>,
    /// How often the calls of the answer have had the same results in a row, if a line after the observation reports it to the LLM.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub repeats: u32,
    /// Whether the observation leaves out a part of the output.
    #[serde(default)]
    pub truncated: bool,
    /// The command lines of the processes that the call left running and that were ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_background: Vec<String>,
    /// The command lines of the processes that the call left running and that are still running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_running: Vec<String>,
    /// What the sandbox refused, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<CallSandbox>>,
    /// The result of the run, if this call ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ExactJson>,
}

/// The end of a run that a hook demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookEnd {
    /// COMPLETED or FAILED.
    pub status: RunStatus,
    /// The result, a text or an object; of a FAILED run the text of its error.
    pub result: Json,
}

impl HookEnd {
    /// Why the hook cannot end the run in this way.
    ///
    /// # Errors
    /// Completes the sentence "the hook ...".
    pub fn check(&self) -> Result<(), &'static str> {
        match (self.status, &self.result) {
            (RunStatus::Completed, Json::String(_) | Json::Object(_))
            | (RunStatus::Failed, Json::String(_)) => Ok(()),
            (RunStatus::Completed, _) => {
                Err("ended the run with a `result` that is neither a text nor an object")
            }
            (RunStatus::Failed, _) => {
                Err("ended the run as FAILED with a `result` that is not a text")
            }
            _ => Err("ended the run with a `status` other than COMPLETED and FAILED"),
        }
    }
}

/// A snapshot of the workspace: see [`Payload::Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSnapshot {
    /// The number of LLM answers so far; 0 is the beginning of the run.
    pub iteration: u32,
    /// The id of the snapshot, whose contents are in snapshots/.
    pub tree: SnapshotId,
    /// The number of files in it.
    pub files: u64,
    /// The bytes of these files together.
    pub bytes: u64,
    /// The bytes that were written to store it.
    pub written: u64,
    /// The number of paths that could not be included; excluded paths do not count.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub left_out: u64,
    /// Whether a process found the workspace like this, so that it is not the end of the iteration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
    /// The patterns of the paths that are excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// The application of staged changes: see [`Payload::Apply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageApply {
    /// The number of LLM answers so far.
    pub iteration: u32,
    /// The paths that were named; absent if all changes are applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The workspace with the changes.
    pub tree: SnapshotId,
    /// The snapshot of the workspace just before.
    pub saved: SnapshotId,
    /// The snapshot on which the changes that remain staged are based.
    pub base: SnapshotId,
    /// Whether changes remain staged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest: bool,
    /// The seal over the journal up to this event, if the operator has a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// A question that `ask_human` asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanQuestion {
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The `ask_human` call.
    pub call_id: String,
    /// The text of the question.
    pub prompt: String,
    /// The kind of answer that is expected.
    pub input_type: InputType,
    /// Whether the answer is hidden on the screen.
    pub sensitive: bool,
    /// How the id of this request is made; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<RequestNaming>,
}

/// The kind of answer that a question expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputType {
    /// Any text.
    Text,
    /// A secret.
    Password,
    /// Yes or no.
    Confirmation,
}

/// The type of the error of an LLM that did not answer.
pub const LLM_ERROR: &str = "llm";
/// The type of the error of a file that could not be written.
pub const IO_ERROR: &str = "io";
/// The type of the error of a conversation that does not fit into the context of its model.
pub const CONTEXT_LENGTH_ERROR: &str = "context_length";
/// The type of the error that interrupts a run because the budget of its sweep is used.
pub const SHARED_BUDGET_ERROR: &str = "budget";

/// The type of an error and what is known about its cause.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ErrorDetails {
    /// The error type, as in RunResult.
    #[serde(rename = "type")]
    pub kind: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The option whose limit would have let the call pass, such as `--max-cost 0.52`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_option: Option<String>,
    /// The HTTP status of the last response of the LLM's endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The io/ record of the failed LLM call, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
    /// The io/ record of the LLM call that was interrupted, relative to the run directory. The run itself has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// The change to another model, which is asked from now on. The run itself has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Box<ModelChange>>,
    /// The SHA-256 of the record; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_sha256: Option<String>,
    /// The turn of the script, for the provider `script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_turn: Option<usize>,
    /// The usage of each answer since the last THOUGHT that was paid for and discarded; null if it was not reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discarded_usage: Vec<Option<Usage>>,
    /// The time that the endpoint refused requests for since the last THOUGHT (429, 529), in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub throttled_ms: u64,
}

/// The type of the error of a model in whose place the next one of `llm.fallback` is asked.
pub const FALLBACK_ERROR: &str = "fallback";

/// The change to the next model of `llm.fallback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChange {
    /// How many models of the list have been asked with this one since the last message: the first has the number 1.
    pub number: usize,
    /// The model that did not answer.
    pub from: String,
    /// The model that is asked from now on, until the next message.
    pub model: String,
    /// The provider of that model.
    pub provider: String,
    /// Why the other one did not answer.
    pub reason: Unavailability,
}

/// The type of the error of a call of the LLM that was interrupted.
pub const INTERRUPTED_ERROR: &str = "interrupted";

impl ErrorDetails {
    /// Whether the run has failed with it. An interrupted call and a change of the model do not end a run.
    pub fn is_failure(&self) -> bool {
        self.interrupted.is_none() && self.fallback.is_none()
    }

    /// The details of a call of the LLM that was interrupted, with its record, the SHA-256 of the record, and what it used.
    pub fn for_interrupted_call(record: String, sha256: String, usages: Vec<Usage>) -> Self {
        Self {
            kind: INTERRUPTED_ERROR.to_owned(),
            interrupted: Some(record),
            record_sha256: Some(sha256),
            discarded_usage: usages.into_iter().map(Some).collect(),
            ..Self::default()
        }
    }
}

impl Payload {
    /// A message of the user with which a process was started.
    pub fn user_message(content: impl Into<String>, images: Vec<ImageFile>) -> Self {
        Self::UserMessage { content: content.into(), images, source: None }
    }

    /// The io/ record that the event names, relative to the run directory.
    pub fn record_file(&self) -> Option<&str> {
        match self {
            Self::Thought(thought) => thought.invocation.as_deref(),
            Self::Error { error_details, .. } => {
                error_details.invocation.as_deref().or(error_details.interrupted.as_deref())
            }
            Self::ActionRequest(request) => request.execution.as_deref(),
            Self::ActionResult(result) => result.execution.as_deref(),
            Self::HookExecution { record, .. } => Some(record),
            Self::EngineStart(_)
            | Self::UserMessage { .. }
            | Self::LimitsChanged(_)
            | Self::HumanInputRequest(_)
            | Self::HumanInputReceived { .. }
            | Self::ApprovalRequest(_)
            | Self::ApprovalDecision(_)
            | Self::Snapshot(_)
            | Self::Rollback { .. }
            | Self::Apply(_)
            | Self::ApplyEnd { .. }
            | Self::Discard { .. }
            | Self::Fork(_)
            | Self::EngineEnd { .. }
            | Self::Turn { .. }
            | Self::Sent(_)
            | Self::RunTrusted { .. } => None,
        }
    }

    /// The SHA-256 of that record; `None` if the event does not have it.
    pub fn record_sha256(&self) -> Option<&str> {
        match self {
            Self::Thought(thought) => thought.record_sha256.as_deref(),
            Self::Error { error_details, .. } => error_details.record_sha256.as_deref(),
            Self::ActionResult(result) => result.record_sha256.as_deref(),
            Self::HookExecution { record_sha256, .. } => record_sha256.as_deref(),
            _ => None,
        }
    }

    /// The images that the event names.
    pub fn images(&self) -> &[ImageFile] {
        match self {
            Self::UserMessage { images, .. } => images,
            Self::ActionResult(result) => &result.images,
            _ => &[],
        }
    }

    /// The snapshot that the workspace equals after the event.
    pub fn snapshot_id(&self) -> Option<SnapshotId> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.tree),
            Self::Rollback { tree, .. } => Some(*tree),
            Self::Fork(fork) => fork.tree,
            _ => None,
        }
    }

    /// The seal of the event; `None` if it has none.
    pub fn seal(&self) -> Option<&str> {
        match self {
            Self::EngineStart(start) => start.seal.as_deref(),
            Self::ApprovalDecision(decision) => decision.seal.as_deref(),
            Self::Fork(fork) => fork.seal.as_deref(),
            Self::Apply(apply) => apply.seal.as_deref(),
            Self::LimitsChanged(change) => change.seal.as_deref(),
            Self::Sent(sent) => sent.seal.as_deref(),
            Self::EngineEnd { seal, .. }
            | Self::RunTrusted { seal, .. }
            | Self::Rollback { seal, .. }
            | Self::ApplyEnd { seal, .. }
            | Self::Discard { seal, .. } => seal.as_deref(),
            _ => None,
        }
    }

    /// Sets the seal of an event of a type that has one.
    pub(crate) fn set_seal(&mut self, new: Option<String>) {
        match self {
            Self::EngineStart(start) => start.seal = new,
            Self::ApprovalDecision(decision) => decision.seal = new,
            Self::Fork(fork) => fork.seal = new,
            Self::Apply(apply) => apply.seal = new,
            Self::LimitsChanged(change) => change.seal = new,
            Self::Sent(sent) => sent.seal = new,
            Self::EngineEnd { seal, .. }
            | Self::RunTrusted { seal, .. }
            | Self::Rollback { seal, .. }
            | Self::ApplyEnd { seal, .. }
            | Self::Discard { seal, .. } => *seal = new,
            _ => {}
        }
    }

    /// The LLM answer that the event belongs to.
    pub fn iteration(&self) -> Option<u32> {
        match self {
            Self::Thought(thought) => Some(thought.iteration),
            Self::ActionRequest(request) => Some(request.iteration),
            Self::ActionResult(result) => Some(result.iteration),
            Self::HumanInputRequest(question) => Some(question.iteration),
            Self::ApprovalRequest(request) => Some(request.iteration),
            Self::ApprovalDecision(decision) => Some(decision.iteration),
            Self::HumanInputReceived { iteration, .. }
            | Self::HookExecution { iteration, .. }
            | Self::Rollback { iteration, .. }
            | Self::ApplyEnd { iteration, .. }
            | Self::Discard { iteration, .. } => Some(*iteration),
            Self::Apply(apply) => Some(apply.iteration),
            Self::Snapshot(snapshot) => Some(snapshot.iteration),
            Self::EngineStart(_)
            | Self::UserMessage { .. }
            | Self::LimitsChanged(_)
            | Self::Error { .. }
            | Self::Fork(_)
            | Self::EngineEnd { .. }
            | Self::Turn { .. }
            | Self::Sent(_)
            | Self::RunTrusted { .. } => None,
        }
    }
}
