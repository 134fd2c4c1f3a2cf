//! `--anchor`: appends the head of a run's journal somewhere else, where the one who changes the run cannot change it too.

use crate::environment;
use delta_base::signal::CancelToken;
use delta_base::{durable, json};
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_program::stdio;
use delta_report::verify::AnchoredHead;
use delta_run::event::JournalHead;
use delta_run::journal;
use delta_run::record::describe_process_end;
use delta_run::run::Run;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A service that makes timestamps may be slow.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_SHOWN_BYTES: usize = 1024;

/// Where heads are appended.
#[derive(Debug, Clone)]
pub enum Anchor {
    /// Appends to this file.
    File(PathBuf),
    /// A shell command, which gets a head on standard input.
    Command(String),
}

impl Anchor {
    /// Parses the path of a file, or `|` and a command.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('|').map(str::trim) {
            _ if text.is_empty() => Err("expected a file, or `|` and a command".to_owned()),
            Some("") => Err("expected a command after `|`".to_owned()),
            Some(command) => Ok(Self::Command(command.to_owned())),
            None => Ok(Self::File(PathBuf::from(text))),
        }
    }

    /// Appends the head of a run that this process leaves. The run has ended, so a failure is a warning.
    pub fn append_head(&self, run: &Run, cancel: &CancelToken) {
        let Some(JournalHead { seq, chain }) = run.journal_head() else { return };
        let start = journal::read_first_chain_value(&run.dir);
        let line = json::to_json(&AnchoredHead {
            run_id: run.id.clone(),
            start,
            run_dir: Some(run.dir.to_string_lossy().into_owned()),
            seq,
            chain,
        });
        let appended = match self {
            Self::File(path) => {
                // What others left without a newline would spoil this line.
                let start = if ends_within_line(path) { "\n" } else { "" };
                durable::append_line_synced(path, &format!("{start}{line}"))
                    .map_err(|error| error.to_string())
            }
            Self::Command(command) => pass_to_command(command, &line, &cancel.for_cleanup()),
        };
        if let Err(reason) = appended {
            stdio::print_error_line(&format!(
                "warning: the head of run {} was not anchored: {reason}",
                run.id
            ));
        }
    }
}

fn ends_within_line(path: &Path) -> bool {
    let mut last = [0];
    let read = durable::open_no_follow(path).and_then(|file| {
        let length = file.metadata()?.len();
        file.read_exact_at(&mut last, length.saturating_sub(1))
    });
    read.is_ok() && last != *b"\n"
}

fn pass_to_command(command: &str, line: &str, cancel: &CancelToken) -> Result<(), String> {
    let argv = ["sh".to_owned(), "-c".to_owned(), command.to_owned()];
    let cwd = std::env::current_dir().unwrap_or_else(|_| environment::home_or_root());
    let launch = LaunchContext::new(cwd, environment::variables().clone());
    let line = format!("{line}\n");
    let command = ProcessCommand {
        stdin: line.as_bytes(),
        ..ProcessCommand::new(&argv, &launch, COMMAND_TIMEOUT, MAX_SHOWN_BYTES)
    };
    let finished = process::run_process(&command, cancel);
    let reason = match &finished.end {
        ProcessEnd::Exited(0) => return Ok(()),
        ProcessEnd::Exited(code) => format!("the command exited with {code}"),
        end => describe_process_end(end).unwrap_or_else(|| "the command failed".to_owned()),
    };
    let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
    Err(if stderr.is_empty() { reason } else { format!("{reason}: {stderr}") })
}
