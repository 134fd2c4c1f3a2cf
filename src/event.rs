//! The journal's vocabulary: one [`Event`] is one line, and these types are its format.
//!
//! Reading is liberal (unknown fields are ignored, so that an older engine reads a newer journal's known events),
//! writing is exact. Nothing here decides anything.

use crate::llm::{ToolCall, Usage};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::fmt;

mod glance;
mod line;

pub use glance::{Glance, News};

/// One fact of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// 1, 2, 3, ... without gaps.
    pub seq: u64,
    /// When it was recorded.
    pub timestamp: Timestamp,
    /// What happened.
    pub payload: Payload,
}

/// The status of a run, as metadata.json has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunStatus {
    /// An engine works on it, or died doing so.
    Running,
    /// It waits for a person's answer.
    WaitingForInput,
    /// It has a result.
    Completed,
    /// It ended without one.
    Failed,
    /// It was stopped, and goes on when continued.
    Interrupted,
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "RUNNING",
            Self::WaitingForInput => "WAITING_FOR_INPUT",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Interrupted => "INTERRUPTED",
        })
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Payload {
    /// A process took up the run.
    EngineStart(Box<EngineStart>),
    /// A person said something to the agent.
    UserMessage {
        /// Their words.
        content: String,
    },
    /// The LLM answered.
    Thought(Box<Thought>),
    /// A call is about to be carried out.
    ActionRequest(Box<ActionRequest>),
    /// A call has its result.
    ActionResult(Box<ActionResult>),
    /// A person is asked.
    HumanInputRequest(Question),
    /// A person answered.
    HumanInputReceived {
        /// Of which LLM answer.
        iteration: u32,
        /// The call of ask_human.
        call_id: String,
        /// The answer, also a sensitive one.
        response: String,
    },
    /// The engine could not do something.
    Error {
        /// What, in words.
        error_message: String,
        /// The rest.
        error_details: ErrorDetails,
    },
    /// A hook has run.
    HookExecution {
        /// The iteration that it was told.
        iteration: u32,
        /// Which.
        hook: String,
        /// Its exit code; null when a signal ended it.
        exit_code: Option<i32>,
        /// Its io/ file, relative to the run directory.
        record: String,
        /// Whether what it answered took the place of something.
        changed: bool,
    },
    /// What the workspace is has been kept.
    Snapshot(Box<SnapshotTaken>),
    /// The workspace is put back to what it was.
    Rollback {
        /// The number of LLM answers so far.
        iteration: u32,
        /// The iteration whose end it is; absent when it was named by its tree.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u32>,
        /// What it becomes.
        tree: String,
        /// What it was until then.
        saved: String,
    },
    /// The run began as another one: every event before this one is a copy of the other's.
    Fork(Box<Fork>),
    /// The process leaves the run.
    EngineEnd {
        /// The run.
        run_id: String,
        /// How it leaves it.
        status: RunStatus,
        /// The number of LLM answers so far.
        final_iteration: u32,
    },
}

/// See [`Payload::EngineStart`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineStart {
    /// The run.
    pub run_id: String,
    /// 1 for `run`, one more for each process that continues it.
    pub epoch: u32,
    /// The agent directory, absolute.
    pub agent_home: String,
    /// The agent's name.
    pub agent_name: String,
    /// The workspace, absolute.
    pub work_dir: String,
    /// The workspace's name.
    pub workspace_id: String,
    /// How many LLM answers this process may ask for.
    pub max_iterations: u32,
    /// The LLM and the tools, for a reader of the journal; the whole configuration lies in agent/.
    pub config: Json,
    /// The process.
    #[serde(flatten)]
    pub process: ProcessInfo,
    /// The engine's version.
    pub engine_version: String,
    /// The run whose tool started this one; only in the first ENGINE_START of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// The run inside which another one was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its id.
    pub run_id: String,
    /// The call whose tool it was, when it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Its run directory, absolute.
    pub run_dir: String,
}

/// See [`Payload::Fork`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The run whose journal this is.
    pub run_id: String,
    /// Its workspace, absolute.
    pub work_dir: String,
    /// Its workspace's name.
    pub workspace_id: String,
    /// The run that it was made of.
    pub from: Origin,
    /// Where the files of its workspace came from.
    pub files: Files,
    /// What the other's workspace was at the end of the iteration, in snapshots/; absent when no snapshot says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
}

/// The run of which a fork was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its id.
    pub run_id: String,
    /// The number of its LLM answers with which the fork begins.
    pub iteration: u32,
    /// Its directory, absolute.
    pub run_dir: String,
    /// Its workspace, absolute.
    pub work_dir: String,
}

/// Where the files of a fork's workspace came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Files {
    /// From the snapshot of the iteration.
    Snapshot,
    /// From the other run's workspace, as it was when the fork was made.
    Present,
    /// It works in the workspace of the other run, whose files were left as they were.
    Kept,
}

/// The process that works on a run, as the one after it needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its id.
    pub pid: u32,
    /// Its host.
    pub hostname: String,
    /// When it started, in milliseconds since the Unix epoch.
    pub start_time_unix: i64,
    /// Its name as the system shows it.
    pub process_name: String,
}

/// See [`Payload::Thought`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thought {
    /// Its number; 1 for the first answer of the run.
    pub iteration: u32,
    /// Its text, empty when there was none.
    pub content: String,
    /// Its calls as the LLM gave them.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// Reasoning that is sent back; only with `llm.echo_reasoning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Why the LLM stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// What it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Tokens of the request, estimated from its bytes alone; beside `usage` it corrects later estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<u64>,
    /// How many of the oldest iterations the request left out, for want of room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// The io/ file of the call, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
    /// The turn of the script that it is, for the `script` provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_turn: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field as it is")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// See [`Payload::ActionRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionRequest {
    /// Of which LLM answer.
    pub iteration: u32,
    /// The call.
    pub call_id: String,
    /// The tool, as the LLM named it.
    pub tool_name: String,
    /// Its arguments; a text when they were not JSON.
    pub tool_args: Json,
    /// The command line; absent when nothing is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The io/ file that the run of the tool will have, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
}

/// See [`Payload::ActionResult`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionResult {
    /// Of which LLM answer.
    pub iteration: u32,
    /// The call.
    pub call_id: String,
    /// The tool, as the LLM named it.
    pub tool_name: String,
    /// What the LLM sees.
    pub observation_content: String,
    /// The exit code; absent when there was no process, or a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How long it took.
    pub duration_ms: u64,
    /// The io/ file, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
    /// Whether the observation leaves out a part of what was printed.
    #[serde(default)]
    pub truncated: bool,
    /// The result of the run, when this call ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
}

/// See [`Payload::Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTaken {
    /// The number of LLM answers so far; 0 is the beginning of the run.
    pub iteration: u32,
    /// The tree of the workspace, in snapshots/.
    pub tree: String,
    /// How many files it has.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
    /// How many bytes were written for it.
    pub written: u64,
    /// How many paths are not in it and not excluded either.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub left_out: u64,
    /// Whether it is what a process found, and not what the iteration has left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
    /// What is left out on demand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field as it is")]
fn is_none_of(number: &u64) -> bool {
    *number == 0
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Of which LLM answer.
    pub iteration: u32,
    /// The call of ask_human.
    pub call_id: String,
    /// The question.
    pub prompt: String,
    /// What kind of answer is wanted.
    pub input_type: InputType,
    /// Whether the answer is hidden from the screen.
    pub sensitive: bool,
}

/// What kind of answer a question wants.
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

/// The rest of an error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorDetails {
    /// The error type of RunResult.
    #[serde(rename = "type")]
    pub kind: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The HTTP status of an LLM's last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The io/ file of a failed LLM call, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
    /// The turn of the script that said so, for the `script` provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_turn: Option<usize>,
}

impl Payload {
    /// The io/ file that it names, relative to the run directory, if any.
    pub fn record(&self) -> Option<&str> {
        match self {
            Self::Thought(thought) => thought.invocation.as_deref(),
            Self::Error { error_details, .. } => error_details.invocation.as_deref(),
            Self::ActionRequest(request) => request.execution.as_deref(),
            Self::ActionResult(result) => result.execution.as_deref(),
            Self::HookExecution { record, .. } => Some(record),
            Self::EngineStart(_)
            | Self::UserMessage { .. }
            | Self::HumanInputRequest(_)
            | Self::HumanInputReceived { .. }
            | Self::Snapshot(_)
            | Self::Rollback { .. }
            | Self::Fork(_)
            | Self::EngineEnd { .. } => None,
        }
    }

    /// The LLM answer that it belongs to, if any.
    pub fn iteration(&self) -> Option<u32> {
        match self {
            Self::Thought(thought) => Some(thought.iteration),
            Self::ActionRequest(request) => Some(request.iteration),
            Self::ActionResult(result) => Some(result.iteration),
            Self::HumanInputRequest(question) => Some(question.iteration),
            Self::HumanInputReceived { iteration, .. }
            | Self::HookExecution { iteration, .. }
            | Self::Rollback { iteration, .. } => Some(*iteration),
            Self::Snapshot(taken) => Some(taken.iteration),
            Self::EngineStart(_)
            | Self::UserMessage { .. }
            | Self::Error { .. }
            | Self::Fork(_)
            | Self::EngineEnd { .. } => None,
        }
    }
}
