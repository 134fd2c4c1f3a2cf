//! Renders the results of tests as readable text, as JSON, and as JUnit XML for CI servers.

use super::TestFailure;
use super::matcher::quote_block;
use super::test_runner::{TEST_RUN_ID, TestResult};
use delta_base::shell_quote::shell_quote;
use delta_base::terminal_text::strip_terminal_controls;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::time::Duration;

/// How many of the last lines of stderr the text shows for a failed test.
const MAX_STDERR_LINES: usize = 20;

/// Renders a result as readable text that ends with a newline.
pub fn render_test_text(test: &TestResult) -> String {
    let verdict = if test.passed() { "ok  " } else { "FAIL" };
    let name = strip_terminal_controls(&test.name);
    let mut out = format!("{verdict}  {name}  ({})\n", format_seconds(test.duration));
    for failure in failure_texts(test) {
        let mut lines = failure.lines();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "      {}", lines.next().unwrap_or_default());
        lines.for_each(|line| _ = writeln!(out, "        {line}"));
    }
    for note in &test.notes {
        let _ = writeln!(out, "      note: {}", strip_terminal_controls(note));
    }
    let quotes_stderr = test.failures.iter().any(|failure| failure.subject == "stderr");
    if !test.passed() && !quotes_stderr && !test.stderr.trim().is_empty() {
        let block = quote_block(&last_stderr_lines(test)).replace('\n', "\n        ");
        let _ = writeln!(out, "      stderr ended with:{block}");
    }
    if let Some(command) = inspect_command(test) {
        let _ = writeln!(out, "      look: {command}");
    }
    out
}

/// Renders the line with the totals that ends the text report.
pub fn render_test_summary(tests: &[TestResult], duration: Duration) -> String {
    let failed = count_failed(tests);
    let passed = tests.len() - failed;
    let noun = if tests.len() == 1 { "test" } else { "tests" };
    let failures = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    format!("{} {noun}: {passed} passed{failures} ({})\n", tests.len(), format_seconds(duration))
}

/// Renders all results as one JSON object.
pub fn render_tests_json(tests: &[TestResult]) -> String {
    let failed = count_failed(tests);
    let tests_json: Vec<Json> = tests.iter().map(test_json).collect();
    let report = json!({"passed": tests.len() - failed, "failed": failed, "tests": tests_json});
    format!("{report:#}\n")
}

fn test_json(test: &TestResult) -> Json {
    let failures = test.failures.iter().map(|failure| {
        json!({"line": failure.line, "what": failure.subject, "message": failure.message})
    });
    json!({
        "name": test.name,
        "file": test.file,
        "passed": test.passed(),
        "duration_ms": u64::try_from(test.duration.as_millis()).unwrap_or(u64::MAX),
        "failures": failures.collect::<Vec<_>>(),
        "notes": test.notes,
        "kept": test.kept_dir,
    })
}

/// Renders all results as JUnit XML with one suite, which has the name of the agent.
pub fn render_tests_junit(agent: &str, tests: &[TestResult], duration: Duration) -> String {
    let suite = escape_xml_attribute(agent);
    let counts = format!(
        "name=\"{suite}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\" time=\"{}\"",
        tests.len(),
        count_failed(tests),
        format_xml_seconds(duration),
    );
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite {counts}>\n"
    );
    for test in tests {
        out.push_str(&junit_case(&suite, test));
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// The element `testcase` of a test; `suite` is escaped.
fn junit_case(suite: &str, test: &TestResult) -> String {
    let name = escape_xml_attribute(&test.name);
    let file = escape_xml_attribute(&test.file.to_string_lossy());
    let time = format_xml_seconds(test.duration);
    let mut out = format!(
        "    <testcase classname=\"{suite}\" name=\"{name}\" file=\"{file}\" time=\"{time}\">\n"
    );
    let failures = failure_texts(test);
    if let Some(first) = failures.first() {
        let message = escape_xml_attribute(first.lines().next().unwrap_or_default());
        let text = escape_xml(&failures.join("\n"));
        let _ = writeln!(out, "      <failure message=\"{message}\">{text}</failure>");
    }
    if !test.notes.is_empty() {
        let notes = escape_xml(&test.notes.join("\n"));
        let _ = writeln!(out, "      <system-out>{notes}</system-out>");
    }
    if !test.passed() && !test.stderr.is_empty() {
        let _ = writeln!(out, "      <system-err>{}</system-err>", escape_xml(&test.stderr));
    }
    out.push_str("    </testcase>\n");
    out
}

fn count_failed(tests: &[TestResult]) -> usize {
    tests.iter().filter(|test| !test.passed()).count()
}

/// The failures as sentences, each after its location in the test file.
fn failure_texts(test: &TestResult) -> Vec<String> {
    let file = test.file.file_name().unwrap_or_default().to_string_lossy();
    let texts = test.failures.iter().map(|TestFailure { line, subject, message }| {
        let location = line.map_or(String::new(), |line| format!("{file}:{line}: "));
        strip_terminal_controls(&format!("{location}{subject} {message}"))
    });
    texts.collect()
}

/// The command that shows the run of a test, or the directory if there is no run; `None` if delta removed it.
fn inspect_command(test: &TestResult) -> Option<String> {
    let workspace = test.kept_dir.as_ref()?.join("work");
    let path = shell_quote(&workspace.to_string_lossy());
    if workspace.join(".delta").join(TEST_RUN_ID).is_dir() {
        Some(format!("delta show {TEST_RUN_ID} -w {path}"))
    } else {
        Some(path)
    }
}

fn last_stderr_lines(test: &TestResult) -> String {
    let lines: Vec<&str> = test.stderr.trim_end().lines().collect();
    lines[lines.len().saturating_sub(MAX_STDERR_LINES)..].join("\n")
}

fn format_seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn format_xml_seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}

/// Escapes a text for an XML attribute, on one line.
fn escape_xml_attribute(text: &str) -> String {
    escape_xml(text).replace('\n', "&#10;").replace('\t', "&#9;")
}

/// Escapes a text for XML 1.0; `U+FFFD` replaces the characters that XML cannot contain.
fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\r' => out.push_str("&#13;"),
            // XML has no character reference for these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
