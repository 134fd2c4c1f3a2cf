//! Renders a run as a readable Markdown document.
//!
//! Text from users, the LLM and tools goes into code fences or code spans that it cannot close, so none of it becomes
//! a heading, a link, an image or HTML.

use super::exported_run::ExportedRun;
use delta_base::id::SnapshotId;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::time::format_duration;
use delta_run::conversation::history::{CallHistory, EventRef, Iteration, RunHistory};
use delta_run::event::approval::ApprovalSource;
use delta_run::event::image_file;
use delta_run::event::{Payload, RunStatus, UsageSummary, WorkspaceSnapshot};
use delta_run::run_result::RunResult;
use delta_run::state::FINISH_TOOL;
use delta_snapshot::{EntryKind, TreeEntry};
use serde_json::Value as Json;

/// The most changed files that are listed for one iteration.
const MAX_LISTED_FILES: usize = 20;

type JsonMap = serde_json::Map<String, Json>;

/// Renders the run as a document.
pub fn render_markdown(run: &ExportedRun) -> String {
    let mut document = MarkdownDocument::default();
    let history = RunHistory::from_events(&run.events);
    let result = RunResult::from_state(&run.state);
    document.push_header(run, result.as_ref());
    let answer = result.as_ref().and_then(|result| result.result.as_deref());
    for iteration in &history.iterations {
        document.push_events(run, &iteration.events_before);
        let is_last = iteration.thought.value.iteration == run.state.iterations;
        document.push_iteration(run, iteration, answer.filter(|_| is_last));
        document.push_events(run, &iteration.interleaved_events);
    }
    document.push_events(run, &history.trailing_events);
    document.push_result(run, result.as_ref());
    document.text
}

#[derive(Debug, Default)]
struct MarkdownDocument {
    text: String,
    /// Whether the first user message, the task, is in the text.
    has_task: bool,
    last_snapshot: Option<SnapshotId>,
}

impl MarkdownDocument {
    fn push_paragraph(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Appends text from outside in a fence longer than any backtick run in it.
    fn push_fenced(&mut self, kind: &str, text: &str) {
        let text = strip_terminal_controls(&text.replace("\r\n", "\n").replace('\r', "\n"));
        let fence = "`".repeat((longest_backtick_run(&text) + 1).max(3));
        let text = text.trim_end_matches('\n');
        self.push_paragraph(&format!("{fence}{kind}\n{text}\n{fence}"));
    }

    fn push_header(&mut self, run: &ExportedRun, result: Option<&RunResult>) {
        let start = run.engine_start();
        let name = start.map(|start| start.agent_name.as_str()).unwrap_or_default();
        let run_id = code_span(&run.identity().run_id);
        self.push_paragraph(&format!("# Run {run_id} of {}", code_span(name)));
        let status = run.state.status.map(|status| status.to_string()).unwrap_or_default();
        let mut lines = vec![format!("- Status: {status}")];
        let model = start.and_then(|start| start.config.model());
        lines.extend(model.map(|model| format!("- Model: {}", code_span(model))));
        lines.extend(start.map(|start| format!("- Workspace: {}", code_span(&start.work_dir))));
        lines.extend(run.state.created_at.map(|at| format!("- Started: {at}")));
        lines.extend(run.state.updated_at.map(|at| format!("- Last event: {at}")));
        let iterations = result.map_or(0, |result| result.metrics.iterations);
        lines.push(format!("- Iterations: {iterations}"));
        if let Some(parent) = run.ancestors.first() {
            let call = parent.call_id.as_deref().map(|id| format!("call {} of ", code_span(id)));
            let call = call.unwrap_or_default();
            lines.push(format!("- Started by: {call}run {}", code_span(&parent.identity.run_id)));
        }
        self.push_paragraph(&lines.join("\n"));
    }

    /// Appends an iteration. Where it gives the run's result, `answer`, it refers to the section of that name.
    fn push_iteration(
        &mut self,
        run: &ExportedRun,
        iteration: &Iteration<'_>,
        answer: Option<&Json>,
    ) {
        let thought = iteration.thought.value;
        self.push_paragraph(&format!("## Iteration {}", thought.iteration));
        if let Some(reasoning) = run.reasoning(thought) {
            self.push_paragraph("Reasoning:");
            self.push_fenced("text", &reasoning);
        }
        let is_answer = answer.and_then(Json::as_str) == Some(&thought.content);
        if iteration.calls.is_empty() && is_answer {
            self.push_paragraph("The LLM answered with the result.");
        } else if !thought.content.is_empty() {
            self.push_fenced("text", &thought.content);
        }
        if thought.cut_off {
            self.push_paragraph("The answer was cut off at the token limit.");
        }
        iteration.calls.iter().for_each(|call| self.push_call(call, answer));
        if let Some(reminder) = &thought.reminder {
            self.push_paragraph("The engine replied:");
            self.push_fenced("text", reminder);
        }
    }

    fn push_call(&mut self, call: &CallHistory<'_>, answer: Option<&Json>) {
        let function = &call.tool_call.function;
        let name = code_span(&function.name);
        let arguments = serde_json::from_str::<Json>(function.arguments.as_str());
        if let (FINISH_TOOL, Ok(arguments), Some(answer)) =
            (function.name.as_str(), &arguments, answer)
            && (arguments == answer || arguments.get("result") == Some(answer))
        {
            return self.push_paragraph(&format!("Tool call {name} with the result."));
        }
        self.push_paragraph(&format!("Tool call {name}:"));
        match arguments {
            Ok(arguments) => self.push_arguments(arguments),
            Err(_) => self.push_fenced("text", function.arguments.as_str()),
        }
        if let Some(question) = call.question {
            self.push_paragraph("Question to the user:");
            self.push_fenced("text", &question.value.prompt);
        }
        if let Some(EventRef { value: decision, .. }) = call.approval_decision {
            let verb = if decision.approved { "Approved" } else { "Denied" };
            let by = match decision.by {
                ApprovalSource::Terminal => "at the terminal",
                ApprovalSource::Operator => "by the operator",
                ApprovalSource::Rule => "by a rule",
                ApprovalSource::Flag => "by `--approve-all`",
                ApprovalSource::Remembered => "as in an earlier run",
                ApprovalSource::Config => "by config.yaml",
            };
            self.push_paragraph(&format!("{verb} {by}."));
        }
        let Some(result) = call.result else {
            let is_started = call.request.is_some();
            return self.push_paragraph(if is_started { "No result." } else { "Not started." });
        };
        let result = result.value;
        let exit = match result.exit_code {
            Some(0) => String::new(),
            Some(code) => format!(", exit code {code}"),
            None => ", no exit code".to_owned(),
        };
        let duration = format_duration(result.duration_ms);
        let truncated = if result.truncated { ", truncated" } else { "" };
        self.push_paragraph(&format!("Result{exit}, {duration}{truncated}:"));
        let text = image_file::text_with_images(&result.observation_content, &result.images);
        self.push_fenced("text", &text);
    }

    /// Appends the arguments of a call, multi-line texts separately.
    fn push_arguments(&mut self, arguments: Json) {
        let Json::Object(fields) = arguments else {
            return self.push_fenced("json", &format!("{arguments:#}"));
        };
        let (long, short): (JsonMap, JsonMap) = fields
            .into_iter()
            .partition(|(_, value)| value.as_str().is_some_and(|text| text.contains('\n')));
        if long.is_empty() || !short.is_empty() {
            self.push_fenced("json", &format!("{:#}", Json::Object(short)));
        }
        for (name, value) in &long {
            self.push_paragraph(&format!("Argument {}:", code_span(name)));
            self.push_fenced("text", value.as_str().unwrap_or_default());
        }
    }

    fn push_events(&mut self, run: &ExportedRun, events: &[EventRef<&Payload>]) {
        events.iter().for_each(|event| self.push_event(run, event));
    }

    fn push_event(&mut self, run: &ExportedRun, event: &EventRef<&Payload>) {
        match event.value {
            Payload::Snapshot(snapshot) => self.push_changed_files(run, snapshot),
            Payload::UserMessage { content, images, .. } => {
                self.push_paragraph(if self.has_task { "## Message" } else { "## Task" });
                self.has_task = true;
                self.push_fenced("text", &image_file::text_with_images(content, images));
            }
            Payload::Error { error_message, .. } => {
                self.push_paragraph("## Error");
                self.push_fenced("text", error_message);
            }
            Payload::EngineEnd { status: RunStatus::Interrupted, .. } => {
                self.push_paragraph(&format!("Interrupted at {}.", event.timestamp));
            }
            Payload::Fork(fork) => {
                let parent = code_span(fork.from.run_id.as_str());
                let iteration = fork.from.iteration;
                self.last_snapshot = fork.tree;
                self.push_paragraph(&format!("Forked from {parent} at iteration {iteration}."));
            }
            Payload::Rollback { to, tree, .. } => {
                let to = match to {
                    Some(0) => "the beginning of the run".to_owned(),
                    Some(to) => format!("the end of iteration {to}"),
                    None => format!("snapshot {}", code_span(&tree.to_string())),
                };
                self.last_snapshot = Some(*tree);
                self.push_paragraph(&format!("Workspace rolled back to {to}."));
            }
            Payload::Apply(apply) => {
                let subject = if apply.paths.is_empty() {
                    "The staged changes"
                } else {
                    "Some staged changes"
                };
                self.push_paragraph(&format!("{subject} were applied to the workspace."));
            }
            Payload::Discard { base, .. } => {
                self.last_snapshot = Some(*base);
                self.push_paragraph("The staged changes were discarded.");
            }
            Payload::EngineStart(start) if start.epoch > 1 => {
                self.push_paragraph(&format!("Continued at {}.", event.timestamp));
            }
            Payload::HookExecution { hook, exit_code, changed, end, .. } => {
                let exit =
                    exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
                let changed = match hook.as_str() {
                    _ if !changed => "",
                    "pre_llm_request" => ", changed the request",
                    "post_llm_response" => ", changed the response",
                    "pre_tool_execution" => ", changed the arguments",
                    _ => ", changed the observation",
                };
                let end_note = if end.is_some() { ", ended the run" } else { "" };
                self.push_paragraph(&format!(
                    "Hook {}: {exit}{changed}{end_note}.",
                    code_span(hook)
                ));
            }
            _ => {}
        }
    }

    /// Appends the files that changed since the last snapshot, if both snapshots are readable.
    fn push_changed_files(&mut self, run: &ExportedRun, snapshot: &WorkspaceSnapshot) {
        let previous = self.last_snapshot.replace(snapshot.tree);
        let Some(changes) = previous.and_then(|from| run.workspace_changes(from, snapshot.tree))
        else {
            return;
        };
        let is_file = |entry: &Option<TreeEntry>| {
            entry.as_ref().is_some_and(|entry| entry.kind != EntryKind::Directory)
        };
        let mut names: Vec<String> = changes
            .iter()
            .filter(|change| is_file(&change.before) || is_file(&change.after))
            .map(|change| {
                code_span(&run.visible_name(String::from_utf8_lossy(&change.path).into_owned()))
            })
            .collect();
        if names.is_empty() {
            return;
        }
        let more = match names.len().saturating_sub(MAX_LISTED_FILES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.truncate(MAX_LISTED_FILES);
        let caption = if snapshot.found { "Changed outside of the run" } else { "Changed files" };
        self.push_paragraph(&format!("{caption}: {}{more}.", names.join(", ")));
    }

    fn push_result(&mut self, run: &ExportedRun, result: Option<&RunResult>) {
        let Some(result) = result else { return };
        if let Some(answer) = &result.result {
            self.push_paragraph("## Result");
            match &**answer {
                Json::String(text) => self.push_fenced("text", text),
                _ => {
                    let text = serde_json::to_string_pretty(answer).unwrap_or_default();
                    self.push_fenced("json", &text);
                }
            }
        }
        if let Some(question) = &result.interaction {
            let is_approval = question.kind.is_some();
            let noun = if is_approval { "approval" } else { "answer" };
            self.push_paragraph(&format!("## Waiting for an {noun}"));
            self.push_fenced("text", &question.prompt);
        }
        self.push_cost(run, result);
    }

    fn push_cost(&mut self, run: &ExportedRun, result: &RunResult) {
        let usages = &run.state.usage;
        if usages.is_empty() {
            return;
        }
        let mut table =
            "| model | tokens in | cached | written | tokens out | reasoning | USD |\n|---|---:|---:|---:|---:|---:|---:|"
                .to_owned();
        let mut add_row = |name: &str, usage: &UsageSummary, cost: Option<f64>| {
            let UsageSummary { input_tokens, cached_input_tokens, cache_write_tokens, .. } = usage;
            let UsageSummary { output_tokens, reasoning_tokens, .. } = usage;
            let usd = cost.map_or("unknown".to_owned(), |cost| format!("{cost:.4}"));
            table += &format!(
                "\n| {name} | {input_tokens} | {cached_input_tokens} | {cache_write_tokens} | {output_tokens} | {reasoning_tokens} | {usd} |"
            );
        };
        for usage in usages {
            let name = code_span(&usage.model).replace('|', "\\|");
            let row = UsageSummary::from_models(std::slice::from_ref(usage), false);
            add_row(&name, &row, usage.cost_usd);
        }
        let total = UsageSummary::from_models(usages, false);
        add_row("total", &total, result.metrics.usage.total_cost_usd);
        self.push_paragraph("## Cost");
        self.push_paragraph(&table);
    }
}

/// Text from outside within a line.
fn code_span(text: &str) -> String {
    let text = strip_terminal_controls(&text.replace(char::is_whitespace, " "));
    let text = if text.trim().is_empty() { "-" } else { text.as_str() };
    let fence = "`".repeat(longest_backtick_run(text) + 1);
    // A backtick at either end would extend the fence.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
