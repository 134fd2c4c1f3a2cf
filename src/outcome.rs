//! RunResult v2.0: what a run came to, computed from its state.

use crate::event::{InputType, RunStatus};
use crate::llm::config::ModelChoice;
use crate::run::RunMetadata;
use crate::state::RunState;
use crate::text::{path_word, shell_word};
use crate::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where ENGINE_START has, beside what `llm` is, the `--model` that said so.
pub const MODEL_OPTION: &str = "option";

/// The version of the schema.
const SCHEMA_VERSION: &str = "2.0";

/// The result of a process's work on a run, or why there is none.
#[derive(Debug, Clone, Serialize)]
pub struct RunResult {
    /// Of this schema.
    pub schema_version: &'static str,
    /// The run; null when none was made.
    pub run_id: Option<String>,
    /// How it stands.
    pub status: RunStatus,
    /// The result, when COMPLETED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// Why there is none, when FAILED or INTERRUPTED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// The question, when WAITING_FOR_INPUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interaction: Option<Interaction>,
    /// What it took.
    pub metrics: Metrics,
    /// What it was.
    pub metadata: Metadata,
    /// The answers of people that the format for people does not show.
    #[serde(skip)]
    pub sensitive: Vec<String>,
}

/// Why there is no result.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorInfo {
    /// A word for programs: `config`, `llm`, `max_iterations`, `interrupted`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// A sentence for people.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// What a person is asked.
#[derive(Debug, Clone, Serialize)]
pub struct Interaction {
    /// The question.
    pub prompt: String,
    /// The kind of answer.
    pub input_type: InputType,
    /// Whether the answer is hidden from the screen.
    pub sensitive: bool,
}

/// What it took.
#[derive(Debug, Clone, Serialize)]
pub struct Metrics {
    /// LLM answers, of all processes.
    pub iterations: u32,
    /// From the first event of this process to its last, in milliseconds.
    pub duration_ms: u64,
    /// When this process took up the run.
    pub start_time: Timestamp,
    /// When it left it.
    pub end_time: Timestamp,
    /// Tokens and cost of all processes.
    pub usage: UsageTotal,
}

/// Tokens and cost.
#[derive(Debug, Clone, Default, Serialize)]
pub struct UsageTotal {
    /// USD; null when it is not known.
    pub total_cost_usd: Option<f64>,
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// The same for each model, with the cached part of its input.
    pub model_usage: Map<String, Json>,
}

/// What it was.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// The agent's name.
    pub agent_name: String,
    /// The workspace, absolute.
    pub workspace_path: String,
}

impl RunResult {
    /// The result of a run that has at least its ENGINE_START.
    pub fn of(state: &RunState) -> Option<Self> {
        let metadata = RunMetadata::of(state)?;
        let status = metadata.status;
        let (start_time, end_time) = (state.started_at?, state.worked_until?);
        Some(Self {
            schema_version: SCHEMA_VERSION,
            run_id: Some(metadata.run_id),
            status,
            result: state.result.clone().filter(|_| status == RunStatus::Completed),
            error: error_of(state, status),
            interaction: state.question().filter(|_| status == RunStatus::WaitingForInput).map(
                |question| Interaction {
                    prompt: question.prompt.clone(),
                    input_type: question.input_type,
                    sensitive: question.sensitive,
                },
            ),
            metrics: Metrics {
                iterations: state.iterations,
                duration_ms: u64::try_from(end_time.millis() - start_time.millis()).unwrap_or(0),
                start_time,
                end_time,
                usage: usage_of(state),
            },
            metadata: Metadata {
                agent_name: metadata.agent_name,
                workspace_path: metadata.work_dir,
            },
            sensitive: state.sensitive.clone(),
        })
    }

    /// The result of a command that ended before, or outside of, a run.
    pub fn without_run(
        run_id: Option<String>,
        status: RunStatus,
        error: ErrorInfo,
        now: Timestamp,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            status,
            result: None,
            error: Some(error),
            interaction: None,
            metrics: Metrics {
                iterations: 0,
                duration_ms: 0,
                start_time: now,
                end_time: now,
                usage: UsageTotal::default(),
            },
            metadata: Metadata { agent_name: String::new(), workspace_path: String::new() },
            sensitive: Vec::new(),
        }
    }
}

fn error_of(state: &RunState, status: RunStatus) -> Option<ErrorInfo> {
    let next = GoOn::of(state).to_string();
    match (status, &state.error) {
        (RunStatus::Failed, Some((message, details))) => {
            // Nobody answered: the question is still open.
            let again = || state.question().map(|_| format!("`{next} -i` asks again"));
            Some(ErrorInfo {
                kind: details.kind.clone(),
                message: message.clone(),
                details: details.hint.clone().or_else(again),
            })
        }
        (RunStatus::Interrupted, _) => Some(ErrorInfo {
            kind: "interrupted".to_owned(),
            message: "the run was interrupted".to_owned(),
            details: Some(format!("`{next}` goes on where it stopped")),
        }),
        _ => None,
    }
}

/// The command that goes on with a run as its last process did: every hint is made here.
#[derive(Debug, Clone)]
pub struct GoOn {
    id: String,
    work_dir: PathBuf,
    /// The `--model`.
    model: Option<String>,
    message: Option<String>,
}

impl GoOn {
    /// For a run where its last process had it, with the `--model` that it had.
    pub fn of(state: &RunState) -> Self {
        let start = state.start.as_ref();
        let model = start.and_then(|start| start.config.get("llm")?.get(MODEL_OPTION)?.as_str());
        Self {
            id: start.map_or_else(|| "RUN".to_owned(), |start| start.run_id.clone()),
            work_dir: start.map_or_else(|| ".".into(), |start| PathBuf::from(&start.work_dir)),
            model: model.map(str::to_owned),
            message: None,
        }
    }

    /// For a run whose workspace a person calls so.
    #[must_use]
    pub fn at(self, work_dir: &Path) -> Self {
        Self { work_dir: work_dir.to_owned(), ..self }
    }

    /// With another `--model`, if one is given.
    #[must_use]
    pub fn asking(self, model: Option<&ModelChoice>) -> Self {
        Self { model: model.map(ToString::to_string).or(self.model), ..self }
    }

    /// With a message.
    #[must_use]
    pub fn saying(self, message: &str) -> Self {
        Self { message: Some(message.to_owned()), ..self }
    }
}

impl fmt::Display for GoOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta continue --run-id {} -w {}", self.id, path_word(&self.work_dir))?;
        self.model.iter().try_for_each(|model| write!(f, " --model {}", shell_word(model)))?;
        self.message.iter().try_for_each(|message| write!(f, " -m {}", prose_word(message)))
    }
}

/// A message as a word of a command line, as a person would quote it.
fn prose_word(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_alphanumeric() || " ,.".contains(c));
    if is_plain && text.contains(' ') { format!("\"{text}\"") } else { shell_word(text) }
}

fn usage_of(state: &RunState) -> UsageTotal {
    let mut total = UsageTotal::default();
    for usage in &state.usage {
        total.input_tokens += usage.input_tokens;
        total.output_tokens += usage.output_tokens;
        total.model_usage.insert(
            usage.model.clone(),
            json!({
                "input_tokens": usage.input_tokens,
                "cached_input_tokens": usage.cached_input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": usage.cost_usd.map(usd),
            }),
        );
    }
    // The sum is known only when every part of it is.
    let costs: Option<Vec<f64>> = state.usage.iter().map(|usage| usage.cost_usd).collect();
    total.total_cost_usd = costs
        .filter(|costs| !costs.is_empty() && !state.unmetered)
        .map(|costs| usd(costs.iter().sum()));
    total
}

/// An amount without the dust of binary fractions.
fn usd(amount: f64) -> f64 {
    (amount * 1e12).round() / 1e12
}
