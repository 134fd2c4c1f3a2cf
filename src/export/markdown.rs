//! A run as an account that people read, in Markdown.
//!
//! What people, the LLM and tools wrote stands in fences that are longer than any in it, or in code spans: none of it
//! becomes a heading, a link, an image or HTML, wherever the account is shown.

use super::subject::Subject;
use crate::event::{Payload, RunStatus, SnapshotTaken};
use crate::history::{At, Call, History, Iteration};
use crate::outcome::RunResult;
use crate::snapshot::{Entry, Id, Kind};
use crate::state::FINISH;
use crate::text::printable;
use crate::time::human_duration;
use serde_json::Value as Json;

/// So many changed files of an iteration are named.
const SHOWN: usize = 20;

type Map = serde_json::Map<String, Json>;

/// The account of a run.
pub fn document(subject: &Subject) -> String {
    let mut page = Page::default();
    let history = History::of(&subject.events);
    let result = RunResult::of(&subject.state);
    page.heading(subject, result.as_ref());
    let answer = result.as_ref().and_then(|result| result.result.as_ref());
    for iteration in &history.iterations {
        iteration.before.iter().for_each(|event| page.event(subject, *event));
        let is_last = iteration.thought.what.iteration == subject.state.iterations;
        page.iteration(subject, iteration, answer.filter(|_| is_last));
        iteration.around.iter().for_each(|event| page.event(subject, *event));
    }
    history.rest.iter().for_each(|event| page.event(subject, *event));
    page.end(subject, result.as_ref());
    page.text
}

/// The account so far.
#[derive(Debug, Default)]
struct Page {
    /// Its parts are a blank line apart.
    text: String,
    /// Whether the task stands in it.
    has_task: bool,
    /// What the workspace was at the last snapshot.
    files: Option<Id>,
}

impl Page {
    fn paragraph(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Foreign text, shown as it is.
    fn foreign(&mut self, kind: &str, text: &str) {
        let text = printable(&text.replace("\r\n", "\n").replace('\r', "\n"));
        let fence = "`".repeat((longest_run(&text) + 1).max(3));
        let text = text.trim_end_matches('\n');
        self.paragraph(&format!("{fence}{kind}\n{text}\n{fence}"));
    }

    fn heading(&mut self, subject: &Subject, result: Option<&RunResult>) {
        let start = subject.start();
        let name = start.map(|start| start.agent_name.as_str()).unwrap_or_default();
        self.paragraph(&format!("# Run {} of {}", code(&subject.origin().run_id), code(name)));
        let mut lines = Vec::new();
        let status = subject.state.status.map(|status| status.to_string()).unwrap_or_default();
        lines.push(("Status", status));
        let model = start.and_then(|start| start.config.pointer("/llm/model")?.as_str());
        lines.extend(model.map(|model| ("Model", code(model))));
        lines.extend(start.map(|start| ("Workspace", code(&start.work_dir))));
        lines.extend(subject.state.created_at.map(|at| ("Began", at.to_string())));
        lines.extend(subject.state.updated_at.map(|at| ("Last event", at.to_string())));
        let iterations = result.map_or(0, |result| result.metrics.iterations);
        lines.push(("Iterations", iterations.to_string()));
        let parent = subject.ancestors.first();
        lines.extend(parent.map(|above| {
            let run = code(&above.origin.run_id);
            let call = above.call_id.as_deref().map(|id| format!("call {} of ", code(id)));
            ("Started by", format!("{}run {run}", call.unwrap_or_default()))
        }));
        let lines: Vec<String> =
            lines.iter().map(|(name, value)| format!("- {name}: {value}")).collect();
        self.paragraph(&lines.join("\n"));
    }

    /// An iteration; what it says that is the run's `answer` stands under a heading of its own.
    fn iteration(&mut self, subject: &Subject, told: &Iteration<'_>, answer: Option<&Json>) {
        let thought = told.thought.what;
        self.paragraph(&format!("## Iteration {}", thought.iteration));
        if let Some(reasoning) = subject.reasoning(thought) {
            self.paragraph("Reasoning:");
            self.foreign("text", &reasoning);
        }
        let is_answer = answer.and_then(Json::as_str) == Some(&thought.content);
        if told.calls.is_empty() && is_answer {
            self.paragraph("It answers with the result.");
        } else if !thought.content.is_empty() {
            self.foreign("text", &thought.content);
        }
        told.calls.iter().for_each(|call| self.call(call, answer));
    }

    fn call(&mut self, call: &Call<'_>, answer: Option<&Json>) {
        let asked = &call.asked.function;
        let name = code(&asked.name);
        let arguments = serde_json::from_str::<Json>(&asked.arguments);
        if let (FINISH, Ok(arguments), Some(answer)) = (asked.name.as_str(), &arguments, answer)
            && (arguments == answer || arguments.get("result") == Some(answer))
        {
            return self.paragraph(&format!("Call of {name} with the result."));
        }
        self.paragraph(&format!("Call of {name}:"));
        match arguments {
            Ok(arguments) => self.arguments(arguments),
            Err(_) => self.foreign("text", &asked.arguments),
        }
        if let Some(question) = call.question {
            self.paragraph("Question to a person:");
            self.foreign("text", &question.what.prompt);
        }
        let Some(result) = call.result else {
            let words =
                if call.request.is_some() { "It has no result." } else { "It was not begun." };
            return self.paragraph(words);
        };
        let result = result.what;
        let mut about = match result.exit_code {
            Some(0) => String::new(),
            Some(exit) => format!(", exit code {exit}"),
            None => ", without an exit code".to_owned(),
        };
        about += &format!(", {}", human_duration(result.duration_ms));
        let cut = if result.truncated { ", cut" } else { "" };
        self.paragraph(&format!("Result{about}{cut}:"));
        self.foreign("text", &result.observation_content);
    }

    /// The arguments of a call; texts of several lines stand by themselves.
    fn arguments(&mut self, arguments: Json) {
        let Json::Object(fields) = arguments else {
            return self.foreign("json", &format!("{arguments:#}"));
        };
        let is_long = |value: &Json| value.as_str().is_some_and(|text| text.contains('\n'));
        let (long, short): (Map, Map) = fields.into_iter().partition(|(_, value)| is_long(value));
        if long.is_empty() || !short.is_empty() {
            self.foreign("json", &format!("{:#}", Json::Object(short)));
        }
        for (name, value) in &long {
            self.paragraph(&format!("Its {}:", code(name)));
            self.foreign("text", value.as_str().unwrap_or_default());
        }
    }

    /// What stands between the iterations.
    fn event(&mut self, subject: &Subject, event: At<&Payload>) {
        match event.what {
            Payload::Snapshot(taken) => self.changes(subject, taken),
            Payload::UserMessage { content } => {
                self.paragraph(if self.has_task { "## Message" } else { "## Task" });
                self.has_task = true;
                self.foreign("text", content);
            }
            Payload::Error { error_message, .. } => {
                self.paragraph("## Error");
                self.foreign("text", error_message);
            }
            Payload::EngineEnd { status: RunStatus::Interrupted, .. } => {
                self.paragraph(&format!("Interrupted at {}.", event.at));
            }
            Payload::Fork(fork) => {
                let (run, iteration) = (code(&fork.from.run_id), fork.from.iteration);
                self.files = fork.tree.as_deref().and_then(Id::parse);
                self.paragraph(&format!("Forked from {run} at iteration {iteration}."));
            }
            Payload::Rollback { to, tree, .. } => {
                let to = match to {
                    Some(0) => "to the beginning of the run".to_owned(),
                    Some(to) => format!("to the end of iteration {to}"),
                    None => format!("to the tree {}", code(tree)),
                };
                self.files = Id::parse(tree);
                self.paragraph(&format!("Workspace rolled back {to}."));
            }
            Payload::EngineStart(start) if start.epoch > 1 => {
                self.paragraph(&format!("Continued at {}.", event.at));
            }
            Payload::HookExecution { hook, exit_code, changed, .. } => {
                let exit =
                    exit_code.map_or("no exit code".to_owned(), |c| format!("exit code {c}"));
                let changed = if *changed { ", it changed something" } else { "" };
                self.paragraph(&format!("Hook {}: {exit}{changed}.", code(hook)));
            }
            _ => {}
        }
    }

    /// The files that are others than at the snapshot before, as far as the snapshots are there.
    fn changes(&mut self, subject: &Subject, taken: &SnapshotTaken) {
        let now = Id::parse(&taken.tree);
        let before = std::mem::replace(&mut self.files, now);
        let Some(changes) = before.zip(now).and_then(|(from, to)| subject.changes(from, to)) else {
            return;
        };
        let is_file = |entry: &Option<Entry>| {
            entry.as_ref().is_some_and(|entry| entry.kind != Kind::Directory)
        };
        let files =
            changes.iter().filter(|change| is_file(&change.before) || is_file(&change.after));
        let names: Vec<String> =
            files.map(|change| code(&String::from_utf8_lossy(&change.path))).collect();
        let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = if taken.found { "Changed by others" } else { "Changed files" };
        if !names.is_empty() {
            self.paragraph(&format!("{what}: {shown}{more}."));
        }
    }

    fn end(&mut self, subject: &Subject, result: Option<&RunResult>) {
        let Some(result) = result else { return };
        if let Some(answer) = &result.result {
            self.paragraph("## Result");
            match answer {
                Json::String(text) => self.foreign("text", text),
                other => self.foreign("json", &format!("{other:#}")),
            }
        }
        if let Some(question) = &result.interaction {
            self.paragraph("## It waits for an answer");
            self.foreign("text", &question.prompt);
        }
        self.cost(subject, result);
    }

    fn cost(&mut self, subject: &Subject, result: &RunResult) {
        let used = &subject.state.usage;
        if used.is_empty() {
            return;
        }
        let usd =
            |cost: Option<f64>| cost.map_or("not known".to_owned(), |cost| format!("{cost:.4}"));
        let mut table =
            "| model | tokens in | of them cached | tokens out | USD |\n|---|---:|---:|---:|---:|"
                .to_owned();
        let mut row = |name: &str, tokens: [u64; 3], cost: Option<f64>| {
            let [input, cached, output] = tokens;
            table += &format!("\n| {name} | {input} | {cached} | {output} | {} |", usd(cost));
        };
        for usage in used {
            let name = code(&usage.model).replace('|', "\\|");
            let tokens = [usage.input_tokens, usage.cached_input_tokens, usage.output_tokens];
            row(&name, tokens, usage.cost_usd);
        }
        let total = &result.metrics.usage;
        let cached = used.iter().map(|usage| usage.cached_input_tokens).sum();
        row("all", [total.input_tokens, cached, total.output_tokens], total.total_cost_usd);
        self.paragraph("## Cost");
        self.paragraph(&table);
    }
}

/// Foreign text within a line.
fn code(text: &str) -> String {
    let text = printable(&text.replace(char::is_whitespace, " "));
    let text = if text.trim().is_empty() { "-" } else { text.as_str() };
    let fence = "`".repeat(longest_run(text) + 1);
    // A backtick at an end would become a part of the fence.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// How many backticks stand together at most.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
