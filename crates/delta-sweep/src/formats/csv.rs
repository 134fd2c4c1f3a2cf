//! Result lines as CSV (RFC 4180), for R, spreadsheets and DuckDB.

use crate::formats::grade::GradeLine;
use crate::formats::result_line::ResultLine;
use csv::{Terminator, WriterBuilder};
use delta_agent::tool::value_text;
use std::collections::BTreeSet;

/// The columns before and after the parameters.
const PLAN_COLUMNS: [&str; 7] = ["n", "id", "agent", "model", "input", "group", "repeat"];
const RESULT_COLUMNS: [&str; 24] = [
    "status",
    "error_type",
    "error",
    "settled",
    "attempts",
    "epoch",
    "iterations",
    "duration_ms",
    "throttled_ms",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "cost_usd",
    "saved_usd",
    "cache_breaks",
    "stored_answers",
    "answers_saved_usd",
    "answered_by",
    "outside",
    "result",
    "result_cut",
    "host",
    "ended_at",
];
/// The columns of numbers that a run need not have.
const NUMBERS_OR_NONE: [&str; 6] =
    ["duration_ms", "throttled_ms", "cost_usd", "saved_usd", "cache_breaks", "answers_saved_usd"];

/// The lines as CSV, with a header. Each parameter is a column `param.NAME`; each grader has the columns `score.NAME` and
/// `pass.NAME`, which `grades_of` fills in the order of `graders`.
pub fn to_csv<'a, 'g>(
    lines: impl Iterator<Item = &'a ResultLine> + Clone,
    graders: &[&str],
    grades_of: impl Fn(&ResultLine) -> Vec<Option<&'g GradeLine>>,
) -> String {
    let params: BTreeSet<&str> =
        lines.clone().flat_map(|line| line.params.keys().map(String::as_str)).collect();
    let mut header: Vec<String> = PLAN_COLUMNS.map(str::to_owned).to_vec();
    header.extend(params.iter().map(|name| format!("param.{name}")));
    header.extend(RESULT_COLUMNS.map(str::to_owned));
    header
        .extend(graders.iter().flat_map(|name| [format!("score.{name}"), format!("pass.{name}")]));
    let mut records: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let mut cells = record(line, &params);
        for grade in grades_of(line) {
            let score = grade.and_then(|grade| grade.score);
            let pass = grade.and_then(|grade| grade.pass);
            cells.push(score.map(|score| score.to_string()).unwrap_or_default());
            cells.push(pass.map(|pass| pass.to_string()).unwrap_or_default());
        }
        records.push(cells);
    }
    for (column, name) in header.iter().enumerate() {
        if !NUMBERS_OR_NONE.contains(&name.as_str()) && !name.starts_with("score.") {
            continue;
        }
        // A column without any number is a text for DuckDB.
        if records.iter().all(|cells| cells[column].is_empty()) {
            records.iter_mut().for_each(|cells| "NaN".clone_into(&mut cells[column]));
        }
    }
    // RFC 4180 ends lines with both characters.
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    for cells in [header].iter().chain(&records) {
        writer.write_record(cells).expect("memory takes every record");
    }
    let text = writer.into_inner().expect("memory takes every record");
    String::from_utf8(text).expect("cells are UTF-8")
}

fn record(line: &ResultLine, params: &BTreeSet<&str>) -> Vec<String> {
    let error = line.error.as_ref();
    let mut cells = vec![
        line.n.to_string(),
        line.id.to_string(),
        line.agent.clone(),
        line.model.clone(),
        line.input.clone(),
        line.group.clone().unwrap_or_default(),
        line.repeat.to_string(),
    ];
    cells.extend(
        params.iter().map(|name| line.params.get(*name).map(value_text).unwrap_or_default()),
    );
    let time = |time: u64| line.answers.map_or_else(|| time.to_string(), |_| String::new());
    let saved = line.answers.map_or(Some(0.0), |answers| answers.saved_usd);
    // A text verbatim, JSON with every digit.
    let result = line.result.as_ref().map(|result| {
        serde_json::from_str(result.get()).unwrap_or_else(|_| result.get().to_owned())
    });
    cells.extend([
        line.status.to_string(),
        error.map(|error| error.kind.clone()).unwrap_or_default(),
        error.map(|error| error.message.clone()).unwrap_or_default(),
        line.settled.to_string(),
        line.attempts.to_string(),
        line.epoch.to_string(),
        line.iterations.to_string(),
        time(line.duration_ms),
        time(line.throttled_ms),
        line.usage.input_tokens.to_string(),
        line.usage.cached_input_tokens.to_string(),
        line.usage.cache_write_tokens.to_string(),
        line.usage.output_tokens.to_string(),
        line.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
        line.saved_usd.map(|saved| saved.to_string()).unwrap_or_default(),
        line.cache_breaks.map(|breaks| breaks.to_string()).unwrap_or_default(),
        line.answers.map_or(0, |answers| answers.stored).to_string(),
        saved.map(|saved| saved.to_string()).unwrap_or_default(),
        list_cell(&line.answered_by),
        list_cell(&line.outside),
        result.unwrap_or_default(),
        line.result_cut.to_string(),
        line.host.clone(),
        line.ended_at.clone(),
    ]);
    cells
}

/// A list as JSON; empty without items.
fn list_cell(items: &[String]) -> String {
    if items.is_empty() { String::new() } else { delta_base::json::to_json(items) }
}
