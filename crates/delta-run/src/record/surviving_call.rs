//! Calls that outlive the process that works on the run.
//!
//! The command of such a call is the child of a *holder*, a process that needs no engine: it writes what the command prints
//! into files as it is printed, ends it at its timeout, and writes how it ended. The process that works on the run reads
//! these files; without one, nothing changes for the command. The holder has a lock as long as it lives, so a call without the lock
//! and without an end is known to be lost: its holder was killed, and its command with it, or the machine was.
//!
//! What is in the directory may be from another PID namespace, or forged. So a process is signalled only if the kernel names
//! it as the one that has the lock, and its command line is the one of a holder.
//!
//! `surviving/CALL/` of the run directory has `call.json`, `lock`, `stdout`, `stderr` and, in the end, `result.json`. The
//! directory is removed when the result of the call is durable in the journal.

use crate::event::approval::CallApproval;
use crate::ownership::{Ownership, run_process};
use delta_base::checksum::RunningChecksum;
use delta_base::durable::{self, FileError, FileLock};
use delta_base::hex::{decode_hex, encode_hex, sha256_hex};
use delta_base::time::Timestamp;
use delta_process::{LeftProcesses, OutputCapture, ProcessEnd, ProcessResult};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a holder prints when it holds its call, right before it starts the command.
pub const HOLDER_READY: &str = "ready\n";
/// The directory of the calls, in the run directory.
const CALLS_DIR: &str = "surviving";
/// The file in it that says that a process which exits leaves its calls at work.
const KEEP_FILE: &str = "keep";
const COMMAND_FILE: &str = "call.json";
const END_FILE: &str = "result.json";
const LOCK_FILE: &str = "lock";
const GIVEN_UP_FILE: &str = "given-up";
/// The room on the disk for how a command ended.
const END_ROOM: usize = 4096;
/// How often a lock is looked at whose holder is not found: other processes take it for an instant.
const HOLDER_LOOKS: usize = 50;
/// The longest id of a call that is the name of a directory as it is.
const MAX_NAME_BYTES: usize = 80;

/// The directory of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurvivingCall {
    dir: PathBuf,
}

/// What was called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivingCommand {
    /// The id of the call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The command line.
    pub argv: Vec<String>,
    /// The standard input.
    pub stdin: String,
    /// Who approved it, if it had to be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<CallApproval>,
    /// When it was requested.
    pub started_at: Timestamp,
}

/// What a holder needs, on one line of its standard input. It has secrets, so it cannot be printed.
#[derive(Serialize, Deserialize)]
pub struct HolderOrder {
    /// The directory of the call.
    pub dir: PathBuf,
    /// What is called. Not from the directory, where other tools can write.
    pub command: SurvivingCommand,
    /// The id of the run.
    pub run_id: String,
    /// The directory of the run.
    pub run_dir: PathBuf,
    /// The file to start in place of the one that the command line names.
    pub program: Option<PathBuf>,
    /// The time after which the command is ended, in milliseconds.
    pub timeout_ms: u64,
    /// The most bytes that are kept of each output stream.
    pub max_bytes: u64,
    /// The size of a stream's excerpt, whose last half is kept beyond that.
    pub excerpt_bytes: usize,
    /// What is redacted in the output.
    pub secrets: Vec<String>,
}

/// How the command of a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivingEnd {
    #[serde(with = "EndKind")]
    end: ProcessEnd,
    duration_ms: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ended_background: Vec<String>,
    /// What the files of both streams have; `None` if nothing was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<Box<StreamFiles>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout: Option<LostOutput>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stderr: Option<LostOutput>,
}

/// What the files of both streams have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFiles {
    /// Of standard output.
    pub stdout: StreamFile,
    /// Of standard error.
    pub stderr: StreamFile,
}

/// What the file of a stream has. Nothing is synced, so a power failure may leave less of it, and all of how the command
/// ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFile {
    /// Its length.
    pub bytes: u64,
    /// The CRC-32 of its content, in hexadecimal digits.
    pub crc: String,
}

impl StreamFile {
    /// Whether the file at `path` has that.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let mut file = durable::open_no_follow(path)?;
        let mut checksum = RunningChecksum::default();
        let mut length = 0;
        let mut buffer = [0; 64 * 1024];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                return Ok((length, checksum.to_hex()) == (self.bytes, self.crc.clone()));
            }
            checksum.update(&buffer[..count]);
            length += count as u64;
        }
    }
}

/// What the file of a stream does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LostOutput {
    /// The length of the stream.
    bytes: u64,
    discarded: u64,
    /// The end of the stream, in hexadecimal digits.
    tail: String,
}

impl LostOutput {
    /// Of the stream `capture`, whose file has `kept_bytes`; `None` if it has all.
    fn find(capture: &OutputCapture, kept_bytes: u64) -> Option<Self> {
        let discarded = capture.bytes.saturating_sub(kept_bytes);
        let tail = encode_hex(&capture.tail);
        (discarded > 0).then_some(Self { bytes: capture.bytes, discarded, tail })
    }

    fn add_to(&self, capture: &mut OutputCapture) {
        capture.bytes = self.bytes;
        capture.discarded += self.discarded;
        capture.whole = None;
        if let Some(tail) = decode_hex(&self.tail) {
            // As long as the excerpt of the part in the file is at its end.
            let size = if capture.tail.is_empty() { &capture.head } else { &capture.tail }.len();
            capture.tail = tail[tail.len().saturating_sub(size)..].to_vec();
        }
    }
}

/// The names of the ends in the file.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ProcessEnd", rename_all = "snake_case")]
enum EndKind {
    Exited(i32),
    Killed(i32),
    TimedOut,
    #[serde(rename = "stopped")]
    Cancelled,
    /// Counts as `Cancelled`.
    #[serde(skip)]
    OutOfTime,
    /// Counts as `Cancelled`.
    #[serde(skip)]
    ForMessage,
    NotStarted {
        code: i32,
        reason: String,
    },
}

impl SurvivingEnd {
    /// The end of a command whose streams are in `files`, as far as the files have them.
    pub fn of_result(result: ProcessResult, files: StreamFiles) -> Self {
        let stdout = LostOutput::find(&result.stdout, files.stdout.bytes);
        let stderr = LostOutput::find(&result.stderr, files.stderr.bytes);
        let files = Some(Box::new(files));
        Self { files, stdout, stderr, ..Self::new(result.end, result.duration, result.left) }
    }

    /// The end of a command that took so long and left these processes, which were ended.
    pub fn new(end: ProcessEnd, duration: Duration, left: LeftProcesses) -> Self {
        let end = match end {
            ProcessEnd::OutOfTime | ProcessEnd::ForMessage => ProcessEnd::Cancelled,
            end => end,
        };
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let ended_background = left.ended;
        Self { end, duration_ms, ended_background, files: None, stdout: None, stderr: None }
    }

    /// Makes `result`, which has what the files have, the result of the command; its end stays if `keeps_end`.
    pub fn add_to(&self, result: &mut ProcessResult, keeps_end: bool) {
        if !keeps_end {
            result.end = self.end.clone();
        }
        result.duration = Duration::from_millis(self.duration_ms);
        result.left =
            LeftProcesses { ended: self.ended_background.clone(), ..LeftProcesses::default() };
        if let Some(lost) = &self.stdout {
            lost.add_to(&mut result.stdout);
        }
        if let Some(lost) = &self.stderr {
            lost.add_to(&mut result.stderr);
        }
    }
}

/// What is known of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurvivingState {
    /// Its holder lives.
    AtWork,
    /// Its command has ended.
    Ended(SurvivingEnd),
    /// Nothing holds it, and nothing says how it ended.
    Lost,
}

/// The holder of a call lives and cannot be signalled from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its holder is in another PID namespace, such as a container, or belongs to another user")]
pub struct UnreachableHolder;

impl SurvivingCall {
    /// Creates the directory of a call that is about to be requested.
    ///
    /// # Errors
    /// The directory or the file could not be written.
    pub fn create(run_dir: &Path, command: &SurvivingCommand) -> Result<Self, FileError> {
        durable::ensure_private_dir(&run_dir.join(CALLS_DIR))?;
        let call = Self::at(run_dir, &command.call_id);
        call.remove();
        durable::ensure_private_dir(&call.dir)?;
        let json = delta_base::json::to_json(command);
        durable::create_private_unsynced(&call.dir.join(COMMAND_FILE), json.as_bytes())?;
        Ok(call)
    }

    fn at(run_dir: &Path, call_id: &str) -> Self {
        let is_name = (1..=MAX_NAME_BYTES).contains(&call_id.len())
            && call_id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let name = if is_name { call_id.to_owned() } else { format!("id.{}", sha256_hex(call_id)) };
        Self { dir: run_dir.join(CALLS_DIR).join(name) }
    }

    /// The call in the directory that [`SurvivingCall::create`] has made.
    pub fn open(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The call `call_id` of the run in `run_dir`, if it has a directory.
    pub fn find(run_dir: &Path, call_id: &str) -> Option<Self> {
        let call = Self::at(run_dir, call_id);
        durable::is_dir_no_follow(&call.dir).then_some(call)
    }

    /// All calls of the run in `run_dir` that have a directory.
    pub fn all(run_dir: &Path) -> Vec<Self> {
        let dir = run_dir.join(CALLS_DIR);
        let entries = durable::read_dir_no_follow(&dir).unwrap_or_default();
        let dirs = entries.into_iter().filter(durable::DirEntry::is_dir);
        dirs.map(|entry| Self { dir: dir.join(&entry.name) }).collect()
    }

    /// The calls of the run in `run_dir` whose commands are running.
    pub fn all_at_work(run_dir: &Path) -> Vec<Self> {
        let mut calls = Self::all(run_dir);
        calls.retain(Self::is_at_work);
        calls
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The name of its directory, which the marks of its processes are made from.
    pub fn name(&self) -> &str {
        self.dir.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// What was called.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn command(&self) -> io::Result<SurvivingCommand> {
        let text = durable::read_regular_text(&self.dir.join(COMMAND_FILE))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The file of what it has printed to `stdout` or `stderr`.
    pub fn output_path(&self, stream: &str) -> PathBuf {
        self.dir.join(stream)
    }

    /// Creates the file of a stream.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_output(&self, stream: &str) -> io::Result<File> {
        durable::create_private_file(&self.output_path(stream))
    }

    /// Creates the file of how the command ended, with room for that on the disk.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_end_file(&self) -> io::Result<EndFile> {
        let mut file = durable::create_private_file(&self.dir.join(END_FILE))?;
        file.write_all(&[b' '; END_ROOM])?;
        Ok(EndFile(file))
    }

    /// Makes a holder that is just starting start nothing. The caller has the lock.
    pub fn give_up(&self) {
        let _ = durable::ensure_blank_file(&self.dir.join(GIVEN_UP_FILE));
    }

    /// Whether a process that worked on the run gave it up, or removed it.
    pub fn is_given_up(&self) -> bool {
        durable::is_file_no_follow(&self.dir.join(GIVEN_UP_FILE))
            || !durable::is_file_no_follow(&self.dir.join(COMMAND_FILE))
    }

    /// Takes the lock, which shows that the call has a holder; `None` if it has one.
    ///
    /// # Errors
    /// There is no such call any more.
    pub fn try_hold(&self) -> Result<Option<FileLock>, FileError> {
        FileLock::try_acquire(&self.dir.join(LOCK_FILE))
    }

    /// What is known of it. Only who works on the run asks this: it takes the lock for a moment.
    pub fn state(&self) -> SurvivingState {
        match self.try_hold() {
            Ok(None) => SurvivingState::AtWork,
            Ok(Some(_)) | Err(_) => self
                .end()
                .filter(|end| self.has_whole_output(end))
                .map_or(SurvivingState::Lost, SurvivingState::Ended),
        }
    }

    /// Whether the files of the streams are as the holder left them.
    fn has_whole_output(&self, end: &SurvivingEnd) -> bool {
        let has = |stream: &str, file: &StreamFile| {
            file.is_at(&self.output_path(stream)).unwrap_or(false)
        };
        let Some(files) = &end.files else { return true };
        has("stdout", &files.stdout) && has("stderr", &files.stderr)
    }

    /// How the command ended, if it has.
    pub fn end(&self) -> Option<SurvivingEnd> {
        let text = durable::read_regular_text(&self.dir.join(END_FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes how the command ended.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn write_end(&self, end: &SurvivingEnd) -> Result<(), FileError> {
        let json = delta_base::json::to_json(end);
        durable::replace_private_unsynced(&self.dir.join(END_FILE), json.as_bytes())
    }

    /// Whether its holder lives, wherever it is.
    pub fn is_at_work(&self) -> bool {
        durable::is_locked(&self.dir.join(LOCK_FILE))
    }

    /// The id of the holder; `None` if it does not live, or cannot be seen from here.
    pub fn holder(&self) -> Option<u32> {
        if !delta_process::shows_own_processes() {
            return None;
        }
        let listed = durable::list_lock_holders(&self.dir.join(LOCK_FILE));
        let holder = listed.into_iter().find(|listed| {
            run_process::holder_directory(listed.pid).is_some_and(|dir| {
                listed.is_on_device || dir.as_deref() == Some(self.dir.as_os_str().as_bytes())
            })
        });
        holder.map(|listed| listed.pid)
    }

    /// Asks the holder to end the command, which gets SIGTERM, and SIGKILL 5 s later.
    ///
    /// # Errors
    /// The holder cannot be signalled from here.
    pub fn stop(&self) -> Result<(), UnreachableHolder> {
        self.signal(Signal::TERM)
    }

    /// Kills the holder, and the command with it.
    ///
    /// # Errors
    /// The holder cannot be signalled from here.
    pub fn kill(&self) -> Result<(), UnreachableHolder> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> Result<(), UnreachableHolder> {
        for _ in 0..HOLDER_LOOKS {
            if !self.is_at_work() {
                return Ok(());
            }
            // The descriptor is opened first: if it is of the holder now, no other process gets the signal.
            if let Some(pid) = self.holder()
                && let Ok(Some(holder)) = run_process::open_pidfd(pid)
                && self.holder() == Some(pid)
            {
                let sent = run_process::send_signal(&holder, signal);
                if sent.is_ok() || !self.is_at_work() {
                    return Ok(());
                }
            }
            std::thread::yield_now();
        }
        Err(UnreachableHolder)
    }

    /// Removes what is left of it.
    pub fn remove(&self) {
        let _ = durable::remove_dir_all_no_follow(&self.dir);
    }
}

/// The file of how a command ended, which stays open: it is written wherever the run directory is then.
#[derive(Debug)]
pub struct EndFile(File);

impl EndFile {
    /// Writes how the command ended; on a full disk without the ends of its streams.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn write(&self, end: &SurvivingEnd) -> io::Result<()> {
        self.overwrite(end).or_else(|_| {
            self.overwrite(&SurvivingEnd { stdout: None, stderr: None, ..end.clone() })
        })
    }

    fn overwrite(&self, end: &SurvivingEnd) -> io::Result<()> {
        let mut json = delta_base::json::to_json(end).into_bytes();
        json.resize(json.len().max(END_ROOM), b' ');
        self.0.write_all_at(&json, 0)
    }
}

/// Makes the next process of the run in `run_dir` that exits leave the commands of its calls at work.
///
/// # Errors
/// The file could not be written.
pub fn request_keep(run_dir: &Path) -> Result<(), FileError> {
    let dir = run_dir.join(CALLS_DIR);
    durable::ensure_private_dir(&dir)?;
    durable::ensure_blank_file(&dir.join(KEEP_FILE))
}

/// Whether the process with `epoch` leaves the commands of its calls at work when it exits: that was requested, or a
/// later process owns the run and waits for them.
pub fn leaves_commands(run_dir: &Path, epoch: u32) -> bool {
    is_keep_requested(run_dir) || Ownership::is_replaced(run_dir, epoch)
}

fn is_keep_requested(run_dir: &Path) -> bool {
    durable::is_file_no_follow(&run_dir.join(CALLS_DIR).join(KEEP_FILE))
}

/// Forgets [`request_keep`].
pub fn forget_keep(run_dir: &Path) {
    let _ = durable::remove_file_no_follow(&run_dir.join(CALLS_DIR).join(KEEP_FILE));
    remove_empty_dir(run_dir);
}

/// Removes the directory of calls if it is empty.
pub fn remove_empty_dir(run_dir: &Path) {
    let _ = durable::remove_empty_dir_no_follow(&run_dir.join(CALLS_DIR));
}
