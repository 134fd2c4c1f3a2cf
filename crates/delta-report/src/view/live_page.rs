//! The page of active runs: what has changed since a browser last asked.
//!
//! Each part of the page, an iteration or a message of a request, has the version in which it last changed. So an update
//! has only what is new, for any number of browsers.

use super::page_redaction::hide_answers;
use super::{PageOptions, assemble_page, collect_runs, escape_json_for_html};
use delta_base::json;
use delta_base::redact::HiddenAnswers;
use delta_base::time::Timestamp;
use serde::Serialize;
use serde_json::Value as Json;
use std::time::{Duration, Instant};

/// The shortest and the longest time between two readings of the runs.
const MIN_INTERVAL: Duration = Duration::from_millis(400);
const MAX_INTERVAL: Duration = Duration::from_secs(4);
/// Between these, reading the runs takes at most one part in this many of the time.
const PACE: u32 = 5;

/// A page of runs that are read again as they grow.
#[derive(Debug)]
pub struct LivePage {
    options: PageOptions,
    clock: fn() -> Timestamp,
    version: u64,
    made_at: Timestamp,
    roots: String,
    runs: Vec<LiveRun>,
    next_reading: Option<Instant>,
    end: Option<PageEnd>,
}

/// What the page says once its runs have ended.
#[derive(Debug, Clone, Serialize)]
pub struct PageEnd {
    /// The file that has the page now.
    pub saved: Option<String>,
}

#[derive(Debug, Default)]
struct LiveRun {
    /// All of the run but the two lists.
    head: LivePart,
    iterations: Vec<LivePart>,
    texts: Vec<LivePart>,
}

/// A part of the page as JSON, and the version in which it changed.
#[derive(Debug, Default)]
struct LivePart {
    version: u64,
    json: String,
}

impl LivePage {
    /// The page of these runs; reads them when a browser asks.
    pub fn new(options: PageOptions, clock: fn() -> Timestamp) -> Self {
        Self {
            options,
            clock,
            version: 0,
            made_at: clock(),
            roots: "[]".to_owned(),
            runs: Vec::new(),
            next_reading: None,
            end: None,
        }
    }

    /// Reads the runs for the last time.
    pub fn finish(&mut self, end: PageEnd) {
        self.read_runs();
        self.version += 1;
        self.end = Some(end);
    }

    /// The whole page, for a browser that opens it.
    pub fn render(&mut self) -> String {
        self.refresh();
        let runs: Vec<String> = self.runs.iter().map(LiveRun::to_json).collect();
        let data = format!(
            "{{\"version\":{},\"made_at\":{},\"roots\":{},\"runs\":[{}],\"live\":{}}}",
            json::to_json(env!("CARGO_PKG_VERSION")),
            json::to_json(&self.made_at),
            self.roots,
            runs.join(","),
            self.version
        );
        assemble_page("delta", &escape_json_for_html(&data), " connect-src 'self';")
    }

    /// What has changed since `version`, as JSON; `None` if nothing has.
    pub fn update_since(&mut self, version: u64) -> Option<String> {
        self.refresh();
        if self.version == version {
            return None;
        }
        let runs: Vec<String> = self.runs.iter().map(|run| run.changes_since(version)).collect();
        Some(format!(
            "{{\"version\":{},\"made_at\":{},\"roots\":{},\"runs\":[{}],\"end\":{}}}",
            self.version,
            json::to_json(&self.made_at),
            self.roots,
            runs.join(","),
            json::to_json(&self.end)
        ))
    }

    /// Reads the runs, unless that was done a moment ago.
    fn refresh(&mut self) {
        let started = Instant::now();
        if self.end.is_none() && self.next_reading.is_none_or(|next| next <= started) {
            self.read_runs();
            let interval = (started.elapsed() * PACE).clamp(MIN_INTERVAL, MAX_INTERVAL);
            self.next_reading = Some(Instant::now() + interval);
        }
    }

    fn read_runs(&mut self) {
        let next = self.version + 1;
        let now = (self.clock)();
        let (runs, roots, answers) = collect_runs(&self.options);
        let roots = json::to_json(&roots);
        let mut has_changed = self.roots != roots || self.runs.len() != runs.len();
        self.roots = roots;
        self.runs.resize_with(runs.len(), LiveRun::default);
        for (live, run) in self.runs.iter_mut().zip(&runs) {
            let value = serde_json::to_value(run).unwrap_or_default();
            has_changed |= live.replace(value, &answers, next);
        }
        if has_changed {
            self.version = next;
            self.made_at = now;
        }
    }
}

impl LiveRun {
    /// Returns whether something has changed.
    fn replace(&mut self, mut run: Json, answers: &HiddenAnswers, version: u64) -> bool {
        if !answers.is_empty() {
            hide_answers(&mut run, answers);
        }
        let mut take_list = |key: &str| match run.as_object_mut().and_then(|run| run.remove(key)) {
            Some(Json::Array(items)) => items,
            _ => Vec::new(),
        };
        let iterations = take_list("iterations");
        let texts = take_list("texts");
        let has_iterations = replace_parts(&mut self.iterations, &iterations, version);
        let has_texts = replace_parts(&mut self.texts, &texts, version);
        self.head.replace(run.to_string(), version) || has_iterations || has_texts
    }

    fn to_json(&self) -> String {
        let head = self.head.json.strip_suffix('}').unwrap_or_default();
        let list = |parts: &[LivePart]| {
            let parts: Vec<&str> = parts.iter().map(|part| part.json.as_str()).collect();
            parts.join(",")
        };
        let iterations = list(&self.iterations);
        let texts = list(&self.texts);
        format!("{head},\"iterations\":[{iterations}],\"texts\":[{texts}]}}")
    }

    fn changes_since(&self, version: u64) -> String {
        let head = if self.head.version > version { &self.head.json } else { "null" };
        let iterations = list_changes(&self.iterations, version);
        let texts = list_changes(&self.texts, version);
        format!("{{\"head\":{head},\"iterations\":{iterations},\"texts\":{texts}}}")
    }
}

impl LivePart {
    fn replace(&mut self, json: String, version: u64) -> bool {
        let has_changed = self.json != json;
        if has_changed {
            *self = Self { version, json };
        }
        has_changed
    }
}

/// Returns whether something has changed.
fn replace_parts(parts: &mut Vec<LivePart>, items: &[Json], version: u64) -> bool {
    let mut has_changed = parts.len() != items.len();
    parts.resize_with(items.len(), LivePart::default);
    for (part, item) in parts.iter_mut().zip(items) {
        has_changed |= part.replace(item.to_string(), version);
    }
    has_changed
}

/// The length of a list, and its changed parts with their indexes.
fn list_changes(parts: &[LivePart], version: u64) -> String {
    let changed: Vec<String> = parts
        .iter()
        .enumerate()
        .filter(|(_, part)| part.version > version)
        .map(|(index, part)| format!("[{index},{}]", part.json))
        .collect();
    format!("[{},[{}]]", parts.len(), changed.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_18_10_an_update_has_only_what_changed() {
        let none = HiddenAnswers::default();
        let mut run = LiveRun::default();
        let first = json!({"id": "r", "iterations": [{"n": 1}], "texts": ["a"]});
        assert!(run.replace(first.clone(), &none, 1));
        assert!(!run.replace(first.clone(), &none, 2));
        assert_eq!(serde_json::from_str::<Json>(&run.to_json()).unwrap(), first);
        let second =
            json!({"id": "r", "iterations": [{"n": 1}, {"n": 2}], "texts": ["a", "b", "c"]});
        assert!(run.replace(second, &none, 2));
        let expected =
            r#"{"head":null,"iterations":[2,[[1,{"n":2}]]],"texts":[3,[[1,"b"],[2,"c"]]]}"#;
        assert_eq!(run.changes_since(1), expected);
        let all: Json = serde_json::from_str(&run.changes_since(0)).unwrap();
        assert_eq!((&all["head"], &all["texts"][1][0]), (&json!({"id": "r"}), &json!([0, "a"])));
        let hidden = HiddenAnswers::new(&["secret".to_owned()]);
        assert!(run.replace(json!({"iterations": ["a secret"]}), &hidden, 3));
        assert_eq!(run.iterations[0].json, r#""a [hidden]""#);
    }
}
