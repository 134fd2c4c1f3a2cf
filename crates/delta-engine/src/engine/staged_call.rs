//! Calls of tools with `stage: ask`: a call runs with the workspace as an overlay of its own, and what it has changed is
//! applied when a person has agreed.
//!
//! When the question is durable, the changes are in the store of snapshots, and the layers of the call are no longer needed.
//! The changes are merged into the workspace as it is then. The merge leaves what already has its change, so a process that
//! dies amid it is continued by the next one.

use super::execute::{ApprovedCall, StartingCall};
use super::{Engine, EngineError};
use delta_agent::ask_human;
use delta_agent::tool::Tool;
use delta_base::durable;
use delta_base::id::SnapshotId;
use delta_base::redact::is_redaction_of;
use delta_base::terminal_text::strip_terminal_controls;
use delta_process::{self as process, SandboxEntry};
use delta_run::event::approval::{ApprovalRequest, CallStage, RequestNaming};
use delta_run::event::{ActionResult, Payload};
use delta_run::run::Run;
use delta_run::state::PendingCall;
use delta_run::state::stage::StageDir;
use delta_run::workspace::Workspace;
use delta_sandbox::{NetworkReport, PreparedSandbox, StageLayers, prepare_call_stage};
use delta_snapshot::{
    ChangeList, MergeRules, SnapshotChange, SnapshotError, SnapshotStore, StagedTrees, by_danger,
    hash_changes, list_changes_within, render_changes_within,
};
use std::cell::RefCell;
use std::path::Path;

/// The most bytes of a diff in a question.
const MAX_DIFF_BYTES: usize = 64 * 1024;
/// The most changes that a question lists, and the most bytes of this list.
const MAX_CHANGES: usize = 1000;
const MAX_CHANGE_BYTES: usize = 64 * 1024;
/// The most paths that an observation names.
const MAX_LISTED_PATHS: usize = 5;

/// The workspace of one call.
pub(super) struct CallLayer {
    dir: StageDir,
    /// The snapshot of the workspace before the call.
    base: SnapshotId,
    namespaces: CallNamespaces,
}

enum CallNamespaces {
    Plain(SandboxEntry),
    Sandboxed(Box<RefCell<PreparedSandbox>>),
}

impl CallLayer {
    /// What the process of the call does to enter the workspace.
    pub(super) fn entry(&self) -> SandboxEntry {
        match &self.namespaces {
            CallNamespaces::Plain(entry) => entry.clone(),
            CallNamespaces::Sandboxed(prepared) => prepared.borrow().entry.clone(),
        }
    }

    /// What happened on the network since the last report; `None` without a sandbox.
    pub(super) fn take_network_report(&self) -> Option<NetworkReport> {
        match &self.namespaces {
            CallNamespaces::Plain(_) => None,
            CallNamespaces::Sandboxed(prepared) => {
                Some(prepared.borrow_mut().take_network_report())
            }
        }
    }
}

impl Engine<'_> {
    /// The layers of a call whose tool has `stage`; `None` for any other. The inner error is the observation of a call that
    /// must not start.
    pub(super) fn open_call_layer(
        &self,
        run: &Run,
        tool: &Tool,
    ) -> Result<Result<Option<CallLayer>, String>, EngineError> {
        if !tool.is_staged {
            return Ok(Ok(None));
        }
        let Some(store) = &mut *self.snapshot_store.borrow_mut() else {
            let reason = "The tool could not be started: there are no snapshots to stage it with.";
            return Ok(Err(reason.to_owned()));
        };
        let workspace = Workspace { root: self.environment.vars().cwd.clone() };
        let dir = StageDir::for_call(&run.dir);
        // What a process that died has left does not count.
        dir.clear()?;
        let base = store.take(&workspace.root, run.secrets(), Some(&self.cancel))?.tree;
        dir.create(&workspace.root)?;
        let layers = StageLayers {
            control: workspace.control_dir(),
            workspace: workspace.root,
            upper: dir.upper(),
            work: dir.work(),
            is_nested: run.state().stage.is_some(),
        };
        let sandbox = self.environment.sandbox().and_then(|run| run.of_tool(&tool.name));
        let namespaces = match sandbox {
            None => prepare_call_stage(&process::own_program(), &layers)
                .map(CallNamespaces::Plain)
                .map_err(|error| format!("the workspace cannot be staged: {error}")),
            Some(sandbox) => sandbox
                .prepare_staged(&layers)
                .map(|prepared| CallNamespaces::Sandboxed(Box::new(RefCell::new(prepared))))
                .map_err(|failure| failure.to_string()),
        };
        Ok(match namespaces {
            Ok(namespaces) => Ok(Some(CallLayer { dir, base, namespaces })),
            Err(reason) => {
                dir.clear()?;
                Err(format!("The tool could not be started: {reason}; nothing was started."))
            }
        })
    }

    /// Records the result of a call; if it has changed something in its layers, asks first whether that is applied.
    pub(super) fn record_call_result(
        &self,
        run: &mut Run,
        starting: &StartingCall<'_>,
        mut result: ActionResult,
    ) -> Result<(), EngineError> {
        let approved = &starting.approved;
        let ApprovedCall { call, tool, invocation, .. } = approved;
        let mut store = self.snapshot_store.borrow_mut();
        let Some((store, layer)) = store.as_mut().zip(starting.layer.as_ref()) else {
            run.record(Payload::ActionResult(Box::new(result)));
            return Ok(());
        };
        let CallLayer { dir, base, .. } = layer;
        let base = *base;
        if self.cancel.is_requested() {
            result.observation_content.push_str("\n[what the call changed was thrown away]");
            run.record(Payload::ActionResult(Box::new(result)));
            return Ok(dir.clear()?);
        }
        let staged = store.take_staged(base, &dir.upper(), run.secrets(), Some(&self.cancel))?;
        let changes = store.diff(base, staged.tree)?.changes;
        let left_out: Vec<String> = staged.left_out.iter().map(|path| path_text(path)).collect();
        if changes.is_empty() {
            append_paths(&mut result, "not kept, because no snapshot contains it", &left_out);
            run.record(Payload::ActionResult(Box::new(result)));
            return Ok(dir.clear()?);
        }
        let ChangeTexts { diff, list, sha256 } = ChangeTexts::render(store, &changes)?;
        let stage = CallStage {
            base,
            tree: staged.tree,
            diff,
            changes: list.lines,
            more_changes: list.more,
            changes_sha256: Some(sha256),
            left_out,
            result,
        };
        let request = ApprovalRequest {
            iteration: call.iteration,
            call_id: call.id.clone(),
            tool_name: call.tool.clone(),
            tool_args: approved.tool_args(),
            argv: invocation.argv.clone(),
            command_sha256: tool.command_sha256(invocation, self.environment.vars()),
            files: None,
            environment: None,
            workspace: None,
            changed: Vec::new(),
            rule: None,
            stage: Some(Box::new(stage)),
            named_by: Some(RequestNaming::Chain),
        };
        // From then on only the store has the changes.
        store.sync()?;
        run.record(Payload::ApprovalRequest(Box::new(request)));
        run.commit()?;
        Ok(dir.clear()?)
    }

    /// Does what was decided about the changes of a call, and records its result.
    pub(super) fn end_staged_call(
        &mut self,
        run: &mut Run,
        call: &PendingCall,
    ) -> Result<(), EngineError> {
        // The decision is durable before anything changes.
        run.commit_act()?;
        ask_human::clear_interaction(&run.dir);
        let Some(approval) = run.state().asked_approval(&call.id).cloned() else { return Ok(()) };
        let Some((stage, (decision, _))) = approval.request.stage.zip(approval.decision) else {
            return Ok(());
        };
        let is_as_shown = !decision.approved || self.is_stage_as_shown(&stage)?;
        let CallStage { base, tree, left_out, mut result, .. } = *stage;
        if !is_as_shown {
            result = discarded_result(result, OTHER_CHANGES, None);
        } else if decision.approved {
            let conflicts = self.apply_call(run, base, tree)?;
            append_paths(&mut result, "not applied, because it changed meanwhile", &conflicts);
            append_paths(&mut result, "not applied, because no snapshot contains it", &left_out);
        } else {
            result = discarded_result(result, DENIED_CHANGES, decision.reason.as_deref());
        }
        run.record(Payload::ActionResult(Box::new(result)));
        // The process that asked may have died before it did this.
        Ok(StageDir::for_call(&run.dir).clear()?)
    }

    /// Whether the person was shown these changes: the journal may have been changed.
    fn is_stage_as_shown(&mut self, stage: &CallStage) -> Result<bool, EngineError> {
        let Some(store) = self.snapshot_store.get_mut() else { return Ok(true) };
        let changes = store.diff(stage.base, stage.tree)?.changes;
        let texts = ChangeTexts::render(store, &changes)?;
        Ok(texts.are_shown_in(stage))
    }

    /// Merges the changes of a call into the workspace. Returns the paths that were changed otherwise since.
    fn apply_call(
        &mut self,
        run: &Run,
        base: SnapshotId,
        staged: SnapshotId,
    ) -> Result<Vec<String>, EngineError> {
        let root = self.environment.vars().cwd.clone();
        let Some(store) = self.snapshot_store.get_mut() else {
            return Ok(vec![path_text(root.as_os_str().as_encoded_bytes())]);
        };
        let current = store.take(&root, run.secrets(), Some(&self.cancel))?.tree;
        let conflicts = merge_call(store, StagedTrees { base, staged, current }, &root)?;
        Ok(conflicts.iter().map(|path| path_text(path)).collect())
    }
}

/// What a question has of the changes of a call.
struct ChangeTexts {
    /// The diff, maybe cut.
    diff: String,
    list: ChangeList,
    /// The hash of all changes, whether the texts have room for them or not.
    sha256: String,
}

impl ChangeTexts {
    fn render(store: &SnapshotStore, changes: &[SnapshotChange]) -> Result<Self, SnapshotError> {
        // What is harmless must not push the rest out of what a person sees.
        let ordered = by_danger(changes);
        Ok(Self {
            diff: render_changes_within(store, &ordered, MAX_DIFF_BYTES)?,
            list: list_changes_within(store, &ordered, MAX_CHANGES, MAX_CHANGE_BYTES)?,
            sha256: hash_changes(changes),
        })
    }

    /// Whether `stage` shows these changes. In a run of an earlier version it has only the diff.
    fn are_shown_in(&self, stage: &CallStage) -> bool {
        let Some(sha256) = &stage.changes_sha256 else {
            return is_redaction_of(&stage.diff, &self.diff);
        };
        let has_lines = stage.changes.len() == self.list.lines.len()
            && stage.more_changes == self.list.more
            && stage
                .changes
                .iter()
                .zip(&self.list.lines)
                .all(|(one, two)| is_redaction_of(one, two));
        *sha256 == self.sha256 && has_lines && is_redaction_of(&stage.diff, &self.diff)
    }
}

fn merge_call(
    store: &mut SnapshotStore,
    trees: StagedTrees,
    root: &Path,
) -> Result<Vec<Vec<u8>>, EngineError> {
    // A process may have died amid it.
    let rules = MergeRules { selects: &|_| true, overwrites: false, is_interrupted: true };
    let merge = store.merge_staged(trees, &rules)?;
    let plan = store.plan_restore(trees.current, merge.tree, None)?;
    store.apply_restore(&plan, root, None)?;
    durable::sync_file_system(root)?;
    Ok(merge.conflicts)
}

const DENIED_CHANGES: &str =
    "Denied by the operator; what the tool changed was thrown away, as if it had not run.";
const OTHER_CHANGES: &str = "The changes of this call are not the ones that were approved, because the journal has changed; they \
     were thrown away, as if the tool had not run.";

/// The result of a call whose changes were thrown away: what it printed could be about them.
fn discarded_result(result: ActionResult, why: &str, reason: Option<&str>) -> ActionResult {
    let mut text = why.to_owned();
    if let Some(reason) = reason {
        text.push('\n');
        text.push_str(reason);
    }
    ActionResult {
        observation_content: text,
        images: Vec::new(),
        exit_code: None,
        truncated: false,
        result: None,
        ..result
    }
}

fn path_text(path: &[u8]) -> String {
    strip_terminal_controls(&String::from_utf8_lossy(path))
}

/// Appends a line about paths to an observation.
fn append_paths(result: &mut ActionResult, why: &str, paths: &[String]) {
    let Some(first) = paths.first() else { return };
    let mut list = first.clone();
    paths.iter().skip(1).take(MAX_LISTED_PATHS - 1).for_each(|path| {
        list.push_str(", ");
        list.push_str(path);
    });
    if paths.len() > MAX_LISTED_PATHS {
        list.push_str(&format!(" and {} more", paths.len() - MAX_LISTED_PATHS));
    }
    let text = &mut result.observation_content;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{why}: {list}]"));
}
