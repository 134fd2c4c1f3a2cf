//! Replaces what differs from run to run: ids, times, durations, process ids, the path of the sandbox.

use crate::sandbox::{Ran, Sandbox};
use regex::Regex;

/// Patterns and their replacements, applied in order.
const RULES: [(&str, &str); 11] = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
    (r"\b\d{8}T\d{9}Z", "STAMP"),
    (r"\b\d{8}_\d{6}_[0-9a-f]{6}\b", "ID"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[48][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"--request-id [0-9a-f]{8}\b", "--request-id REQUEST"),
    (r"Duration:   .*", "Duration:   SPAN"),
    (r"(! try \d+(?: of \d+)?) in [\d.]+ ?m?s:", "$1 in SPAN:"),
    (
        r"(?m)\b([A-Z_]+ after \d+ iterations?(?:, .*)?), [\d.]+(?:ms|s|m \d\ds|h \d\dm)$",
        "$1, SPAN",
    ),
    (r#""(total_)?duration_ms":\d+"#, r#""${1}duration_ms":0"#),
    (r#""pid":\d+"#, r#""pid":1"#),
    (r"\bpid \d+", "pid N"),
];

/// `text` with everything that changes from run to run replaced; the sandbox's directory is `DIR`.
pub fn normal(sandbox: &Sandbox, text: &str) -> String {
    let dir = sandbox.path("");
    let dir = dir.to_string_lossy();
    let mut text = text.replace(dir.trim_end_matches('/'), "DIR");
    for (pattern, replacement) in RULES {
        let pattern = Regex::new(pattern).expect("a pattern");
        text = pattern.replace_all(&text, replacement).into_owned();
    }
    text
}

impl Ran {
    /// Applies [`normal`] to both streams.
    #[must_use]
    pub fn normal(self, sandbox: &Sandbox) -> Self {
        Self {
            code: self.code,
            stdout: normal(sandbox, &self.stdout),
            stderr: normal(sandbox, &self.stderr),
        }
    }

    /// Fails unless the exit code and both streams are exactly as given.
    #[track_caller]
    pub fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        assert_eq!(self.stderr, stderr, "stderr; exit code {}", self.code);
        assert_eq!(self.stdout, stdout, "stdout");
        assert_eq!(self.code, code, "exit code");
    }
}
