//! The lines of `results/`: what became of each run.
//!
//! A line is written after the end of its run is durable, and only repeats what the run directory says.
//! So nothing is lost with a line that is missing or torn, and a line that occurs twice does no harm.

use crate::formats::grade::GradeLine;
use crate::formats::plan::PlannedRun;
use crate::formats::retry_policy::is_infrastructure_error;
use delta_base::checksum::{LineChecksum, append_checksum, check_line_checksum};
use delta_base::id::RunId;
use delta_base::json::ExactJson;
use delta_run::event::RunStatus;
use delta_run::sweep::sweep_dir::lines_with_id;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::collections::HashMap;

/// The most bytes of a result in a line.
pub const MAX_RESULT_BYTES: usize = 4096;
/// From so many bytes on, two threads parse the lines of a file.
const MIN_PARALLEL_BYTES: usize = 4 << 20;
/// The error of a run whose processes died before it began: nothing but its line knows of it.
pub const START_ERROR: &str = "start";
/// The most bytes of an error message in a line.
const MAX_ERROR_BYTES: usize = 1024;

/// What became of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResultLine {
    /// The number of the run in the sweep.
    pub n: u64,
    /// Its id.
    pub id: RunId,
    /// The agent's name in the sweep.
    pub agent: String,
    /// The model's name in the sweep.
    pub model: String,
    /// The id of the input.
    pub input: String,
    /// The group of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// State that was not restored for an input that is a recorded run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// The number of the repeat.
    pub repeat: u32,
    /// The parameters.
    pub params: Map<String, Json>,
    /// The status of the run.
    pub status: RunStatus,
    /// The error of a run that FAILED or was INTERRUPTED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResultError>,
    /// Whether nothing is left to do about the run.
    pub settled: bool,
    /// How often the run FAILED with an error that is tried again.
    pub attempts: u32,
    /// The number of the process that worked on the run last.
    pub epoch: u32,
    /// LLM answers.
    pub iterations: u32,
    /// The time that processes worked on the run.
    pub duration_ms: u64,
    /// The part of it for which the endpoint refused requests because there were too many.
    #[serde(default)]
    pub throttled_ms: u64,
    /// Tokens of the run and of all runs below it.
    pub usage: ResultUsage,
    /// USD of the run and of all runs below it, null where the cost of a call is unknown.
    pub cost_usd: Option<f64>,
    /// What caches saved of it: what the same tokens would have cost without them is that much more. Null if it is not known.
    #[serde(default)]
    pub saved_usd: Option<f64>,
    /// How many requests of these runs paid again for input of the request before them, null if their records cannot be read.
    #[serde(default)]
    pub cache_breaks: Option<u64>,
    /// Where the answers came from; absent if no answer was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswerSources>,
    /// The models that the endpoint says have answered the run, if they are others than the one that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered_by: Vec<String>,
    /// The result of a COMPLETED run: a text or an object. A longer one is cut to a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Whether `result` is only the beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_cut: bool,
    /// The host that worked on the run last.
    pub host: String,
    /// When the run ended.
    pub ended_at: String,
}

/// Where the answers of a run came from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AnswerSources {
    /// Answers of the endpoint.
    pub asked: u32,
    /// Answers that another run of the sweep had stored.
    pub stored: u32,
    /// USD that the stored ones cost the other runs, null where a cost is unknown.
    pub saved_usd: Option<f64>,
}

/// The error of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultError {
    /// As in a RunResult: `llm`, `max_iterations`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// The message, at most 1 KiB of it.
    pub message: String,
}

impl ResultError {
    /// The error of a result line.
    pub fn new(kind: impl Into<String>, message: &str) -> Self {
        Self { kind: kind.into(), message: cut_text(message, MAX_ERROR_BYTES).to_owned() }
    }
}

/// The tokens of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultUsage {
    /// In requests.
    pub input_tokens: u64,
    /// The part of them that the endpoint read from its cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// The part of them that the endpoint wrote to its cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// In answers.
    pub output_tokens: u64,
}

impl ResultLine {
    /// Whether the run is settled because it FAILED as often as the plan allows, with errors that are not its agent's.
    pub fn failed_outside_of_agent(&self) -> bool {
        let kind = self.error.as_ref().map(|error| error.kind.as_str());
        self.settled
            && self.status == RunStatus::Failed
            && kind.is_some_and(is_infrastructure_error)
    }

    /// The time of the run without the time that it was throttled, in milliseconds; `None` with stored answers, which take none.
    pub fn unthrottled_ms(&self) -> Option<u64> {
        let duration = self.duration_ms.saturating_sub(self.throttled_ms);
        self.answers.is_none().then_some(duration)
    }

    /// USD that the run costs where no answer is stored.
    pub fn full_cost_usd(&self) -> Option<f64> {
        let saved = self.answers.map_or(Some(0.0), |answers| answers.saved_usd);
        self.cost_usd.zip(saved).map(|(cost, saved)| cost + saved)
    }

    /// A line with the fields of the plan, for a run that has done nothing yet.
    pub fn for_run(run: &PlannedRun, status: RunStatus) -> Self {
        Self {
            n: run.n,
            id: run.id.clone(),
            agent: run.agent.to_string(),
            model: run.model.to_string(),
            input: run.input.to_string(),
            group: run.group.as_ref().map(ToString::to_string),
            outside: run.outside.clone(),
            repeat: run.repeat,
            params: Map::clone(&run.params),
            status,
            error: None,
            settled: false,
            attempts: 0,
            epoch: 0,
            iterations: 0,
            duration_ms: 0,
            throttled_ms: 0,
            usage: ResultUsage::default(),
            cost_usd: None,
            saved_usd: None,
            cache_breaks: None,
            answers: None,
            answered_by: Vec::new(),
            result: None,
            result_cut: false,
            host: String::new(),
            ended_at: String::new(),
        }
    }

    /// The line of a run whose processes died before it began, so often and for this reason.
    pub fn for_unbegun_run(run: &PlannedRun, deaths: u32, reason: &str) -> Self {
        Self {
            error: Some(ResultError::new(START_ERROR, reason)),
            attempts: deaths,
            ..Self::for_run(run, RunStatus::Failed)
        }
    }

    /// Whether it is a line of [`ResultLine::for_unbegun_run`]: only a process that begins the run gives it an epoch.
    pub fn is_of_unbegun_run(&self) -> bool {
        self.epoch == 0 && self.error.as_ref().is_some_and(|error| error.kind == START_ERROR)
    }

    /// Sets the result, cut to what a line has room for.
    pub fn set_result(&mut self, result: &ExactJson) {
        let json = delta_base::json::to_json(result);
        self.result_cut = json.len() > MAX_RESULT_BYTES;
        let text = if self.result_cut {
            let text = result.as_str().unwrap_or(&json);
            delta_base::json::to_json(cut_text(text, MAX_RESULT_BYTES))
        } else {
            json
        };
        self.result = RawValue::from_string(text).ok();
    }

    /// The line as it is written, with its checksum and its newline.
    pub fn to_line(&self) -> String {
        append_checksum(delta_base::json::to_json(self) + "\n")
    }

    /// The line with the grades of the run under `grades`, for other programs.
    pub fn to_graded_line(&self, grades: &[Option<&GradeLine>]) -> String {
        /// What a grade adds to the line of its run.
        #[derive(Serialize)]
        struct GradedLine<'a> {
            #[serde(flatten)]
            line: &'a ResultLine,
            #[serde(skip_serializing_if = "Map::is_empty")]
            grades: Map<String, Json>,
        }
        let grades = grades.iter().flatten().map(|grade| (grade.grader.clone(), grade.to_json()));
        delta_base::json::to_json(&GradedLine { line: self, grades: grades.collect() }) + "\n"
    }

    /// Reads a line with its newline; `None` if it is torn or was changed.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if check_line_checksum(line) != LineChecksum::Valid {
            return None;
        }
        serde_json::from_slice(line).ok()
    }

    /// Whether this line says more than `other`, a line of the same run.
    pub fn supersedes(&self, other: &Self) -> bool {
        (self.epoch, self.settled, self.attempts) > (other.epoch, other.settled, other.attempts)
    }
}

pub(crate) fn cut_text(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The last line of each run, of all hosts.
#[derive(Debug, Default)]
pub struct SweepResults {
    /// The lines by the ids of their runs.
    pub lines: HashMap<RunId, ResultLine>,
    /// How many lines were torn or changed, and are left out.
    pub damaged: u64,
}

impl SweepResults {
    /// Adds what a file has; returns how many bytes were complete lines. What follows them is still being written, or torn.
    pub fn add_file(&mut self, bytes: &[u8]) -> usize {
        let length = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        let lines = &bytes[..length];
        if length < MIN_PARALLEL_BYTES {
            self.add_lines(lines);
            return length;
        }
        // Parsing is most of what `status` does in a sweep of many runs.
        let middle = lines[length / 2..].iter().position(|byte| *byte == b'\n');
        let (first, second) = lines.split_at(middle.map_or(length, |at| length / 2 + at + 1));
        let later = std::thread::scope(|scope| {
            let parsing = scope.spawn(|| {
                let mut later = Self::default();
                later.add_lines(second);
                later
            });
            self.add_lines(first);
            parsing.join()
        });
        match later {
            Ok(later) => {
                self.damaged += later.damaged;
                later.lines.into_values().for_each(|line| self.add(line));
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
        length
    }

    /// Adds of what a file has the lines of one run; returns how many bytes were complete lines.
    pub fn add_run_of_file(&mut self, bytes: &[u8], id: &str) -> usize {
        let length = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        for line in lines_with_id(&bytes[..length], id) {
            self.add_lines(line);
        }
        length
    }

    fn add_lines(&mut self, lines: &[u8]) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match ResultLine::parse(line) {
                Some(line) => self.add(line),
                None => self.damaged += 1,
            }
        }
    }

    /// Adds a line, unless a better one of its run is known.
    pub fn add(&mut self, line: ResultLine) {
        match self.lines.get(&line.id) {
            Some(known) if !line.supersedes(known) => {}
            _ => {
                self.lines.insert(line.id.clone(), line);
            }
        }
    }

    /// Whether the run is settled.
    pub fn is_settled(&self, id: &RunId) -> bool {
        self.lines.get(id).is_some_and(|line| line.settled)
    }
}
