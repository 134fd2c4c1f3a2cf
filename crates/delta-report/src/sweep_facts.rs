//! What a sweep knows of one of its runs: the members of its input, such as the expected answer, and its grades.

use delta_agent::tool::value_text;
use delta_base::checksum::{LineChecksum, check_line_checksum};
use delta_base::durable::{self, FileError};
use delta_base::id::RunId;
use delta_base::text::text_width::clip_to_width;
use delta_run::sweep::packed::sweep_of_workspace;
use delta_run::sweep::sweep_dir::{PlanFileError, SweepDir, lines_with_id, read_plan_files};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::cmp::Reverse;
use std::path::Path;

/// The members of an input that say what the run does, not what is expected of it.
const TASK_MEMBERS: [&str; 6] = ["id", "task", "files", "from", "tree", "group"];
/// How much of a value is in a line.
const VALUE_WIDTH: usize = 200;

/// What a sweep knows of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SweepRunFacts {
    /// The members of its input.
    pub input: Map<String, Json>,
    /// The answer of each grader of the newest plan.
    pub grades: Vec<RunGrade>,
}

/// The answer of a grader about a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunGrade {
    /// The name of the grader.
    pub grader: String,
    /// From 0 to 1; none if the run has no score.
    pub score: Option<f64>,
    /// Whether the run passed.
    pub pass: Option<bool>,
    /// The reason of the grader, or why the run is ungraded.
    pub why: Option<String>,
    /// The process whose result was graded; none if the run is not graded yet.
    #[serde(skip)]
    epoch: Option<u32>,
}

/// A line of `grades/`.
#[derive(Deserialize)]
struct RecordedGrade {
    id: String,
    grader: String,
    hash: String,
    epoch: u32,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    regrade: u32,
    #[serde(default)]
    score: Option<f64>,
    #[serde(default)]
    pass: Option<bool>,
    #[serde(default)]
    why: Option<String>,
    #[serde(default)]
    ungraded: Option<String>,
    at: String,
}

/// The inputs and graders in the header of a plan.
#[derive(Deserialize)]
struct PlannedHeader {
    inputs: String,
    #[serde(default)]
    grade: Vec<GraderName>,
}

#[derive(Deserialize)]
struct GraderName {
    name: String,
}

/// The input of a run in its plan.
#[derive(Deserialize)]
struct PlannedInput {
    id: String,
    input: String,
}

impl SweepRunFacts {
    /// Reads what the sweep of the run `id` in `workspace` knows; `None` if the run is not of a sweep. The workspace need not
    /// exist: the run may be packed.
    ///
    /// # Errors
    /// A file of the sweep cannot be read, or a plan was changed.
    pub fn read(workspace: &Path, id: &RunId) -> Result<Option<Self>, PlanFileError> {
        let Some((dir, _)) = sweep_of_workspace(workspace).filter(|(_, of_path)| of_path == id)
        else {
            return Ok(None);
        };
        let mut headers: Vec<PlannedHeader> = Vec::new();
        let mut planned: Option<(usize, PlannedInput)> = None;
        read_plan_files(&dir, |text| {
            let header = text.lines().next().unwrap_or_default();
            headers.push(serde_json::from_str(header).map_err(|error| format!("line 1: {error}"))?);
            for line in lines_with_id(text.as_bytes(), id.as_str()) {
                let line: PlannedInput =
                    serde_json::from_slice(line).map_err(|error| error.to_string())?;
                if line.id == id.as_str() {
                    planned = Some((headers.len() - 1, line));
                }
            }
            Ok(())
        })?;
        let Some((plan, PlannedInput { input, .. })) = planned else { return Ok(None) };
        let recorded = read_recorded_grades(&dir, id)?;
        let graders = headers.last().map_or(&[][..], |header| &header.grade);
        let grades = graders.iter().map(|grader| RunGrade::find(&grader.name, &recorded));
        let input = read_input(&dir, &headers[plan..], &input)?;
        Ok(Some(Self { input: input.unwrap_or_default(), grades: grades.collect() }))
    }

    /// Leaves out the grades of other processes than the last one, with this number: a run that was continued has a new
    /// result.
    #[must_use]
    pub fn at_epoch(mut self, epoch: u32) -> Self {
        for grade in &mut self.grades {
            if grade.epoch.is_some_and(|graded| graded != epoch) {
                *grade = RunGrade::missing(&grade.grader);
            }
        }
        self
    }

    /// A line for each grade, and for each member of the input that is not its task.
    pub fn to_lines(&self) -> Vec<String> {
        let grades = self.grades.iter().map(RunGrade::to_line);
        let members = self.input.iter().filter(|(name, _)| !TASK_MEMBERS.contains(&name.as_str()));
        let members = members.map(|(name, value)| {
            let value = value_text(value).replace(['\n', '\t'], " ");
            format!("input {name}: {}", clip_to_width(&value, VALUE_WIDTH))
        });
        grades.chain(members).collect()
    }
}

impl RunGrade {
    fn missing(grader: &str) -> Self {
        Self { grader: grader.to_owned(), score: None, pass: None, why: None, epoch: None }
    }

    /// The answer of the last form of a grader about the last result. Of several lines about it the one counts that
    /// `delta sweep` takes: the last regrade, of it a score, and of scores the first.
    fn find(grader: &str, recorded: &[RecordedGrade]) -> Self {
        let of_grader = recorded.iter().filter(|line| line.grader == grader);
        let Some(newest) = of_grader.clone().max_by_key(|line| (line.epoch, &line.at)) else {
            return Self::missing(grader);
        };
        let key = |line: &RecordedGrade| (line.epoch, line.hash.clone(), line.source.clone());
        let best = of_grader
            .filter(|line| key(line) == key(newest))
            .min_by_key(|line| (Reverse(line.regrade), line.score.is_none(), &line.at))
            .unwrap_or(newest);
        Self {
            grader: grader.to_owned(),
            score: best.score,
            pass: best.pass,
            why: best.why.clone().or_else(|| best.ungraded.clone()),
            epoch: Some(best.epoch),
        }
    }

    /// `grader right: not passed, score 0.00: ...`.
    fn to_line(&self) -> String {
        let outcome = match (self.score, self.epoch) {
            (Some(score), _) if self.pass == Some(true) => format!("passed, score {score:.2}"),
            (Some(score), _) => format!("not passed, score {score:.2}"),
            (None, Some(_)) => "ungraded".to_owned(),
            (None, None) => "not graded yet".to_owned(),
        };
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("grader {}: {outcome}{why}", self.grader)
    }
}

fn read_recorded_grades(dir: &SweepDir, id: &RunId) -> Result<Vec<RecordedGrade>, FileError> {
    let path = dir.grades();
    let entries = durable::read_dir_if_exists(&path)?;
    let mut grades = Vec::new();
    for entry in entries {
        let file = path.join(&entry.name);
        if file.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let bytes = durable::read_no_follow(&file).map_err(FileError::at("read", &file))?;
        let lines = lines_with_id(&bytes, id.as_str());
        let lines = lines.filter(|line| check_line_checksum(line) == LineChecksum::Valid);
        let lines = lines.filter_map(|line| serde_json::from_slice::<RecordedGrade>(line).ok());
        grades.extend(lines.filter(|line| line.id == id.as_str()));
    }
    Ok(grades)
}

/// The input as the newest of these plans has it, the first of which planned the run; one with another task is another input.
fn read_input(
    dir: &SweepDir,
    headers: &[PlannedHeader],
    id: &str,
) -> Result<Option<Map<String, Json>>, FileError> {
    let task = |input: &Map<String, Json>| {
        ["task", "files", "from", "tree"].map(|name| input.get(name).cloned())
    };
    let Some((first, later)) = headers.split_first() else { return Ok(None) };
    let planned = find_input(dir, &first.inputs, id)?;
    for header in later.iter().rev().take_while(|header| header.inputs != first.inputs) {
        let newer = find_input(dir, &header.inputs, id)?;
        if newer.as_ref().map(task) == planned.as_ref().map(task) {
            return Ok(newer);
        }
    }
    Ok(planned)
}

fn find_input(
    dir: &SweepDir,
    hash: &str,
    id: &str,
) -> Result<Option<Map<String, Json>>, FileError> {
    let path = dir.input_lines(hash);
    let text = durable::read_large_text(&path).map_err(FileError::at("read", &path))?;
    let member = delta_base::json::to_json(id);
    // An id may be written as a number.
    let mut lines =
        text.lines().filter(|line| line.contains(&member) || line.contains(&format!(":{id}")));
    Ok(lines.find_map(|line| {
        let input: Map<String, Json> = serde_json::from_str(line).ok()?;
        (value_text(input.get("id")?) == id).then_some(input)
    }))
}
