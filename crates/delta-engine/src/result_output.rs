//! The final result in each output format, as text for stdout.

use delta_base::redact::redact_answers;
use delta_base::terminal;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_width::wrap_prose;
use delta_base::time::format_duration;
use delta_run::event::RunStatus;
use delta_run::run_result::RunResult;
use std::fmt::Write;

/// What a command prints to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// Result with a summary; the result alone with `-q`, or below its progress at a terminal.
    Text,
    /// One JSON object (RunResult v2.0).
    Json,
    /// The result alone; nothing unless the run is COMPLETED.
    Raw,
    /// Every journal event as it is written, then the RunResult.
    Jsonl,
}

const SEPARATOR: &str = "-------------------";

/// Renders `result` in `format`; empty if there is nothing to print.
pub fn render_run_result(result: &RunResult, format: OutputFormat) -> String {
    match format {
        OutputFormat::Text => render_text_summary(result),
        OutputFormat::Json | OutputFormat::Jsonl => {
            serde_json::to_string(result).map(|text| text + "\n").unwrap_or_default()
        }
        OutputFormat::Raw => match (&result.result, result.status) {
            (Some(value), RunStatus::Completed) => with_final_newline(value.text()),
            _ => String::new(),
        },
    }
}

fn render_text_summary(result: &RunResult) -> String {
    let sanitize = |text: &str| {
        with_final_newline(redact_answers(&result.sensitive, strip_terminal_controls(text)))
    };
    let value = result.result.as_ref().map(|value| match &**value {
        serde_json::Value::String(text) => match terminal::stdout_size() {
            // A terminal breaks lines within words.
            Some((columns, _)) => wrap_prose(&sanitize(text), columns.into()),
            None => sanitize(text),
        },
        _ => sanitize(&serde_json::to_string_pretty(value).unwrap_or_default()),
    });
    if result.prints_alone {
        return value.unwrap_or_default();
    }
    let mut out = String::from("--- Run Summary ---\n");
    let duration = format_duration(result.metrics.total_duration_ms);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "Run ID:     {}", result.run_id.as_deref().unwrap_or("-"));
    let _ = writeln!(out, "Status:     {}\nDuration:   {duration}\n{SEPARATOR}", result.status);
    if let Some(value) = value {
        let _ = write!(out, "Result:\n{value}{SEPARATOR}\n");
    }
    if let Some(error) = &result.error {
        let _ = write!(out, "Error ({}):\n{}", error.kind, sanitize(&error.message));
        if let Some(details) = &error.details {
            let _ = write!(out, "Help: {}", sanitize(details));
        }
        let _ = writeln!(out, "{SEPARATOR}");
    }
    if let Some(interaction) = &result.interaction {
        let _ = write!(out, "Waiting for input:\n{}{SEPARATOR}\n", sanitize(&interaction.prompt));
    }
    out
}

fn with_final_newline(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
