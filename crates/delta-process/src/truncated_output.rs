//! The captured output of a process as text, with a note about the bytes that are left out.

use crate::{MAX_SPOOL_BYTES, OutputCapture};

/// Precedes the path of the complete output in the note of [`append_truncated`]. Recorded observations contain the note, so
/// its wording is a format.
pub const OUTPUT_FILE_PREFIX: &str = "the whole lies in ";

/// Whether a line looks like the note of [`append_truncated`].
pub fn is_truncation_note(line: &str) -> bool {
    line.starts_with("[... ") && line.contains(" bytes left out; ") && line.ends_with(" ...]")
}

/// Appends a stream to `text`, with a note in place of the bytes between its head and tail; returns true when there are
/// such bytes. The note names the stream's file in `directory`, or `record` when the stream has no file.
pub fn append_truncated(
    text: &mut String,
    capture: &OutputCapture,
    directory: &str,
    record: &str,
) -> bool {
    let head = trim_split_end(&capture.head);
    let tail = trim_split_start(&capture.tail);
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
    ensure_line_end(text);
    text.push_str(&format!("[... {left_out} bytes left out; "));
    match &capture.error {
        Some(error) => text.push_str(&format!("they could not be kept: {error}")),
        None => text.push_str(&format!("{OUTPUT_FILE_PREFIX}{directory}/{file}")),
    }
    text.push_str(&describe_discarded(capture));
    text.push_str(" ...]\n");
    text.push_str(&String::from_utf8_lossy(tail));
    true
}

/// What the file of a stream lacks, after a comma; empty if it has all of it.
pub fn describe_discarded(capture: &OutputCapture) -> String {
    let discarded = capture.discarded;
    match capture.bytes.saturating_sub(discarded) {
        _ if discarded == 0 => String::new(),
        MAX_SPOOL_BYTES => format!(", except {discarded} bytes after the first GiB"),
        kept_bytes => format!(
            ", except {discarded} bytes after the first {kept_bytes}: the run has a limit for its directory"
        ),
    }
}

/// The bytes without an incomplete character at the end.
fn trim_split_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// The bytes without an incomplete character at the start.
fn trim_split_start(bytes: &[u8]) -> &[u8] {
    let continuation_bytes = bytes.iter().take(3).take_while(|byte| *byte & 0xc0 == 0x80).count();
    &bytes[continuation_bytes..]
}

/// Appends a newline to `text` unless it is empty or ends with one.
pub fn ensure_line_end(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
