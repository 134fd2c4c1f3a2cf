//! RunResult v2.0: the result of a run, computed from its state.

use crate::event::{
    EngineStart, IO_ERROR, LLM_ERROR, RunStatus, SHARED_BUDGET_ERROR, is_zero_number, round_usd,
};
use crate::interaction_request::InteractionRequest;
use crate::run_tree::RunTreeTotal;
use crate::state::run_metadata::RunMetadata;
use crate::state::{HumanRequest, RunState};
use crate::{mailbox, workspace};
use delta_base::json::ExactJson;
use delta_base::quantity::format_count;
use delta_base::shell_quote::{shell_quote, shell_quote_path};
use delta_base::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::fmt;
use std::path::{Path, PathBuf};

const SCHEMA_VERSION: &str = "2.0";

/// The result of a run, or the error of a command outside of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunResult {
    /// The version of this schema, `2.0`.
    pub schema_version: &'static str,
    /// The run; null when none was created.
    pub run_id: Option<String>,
    /// The status of the run.
    pub status: RunStatus,
    /// The result of a COMPLETED run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ExactJson>,
    /// The error of a FAILED or INTERRUPTED run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunErrorInfo>,
    /// What a run that is WAITING_FOR_INPUT waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interaction: Option<InteractionRequest>,
    /// How many messages wait for the next process of the run; absent if none does.
    #[serde(skip_serializing_if = "is_zero_number")]
    pub waiting_messages: usize,
    /// Iterations, time, tokens and cost.
    pub metrics: RunMetrics,
    /// The agent and the workspace.
    pub metadata: ResultMetadata,
    /// Sensitive answers, which the text format redacts.
    #[serde(skip)]
    pub sensitive: Vec<String>,
    /// Whether the text format prints the result alone: the user has seen the rest, or wants nothing else.
    #[serde(skip)]
    pub prints_alone: bool,
    /// The command with which a person at the terminal continues the COMPLETED run.
    #[serde(skip)]
    pub follow_up: Option<String>,
}

/// The error of a run that ended without a result.
#[derive(Debug, Clone, Serialize)]
pub struct RunErrorInfo {
    /// The kind of error, for programs: `config`, `llm`, `max_iterations`, `interrupted`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// The error, for humans.
    pub message: String,
    /// How to resolve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// Iterations, time, tokens and cost.
#[derive(Debug, Clone, Serialize)]
pub struct RunMetrics {
    /// LLM answers, of all processes of the run.
    pub iterations: u32,
    /// Milliseconds from the first event of this process to its last.
    pub duration_ms: u64,
    /// The same of all processes of the run; on a fork, without the run it was forked from.
    pub total_duration_ms: u64,
    /// The part of `total_duration_ms` for which the endpoint refused requests because there were too many (429, 529);
    /// absent if it is 0.
    #[serde(skip_serializing_if = "is_zero_number")]
    pub throttled_ms: u64,
    /// When this process started or resumed the run.
    pub start_time: Timestamp,
    /// When this process exited.
    pub end_time: Timestamp,
    /// Tokens and cost, of all processes of the run.
    pub usage: UsageTotal,
    /// The same of the run with all runs below it, if it has started any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Json>,
}

/// Tokens and cost.
#[derive(Debug, Clone, Default, Serialize)]
pub struct UsageTotal {
    /// USD; null if the cost of any part is unknown.
    pub total_cost_usd: Option<f64>,
    /// Tokens in requests.
    pub input_tokens: u64,
    /// Tokens in answers.
    pub output_tokens: u64,
    /// The same by model, with the cached part of the input.
    pub model_usage: Map<String, Json>,
    /// Tokens that the endpoint read from its cache, a part of `input_tokens`.
    #[serde(skip)]
    pub cached_input_tokens: u64,
    /// Tokens that the endpoint wrote to its cache, a part of `input_tokens`.
    #[serde(skip)]
    pub cache_write_tokens: u64,
    /// Whether the usage of some answer is unknown.
    #[serde(skip)]
    pub is_partial: bool,
}

impl UsageTotal {
    /// What all answers of a run have used.
    pub fn from_state(state: &RunState) -> Self {
        let mut total = Self::default();
        for usage in &state.usage {
            total.input_tokens += usage.input_tokens;
            total.cached_input_tokens += usage.cached_input_tokens;
            total.cache_write_tokens += usage.cache_write_tokens.unwrap_or(0);
            total.output_tokens += usage.output_tokens;
            let mut counts = json!({
                "input_tokens": usage.input_tokens,
                "cached_input_tokens": usage.cached_input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": usage.cost_usd.map(round_usd),
            });
            if let Some(written) = usage.cache_write_tokens {
                counts["cache_write_tokens"] = written.into();
            }
            if let Some(reasoning) = usage.reasoning_tokens {
                counts["reasoning_tokens"] = reasoning.into();
            }
            total.model_usage.insert(usage.model.clone(), counts);
        }
        total.total_cost_usd = state.usage_summary().cost_usd;
        total.is_partial = state.unmetered;
        total
    }

    /// The total in words: `12.3k tokens in (45% cached, 10% written to the cache), 340 out, 0.0123 USD`; `None` without any token.
    pub fn describe(&self) -> Option<String> {
        if self.input_tokens + self.output_tokens == 0 {
            return None;
        }
        let bound = if self.is_partial { "at least " } else { "" };
        let mut text = format!("{bound}{} tokens in", format_count(self.input_tokens));
        let parts: Vec<String> = [
            (self.cached_input_tokens, "cached"),
            (self.cache_write_tokens, "written to the cache"),
        ]
        .into_iter()
        .filter_map(|(tokens, name)| {
            let percent = u128::from(tokens) * 100 / u128::from(self.input_tokens.max(1));
            (percent > 0).then(|| format!("{percent}% {name}"))
        })
        .collect();
        if !parts.is_empty() {
            text.push_str(&format!(" ({})", parts.join(", ")));
        }
        text.push_str(&format!(", {} out", format_count(self.output_tokens)));
        match self.total_cost_usd {
            Some(cost) if cost > 0.0 && cost < 0.0001 => text.push_str(", less than 0.0001 USD"),
            Some(cost) => text.push_str(&format!(", {cost:.4} USD")),
            None => {}
        }
        Some(text)
    }
}

/// Says that messages wait, and what receives them; `None` if none waits.
pub fn describe_waiting(count: usize, state: &RunState, next: &ContinueCommand) -> Option<String> {
    let (noun, verb) = if count == 1 { ("message", "waits") } else { ("messages", "wait") };
    let until = match state.human_request() {
        Some(_) => " until the run has its answer".to_owned(),
        None => format!(": {next}"),
    };
    (count > 0).then(|| format!("{count} {noun} {verb}{until}"))
}

/// What a run and all runs below it have used, in words.
pub fn describe_tree(total: &RunTreeTotal) -> String {
    let usage = UsageTotal {
        total_cost_usd: total.usage.cost_usd,
        input_tokens: total.usage.input_tokens,
        cached_input_tokens: total.usage.cached_input_tokens,
        cache_write_tokens: total.usage.cache_write_tokens,
        output_tokens: total.usage.output_tokens,
        is_partial: total.left_out > 0,
        ..UsageTotal::default()
    };
    let usage = usage.describe().map_or_else(String::new, |usage| format!(", {usage}"));
    let runs = match total.left_out {
        0 => format!("all {} runs", total.runs),
        left_out => format!("{} of {} runs", total.runs, total.runs + left_out),
    };
    format!("{runs} together: {} iterations{usage}", total.iterations)
}

/// The agent and the workspace.
#[derive(Debug, Clone, Serialize)]
pub struct ResultMetadata {
    /// The name of the agent; empty outside of a run.
    pub agent_name: String,
    /// The absolute path of the workspace; empty outside of a run.
    pub workspace_path: String,
}

impl RunResult {
    /// The result of a run; `None` before its ENGINE_START.
    pub fn from_state(state: &RunState) -> Option<Self> {
        let metadata = RunMetadata::from_state(state)?;
        let status = metadata.status;
        let start_time = state.started_at?;
        let end_time = state.worked_until?;
        Some(Self {
            schema_version: SCHEMA_VERSION,
            run_id: Some(metadata.run_id.to_string()),
            status,
            result: state.result.clone().filter(|_| status == RunStatus::Completed),
            error: run_error_info(state, status),
            interaction: InteractionRequest::new(state)
                .filter(|_| status == RunStatus::WaitingForInput),
            waiting_messages: 0,
            metrics: RunMetrics {
                iterations: state.iterations,
                duration_ms: u64::try_from(end_time.as_millis() - start_time.as_millis())
                    .unwrap_or(0),
                total_duration_ms: state.active_time.millis(),
                throttled_ms: state.active_time.throttled_millis(),
                start_time,
                end_time,
                usage: UsageTotal::from_state(state),
                tree: None,
            },
            metadata: ResultMetadata {
                agent_name: metadata.agent_name,
                workspace_path: metadata.work_dir,
            },
            sensitive: state.sensitive.answers.clone(),
            prints_alone: false,
            follow_up: None,
        })
    }

    /// Adds what the state does not have of the run in `run_dir`, whose state is `state`: the total of the run and the runs
    /// below it, and the messages that wait.
    #[must_use]
    pub fn with_tree(mut self, run_dir: &Path, state: &RunState) -> Self {
        self.waiting_messages = mailbox::count_waiting(run_dir);
        self.metrics.tree = RunTreeTotal::collect(run_dir, state).map(|total| {
            let mut usage = json!({
                "total_cost_usd": total.usage.cost_usd,
                "input_tokens": total.usage.input_tokens,
                "cached_input_tokens": total.usage.cached_input_tokens,
                "output_tokens": total.usage.output_tokens,
            });
            let more = [
                ("cache_write_tokens", total.usage.cache_write_tokens),
                ("reasoning_tokens", total.usage.reasoning_tokens),
            ];
            for (name, tokens) in more.into_iter().filter(|(_, tokens)| *tokens > 0) {
                usage[name] = tokens.into();
            }
            json!({"runs": total.runs, "iterations": total.iterations, "usage": usage})
        });
        self
    }

    /// The result of a command that failed before or outside of a run.
    pub fn without_run(
        run_id: Option<String>,
        status: RunStatus,
        error: RunErrorInfo,
        now: Timestamp,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            status,
            result: None,
            error: Some(error),
            interaction: None,
            waiting_messages: 0,
            metrics: RunMetrics {
                iterations: 0,
                duration_ms: 0,
                total_duration_ms: 0,
                throttled_ms: 0,
                start_time: now,
                end_time: now,
                usage: UsageTotal::default(),
                tree: None,
            },
            metadata: ResultMetadata { agent_name: String::new(), workspace_path: String::new() },
            sensitive: Vec::new(),
            prints_alone: false,
            follow_up: None,
        }
    }
}

fn run_error_info(state: &RunState, status: RunStatus) -> Option<RunErrorInfo> {
    match (status, &state.error) {
        (RunStatus::Failed, Some((message, details))) => {
            // The question is still open.
            let next = ContinueCommand::for_failed_run(state);
            let hint = state.human_request().map(|_| format!("`{next}` asks again"));
            Some(RunErrorInfo {
                kind: details.kind.clone(),
                message: message.clone(),
                details: details.hint.clone().or(hint),
            })
        }
        (RunStatus::Interrupted, Some((message, details)))
            if details.kind == SHARED_BUDGET_ERROR =>
        {
            Some(RunErrorInfo {
                kind: details.kind.clone(),
                message: message.clone(),
                details: details.hint.clone(),
            })
        }
        (RunStatus::Interrupted, _) => Some(RunErrorInfo {
            kind: "interrupted".to_owned(),
            message: "the run was interrupted".to_owned(),
            details: open_request_hint(state, &ContinueCommand::from_state(state)).or_else(|| {
                Some(format!("`{}` resumes the run", ContinueCommand::from_state(state)))
            }),
        }),
        _ => None,
    }
}

/// The lines that say how to answer what an interrupted run still waits for; `None` if nothing is open.
pub fn open_request_hint(state: &RunState, next: &ContinueCommand) -> Option<String> {
    let named = next.clone().naming_request(state);
    let (reply, commands) = match state.human_request()? {
        HumanRequest::Question(question) if question.sensitive => ("answer", String::new()),
        HumanRequest::Question(_) => ("answer", format!("\n  {} TEXT", named.to_reply("answer"))),
        HumanRequest::Approval(_) => {
            let [approve, deny] = ["approve", "deny"].map(|name| named.to_reply(name));
            ("approval", format!("\n  {approve}\n  {deny} -m REASON"))
        }
    };
    let next = next.clone().asking_again();
    Some(format!("The agent still waits for your {reply}:{commands}\n  {next}"))
}

/// The command that prints the changes of a staged call about which a run asks.
pub fn call_diff_command(start: Option<&EngineStart>) -> String {
    let diff = ContinueCommand::from_start(start).to_reader("diff").to_string();
    // Alone, it prints what the whole run has staged.
    let is_staged = start.is_some_and(|start| start.config.stage.is_some());
    if is_staged { diff + " --call" } else { diff }
}

/// How many characters of the id of a question name it on a command line, at least.
pub const SHORT_REQUEST_ID: usize = 8;

/// The command that continues a run as its last process did. Every hint that continues a run is
/// made here.
#[derive(Debug, Clone, Default)]
pub struct ContinueCommand {
    run_id: String,
    work_dir: PathBuf,
    model: Option<String>,
    /// The sandbox of the operator, which the next process would not have without the option.
    sandbox: Option<String>,
    message: Option<String>,
    /// An option with its value, such as `--max-cost 0.52`.
    limit_option: Option<String>,
    /// The agent directory, if the command cannot take the one in the journal.
    agent: Option<PathBuf>,
    /// The prefix of the id of what the command answers.
    request_id: Option<String>,
    asks_again: bool,
    /// The type of the error after which the same request is sent again.
    retry: Option<&'static str>,
}

impl ContinueCommand {
    /// Continues the run in its workspace. The next process keeps the model that the journal records.
    pub fn from_state(state: &RunState) -> Self {
        Self::from_start(state.start.as_ref())
    }

    fn from_start(start: Option<&EngineStart>) -> Self {
        Self {
            run_id: start.map_or_else(|| "RUN".to_owned(), |start| start.run_id.to_string()),
            work_dir: start.map_or_else(|| ".".into(), |start| PathBuf::from(&start.work_dir)),
            sandbox: start.and_then(|start| start.config.chosen_sandbox()).map(str::to_owned),
            ..Self::default()
        }
    }

    /// Continues a FAILED run, which needs a message, has an open question, or only asks its LLM again.
    pub fn for_failed_run(state: &RunState) -> Self {
        let details = state.error.as_ref().map(|(_, details)| details);
        let limit_option = details.and_then(|details| details.limit_option.clone());
        let command = Self { limit_option, ..Self::from_state(state) };
        match state.human_request() {
            Some(_) => command.asking_again(),
            None if state.failed_at_endpoint() => command,
            None if state.was_refused() => Self { retry: Some(LLM_ERROR), ..command },
            None if state.failed_with(IO_ERROR) => Self { retry: Some(IO_ERROR), ..command },
            None => command.with_message("Try again"),
        }
    }

    /// Names the workspace as the operator does.
    #[must_use]
    pub fn with_work_dir(self, work_dir: &Path) -> Self {
        Self { work_dir: work_dir.to_owned(), ..self }
    }

    /// Adds the `--model` of a process that does not record it.
    #[must_use]
    pub fn with_model(self, model: Option<String>) -> Self {
        Self { model, ..self }
    }

    /// Names the agent directory.
    #[must_use]
    pub fn with_agent(self, agent: Option<PathBuf>) -> Self {
        Self { agent, ..self }
    }

    /// Names what the run waits for, so that the command answers nothing else.
    #[must_use]
    pub fn naming_request(self, state: &RunState) -> Self {
        let request_id = state.request_id();
        Self { request_id: request_id.map(|id| id[..SHORT_REQUEST_ID].to_owned()), ..self }
    }

    /// The same run and options for the command `delta NAME RUN`.
    pub fn to_reply(&self, name: &'static str) -> ReplyCommand {
        ReplyCommand { name, command: self.clone() }
    }

    /// The command `delta NAME RUN`, which reads the same run.
    pub fn to_reader(&self, name: &'static str) -> ReplyCommand {
        let Self { run_id, work_dir, .. } = self.clone();
        ReplyCommand { name, command: Self { run_id, work_dir, ..Self::default() } }
    }

    /// Asks at the terminal what is open.
    #[must_use]
    pub fn asking_again(self) -> Self {
        Self { asks_again: true, ..self }
    }

    /// Adds a message.
    #[must_use]
    pub fn with_message(self, message: &str) -> Self {
        Self { message: Some(message.to_owned()), ..self }
    }
}

impl fmt::Display for ContinueCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta continue --run-id {}", self.run_id)?;
        self.write_options(f)
    }
}

/// A [`ContinueCommand`] under another name, such as `delta approve`.
#[derive(Debug, Clone)]
pub struct ReplyCommand {
    name: &'static str,
    command: ContinueCommand,
}

impl fmt::Display for ReplyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta {} {}", self.name, self.command.run_id)?;
        self.command.write_options(f)
    }
}

impl ContinueCommand {
    fn write_options(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " -w {}", workspace::quote_workspace(&self.work_dir))?;
        if let Some(agent) = &self.agent {
            write!(f, " --agent {}", shell_quote_path(agent))?;
        }
        self.request_id.iter().try_for_each(|id| write!(f, " --request-id {id}"))?;
        self.model.iter().try_for_each(|model| write!(f, " --model {}", shell_quote(model)))?;
        self.sandbox.iter().try_for_each(|name| write!(f, " --sandbox {}", shell_quote(name)))?;
        // From a journal, which could contain anything.
        let words = self.limit_option.iter().flat_map(|option| option.split(' '));
        words.into_iter().try_for_each(|word| write!(f, " {}", shell_quote(word)))?;
        self.retry.iter().try_for_each(|kind| write!(f, " --retry {kind}"))?;
        if let Some(message) = &self.message {
            // As a word of its own, it would be an option.
            let joint = if message.starts_with('-') { '=' } else { ' ' };
            write!(f, " -m{joint}{}", quote_prose(message))?;
        }
        if self.asks_again { f.write_str(" -i") } else { Ok(()) }
    }
}

/// A message quoted for a command line, preferably in double quotes.
fn quote_prose(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_alphanumeric() || " ,.".contains(c));
    if is_plain && text.contains(' ') { format!("\"{text}\"") } else { shell_quote(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_25_5_a_total_in_words() {
        let total = UsageTotal { input_tokens: 12_345, output_tokens: 340, ..Default::default() };
        let describe = |total: UsageTotal| total.describe().unwrap();
        assert_eq!(describe(total.clone()), "12.3k tokens in, 340 out");
        let cached = UsageTotal { cached_input_tokens: 5_600, ..total.clone() };
        assert_eq!(describe(cached), "12.3k tokens in (45% cached), 340 out");
        let cost = |cost| UsageTotal { total_cost_usd: Some(cost), ..total.clone() };
        assert_eq!(describe(cost(0.01234)), "12.3k tokens in, 340 out, 0.0123 USD");
        assert_eq!(describe(cost(1e-5)), "12.3k tokens in, 340 out, less than 0.0001 USD");
        assert_eq!(describe(cost(0.0)), "12.3k tokens in, 340 out, 0.0000 USD");
        let partial = UsageTotal { is_partial: true, ..total };
        assert_eq!(describe(partial), "at least 12.3k tokens in, 340 out");
        assert_eq!(UsageTotal::default().describe(), None);
    }
}
