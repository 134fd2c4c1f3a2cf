//! The files of io/, read back: what ran, what it printed, and whether they are as they were written.

use super::{Difference, Report};
use crate::crc::{self, Seal};
use crate::durable;
use crate::process::{self, Capture, End, Finished};
use crate::record::Stream;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The files of one run.
#[derive(Debug)]
pub struct Evidence<'a> {
    run_dir: &'a Path,
    /// What was looked at, relative to the run directory.
    seen: BTreeSet<String>,
}

/// A program that has run, as its record tells of it.
#[derive(Debug, Deserialize)]
pub struct Ran {
    /// The command line of a tool.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The tool.
    #[serde(default)]
    pub tool: String,
    /// The call.
    #[serde(default)]
    pub call_id: String,
    /// The hook.
    #[serde(default)]
    pub hook: String,
    /// Its standard input: a text, or a stream for a hook.
    #[serde(default)]
    pub stdin: Json,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
    /// Its exit code, if it had one.
    pub exit_code: Option<i32>,
    /// How it ended otherwise.
    pub ended: Option<String>,
    /// What it printed.
    pub stdout: Option<Stream>,
    /// What it printed to standard error.
    pub stderr: Option<Stream>,
    /// What a hook replaced.
    pub changed: Option<String>,
}

impl<'a> Evidence<'a> {
    /// The files of the run in `run_dir`.
    pub fn new(run_dir: &'a Path) -> Self {
        Self { run_dir, seen: BTreeSet::new() }
    }

    /// The text of a record, when it is there and is what was written.
    pub(super) fn text(
        &mut self,
        name: &str,
        iteration: Option<u32>,
        report: &mut Report,
    ) -> Option<String> {
        let bytes = self.bytes(name, report)?;
        if !self.seen.insert(name.to_owned()) {
            return String::from_utf8(bytes).ok();
        }
        report.checked.files += 1;
        match crc::look(&bytes) {
            Seal::Whole => {}
            Seal::None if bytes.ends_with(b"}\n") && report.sealed => {
                let recorded = "a record without its check value";
                report.differ(Difference::plain(iteration, name, recorded, "one at its end"));
            }
            Seal::None if bytes.ends_with(b"}\n") => {
                report.skip(format!("the bytes of {name}, which has no check value"));
            }
            Seal::None => {
                report.differ(Difference::plain(
                    iteration,
                    name,
                    "it is cut off",
                    "a whole record",
                ));
                return None;
            }
            Seal::Broken { written, found } => {
                report.differ(Difference::of_crc(iteration, name, &found, &written));
            }
        }
        String::from_utf8(bytes).ok()
    }

    /// A record of something that has run.
    pub(super) fn ran(
        &mut self,
        name: &str,
        iteration: Option<u32>,
        report: &mut Report,
    ) -> Option<Ran> {
        let before = report.differences.len();
        let text = self.text(name, iteration, report)?;
        let read: Result<Ran, _> = serde_json::from_str(&text);
        if let Err(error) = &read
            && report.differences.len() == before
        {
            report.differ(Difference::plain(iteration, name, error.to_string(), "a record"));
        }
        read.ok()
    }

    /// The program of the record `name` as the engine saw it end, with `keep` bytes of each stream to be shown; `None`
    /// when its output is not all there.
    pub(super) fn finished(
        &mut self,
        name: &str,
        ran: &Ran,
        keep: usize,
        report: &mut Report,
    ) -> Option<Finished> {
        let stdout = self.capture(name, ran.stdout.as_ref(), keep, report)?;
        let stderr = self.capture(name, ran.stderr.as_ref(), keep, report)?;
        let duration = Duration::from_millis(ran.duration_ms);
        Some(Finished { end: ended(ran), duration, stdout, stderr })
    }

    /// A stream of a record.
    pub(super) fn capture(
        &mut self,
        record: &str,
        stream: Option<&Stream>,
        keep: usize,
        report: &mut Report,
    ) -> Option<Capture> {
        match stream? {
            Stream::Text(text) => Some(Capture::of(text.clone().into_bytes(), keep, None)),
            Stream::Lost { head, tail, bytes, error } => Some(Capture {
                bytes: *bytes,
                head: head.clone().into_bytes(),
                tail: tail.clone().into_bytes(),
                error: Some(error.clone()),
                ..Capture::default()
            }),
            Stream::File { file, discarded, crc: written, .. } => {
                let directory = record.rsplit_once('/').map_or("", |(directory, _)| directory);
                let name = format!("{directory}/{file}");
                let bytes = self.bytes(&name, report)?;
                if self.seen.insert(name.clone()) {
                    report.checked.files += 1;
                    let found = crc::of(&bytes);
                    match written {
                        Some(written) if *written != found => {
                            report.differ(Difference::of_crc(None, &*name, &found, written));
                        }
                        Some(_) => {}
                        None => {
                            report.skip(format!("the bytes of {name}, which has no check value"))
                        }
                    }
                }
                if *discarded > 0 {
                    report.skip(format!("what was shown of {name}, which is not whole"));
                    return None;
                }
                let path = PathBuf::from(&name);
                Some(Capture::of(bytes, keep, Some(path)))
            }
        }
    }

    /// A file of io/. That it is not there, or empty, a power failure can bring about.
    fn bytes(&self, name: &str, report: &mut Report) -> Option<Vec<u8>> {
        let plain = name.starts_with("io/") && !name.split('/').any(|part| part == "..");
        let found = match plain {
            true => durable::read_whole(&self.run_dir.join(name)),
            false => Err(io::Error::other("it is no file of io/")),
        };
        match found {
            Ok(bytes) if !bytes.is_empty() => Some(bytes),
            Ok(_) => {
                report.skip(format!("{name}, which is empty"));
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                report.skip(format!("{name}, which is not there"));
                None
            }
            Err(error) => {
                report.differ(Difference::plain(None, name, error.to_string(), "a file"));
                None
            }
        }
    }

    /// Checks the records that no event names: those of calls that were made again, and of what a killed engine began.
    pub(super) fn rest(&mut self, report: &mut Report) {
        for part in ["invocations", "tool_executions", "hooks"] {
            let entries = fs::read_dir(self.run_dir.join("io").join(part)).into_iter().flatten();
            // An empty one is of a tool that was not seen to end: there is nothing to check.
            let is_empty = |entry: &DirEntry| {
                entry.metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
            };
            let names = entries
                .flatten()
                .filter(|entry| !is_empty(entry))
                .filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names
                .filter(|name| name.ends_with(".json"))
                .map(|name| format!("io/{part}/{name}"))
                .collect();
            names.sort();
            for name in names {
                if !self.seen.contains(&name) {
                    self.text(&name, None, report);
                }
            }
        }
    }
}

/// How a program ended, out of a record's words.
fn ended(ran: &Ran) -> End {
    let signal = |name: &str| (1..=64).find(|number| process::signal_name(*number) == name);
    let Some(words) = &ran.ended else { return End::Exited(ran.exit_code.unwrap_or_default()) };
    match words.as_str() {
        "timed out" => End::TimedOut,
        "interrupted" => End::Cancelled,
        words => match words.strip_prefix("killed by ").and_then(signal) {
            Some(number) => End::Killed(number),
            None => {
                End::NotStarted { code: ran.exit_code.unwrap_or(126), reason: words.to_owned() }
            }
        },
    }
}
