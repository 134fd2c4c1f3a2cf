//! Renders runs as one self-contained HTML file.
//!
//! `html_document` builds the file; the page of a sweep is another one of that form.

use crate::sweep_facts::SweepRunFacts;
use delta_base::id::RunId;
use delta_base::redact::HiddenAnswers;
use delta_base::time::Timestamp;
use delta_run::run_tree::sensitive_answers::read_enclosing_answers;
use html_document::{HtmlDocument, escape_json_for_html};
use page_redaction::hide_answers;
use page_run::PageRun;
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::PathBuf;

mod html_document;
mod live_page;
mod markdown_tree;
mod page_image;
mod page_iteration;
mod page_markdown;
mod page_redaction;
mod page_requests;
mod page_run;
mod page_server;
mod run_collection;
mod run_files;
mod sweep_page;
mod workspace_changes;

pub use live_page::{LivePage, PageEnd};
pub use page_server::PageServer;
pub use sweep_page::{SWEEP_PAGE_MARK, render_sweep_page};

/// The first bytes of every page: a file that begins otherwise was not written by `delta view`.
pub const PAGE_MARK: &str = "<!doctype html><!-- delta view -->";

const STYLE: &str = include_str!("view/page.css");
const SCRIPT: &str = concat!(
    include_str!("view/page_markdown.js"),
    include_str!("view/page.js"),
    include_str!("view/page_live.js")
);
const BODY: &str = include_str!("view/page.html");

/// The runs of a page and how much of them it shows.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// The absolute run directories; their child runs are added.
    pub run_dirs: Vec<PathBuf>,
    /// Whether the page includes the requests to the LLM.
    pub with_requests: bool,
    /// What their sweeps know of the runs, by their ids.
    pub sweep_facts: HashMap<RunId, SweepRunFacts>,
}

#[derive(Debug, Serialize)]
struct PageData {
    version: &'static str,
    made_at: Timestamp,
    /// The requested runs, as indexes into `runs`.
    roots: Vec<usize>,
    runs: Vec<PageRun>,
}

/// Renders the runs and their child runs. Sensitive answers are hidden. What cannot be read is a note on the page,
/// never an error.
pub fn render_page(options: &PageOptions, now: Timestamp) -> String {
    let (runs, roots, answers) = collect_runs(options);
    let data = PageData { version: env!("CARGO_PKG_VERSION"), made_at: now, roots, runs };
    let json = if answers.is_empty() {
        serde_json::to_string(&data).unwrap_or_default()
    } else {
        let mut value = serde_json::to_value(&data).unwrap_or(Json::Null);
        hide_answers(&mut value, &answers);
        value.to_string()
    };
    let title = data.runs.first().map_or("delta", |run| run.id.as_str());
    assemble_page(title, &escape_json_for_html(&json), "")
}

/// Reads the runs, with the indexes of the requested ones and the answers to hide.
fn collect_runs(options: &PageOptions) -> (Vec<PageRun>, Vec<usize>, HiddenAnswers) {
    let (mut runs, roots) = run_collection::collect_page_runs(options);
    // The runs below the requested ones are on the page; the runs that started them can be missing.
    let enclosing = options.run_dirs.iter().flat_map(|dir| read_enclosing_answers(dir));
    let enclosing: Vec<String> = enclosing.collect();
    let recorded = runs.iter().flat_map(|run| &run.sensitive_answers);
    let answers = HiddenAnswers::new(recorded.chain(&enclosing));
    for run in &mut runs {
        page_markdown::add_markdown(run, &answers);
    }
    (runs, roots, answers)
}

/// Builds the page of runs. `title` is a run id; `connections` is the part of the policy that allows the page to ask for
/// more.
fn assemble_page(title: &str, data: &str, connections: &str) -> String {
    let document = HtmlDocument {
        mark: PAGE_MARK,
        title,
        style: STYLE,
        body: BODY,
        script: SCRIPT,
        connections,
    };
    document.to_html(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_3_the_scripts_of_pages_make_text_of_text() {
        for script in [SCRIPT, sweep_page::SCRIPT] {
            assert!(!script.contains("innerHTML") && !script.contains("</"));
        }
    }
}
