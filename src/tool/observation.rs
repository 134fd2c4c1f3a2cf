//! What the LLM sees of a tool's run: what it printed, head and tail when that is much, and how it ended.

use crate::process::{Capture, End, Finished, signal_name};

/// What the LLM sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The text.
    pub text: String,
    /// The exit code, also when the program could not be started (127, 126).
    pub exit_code: Option<i32>,
    /// Whether a part of what was printed is left out.
    pub truncated: bool,
}

/// Describes a finished process. `place` is where, seen from the workspace, its io/ files lie; `record` is the name of
/// the file there that holds what was printed.
pub fn observe(finished: &Finished, timeout_ms: u64, place: &str, record: &str) -> Observation {
    let mut text = String::new();
    let mut truncated = stream(&mut text, &finished.stdout, place, record);
    if finished.stderr.bytes > 0 {
        end_line(&mut text);
        text.push_str("[stderr]\n");
        truncated |= stream(&mut text, &finished.stderr, place, record);
    }
    let note = match &finished.end {
        End::Exited(0) => None,
        End::Exited(code) => Some(format!("[exit code: {code}]")),
        End::Killed(signal) => Some(format!("[killed by {}]", signal_name(*signal))),
        End::TimedOut => Some(format!("[timed out after {timeout_ms} ms]")),
        End::Cancelled => {
            Some("[interrupted: a person or the system stopped the engine]".to_owned())
        }
        End::NotStarted { code, reason } => {
            Some(format!("The tool could not be started: {reason}.\n[exit code: {code}]"))
        }
    };
    if let Some(note) = note {
        end_line(&mut text);
        text.push_str(&note);
    }
    if text.is_empty() {
        text.push_str("[no output]");
    }
    let exit_code = match finished.end {
        End::Exited(code) | End::NotStarted { code, .. } => Some(code),
        End::Killed(_) | End::TimedOut | End::Cancelled => None,
    };
    Observation { text, exit_code, truncated }
}

/// Appends a stream, with a line in the place of what is left out of it; true when something is.
pub fn stream(text: &mut String, capture: &Capture, place: &str, record: &str) -> bool {
    let (head, tail) =
        (whole_characters(&capture.head, false), whole_characters(&capture.tail, true));
    let left_out = capture.bytes.saturating_sub((head.len() + tail.len()) as u64);
    if capture.tail.is_empty() || left_out == 0 {
        text.push_str(&String::from_utf8_lossy(&capture.head));
        text.push_str(&String::from_utf8_lossy(&capture.tail));
        return false;
    }
    let file = capture
        .file
        .as_deref()
        .and_then(|file| file.file_name())
        .map(|name| name.to_string_lossy());
    let file = file.as_deref().unwrap_or(record);
    text.push_str(&String::from_utf8_lossy(head));
    end_line(text);
    text.push_str(&format!("[... {left_out} bytes left out; "));
    match &capture.error {
        Some(error) => text.push_str(&format!("they could not be kept: {error}")),
        None => text.push_str(&format!("the whole lies in {place}/{file}")),
    }
    if capture.discarded > 0 {
        text.push_str(&format!(", except {} bytes after the first GiB", capture.discarded));
    }
    text.push_str(" ...]\n");
    text.push_str(&String::from_utf8_lossy(tail));
    true
}

/// The bytes without a character that was cut at the end, or at the start.
fn whole_characters(bytes: &[u8], at_start: bool) -> &[u8] {
    let is_continuation = |byte: &u8| byte & 0xc0 == 0x80;
    if at_start {
        let cut = bytes.iter().take(3).take_while(|byte| is_continuation(byte)).count();
        return &bytes[cut..];
    }
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn printed(bytes: &[u8]) -> Capture {
        Capture {
            bytes: bytes.len() as u64,
            whole: Some(bytes.to_vec()),
            head: bytes.to_vec(),
            ..Capture::default()
        }
    }

    fn check(end: End, stdout: &[u8], stderr: &[u8], expected: &str, exit_code: Option<i32>) {
        let finished = Finished {
            end,
            duration: Duration::ZERO,
            stdout: printed(stdout),
            stderr: printed(stderr),
        };
        let found = observe(&finished, 50, "p", "r.json");
        assert_eq!(found, Observation { text: expected.to_owned(), exit_code, truncated: false });
    }

    #[test]
    fn c_4_3_an_observation_shows_streams_and_ending() {
        check(End::Exited(0), b"out\n", b"", "out\n", Some(0));
        check(End::Exited(0), b"", b"", "[no output]", Some(0));
        check(End::Exited(3), b"out", b"err", "out\n[stderr]\nerr\n[exit code: 3]", Some(3));
        check(End::Exited(1), b"", b"", "[exit code: 1]", Some(1));
        check(End::Killed(9), b"", b"", "[killed by SIGKILL]", None);
        check(End::TimedOut, b"part", b"", "part\n[timed out after 50 ms]", None);
        let reason = "program `x` was not found".to_owned();
        let shown = "The tool could not be started: program `x` was not found.\n[exit code: 127]";
        check(End::NotStarted { code: 127, reason }, b"", b"", shown, Some(127));
        check(End::Exited(0), b"a\xffb", b"", "a\u{fffd}b", Some(0));
    }

    #[test]
    fn c_4_5_much_output_is_cut_in_the_middle_at_whole_characters() {
        let capture = Capture {
            bytes: 100,
            head: "abcä".as_bytes()[..4].to_vec(),
            tail: "äxyz".as_bytes()[1..].to_vec(),
            file: Some("/run/io/tool_executions/t.stdout".into()),
            ..Capture::default()
        };
        let finished = Finished {
            end: End::Exited(0),
            duration: Duration::ZERO,
            stdout: capture,
            stderr: Capture::default(),
        };
        let found = observe(&finished, 50, "place", "r.json");
        assert_eq!(
            found.text,
            "abc\n[... 94 bytes left out; the whole lies in place/t.stdout ...]\nxyz"
        );
        assert!(found.truncated);
    }

    #[test]
    fn c_4_5_what_could_not_be_kept_is_not_promised() {
        let capture = Capture {
            bytes: 100,
            head: b"abc".to_vec(),
            tail: b"xyz".to_vec(),
            error: Some("No space left on device".to_owned()),
            ..Capture::default()
        };
        let finished = Finished {
            end: End::Exited(0),
            duration: Duration::ZERO,
            stdout: capture,
            stderr: Capture::default(),
        };
        assert_eq!(
            observe(&finished, 50, "place", "r.json").text,
            "abc\n[... 94 bytes left out; they could not be kept: No space left on device ...]\nxyz"
        );
    }
}
