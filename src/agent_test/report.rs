//! The outcome of tests as text for people, as JSON, and as JUnit XML for CI servers. Pure.

use super::matcher::block;
use super::running::{RUN_ID, TestResult};
use crate::text::{printable, shell_word};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::time::Duration;

/// So many of the last lines of stderr are shown of a test that failed.
const LAST_LINES: usize = 20;

/// A test as a person reads it, ending with a newline.
pub fn text(test: &TestResult) -> String {
    let verdict = if test.failures.is_empty() { "ok  " } else { "FAIL" };
    let mut out = format!("{verdict}  {}  ({})\n", printable(&test.name), seconds(test.duration));
    for failure in failures(test) {
        let mut lines = failure.lines();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "      {}", lines.next().unwrap_or_default());
        lines.for_each(|line| _ = writeln!(out, "        {line}"));
    }
    for note in &test.notes {
        let _ = writeln!(out, "      note: {}", printable(note));
    }
    let told = test.failures.iter().any(|failure| failure.what == "stderr");
    if !test.failures.is_empty() && !told && !test.stderr.trim().is_empty() {
        let _ = writeln!(
            out,
            "      stderr ended with:{}",
            block(&tail(test)).replace('\n', "\n        ")
        );
    }
    if let Some(look) = look(test) {
        let _ = writeln!(out, "      look: {look}");
    }
    out
}

/// The last line for people.
pub fn summary(tests: &[TestResult], duration: Duration) -> String {
    let failed = tests.iter().filter(|test| !test.failures.is_empty()).count();
    let passed = tests.len() - failed;
    let word = if tests.len() == 1 { "test" } else { "tests" };
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    format!("{} {word}: {passed} passed{failed} ({})\n", tests.len(), seconds(duration))
}

/// The same as JSON.
pub fn json(tests: &[TestResult]) -> String {
    let failed = tests.iter().filter(|test| !test.failures.is_empty()).count();
    let all: Vec<Json> = tests.iter().map(json_of).collect();
    let report = json!({"passed": tests.len() - failed, "failed": failed, "tests": all});
    format!("{report:#}\n")
}

fn json_of(test: &TestResult) -> Json {
    let failure = |failure: &super::Failure| json!({"line": failure.line, "what": failure.what, "message": failure.message});
    json!({
        "name": test.name,
        "file": test.file,
        "passed": test.failures.is_empty(),
        "duration_ms": u64::try_from(test.duration.as_millis()).unwrap_or(u64::MAX),
        "failures": test.failures.iter().map(failure).collect::<Vec<_>>(),
        "notes": test.notes,
        "kept": test.kept,
    })
}

/// The same as JUnit XML, one suite for the agent.
pub fn junit(agent: &str, tests: &[TestResult], duration: Duration) -> String {
    let failed = tests.iter().filter(|test| !test.failures.is_empty()).count();
    let counts = format!(
        "name=\"{}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\" time=\"{}\"",
        attribute(agent),
        tests.len(),
        xml_seconds(duration),
    );
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite {counts}>\n"
    );
    for test in tests {
        let (name, file) = (attribute(&test.name), attribute(&test.file.to_string_lossy()));
        let (suite, time) = (attribute(agent), xml_seconds(test.duration));
        let _ = writeln!(
            out,
            "    <testcase classname=\"{suite}\" name=\"{name}\" file=\"{file}\" time=\"{time}\">"
        );
        if let [first, ..] = failures(test).as_slice() {
            let message = attribute(first.lines().next().unwrap_or_default());
            let all = escaped(&failures(test).join("\n"));
            let _ = writeln!(out, "      <failure message=\"{message}\">{all}</failure>");
        }
        if !test.notes.is_empty() {
            let notes = escaped(&test.notes.join("\n"));
            let _ = writeln!(out, "      <system-out>{notes}</system-out>");
        }
        if !test.failures.is_empty() && !test.stderr.is_empty() {
            let _ = writeln!(out, "      <system-err>{}</system-err>", escaped(&test.stderr));
        }
        out.push_str("    </testcase>\n");
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// What is wrong, each with the line of the test that expects it.
fn failures(test: &TestResult) -> Vec<String> {
    let name = test.file.file_name().unwrap_or_default().to_string_lossy();
    let failure = |failure: &super::Failure| {
        let place = failure.line.map_or(String::new(), |line| format!("{name}:{line}: "));
        printable(&format!("{place}{} {}", failure.what, failure.message))
    };
    test.failures.iter().map(failure).collect()
}

/// How the run of a test can be looked at, where it is kept.
fn look(test: &TestResult) -> Option<String> {
    let work = test.kept.as_ref()?.join("work");
    let work_dir = shell_word(&work.to_string_lossy());
    Some(match work.join(".delta").join(RUN_ID).is_dir() {
        true => format!("delta show {RUN_ID} -w {work_dir}"),
        false => work_dir,
    })
}

fn tail(test: &TestResult) -> String {
    let lines: Vec<&str> = test.stderr.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn xml_seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}

/// `text` as it may stand in an attribute, on one line.
fn attribute(text: &str) -> String {
    escaped(text).replace('\n', "&#10;").replace('\t', "&#9;")
}

/// `text` as it may stand in XML 1.0.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\r' => out.push_str("&#13;"),
            // Not in XML at all, not even as a reference.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
