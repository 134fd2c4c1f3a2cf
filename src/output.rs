//! The final result as bytes for stdout, in each format.

use crate::event::RunStatus;
use crate::outcome::RunResult;
use crate::text::{hide_answers, printable};
use crate::time::human_duration;
use crate::tool::value_text;
use std::fmt::Write;

/// What stdout carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A summary for people.
    Text,
    /// One JSON object (RunResult v2.0).
    Json,
    /// The result alone, and nothing unless the run is COMPLETED.
    Raw,
    /// Every journal event as it is written, then the RunResult.
    Jsonl,
}

/// The line under the parts of the text format.
const RULE: &str = "-------------------";

/// `result` in `format`; empty when there is nothing to print.
pub fn render(result: &RunResult, format: Format) -> String {
    match format {
        Format::Text => text(result),
        Format::Json | Format::Jsonl => {
            serde_json::to_string(result).map(|text| text + "\n").unwrap_or_default()
        }
        Format::Raw => match (&result.result, result.status) {
            (Some(value), RunStatus::Completed) => end_line(value_text(value)),
            _ => String::new(),
        },
    }
}

fn text(result: &RunResult) -> String {
    let mut out = String::from("--- Run Summary ---\n");
    let duration = human_duration(result.metrics.duration_ms);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "Run ID:     {}", result.run_id.as_deref().unwrap_or("-"));
    let _ = writeln!(out, "Status:     {}\nDuration:   {duration}\n{RULE}", result.status);
    let shown = |text: &str| end_line(hide_answers(&result.sensitive, printable(text)));
    if let Some(value) = &result.result {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        let _ = write!(out, "Result:\n{}{RULE}\n", shown(&text));
    }
    if let Some(error) = &result.error {
        let _ = write!(out, "Error ({}):\n{}", error.kind, shown(&error.message));
        if let Some(details) = &error.details {
            let _ = write!(out, "Hint: {}", shown(details));
        }
        let _ = writeln!(out, "{RULE}");
    }
    if let Some(interaction) = &result.interaction {
        let _ = write!(out, "Waiting for input:\n{}{RULE}\n", shown(&interaction.prompt));
    }
    out
}

fn end_line(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
