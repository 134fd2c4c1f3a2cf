//! Reads the files of io/ back and checks their checksums.

use super::ReplayReport;
use delta_base::checksum::{self, LineChecksum};
use delta_base::hex::sha256_hex;
use delta_process::{self as process, LeftProcesses, OutputCapture, ProcessEnd, ProcessResult};
use delta_run::event::image_file::ImageFile;
use delta_run::record::{self, ProcessOutcome, RecordedStream};
use serde::de::DeserializeOwned;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directories of io/.
const RECORD_DIRS: [&str; 3] = ["io/invocations", "io/tool_executions", "io/hooks"];

/// The io/ directory of one run.
#[derive(Debug)]
pub struct IoFiles<'a> {
    run_dir: &'a Path,
    /// The files that were checked, relative to the run directory.
    checked: BTreeSet<String>,
    /// The hashes in the events that name records.
    hashes: HashMap<String, (String, u64)>,
}

impl<'a> IoFiles<'a> {
    pub fn new(run_dir: &'a Path) -> Self {
        Self { run_dir, checked: BTreeSet::new(), hashes: HashMap::new() }
    }

    /// The record `name` has this hash, as event `seq` says.
    pub(super) fn expect_hash(&mut self, name: &str, hash: &str, seq: u64) {
        self.hashes.insert(name.to_owned(), (hash.to_owned(), seq));
    }

    /// Reads and checks the record `name`; `None` when it is missing or truncated.
    pub(super) fn check_record_text(
        &mut self,
        name: &str,
        iteration: Option<u32>,
        report: &mut ReplayReport,
    ) -> Option<String> {
        let hash = self.hashes.get(name);
        let expected = hash.map(|(hash, _)| format!("bytes with SHA-256 {hash}"));
        let bytes = self.read_bytes(name, expected, report)?;
        if !self.checked.insert(name.to_owned()) {
            return String::from_utf8(bytes).ok();
        }
        report.checked.files += 1;
        let hash = self.hashes.get(name);
        let is_other = hash.filter(|(hash, _)| sha256_hex(&bytes) != *hash);
        match checksum::check_line_checksum(&bytes) {
            LineChecksum::Valid => {
                if let Some((hash, seq)) = is_other {
                    let recorded = format!("another record than event {seq} names");
                    let expected = format!("bytes with SHA-256 {hash}");
                    report.add_mismatch(iteration, name, recorded, expected);
                }
            }
            LineChecksum::Missing if bytes.ends_with(b"}\n") && report.has_checksums => {
                let recorded = "a record without a checksum";
                report.add_mismatch(iteration, name, recorded, "a checksum at its end");
            }
            LineChecksum::Missing if bytes.ends_with(b"}\n") => {
                report.add_not_checked(format!("the bytes of {name}: no checksum"));
            }
            LineChecksum::Missing => {
                report.add_mismatch(iteration, name, "a truncated record", "a complete record");
                return None;
            }
            LineChecksum::Mismatch { recorded, computed } => {
                report.add_checksum_mismatch(iteration, name, &computed, &recorded);
            }
        }
        String::from_utf8(bytes).ok()
    }

    /// Reads, checks and parses the record `name` of a process.
    pub(super) fn check_record<T: DeserializeOwned>(
        &mut self,
        name: &str,
        iteration: Option<u32>,
        report: &mut ReplayReport,
    ) -> Option<T> {
        let differences = report.differences.len();
        let text = self.check_record_text(name, iteration, report)?;
        let record: Result<T, _> = serde_json::from_str(&text);
        if let Err(error) = &record
            && report.differences.len() == differences
        {
            report.add_mismatch(iteration, name, error.to_string(), "a record");
        }
        record.ok()
    }

    /// The result of a process as the engine got it, with `keep` bytes of each stream to show; `None` when its output is
    /// incomplete.
    pub(super) fn read_finished(
        &mut self,
        name: &str,
        outcome: &ProcessOutcome,
        keep: usize,
        report: &mut ReplayReport,
    ) -> Option<ProcessResult> {
        let stdout = self.check_capture(name, outcome.stdout.as_ref(), keep, report)?;
        let stderr = self.check_capture(name, outcome.stderr.as_ref(), keep, report)?;
        let duration = Duration::from_millis(outcome.duration_ms);
        let left = LeftProcesses {
            ended: outcome.ended_background.clone(),
            running: outcome.left_running.clone(),
            output_files: outcome.later_output.clone(),
            lost_output: outcome.lost_output.clone(),
            held_stdout: false,
        };
        Some(ProcessResult { end: parse_process_end(outcome), duration, stdout, stderr, left })
    }

    /// Reads and checks a stream of the record file `record`.
    pub(super) fn check_capture(
        &mut self,
        record: &str,
        stream: Option<&RecordedStream>,
        keep: usize,
        report: &mut ReplayReport,
    ) -> Option<OutputCapture> {
        let stream = stream?;
        let (file, kept_bytes, discarded, has_hash) = match stream {
            RecordedStream::Text(text) => {
                let bytes = text.clone().into_bytes();
                return Some(OutputCapture::from_bytes(bytes, keep, None));
            }
            RecordedStream::Lost { head, tail, bytes, error } => {
                return Some(OutputCapture {
                    bytes: *bytes,
                    head: head.clone().into_bytes(),
                    tail: tail.clone().into_bytes(),
                    error: Some(error.clone()),
                    ..OutputCapture::default()
                });
            }
            RecordedStream::File { file, bytes, discarded, crc, sha256 } => {
                let kept_bytes = bytes.saturating_sub(*discarded);
                (file, kept_bytes, *discarded, crc.is_some() || sha256.is_some())
            }
        };
        let dir = record.rsplit_once('/').map_or("", |(dir, _)| dir);
        let name = format!("{dir}/{file}");
        let expected = (kept_bytes > 0).then(|| format!("{kept_bytes} bytes"));
        let bytes = self.read_bytes(&name, expected, report)?;
        if self.checked.insert(name.clone()) {
            report.checked.files += 1;
            match stream.find_other_hash(&bytes) {
                Some((actual, written)) => {
                    report.add_checksum_mismatch(None, &*name, &actual, written);
                }
                None if has_hash => {}
                None => report.add_not_checked(format!("the bytes of {name}: no checksum")),
            }
        }
        if discarded > 0 {
            report.add_not_checked(format!("what was shown of {name}: incomplete"));
            return None;
        }
        Some(OutputCapture::from_bytes(bytes, keep, Some(PathBuf::from(&name))))
    }

    /// Reads a file of io/. A missing file is not a difference, because a power failure can cause it. An empty one is, if its
    /// content was recorded, which `expected` describes.
    fn read_bytes(
        &self,
        name: &str,
        expected: Option<String>,
        report: &mut ReplayReport,
    ) -> Option<Vec<u8>> {
        let bytes = if name.starts_with("io/") {
            record::read_record_bytes(self.run_dir, name)
        } else {
            Err(io::Error::other("it is not in io/"))
        };
        match bytes {
            Ok(bytes) if !bytes.is_empty() => return Some(bytes),
            Ok(_) => match expected {
                Some(expected) => report.add_mismatch(None, name, "an empty file", expected),
                None => report.add_not_checked(format!("{name}: empty")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                report.add_not_checked(format!("{name}: missing"));
            }
            Err(error) => report.add_mismatch(None, name, error.to_string(), "a file"),
        }
        None
    }

    /// Checks an image that event `seq` names.
    pub(super) fn check_image(&mut self, image: &ImageFile, seq: u64, report: &mut ReplayReport) {
        if !self.checked.insert(image.file.clone()) {
            return;
        }
        report.checked.files += 1;
        match record::read_record_bytes(self.run_dir, &image.file) {
            Ok(bytes) if sha256_hex(&bytes) == image.sha256 => {}
            Ok(_) => {
                let recorded = format!("another image than event {seq} names");
                let expected = format!("bytes with SHA-256 {}", image.sha256);
                report.add_mismatch(None, image.file.as_str(), recorded, expected);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                report.add_not_checked(format!("{}: missing", image.file));
            }
            Err(error) => {
                report.add_mismatch(None, image.file.as_str(), error.to_string(), "an image");
            }
        }
    }

    pub(super) fn has_records(&self) -> bool {
        RECORD_DIRS.iter().any(|dir| !record::list_record_files(self.run_dir, dir).is_empty())
    }

    /// Checks the records that no event names: records of repeated calls, and of an engine that was killed.
    pub(super) fn check_unnamed_records(&mut self, report: &mut ReplayReport) {
        for dir in RECORD_DIRS {
            for (name, length) in record::list_record_files(self.run_dir, dir) {
                let name = format!("{dir}/{name}");
                // The record of a tool that did not end is empty: it is created before the tool starts.
                if length != Some(0) && name.ends_with(".json") && !self.checked.contains(&name) {
                    self.check_record_text(&name, None, report);
                }
            }
        }
    }
}

/// Parses how a process ended.
fn parse_process_end(outcome: &ProcessOutcome) -> ProcessEnd {
    let Some(reason) = &outcome.ended else {
        return ProcessEnd::Exited(outcome.exit_code.unwrap_or_default());
    };
    match reason.as_str() {
        "timed out" => return ProcessEnd::TimedOut,
        "interrupted" => return ProcessEnd::Cancelled,
        "out of time" => return ProcessEnd::OutOfTime,
        "interrupted for a message" => return ProcessEnd::ForMessage,
        _ => {}
    }
    let signal = reason
        .strip_prefix("killed by ")
        .and_then(|name| (1..=64).find(|number| process::signal_name(*number) == name));
    match signal {
        Some(number) => ProcessEnd::Killed(number),
        None => {
            let code = outcome.exit_code.unwrap_or(126);
            ProcessEnd::NotStarted { code, reason: reason.clone() }
        }
    }
}
