//! The data of the page of a sweep: its tables, and all runs in few bytes.

use crate::formats::result_line::ResultLine;
use crate::scores::pair_table::{InputsView, PairedRow, compare_values};
use crate::scores::score_table::{ScoreRow, ScoredRun, score_rows};
use crate::scores::setting_race::RaceStops;
use crate::scores::setting_table::mark_dominated;
use delta_agent::tool::value_text;
use serde_json::{Map, Value as Json, json};
use std::collections::{HashMap, HashSet};

/// The most bytes of a reason: the message of an error, or what a grader said.
const MAX_NOTE_BYTES: usize = 300;

/// What the page says besides the runs.
#[derive(Debug, Clone)]
pub struct PageHead<'a> {
    /// The name of the sweep.
    pub name: &'a str,
    /// Its directory, absolute.
    pub dir: &'a str,
    /// The grader whose scores count.
    pub grader: Option<&'a str>,
    /// When the page was made.
    pub made_at: String,
    /// The version of delta.
    pub version: &'a str,
    /// The directory with the pages of runs, relative to the page.
    pub pages: &'a str,
    /// The seed of resamples.
    pub seed: u64,
}

/// What commands have found in the sweep.
#[derive(Debug, Default)]
pub struct PageFindings {
    /// The last verdict of a gate; null without one.
    pub gate: Json,
    /// Where runs were lost.
    pub losses: Vec<Json>,
    /// What the last race has stopped.
    pub stops: Option<RaceStops>,
}

/// The data of the page, as JSON. `keys` are compared, each in a table of its own; `paged` has the ids of the runs with a page
/// in the directory of [`PageHead::pages`].
pub fn page_data(
    head: &PageHead<'_>,
    runs: &[ScoredRun<'_>],
    keys: &[String],
    paged: &HashSet<&str>,
    findings: &PageFindings,
) -> Json {
    let marked_rows = |keys: &[String]| {
        let mut rows: Vec<ScoreRow> = score_rows(runs, keys, head.seed);
        mark_dominated(&mut rows, runs, keys, None);
        if let Some(stops) = &findings.stops {
            stops.mark(&mut rows);
        }
        rows
    };
    let tables: Vec<Json> = keys
        .iter()
        .map(|key| {
            let comparisons = compare_values(runs, key, head.seed, InputsView::Sampled).ok();
            let comparisons: Option<Vec<Json>> =
                comparisons.map(|rows| rows.iter().map(PairedRow::to_json).collect());
            let rows = marked_rows(std::slice::from_ref(key));
            json!({"by": key, "rows": rows, "comparisons": comparisons})
        })
        .collect();
    let mut names = NameTable::default();
    let mut params = NameTable::default();
    let mut param_values: Vec<Json> = Vec::new();
    let mut lines: Vec<Json> = Vec::with_capacity(runs.len());
    for run in runs {
        let index = params.index(&Json::Object(Map::clone(&run.run.params)).to_string());
        if index == param_values.len() {
            param_values.push(params_json(&run.run.params));
        }
        lines.push(run_row(run, &mut names, index, paged.contains(run.run.id.as_str())));
    }
    json!({
        "name": head.name,
        "dir": head.dir,
        "grader": head.grader,
        "made_at": head.made_at,
        "version": head.version,
        "tables": tables,
        "combinations": marked_rows(keys),
        "gate": findings.gate,
        "losses": findings.losses,
        "pages": head.pages,
        "names": names.names,
        "params": param_values,
        "runs": lines,
    })
}

/// A run as the script of the page reads it.
fn run_row(scored: &ScoredRun<'_>, names: &mut NameTable, params: usize, has_page: bool) -> Json {
    let run = scored.run;
    let line = scored.line;
    let reason = failure_reason(scored);
    json!([
        run.id.as_str(),
        names.index(&scored.agent),
        names.index(&run.model),
        names.index(&run.input),
        run.group.as_deref().map(|group| names.index(group)),
        run.repeat,
        params,
        line.map(|line| line.status),
        scored.score.as_ref().ok().map(|score| score.score),
        u8::from(scored.score.as_ref().is_ok_and(|score| score.pass)),
        scored.score.as_ref().err(),
        reason.map(|(kind, _)| names.index(kind)),
        reason.map(|(_, note)| names.index(note)),
        line.map(|line| line.iterations),
        line.and_then(ResultLine::unthrottled_ms).map(|time| time as f64 / 1000.0),
        line.and_then(|line| line.cost_usd),
        line.map(|line| line.usage.input_tokens + line.usage.output_tokens),
        u8::from(has_page),
    ])
}

/// The kind of failure of a run, and the first line of the reason; none for a run that passed, or that has no result.
fn failure_reason<'a>(scored: &ScoredRun<'a>) -> Option<(&'a str, &'a str)> {
    let first_line = |text: Option<&'a str>| {
        let first = text.unwrap_or_default().lines().next().unwrap_or_default();
        crate::formats::result_line::cut_text(first, MAX_NOTE_BYTES)
    };
    if let Some(error) = scored.line.and_then(|line| line.error.as_ref()) {
        return Some((&error.kind, first_line(Some(&error.message))));
    }
    let grade = scored.grade?;
    match grade.score {
        None => Some(("ungraded", first_line(grade.ungraded.as_deref()))),
        Some(_) if grade.pass == Some(true) => None,
        Some(_) => Some(("not passed", first_line(grade.why.as_deref()))),
    }
}

/// The parameters as pairs of texts.
fn params_json(params: &Map<String, Json>) -> Json {
    params.iter().map(|(name, value)| json!([name, value_text(value)])).collect()
}

/// Texts that many runs have, each once.
#[derive(Default)]
struct NameTable {
    names: Vec<String>,
    indexes: HashMap<String, usize>,
}

impl NameTable {
    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        let index = self.names.len();
        self.names.push(name.to_owned());
        self.indexes.insert(name.to_owned(), index);
        index
    }
}
