//! Grades: the score that a grader gives a run, and the lines of `grades/` that keep it.
//!
//! A grader gives a score from 0 to 1. Whatever else it does leaves the run *ungraded*, which is not a 0: the failure of
//! a grader is not the failure of an agent.

use crate::formats::result_line::cut_text;
use delta_base::checksum::{LineChecksum, append_checksum, check_line_checksum};
use delta_base::id::RunId;
use delta_base::suggest::nearest_names;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The most bytes of a reason in a line.
const MAX_WHY_BYTES: usize = 1024;
/// The score from which a run counts as passed if the grader has no `pass`.
const PASSING_SCORE: f64 = 1.0;
/// What a command that grades has to print.
const GRADE_HELP: &str =
    "print `{\"score\": 0.5}`, with a score from 0 to 1, after all other output";

/// The score that a grader gives a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Grade {
    /// From 0 to 1.
    pub score: f64,
    /// Whether the run passed.
    pub pass: bool,
    /// The grader's reason.
    pub why: Option<String>,
}

impl Grade {
    /// Full score or none.
    pub fn passed(pass: bool, why: Option<String>) -> Self {
        Self { score: if pass { 1.0 } else { 0.0 }, pass, why }
    }

    /// Reads `{"score": 0..1, "pass"?, "why"?}`.
    ///
    /// # Errors
    /// Why it is not a grade.
    pub fn from_json(value: &Json) -> Result<Self, String> {
        let score = value.get("score").ok_or("it has no `score`")?;
        let score = score
            .as_f64()
            .filter(|score| (0.0..=1.0).contains(score))
            .ok_or_else(|| format!("expected a `score` from 0 to 1, found {score}"))?;
        let pass = match value.get("pass") {
            None | Some(Json::Null) => score >= PASSING_SCORE,
            Some(Json::Bool(pass)) => *pass,
            Some(other) => return Err(format!("expected `pass` true or false, found {other}")),
        };
        check_misspelled_pass(value)?;
        let why = value.get("why").and_then(Json::as_str).map(str::to_owned);
        Ok(Self { score, pass, why })
    }

    /// The grade of a command that has exited: the JSON object with which its output ends, or else, if no line of it
    /// starts with `{`, its exit code, 0 for a pass and 1 for none. The reason is its last line of output; without one, the
    /// last line of standard error, unless the run passed.
    ///
    /// # Errors
    /// Why the run is ungraded.
    pub fn from_command(
        exit_code: Option<i32>,
        stdout: &str,
        stderr: &str,
    ) -> Result<Self, String> {
        let last = last_line(stdout);
        let Some(code @ (0 | 1)) = exit_code else {
            let reason = last_line(stderr).or(last).unwrap_or("it printed nothing");
            return Err(match exit_code {
                Some(code) => format!("the grader exited with {code}: {reason}"),
                None => format!("the grader was killed: {reason}"),
            });
        };
        let Some(object) = parse_last_object(stdout) else {
            // A Python program that fails before it grades ends with 1 too.
            let why = last.or_else(|| last_line(stderr).filter(|_| code != 0));
            return Ok(Self::passed(code == 0, why.map(str::to_owned)));
        };
        let grade = object.and_then(|value| Self::from_json(&value)).map_err(|error| {
            let words = last_line(stderr).map_or_else(String::new, |line| format!("; {line}"));
            format!("the output of the grader does not end with a grade: {error}{words}")
        })?;
        // The JSON may be what the agent wrote, and a test has failed after it.
        if code == 1 && grade.pass {
            return Err("the grader exited with 1, and its grade is a pass".to_owned());
        }
        Ok(grade)
    }
}

/// The JSON object that is the grade of a command: its output ends with it, and it is on the last line or has a `score`. `None` if
/// the output has none.
///
/// # Errors
/// Something else follows it, or it is cut off.
fn parse_last_object(output: &str) -> Option<Result<Json, String>> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in output.split_inclusive('\n') {
        // Some programs begin their output with a byte order mark.
        let text = line.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace());
        if text.starts_with('{') {
            starts.push(&output[at + line.len() - text.len()..]);
        }
        at += line.len();
    }
    let last_object = starts.iter().rev().find_map(|text| {
        let object: Json = serde_json::from_str(text).ok()?;
        let is_on_last_line = !text.trim_end().contains('\n');
        (is_on_last_line || object.get("score").is_some()).then_some(object)
    });
    if let Some(object) = last_object {
        return Some(Ok(object));
    }
    // A log may have lines in braces.
    let cut_object = starts.into_iter().rev().find(|text| {
        let is_on_last_line = !text.trim_end().contains('\n');
        is_on_last_line || text.contains("\"score\"")
    })?;
    Some(parse_grade_text(cut_object).map_err(|error| format!("{error}; {GRADE_HELP}")))
}

/// Reads the JSON of a grade.
///
/// # Errors
/// It is not JSON: some programs print a NaN or an infinity as if it were.
pub fn parse_grade_text(text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|error| {
        let words = text.split(|c: char| !c.is_ascii_alphabetic());
        match words.into_iter().find(|word| matches!(*word, "NaN" | "nan" | "Infinity" | "inf")) {
            Some(word) => format!("a score is a finite number from 0 to 1, and `{word}` is none"),
            None => error.to_string(),
        }
    })
}

/// Refuses a member that means `pass` and has a name close to it: `{"score": 1, "pas": false}` would count as
/// passed. Other members are details of the grader.
fn check_misspelled_pass(value: &Json) -> Result<(), String> {
    if value.get("pass").is_some() {
        return Ok(());
    }
    let members = value.as_object().into_iter().flatten();
    let flags = members.filter(|(_, value)| value.is_boolean()).map(|(name, _)| name);
    match flags.into_iter().find(|name| !nearest_names(name, ["pass"]).is_empty()) {
        Some(name) => Err(format!("unknown member `{name}`: did you mean `pass`?")),
        None => Ok(()),
    }
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

fn is_first(regrade: &u32) -> bool {
    *regrade == 0
}

/// A line of `grades/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GradeLine {
    /// The run.
    pub id: RunId,
    /// The name of the grader.
    pub grader: String,
    /// What the grader is: another hash is another grader.
    pub hash: String,
    /// The process whose result was graded: a run that was continued is graded again.
    pub epoch: u32,
    /// What the grader got of the input, as [`crate::formats::grade_source::grade_source`]. Lines of earlier versions have none: their
    /// graders got the input as it was when the run was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How often a person had asked for the grade again.
    #[serde(default, skip_serializing_if = "is_first")]
    pub regrade: u32,
    /// From 0 to 1, absent if the run is ungraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Whether the run passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<bool>,
    /// The grader's reason, at most 1 KiB of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why the run is ungraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ungraded: Option<String>,
    /// When.
    pub at: String,
}

impl GradeLine {
    /// A line for what a grader said.
    pub fn new(key: &GradeKey, grade: Result<Grade, String>, at: String) -> Self {
        let line = Self {
            id: key.id.clone(),
            grader: key.grader.clone(),
            hash: key.hash.clone(),
            epoch: key.epoch,
            source: key.source.clone(),
            regrade: 0,
            score: None,
            pass: None,
            why: None,
            ungraded: None,
            at,
        };
        let cut = |text: &str| cut_text(text, MAX_WHY_BYTES).to_owned();
        match grade {
            Ok(grade) => Self {
                score: Some(grade.score),
                pass: Some(grade.pass),
                why: grade.why.as_deref().map(cut),
                ..line
            },
            Err(reason) => Self { ungraded: Some(cut(&reason)), ..line },
        }
    }

    /// The line as it is written, with its checksum and its newline.
    pub fn to_line(&self) -> String {
        append_checksum(delta_base::json::to_json(self) + "\n")
    }

    /// What the grader said: `score`, `pass` and `why`, or `ungraded`.
    pub fn to_json(&self) -> Json {
        match &self.ungraded {
            Some(reason) => json!({"ungraded": reason}),
            None => json!({"score": self.score, "pass": self.pass, "why": self.why}),
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        if check_line_checksum(line) != LineChecksum::Valid {
            return None;
        }
        serde_json::from_slice(line).ok()
    }

    fn key(&self) -> GradeKey {
        GradeKey {
            id: self.id.clone(),
            grader: self.grader.clone(),
            hash: self.hash.clone(),
            epoch: self.epoch,
            source: self.source.clone(),
        }
    }

    /// Which of two lines of a result counts, the smallest: the last regrade, and of it a score before "ungraded", and of
    /// two scores the first, on every machine.
    fn rank(&self) -> impl Ord {
        (Reverse(self.regrade), self.score.is_none(), self.at.clone())
    }
}

/// Which result was graded, and by which grader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GradeKey {
    /// The run.
    pub id: RunId,
    /// The name of the grader.
    pub grader: String,
    /// What the grader is.
    pub hash: String,
    /// The process whose result it is.
    pub epoch: u32,
    /// What the grader got of the input; `None` in lines of earlier versions.
    pub source: Option<String>,
}

/// All grades of a sweep.
#[derive(Debug, Default)]
pub struct SweepGrades {
    lines: HashMap<GradeKey, GradeLine>,
}

impl SweepGrades {
    /// Adds the lines of a file. Torn and changed lines are left out: their runs are graded again.
    pub fn add_file(&mut self, bytes: &[u8]) {
        bytes.split_inclusive(|byte| *byte == b'\n').filter_map(GradeLine::parse).for_each(
            |line| {
                self.add(line);
            },
        );
    }

    /// Adds a line, unless the known one of its result counts more.
    pub fn add(&mut self, line: GradeLine) {
        match self.lines.get(&line.key()) {
            Some(known) if known.rank() <= line.rank() => {}
            _ => {
                self.lines.insert(line.key(), line);
            }
        }
    }

    /// The grade of a result. With `is_planned_input`, the grader gets the input as it was when the run was planned, as the
    /// graders of lines without a source did.
    pub fn get(&self, key: &GradeKey, is_planned_input: bool) -> Option<&GradeLine> {
        let earlier = is_planned_input.then(|| GradeKey { source: None, ..key.clone() });
        let earlier = earlier.and_then(|key| self.lines.get(&key));
        let lines = self.lines.get(key).into_iter().chain(earlier);
        lines.min_by_key(|line| line.rank())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graded(code: i32, stdout: &str) -> Result<f64, String> {
        Grade::from_command(Some(code), stdout, "").map(|grade| grade.score)
    }

    #[test]
    fn c_26_3_only_a_grade_is_a_grade() {
        assert_eq!(graded(0, ""), Ok(1.0));
        assert_eq!(graded(1, "2 tests failed\n"), Ok(0.0));
        assert_eq!(graded(0, "log\n{\"score\": 0.25}\n\n"), Ok(0.25));
        assert_eq!(graded(1, "{\"score\": 0.25}"), Ok(0.25));
        for (code, stdout) in [
            (2, ""),
            (127, "{\"score\": 1}"),
            (0, "{\"score\": 1.01}"),
            (0, "{\"score\": -0.1}"),
            (0, "{\"score\": \"1\"}"),
            (0, "{\"score\": 1"),
            (0, "{\"points\": 1}"),
            (0, "{\"score\": 1, \"pass\": 1}"),
            (0, "{\"score\": 1, \"pas\": false}"),
            (0, "{\"score\": 1, \"passed\": false}"),
        ] {
            assert!(graded(code, stdout).is_err(), "{code} {stdout}");
        }
        assert!(Grade::from_command(None, "{\"score\": 1}", "").is_err());
    }

    /// A grader in Python that failed with a traceback was a 0 without a reason.
    #[test]
    fn c_26_3_what_a_grader_prints_to_stderr_is_the_reason_of_a_grade_that_is_no_pass() {
        let stderr = "Traceback (most recent call last):\nKeyError: 'answer'\n";
        let why = |code, stdout: &str| {
            Grade::from_command(Some(code), stdout, stderr).map(|grade| grade.why)
        };
        assert_eq!(why(1, ""), Ok(Some("KeyError: 'answer'".to_owned())));
        assert_eq!(why(1, "2 of 3\n"), Ok(Some("2 of 3".to_owned())));
        assert_eq!(why(0, ""), Ok(None));
        assert_eq!(
            why(3, "{\"score\": 1}"),
            Err("the grader exited with 3: KeyError: 'answer'".to_owned())
        );
        assert!(why(0, "{\"score\": 2}").unwrap_err().ends_with("; KeyError: 'answer'"));
    }

    #[test]
    fn a_grade_is_kept_over_a_failure_of_the_grader() {
        let id = RunId::parse("a.00").unwrap();
        let key =
            GradeKey { id, grader: "g".to_owned(), hash: "h".to_owned(), epoch: 1, source: None };
        let line = |grade, at: &str| GradeLine::new(&key, grade, at.to_owned());
        let lines = [
            line(Err("no disk".to_owned()), "1"),
            line(Ok(Grade::passed(true, None)), "3"),
            line(Ok(Grade::passed(false, None)), "4"),
        ];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut grades = SweepGrades::default();
            for index in order {
                grades.add_file(lines[index].to_line().as_bytes());
            }
            assert_eq!(grades.get(&key, false).unwrap().score, Some(1.0), "{order:?}");
            let torn = lines[1].to_line();
            grades.add_file(&torn.as_bytes()[..torn.len() - 2]);
            let later = GradeKey { epoch: 2, ..key.clone() };
            assert!(grades.get(&later, true).is_none(), "a continued run is graded again");
        }
    }

    #[test]
    fn a_line_without_a_source_counts_for_the_planned_input_and_a_regrade_over_all() {
        let id = RunId::parse("a.00").unwrap();
        let old =
            GradeKey { id, grader: "g".to_owned(), hash: "h".to_owned(), epoch: 1, source: None };
        let new = GradeKey { source: Some("s".to_owned()), ..old.clone() };
        let mut grades = SweepGrades::default();
        grades.add(GradeLine::new(&old, Ok(Grade::passed(true, None)), "1".to_owned()));
        assert!(grades.get(&new, false).is_none());
        assert_eq!(grades.get(&new, true).unwrap().score, Some(1.0));
        let again = GradeLine::new(&new, Err("no disk".to_owned()), "2".to_owned());
        grades.add(GradeLine { regrade: 1, ..again });
        assert_eq!(grades.get(&new, true).unwrap().score, None);
        let text = grades.get(&new, true).unwrap().to_line();
        assert_eq!(GradeLine::parse(text.as_bytes()).unwrap().regrade, 1);
    }
}
