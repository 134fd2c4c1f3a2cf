//! Approvals: what an operator is asked before a tool starts, what the answer was, and who approved a call.
//!
//! Pure. [`RunState`](crate::state::RunState) folds these events; whether a call needs an approval is decided by its
//! caller, from the agent and this state.

use crate::event::ActionResult;
use delta_base::id::SnapshotId;
use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};

/// Stands for every tool in [`OperatorApproval::ask`]; no tool has this name.
pub const EVERY_TOOL: &str = "*";

/// A call that an operator is asked to approve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The id of the call in the run.
    pub call_id: String,
    /// The name of the tool.
    pub tool_name: String,
    /// The arguments, as pre_tool_execution left them.
    pub tool_args: Json,
    /// The command line to approve.
    pub argv: Vec<String>,
    /// The SHA-256 of everything that determines what starts: command line, standard input, directory, environment.
    pub command_sha256: String,
    /// The SHA-256 of the program, and of the scripts in the workspace that the command line names, by their paths. Absent for
    /// tools of MCP servers and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<String, String>>,
    /// The variables of the environment that the tool gets, with a keyed hash of each value. Absent without a key for seals,
    /// for tools of MCP servers and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<BTreeMap<String, String>>,
    /// The files in the workspace that a command may reach by itself. Absent if the workspace has too many, for tools of MCP
    /// servers and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceCode>,
    /// The variables and files that have changed since the call was approved, so that it is asked about again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The number of the rule that asks, from 1; absent if no rule does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// What the call has changed, if the question is whether that is applied to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Box<CallStage>>,
    /// How the id of this request is made; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<RequestNaming>,
}

/// The files of a workspace that a command may reach by itself, at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceCode {
    /// The SHA-256 of the paths, sizes, modes and times.
    pub sha256: String,
    /// When the newest of them was changed, in nanoseconds, by the clock of the file system.
    pub newest: i64,
}

/// How the `request_id` of what a run asks is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestNaming {
    /// From what is asked, and the chain of the journal up to it.
    Chain,
}

/// The staged changes of a call that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallStage {
    /// The snapshot of the workspace before the call.
    pub base: SnapshotId,
    /// The same with the changes of the call.
    pub tree: SnapshotId,
    /// The changes as a unified diff; a long one is cut.
    pub diff: String,
    /// The changes in a line each: kind, mode and path. Empty in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The number of changes that have no line in `changes`.
    #[serde(default, skip_serializing_if = "crate::event::is_zero_number")]
    pub more_changes: usize,
    /// The SHA-256 of all changes; absent in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_sha256: Option<String>,
    /// The changed paths that no snapshot contains, which cannot be applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The result of the call once the changes are applied.
    pub result: ActionResult,
}

impl CallStage {
    /// The changes in at most `limit` lines. `diff_command` is what prints them whole.
    pub fn change_lines(&self, limit: usize, diff_command: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.changes.iter().take(limit).cloned().collect();
        let more = self.changes.len() - lines.len() + self.more_changes;
        if more > 0 {
            lines.push(format!("… {more} more changes; `{diff_command} --name-only` lists all"));
        }
        lines
    }

    /// The diff, a note if it is cut, and the paths that cannot be applied.
    pub fn described_diff(&self, diff_command: &str) -> String {
        let mut text = self.diff.clone();
        if self.has_cut_diff() {
            text.push_str(&format!("… `{diff_command}` prints the whole diff\n"));
        }
        for path in &self.left_out {
            text.push_str(&format!("Not applied, because no snapshot contains it: {path}\n"));
        }
        text
    }

    /// All that the journal has of the changes: a line for each, and the diff.
    pub fn described_changes(&self, diff_command: &str) -> String {
        let lines = self.change_lines(usize::MAX, diff_command).into_iter();
        let lines: String = lines.map(|line| line + "\n").collect();
        lines + &self.described_diff(diff_command)
    }

    /// Whether the journal has only the beginning of the diff. No line of a diff starts like this one.
    pub fn has_cut_diff(&self) -> bool {
        self.diff.lines().next_back().is_some_and(|line| line.starts_with("… cut in "))
    }
}

/// The decision on an [`ApprovalRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The id of the call in the run.
    pub call_id: String,
    /// Whether the call may start.
    pub approved: bool,
    /// Who decided.
    pub by: ApprovalSource,
    /// The reason of a denial, for the LLM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the process approves every later call of the tool, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_tool: bool,
    /// Whether the operator allows the same call in later runs of the directory, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_project: bool,
    /// The seal over the journal up to this event, if the operator has a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// Who approved a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalSource {
    /// A person at the terminal of the process.
    Terminal,
    /// An operator, with the command that continued the run.
    Operator,
    /// A rule of the agent.
    Rule,
    /// The option `--approve-all`.
    Flag,
    /// The operator, who has allowed the same call in an earlier run of the directory.
    Remembered,
    /// An entry of `allow` in config.yaml.
    Config,
}

/// The approval of a call that starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallApproval {
    /// Who approved it.
    pub by: ApprovalSource,
    /// When it was approved.
    pub at: Timestamp,
    /// The number of the rule, or of the entry of `commands` or `allow`, that allowed it, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
}

/// What an operator says about approvals when a process starts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OperatorApproval {
    /// The tools that ask for every call that no rule denies; [`EVERY_TOOL`] for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Whether the process approves every call that would ask.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Whether decisions of earlier processes do not count, because others may have written them into the journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renew: bool,
}

impl OperatorApproval {
    /// Whether every call of the tool asks that no rule denies.
    pub fn asks_for(&self, tool: &str) -> bool {
        self.ask.iter().any(|name| name == EVERY_TOOL || name == tool)
    }

    /// Adds the tools that ask in an earlier process of the run: that holds until the end of the run.
    pub fn inherit(&mut self, earlier: Option<&Self>) {
        self.add_asking(earlier.map_or(&[], |earlier| &earlier.ask));
    }

    /// Adds tools that ask.
    pub fn add_asking(&mut self, tools: &[String]) {
        for name in tools {
            if !self.ask.contains(name) {
                self.ask.push(name.clone());
            }
        }
    }

    /// The value for the journal: nothing if there is nothing to say.
    pub fn recorded(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

/// An approval that was asked for, and its decision.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedApproval {
    /// What was asked.
    pub request: ApprovalRequest,
    /// The decision and its time.
    pub decision: Option<(ApprovalDecision, Timestamp)>,
    /// The process that asked.
    pub epoch: u32,
    /// Whether an earlier process had started the call when it died.
    pub repeats_call: bool,
}

/// The approvals of the last answer and of the current process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApprovalLog {
    requested: HashMap<String, AskedApproval>,
    /// The tools that the process approves without asking, and since when.
    approved_tools: HashMap<String, Timestamp>,
}

impl ApprovalLog {
    /// Forgets the approved tools, and with `renews` the decisions; returns the requests that lost theirs.
    pub(crate) fn start_process(&mut self, renews: bool) -> Vec<ApprovalRequest> {
        self.approved_tools.clear();
        let decided = self.requested.values_mut().filter(|one| renews && one.decision.is_some());
        decided
            .map(|approval| {
                approval.decision = None;
                approval.request.clone()
            })
            .collect()
    }

    pub(crate) fn start_answer(&mut self) {
        self.requested.clear();
    }

    pub(crate) fn add_request(&mut self, request: &ApprovalRequest, epoch: u32, repeats: bool) {
        let id = request.call_id.clone();
        let request = request.clone();
        // A call that is asked about again has not started since.
        let repeats_call = repeats || self.requested.get(&id).is_some_and(|one| one.repeats_call);
        let approval = AskedApproval { request, decision: None, epoch, repeats_call };
        self.requested.insert(id, approval);
    }

    /// Adds a decision, unless it belongs to no request or the request has one already.
    pub(crate) fn add_decision(&mut self, decision: &ApprovalDecision, at: Timestamp) -> bool {
        let Some(approval) = self.requested.get_mut(&decision.call_id) else { return false };
        if approval.decision.is_some() {
            return false;
        }
        approval.decision = Some((decision.clone(), at));
        if decision.approved && decision.for_tool {
            self.approved_tools.insert(approval.request.tool_name.clone(), at);
        }
        true
    }

    pub(crate) fn find_asked(&self, call_id: &str) -> Option<&AskedApproval> {
        self.requested.get(call_id)
    }

    pub(crate) fn approved_since(&self, tool: &str) -> Option<Timestamp> {
        self.approved_tools.get(tool).copied()
    }
}
