//! The lines of a recorded run about its sandboxes: one for each profile at the start of a process, one at a call that had
//! none or was refused something, and everything with `-v`.

use super::{DIM, ProgressPrinter, Verbosity, WARN};
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_base::text::text_width::wrap_words;
use delta_run::event::{
    ActionRequest, ActionResult, EngineStart, NO_SANDBOX, ProfileRecord, SandboxRecord,
};
use delta_sandbox::SandboxGrade;
use serde_json::{Value as Json, json};

/// The width of a description of a profile.
const COLUMNS: usize = 80;
/// How many names a line lists.
const MAX_NAMES: usize = 8;
/// How the line about a profile begins that an observation and the descriptions of tools have.
const LINE_PREFIX: &str = "Sandbox: ";

impl ProgressPrinter {
    /// Prints the sandboxes of a process, unless the process before had the same ones.
    pub(super) fn show_sandboxes(&mut self, start: &EngineStart) {
        if !self.to_stdout {
            return;
        }
        let sandbox = start.config.sandbox.as_ref();
        let before = std::mem::replace(&mut self.sandbox, sandbox.cloned());
        if before.as_ref() == sandbox {
            return;
        }
        let Some(record) = sandbox else {
            return self.print_line(&format!("{WARN}no sandbox{WARN:#}"));
        };
        let tools = start.config.tools.as_deref().unwrap_or_default();
        for (text, is_warning) in summary_lines(record, tools) {
            let style = if is_warning { WARN } else { DIM };
            let text = self.sanitize(&text);
            self.print_line(&format!("{style}{text}{style:#}"));
        }
        if self.verbosity == Verbosity::Verbose {
            let text = self.sanitize(&describe_sandboxes_in_full(record));
            text.lines().for_each(|line| self.print_line(&format!("{DIM}  {line}{DIM:#}")));
        }
    }

    /// Prints that a call has no sandbox in a run in which others have one.
    pub(super) fn show_missing_sandbox(&mut self, request: &ActionRequest) {
        if self.to_stdout && request.sandbox.as_deref() == Some(NO_SANDBOX) {
            self.print_line(&format!("{WARN}  no sandbox{WARN:#}"));
        }
    }

    /// Prints what the sandbox of a call has refused.
    pub(super) fn show_refusals(&mut self, result: &ActionResult) {
        let Some(sandbox) = result.sandbox.as_deref().filter(|_| self.to_stdout) else { return };
        let refused = sandbox.refused.iter().map(|(host, count)| {
            let host = truncate_to_line(&strip_terminal_controls(host), 80);
            format!("{host} ({count})")
        });
        let refused = list_some_names(&refused.collect::<Vec<String>>());
        let refused = match (sandbox.refused.is_empty(), sandbox.attempts) {
            (true, 1) => "the network, once".to_owned(),
            (true, attempts) => format!("the network, {attempts} times"),
            (false, _) => refused,
        };
        self.print_line(&format!("{WARN}  the sandbox refused {refused}{WARN:#}"));
    }
}

/// What is enforced for whom, a line for each profile, and what is not; each with whether it is a warning.
fn summary_lines(record: &SandboxRecord, tools: &[String]) -> Vec<(String, bool)> {
    let free: Vec<String> =
        tools.iter().filter(|tool| record.profile_of_tool(tool) == NO_SANDBOX).cloned().collect();
    let is_common = record.profiles.len() == 1 && free.is_empty();
    let mut lines = Vec::new();
    for (name, profile) in &record.profiles {
        let users = record.users_of(name);
        let scope =
            if is_common { String::new() } else { format!(" for {}", list_some_names(&users)) };
        let text = profile.line.strip_prefix(LINE_PREFIX).unwrap_or(&profile.line);
        let text = text.trim_end_matches('.');
        if profile.by == "none" {
            lines.push((format!("sandbox not enforced{scope}: {text}"), true));
        } else {
            lines.push((format!("sandbox by {}{scope}: {text}", profile.by), false));
        }
        let waived = record.waived_of(profile);
        if !waived.is_empty() {
            let waived = waived.join(", ");
            lines.push((format!("  without {waived}, as --sandbox-without says"), true));
        }
    }
    if !free.is_empty() {
        lines.push((format!("no sandbox for {}", list_some_names(&free)), true));
    }
    lines
}

/// Everything that is recorded of the sandboxes of a process.
fn describe_sandboxes_in_full(record: &SandboxRecord) -> String {
    let landlock = record.landlock.map_or("none".to_owned(), |version| version.to_string());
    let mut text = format!("kernel {}, landlock {landlock}\n", record.kernel);
    for source in &record.policy {
        let hash = source.sha256.as_ref().map_or(String::new(), |hash| format!(", sha256 {hash}"));
        push_wrapped(&mut text, "limited by ", &format!("{}{hash}", source.file));
    }
    for (name, profile) in &record.profiles {
        push_wrapped(&mut text, &format!("{name}: "), &record.users_of(name).join(", "));
        text.push_str(&describe_profile_record(profile));
    }
    text
}

/// The keys of a profile and its guarantees, a line for each.
pub fn describe_profile_record(profile: &ProfileRecord) -> String {
    let mut text = format!("  by: {}\n", profile.by);
    for (key, value) in &profile.keys {
        // Only namespaces make a path in a writable directory read-only.
        let is_kept = key != "keep" || profile.by == SandboxGrade::Namespaces.name();
        let note = if is_kept || *value == json!([]) { "" } else { " (not enforced)" };
        push_wrapped(&mut text, &format!("  {key}{note}: "), &plain_value(value));
    }
    push_wrapped(&mut text, "  enforced: ", &profile.holds.join(", "));
    if !profile.watched.is_empty() {
        let watched = profile.watched.join(", ");
        text.push_str(&format!("  watched: {watched} (the run ends at a change)\n"));
    }
    text
}

/// A value of the record without the signs of JSON.
fn plain_value(value: &Json) -> String {
    let parts: Vec<String> = match value {
        Json::String(text) => vec![text.clone()],
        Json::Array(items) => items.iter().map(plain_value).collect(),
        Json::Object(entries) => {
            entries.iter().map(|(key, value)| format!("{key} {}", plain_value(value))).collect()
        }
        other => vec![other.to_string()],
    };
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Appends a line, broken at spaces.
pub fn push_wrapped(text: &mut String, start: &str, rest: &str) {
    let line = format!("{start}{rest}");
    let line = line.strip_prefix('\n').inspect(|_| text.push('\n')).unwrap_or(&line);
    for (index, piece) in wrap_words(line, COLUMNS - 4).into_iter().enumerate() {
        let indent = if index == 0 { "" } else { "    " };
        text.push_str(&format!("{indent}{piece}\n"));
    }
}

fn list_some_names(names: &[String]) -> String {
    let left = names.len().saturating_sub(MAX_NAMES);
    let listed = names[..names.len() - left].join(", ");
    if left == 0 { listed } else { format!("{listed} and {left} more") }
}
