//! The data of the page of a sweep: its tables, and all runs in few bytes.

use crate::plan::PlannedRun;
use crate::score_table::{PairedRow, ScoreRow, ScoredRun, compare_values, score_rows};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// The most bytes of a message of an error.
const MAX_MESSAGE_BYTES: usize = 200;

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
    /// The seed of resamples.
    pub seed: u64,
}

/// The data of the page, as JSON. `keys` are compared, each in a table of its own; `page_of` is the link to the page of a
/// run.
pub fn page_data(
    head: &PageHead<'_>,
    runs: &[ScoredRun<'_>],
    keys: &[String],
    page_of: impl Fn(&PlannedRun) -> Option<String>,
) -> Json {
    let tables: Vec<Json> = keys
        .iter()
        .map(|key| {
            let comparisons: Vec<Json> =
                compare_values(runs, key, head.seed).iter().map(PairedRow::to_json).collect();
            let rows: Vec<ScoreRow> = score_rows(runs, std::slice::from_ref(key), head.seed);
            json!({"by": key, "rows": rows, "comparisons": comparisons})
        })
        .collect();
    let mut names = NameTable::default();
    let mut params = NameTable::default();
    let lines: Vec<Json> =
        runs.iter().map(|run| run_row(run, &mut names, &mut params, page_of(run.run))).collect();
    json!({
        "name": head.name,
        "dir": head.dir,
        "grader": head.grader,
        "made_at": head.made_at,
        "version": head.version,
        "tables": tables,
        "combinations": score_rows(runs, keys, head.seed),
        "names": names.names,
        "params": params.names,
        "runs": lines,
    })
}

/// A run as the script of the page reads it.
fn run_row(
    scored: &ScoredRun<'_>,
    names: &mut NameTable,
    params: &mut NameTable,
    page: Option<String>,
) -> Json {
    let run = scored.run;
    let line = scored.line;
    let error = line.and_then(|line| line.error.as_ref());
    let message = error.map(|error| {
        let first = error.message.lines().next().unwrap_or_default();
        crate::result_line::cut_text(first, MAX_MESSAGE_BYTES)
    });
    json!([
        run.id.as_str(),
        names.index(&scored.agent),
        names.index(&run.model),
        names.index(&run.input),
        run.group.as_deref().map(|group| names.index(group)),
        run.repeat,
        params.index(&params_text(&run.params)),
        line.map(|line| line.status),
        scored.score.as_ref().ok().map(|score| score.score),
        scored.score.as_ref().is_ok_and(|score| score.pass),
        scored.score.as_ref().err().map(|missing| missing.0.as_str()),
        error.map(|error| error.kind.as_str()),
        message,
        line.map(|line| line.iterations),
        line.map(|line| line.duration_ms.saturating_sub(line.throttled_ms) as f64 / 1000.0),
        line.and_then(|line| line.cost_usd),
        line.map(|line| line.usage.input_tokens + line.usage.output_tokens),
        page,
    ])
}

fn params_text(params: &Map<String, Json>) -> String {
    let values = params.iter().map(|(name, value)| match value {
        Json::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    });
    values.collect::<Vec<_>>().join(" ")
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
