//! The page of a sweep: its numbers, and a table of its runs.

use super::html_document::{HtmlDocument, escape_json_for_html};

const STYLE: &str = include_str!("sweep_page.css");
pub(super) const SCRIPT: &str = include_str!("sweep_page.js");
const BODY: &str = include_str!("sweep_page.html");

/// The first bytes of every page of a sweep.
pub const SWEEP_PAGE_MARK: &str = "<!doctype html><!-- delta sweep view -->";

/// Renders the page of a sweep. `data` is the JSON that its script reads; see `page_data` of delta-sweep.
pub fn render_sweep_page(name: &str, data: &str) -> String {
    let document = HtmlDocument {
        mark: SWEEP_PAGE_MARK,
        title: name,
        style: STYLE,
        body: BODY,
        script: SCRIPT,
        connections: "",
    };
    document.to_html(&escape_json_for_html(data))
}
