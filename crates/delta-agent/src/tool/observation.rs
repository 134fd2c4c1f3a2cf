//! What the LLM sees of a tool's execution: its output, head and tail if there is much, and how it
//! ended.

use super::ToolOutput;
use super::media_type::{is_binary, media_type};
use delta_base::durable;
use delta_base::json::without_blanks;
use delta_mcp::holder_config::HOLDER_DIR;
use delta_mcp::tool_result::{attachment_stem, named_images};
use delta_process::truncated_output::{
    OUTPUT_FILE_PREFIX, append_truncated, describe_discarded, ensure_line_end,
};
use delta_process::{
    LeftProcesses, MAX_LISTED_PROCESSES, OutputCapture, ProcessEnd, ProcessResult, signal_name,
};
use delta_run::event::image_file::{
    ImageFile, NewImage, USUAL_MAX_IMAGE_BYTES, text_with_images, too_large_reason,
};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::Path;

/// How many command lines of background processes are shown.
const MAX_SHOWN_COMMANDS: usize = 10;

/// Begins the line of an observation that says that the engine ended the command, because it was stopped itself.
pub const INTERRUPTED_PREFIX: &str = "[interrupted: ";

/// The result of a call as the LLM sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// The text for the LLM.
    pub text: String,
    /// The images after the text.
    pub images: Vec<NewImage>,
    /// The exit code; 127 or 126 if the program could not be started, `None` if it was killed.
    pub exit_code: Option<i32>,
    /// Whether some of the output was left out.
    pub truncated: bool,
    /// The processes that the call left running.
    pub left: LeftProcesses,
    /// Whether a hook keeps the output from the LLM.
    pub is_withheld: bool,
}

impl Observation {
    /// The images, as the journal names them.
    pub fn images(&self) -> Vec<ImageFile> {
        self.images.iter().map(|new| new.image.clone()).collect()
    }

    /// The text with a line for the image, for readers that take only text.
    pub fn described_text(&self) -> Cow<'_, str> {
        text_with_images(&self.text, &self.images())
    }
}

/// Describes a finished process whose standard output is an `output`. `dir` is the directory of its io/ files, relative to the
/// workspace; `record` is the name of the file there that holds the output; `sandbox` is a line about the sandbox. With
/// `reads_utf16`, UTF-16 is text, and JSON may begin with a byte order mark.
pub fn render_observation(
    finished: &ProcessResult,
    output: ToolOutput,
    timeout_ms: u64,
    dir: &str,
    record: &str,
    sandbox: Option<&str>,
    reads_utf16: bool,
) -> Observation {
    let utf16 = |stream| if reads_utf16 { decode_utf16(stream) } else { None };
    let mut text = String::new();
    let stdout = &finished.stdout;
    let mut images = Vec::new();
    let mut truncated = match output {
        ToolOutput::Text | ToolOutput::TextAndImages => {
            append_text(&mut text, stdout, utf16(stdout), dir, record)
        }
        ToolOutput::File => append_file(&mut text, "output", stdout, dir, record),
        ToolOutput::Json => append_json(&mut text, finished, dir, record, reads_utf16),
        ToolOutput::Image => match read_image(finished) {
            Ok(new) => {
                images.push(new);
                false
            }
            Err(reason) => append_stdout(&mut text, stdout, reason.as_deref(), dir, record),
        },
    };
    if finished.stderr.bytes > 0 {
        ensure_line_end(&mut text);
        text.push_str("[stderr]\n");
        let stderr = &finished.stderr;
        truncated |= append_text(&mut text, stderr, utf16(stderr), dir, record);
    }
    let note = match &finished.end {
        ProcessEnd::Exited(0) => None,
        ProcessEnd::Exited(code) => Some(format!("[exit code: {code}]")),
        ProcessEnd::Killed(signal) => Some(format!("[killed by {}]", signal_name(*signal))),
        ProcessEnd::TimedOut => Some(format!("[timed out after {timeout_ms} ms]")),
        ProcessEnd::Cancelled => {
            Some(format!("{INTERRUPTED_PREFIX}a person or the system stopped the engine]"))
        }
        ProcessEnd::OutOfTime => {
            Some(format!("{INTERRUPTED_PREFIX}the time limit of the run is over]"))
        }
        ProcessEnd::ForMessage => Some(format!("{INTERRUPTED_PREFIX}the operator sent a message]")),
        ProcessEnd::NotStarted { code, reason } => {
            Some(format!("The tool could not be started: {reason}.\n[exit code: {code}]"))
        }
    };
    let notes = [
        note,
        sandbox.map(str::to_owned),
        describe_background("ended", &finished.left.ended),
        describe_background("still running:", &finished.left.running),
        describe_later_output(&finished.left, dir),
    ];
    for note in notes.into_iter().flatten() {
        ensure_line_end(&mut text);
        text.push_str(&note);
    }
    if text.is_empty() && images.is_empty() {
        text.push_str("[no output]");
    }
    let exit_code = match finished.end {
        ProcessEnd::Exited(code) | ProcessEnd::NotStarted { code, .. } => Some(code),
        ProcessEnd::Killed(_)
        | ProcessEnd::TimedOut
        | ProcessEnd::Cancelled
        | ProcessEnd::OutOfTime
        | ProcessEnd::ForMessage => None,
    };
    let left = finished.left.clone();
    Observation { text, images, exit_code, truncated, left, is_withheld: false }
}

/// Appends what a stream was decoded to, or else the stream; returns true when some of it is left out.
fn append_text(
    text: &mut String,
    stream: &OutputCapture,
    decoded: Option<String>,
    dir: &str,
    record: &str,
) -> bool {
    let Some(decoded) = decoded else { return append_stream(text, stream, dir, record) };
    text.push_str(&decoded);
    false
}

/// The text of a stream that is shown whole, if it is UTF-16 with a byte order mark, as programs of Windows print.
fn decode_utf16(stream: &OutputCapture) -> Option<String> {
    if stream.tail.is_empty() { decode_utf16_bytes(&stream.head) } else { None }
}

fn decode_utf16_bytes(bytes: &[u8]) -> Option<String> {
    let (mark, rest) = bytes.split_first_chunk::<2>()?;
    let unit = match mark {
        [0xff, 0xfe] => u16::from_le_bytes,
        [0xfe, 0xff] => u16::from_be_bytes,
        _ => return None,
    };
    let (units, odd) = rest.as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let text = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
    let text: String = text.collect::<Result<_, _>>().ok()?;
    (!text.contains('\0')).then_some(text)
}

/// Appends a stream, or if it is not text, where it is; returns true when some of it is left out.
fn append_stream(text: &mut String, stream: &OutputCapture, dir: &str, record: &str) -> bool {
    if !is_binary(&stream.head, &stream.tail) {
        return append_truncated(text, stream, dir, record);
    }
    append_file(text, "binary output", stream, dir, record)
}

/// Appends the size, the type and the file of a stream, unless it is empty; returns false, as nothing of a text is left out.
fn append_file(
    text: &mut String,
    label: &str,
    stream: &OutputCapture,
    dir: &str,
    record: &str,
) -> bool {
    if stream.bytes == 0 {
        return false;
    }
    let bytes = stream.bytes;
    let media_type = media_type(&stream.head);
    let location = match &stream.error {
        Some(error) => format!("which could not be kept: {error}"),
        None => format!("in {dir}/{}", kept_file_name(stream, record)),
    };
    let discarded = describe_discarded(stream);
    text.push_str(&format!("[{label}: {bytes} bytes, {media_type}, {location}{discarded}]"));
    false
}

/// Appends the JSON value that a tool has printed, without blanks between its parts; returns true when some of it is left
/// out.
fn append_json(
    text: &mut String,
    finished: &ProcessResult,
    dir: &str,
    record: &str,
    reads_utf16: bool,
) -> bool {
    let stdout = &finished.stdout;
    let decoded = stdout.whole.as_deref().map(|bytes| match std::str::from_utf8(bytes) {
        // Programs of Windows print a byte order mark, which is not JSON.
        Ok(json) if reads_utf16 => Some(Cow::Borrowed(json.trim_start_matches('\u{feff}'))),
        Ok(json) => Some(Cow::Borrowed(json)),
        Err(_) if reads_utf16 => decode_utf16_bytes(bytes).map(Cow::Owned),
        Err(_) => None,
    });
    let parsed = match &decoded {
        Some(Some(json)) => serde_json::from_str::<&RawValue>(json)
            .map(|value| without_blanks(value.get()))
            .map_err(|error| error.to_string()),
        Some(None) => Err("the output is not UTF-8".to_owned()),
        None => Err("the output is too large".to_owned()),
    };
    match parsed {
        Ok(json)
            if stdout.tail.is_empty() || json.len() <= stdout.head.len() + stdout.tail.len() =>
        {
            text.push_str(&json);
            false
        }
        Ok(_) => append_stream(text, stdout, dir, record),
        // The ending of the process says why there is no output.
        Err(_) if stdout.bytes == 0 && finished.end != ProcessEnd::Exited(0) => false,
        Err(reason) => {
            let utf16 = if reads_utf16 { decode_utf16(stdout) } else { None };
            let truncated = append_text(text, stdout, utf16, dir, record);
            ensure_line_end(text);
            text.push_str(&format!("[not JSON: {reason}]"));
            truncated
        }
    }
}

/// The images that the output of a call of an MCP server names, in the order of their files' names there; `run_dir` is the run's
/// directory. What is none, or larger than endpoints take, is named only.
pub fn read_named_images(finished: &ProcessResult, run_dir: &Path, call_id: &str) -> Vec<NewImage> {
    let text = String::from_utf8_lossy(finished.stdout.whole.as_deref().unwrap_or_default());
    let dir = run_dir.join("io").join(HOLDER_DIR);
    let images = named_images(&text, &attachment_stem(call_id)).into_iter().filter_map(|name| {
        let content = durable::read_no_follow_at_most(&dir.join(name), USUAL_MAX_IMAGE_BYTES);
        NewImage::from_image(content.ok()?).ok()
    });
    images.collect()
}

/// The image that a tool has printed; else why there is none, `None` where the ending of the process says it.
fn read_image(finished: &ProcessResult) -> Result<NewImage, Option<String>> {
    let stdout = &finished.stdout;
    if !matches!(finished.end, ProcessEnd::Exited(_)) {
        // What was printed until then may begin like an image.
        let has_output = stdout.bytes > 0;
        return Err(has_output.then(|| "the tool did not exit by itself".to_owned()));
    }
    if stdout.bytes == 0 && finished.end != ProcessEnd::Exited(0) {
        return Err(None);
    }
    match &stdout.whole {
        Some(content) => NewImage::from_image(content.clone()).map_err(Some),
        None => Err(Some(too_large_reason(stdout.bytes))),
    }
}

/// Appends what was printed instead of an image, if it is text, and why it is not an image; returns true when some of it
/// is left out.
fn append_stdout(
    text: &mut String,
    stdout: &OutputCapture,
    no_image: Option<&str>,
    dir: &str,
    record: &str,
) -> bool {
    let Some(reason) = no_image else { return append_stream(text, stdout, dir, record) };
    if !is_text(stdout) {
        let location = describe_kept_output(stdout, dir, record);
        text.push_str(&format!("[no image: {reason}; {location}]"));
        return false;
    }
    let truncated = append_truncated(text, stdout, dir, record);
    ensure_line_end(text);
    text.push_str(&format!("[no image: {reason}]"));
    truncated
}

fn is_text(capture: &OutputCapture) -> bool {
    capture.whole.as_ref().is_some_and(|content| std::str::from_utf8(content).is_ok())
}

/// Where the output is that the LLM does not see.
fn describe_kept_output(capture: &OutputCapture, dir: &str, record: &str) -> String {
    if let Some(error) = &capture.error {
        return format!("{} bytes, which could not be kept: {error}", capture.bytes);
    }
    let file = kept_file_name(capture, record);
    format!("{} bytes; {OUTPUT_FILE_PREFIX}{dir}/{file}", capture.bytes)
}

/// The name of the file with a stream: its own, or the record.
fn kept_file_name<'a>(capture: &'a OutputCapture, record: &'a str) -> Cow<'a, str> {
    let file = capture.file.as_deref().and_then(|file| file.file_name());
    file.map_or(Cow::Borrowed(record), |name| name.to_string_lossy())
}

/// A line about processes that a call left running; `None` if there are none.
fn describe_background(fate: &str, commands: &[String]) -> Option<String> {
    if commands.is_empty() {
        return None;
    }
    let more = if commands.len() < MAX_LISTED_PROCESSES { "" } else { "at least " };
    let noun = if commands.len() == 1 { "process" } else { "processes" };
    let mut listed = commands[..commands.len().min(MAX_SHOWN_COMMANDS)].join(", ");
    if commands.len() > MAX_SHOWN_COMMANDS {
        listed.push_str(", ...");
    }
    Some(format!("[{fate} {more}{} background {noun}: {listed}]", commands.len()))
}

/// A line about what background processes print from now on; `None` if they hold no stream of the call.
fn describe_later_output(left: &LeftProcesses, dir: &str) -> Option<String> {
    if let Some(reason) = &left.lost_output {
        return Some(format!("[background output from now on is lost: {reason}]"));
    }
    let files: Vec<_> = left.output_files.iter().map(|name| format!("{dir}/{name}")).collect();
    (!files.is_empty()).then(|| format!("[background output from now on: {}]", files.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn printed(bytes: &[u8]) -> OutputCapture {
        OutputCapture {
            bytes: bytes.len() as u64,
            whole: Some(bytes.to_vec()),
            head: bytes.to_vec(),
            ..OutputCapture::default()
        }
    }

    fn check(
        end: ProcessEnd,
        stdout: &[u8],
        stderr: &[u8],
        expected: &str,
        exit_code: Option<i32>,
    ) {
        let finished = ProcessResult {
            end,
            duration: Duration::ZERO,
            stdout: printed(stdout),
            stderr: printed(stderr),
            left: LeftProcesses::default(),
        };
        let found = render_observation(&finished, ToolOutput::Text, 50, "p", "r.json", None, true);
        let text = expected.to_owned();
        assert_eq!(found, Observation { text, exit_code, ..Observation::default() });
    }

    #[test]
    fn c_4_3_an_observation_shows_streams_and_ending() {
        check(ProcessEnd::Exited(0), b"out\n", b"", "out\n", Some(0));
        check(ProcessEnd::Exited(0), b"", b"", "[no output]", Some(0));
        check(ProcessEnd::Exited(3), b"out", b"err", "out\n[stderr]\nerr\n[exit code: 3]", Some(3));
        check(ProcessEnd::Exited(1), b"", b"", "[exit code: 1]", Some(1));
        check(ProcessEnd::Killed(9), b"", b"", "[killed by SIGKILL]", None);
        check(ProcessEnd::TimedOut, b"part", b"", "part\n[timed out after 50 ms]", None);
        let reason = "program `x` was not found".to_owned();
        let shown = "The tool could not be started: program `x` was not found.\n[exit code: 127]";
        check(ProcessEnd::NotStarted { code: 127, reason }, b"", b"", shown, Some(127));
        check(ProcessEnd::Exited(0), b"a\xffb", b"", "a\u{fffd}b", Some(0));
    }

    #[test]
    fn c_28_5_json_loses_only_the_blanks_between_its_parts() {
        for (json, expected) in [
            (
                r#" { "a b" : [ 1.10, 12345678901234567890123 ] } "#,
                r#"{"a b":[1.10,12345678901234567890123]}"#,
            ),
            (r#"" \" \\" "#, r#"" \" \\""#),
            ("[]", "[]"),
        ] {
            assert_eq!(without_blanks(json), expected);
        }
    }

    #[test]
    fn c_28_5_utf16_is_text() {
        let encoded = |to_bytes: fn(u16) -> [u8; 2]| {
            "\u{feff}größer 😀\r\n".encode_utf16().flat_map(to_bytes).collect::<Vec<u8>>()
        };
        for bytes in [encoded(u16::to_le_bytes), encoded(u16::to_be_bytes)] {
            check(ProcessEnd::Exited(0), &bytes, b"", "größer 😀\r\n", Some(0));
            let odd = &bytes[..bytes.len() - 1];
            assert_eq!(decode_utf16(&printed(odd)), None);
            let cut = OutputCapture { tail: vec![0; 2], ..printed(&bytes) };
            assert_eq!(decode_utf16(&cut), None);
        }
        assert_eq!(decode_utf16(&printed(b"\xff\xfe\0\0")), None, "a NUL");
        assert_eq!(decode_utf16(&printed(b"plain")), None);
    }

    #[test]
    fn c_22_1_an_observation_names_background_processes() {
        let observe = |ended: &[&str], running: &[&str]| {
            let commands = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let finished = ProcessResult {
                end: ProcessEnd::Exited(3),
                duration: Duration::ZERO,
                stdout: printed(b"out"),
                stderr: printed(b""),
                left: LeftProcesses {
                    ended: commands(ended),
                    running: commands(running),
                    ..LeftProcesses::default()
                },
            };
            render_observation(&finished, ToolOutput::Text, 50, "p", "r.json", None, true).text
        };
        assert_eq!(
            observe(&["node server.js", "sleep 100"], &[]),
            "out\n[exit code: 3]\n[ended 2 background processes: node server.js, sleep 100]"
        );
        assert_eq!(
            observe(&[], &["vim"]),
            "out\n[exit code: 3]\n[still running: 1 background process: vim]"
        );
        let many = observe(&["a"; MAX_LISTED_PROCESSES], &[]);
        let line = "[ended at least 100 background processes: a, a, a, a, a, a, a, a, a, a, ...]";
        assert!(many.ends_with(line), "{many}");
    }

    #[test]
    fn c_4_5_much_output_is_cut_in_the_middle_at_whole_characters() {
        let capture = OutputCapture {
            bytes: 100,
            head: "abcä".as_bytes()[..4].to_vec(),
            tail: "äxyz".as_bytes()[1..].to_vec(),
            file: Some("/run/io/tool_executions/t.stdout".into()),
            ..OutputCapture::default()
        };
        let finished = ProcessResult {
            end: ProcessEnd::Exited(0),
            duration: Duration::ZERO,
            stdout: capture,
            stderr: OutputCapture::default(),
            left: LeftProcesses::default(),
        };
        let found =
            render_observation(&finished, ToolOutput::Text, 50, "place", "r.json", None, true);
        assert_eq!(
            found.text,
            "abc\n[... 94 bytes left out; the whole lies in place/t.stdout ...]\nxyz"
        );
        assert!(found.truncated);
    }

    #[test]
    fn c_4_5_what_could_not_be_kept_is_not_promised() {
        let capture = OutputCapture {
            bytes: 100,
            head: b"abc".to_vec(),
            tail: b"xyz".to_vec(),
            error: Some("No space left on device".to_owned()),
            ..OutputCapture::default()
        };
        let finished = ProcessResult {
            end: ProcessEnd::Exited(0),
            duration: Duration::ZERO,
            stdout: capture,
            stderr: OutputCapture::default(),
            left: LeftProcesses::default(),
        };
        assert_eq!(
            render_observation(&finished, ToolOutput::Text, 50, "place", "r.json", None, true).text,
            "abc\n[... 94 bytes left out; they could not be kept: No space left on device ...]\nxyz"
        );
    }
}
