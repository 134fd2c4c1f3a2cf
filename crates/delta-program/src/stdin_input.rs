//! Input on stdin: read to its end with a limit, and only where it was meant for this process.
//!
//! stdin that a caller only passes on must stay its own: `while read` loops, `curl | bash` and cron jobs would lose their
//! input, or wait for an end that never comes.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Stat, fstat};
use rustix::io::Errno;
use rustix::process::getppid;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

/// The most bytes that are read.
pub const MAX_STDIN_BYTES: usize = 64 << 20;

/// How long nothing may happen before the user is informed, or a caller that writes nothing is given up.
const SILENCE: Duration = Duration::from_secs(3);
/// The type of the file system of pipes without a name (include/uapi/linux/magic.h).
#[cfg(target_os = "linux")]
const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// Programs that start another with their own stdin, and never read it.
const WRAPPERS: [&str; 6] = ["doas", "ltrace", "strace", "sudo", "time", "timeout"];

/// Why stdin was not read.
#[derive(Debug)]
pub enum StdinError {
    /// There is more than [`MAX_STDIN_BYTES`].
    TooLarge,
    /// Reading failed.
    Unreadable(io::Error),
}

/// What a user is informed of while stdin is read.
#[derive(Debug)]
pub enum StdinNote {
    /// The input is awaited.
    Waiting(&'static str),
    /// There is or may be input that is not read.
    Ignored(String),
}

/// Reads stdin to its end, whatever it is.
///
/// # Errors
/// stdin cannot be read, or is too large.
pub fn read_all_stdin() -> Result<Vec<u8>, StdinError> {
    read_to_end(None)
}

/// Reads stdin to its end if it was meant for this process: a file, pipe or socket that the process which started this one
/// does not have as its own stdin, and of a file only one that nothing has been read from. `notify` gets notes for the user.
///
/// A pipe or socket whose other end stays silent is given up, unless the writer is another command of a pipeline.
///
/// # Errors
/// stdin cannot be read, or is too large.
pub fn read_piped_stdin(notify: &mut dyn FnMut(StdinNote)) -> Result<Vec<u8>, StdinError> {
    let Ok(stat) = fstat(rustix::stdio::stdin()) else { return Ok(Vec::new()) };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Fifo | FileType::Socket) {
        return Ok(Vec::new());
    }
    let parent = caller();
    if parent.is_some_and(|parent| is_stdin_of(parent, &stat)) {
        // A command of a pipeline may take its time to write.
        if has_input(kind, &stat) || is_pipeline(kind, &stat) {
            let parent = parent.map_or_else(String::new, describe_process);
            notify(ignored(&format!("{parent} may read it too")));
        }
        return Ok(Vec::new());
    }
    if kind == FileType::RegularFile {
        if read_offset() > 0 {
            if has_input(kind, &stat) {
                notify(ignored("a part of the file has been read already"));
            }
            return Ok(Vec::new());
        }
        return read_all_stdin();
    }
    let mut is_noted = false;
    let mut note_waiting = || {
        if !std::mem::replace(&mut is_noted, true) {
            notify(StdinNote::Waiting(WAITING_NOTE));
        }
    };
    while !poll_stdin() {
        // Asked again each time: a process that its caller is starting has the pipe open for a moment.
        if !is_pipeline(kind, &stat) {
            let seconds = SILENCE.as_secs();
            notify(ignored(&format!("nothing was written to it for {seconds} s")));
            return Ok(Vec::new());
        }
        note_waiting();
    }
    read_to_end(Some(&mut note_waiting))
}

/// The note about input that is not read.
fn ignored(reason: &str) -> StdinNote {
    StdinNote::Ignored(format!(
        "Note: stdin is not added to the task, because {reason}; `delta run \"TEXT $(cat)\"` adds it, and `< /dev/null` ends this note"
    ))
}

const WAITING_NOTE: &str = "Note: waiting for the end of stdin, which is added to the task";

/// Reads to the end; calls `on_silence` after each [`SILENCE`]. Without it nothing is polled before it is read: in the
/// background of a shell, a read of the terminal is an error, and a poll would wait for ever.
fn read_to_end(mut on_silence: Option<&mut dyn FnMut()>) -> Result<Vec<u8>, StdinError> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        while let Some(on_silence) = &mut on_silence
            && !poll_stdin()
        {
            on_silence();
        }
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) if bytes.len() + count > MAX_STDIN_BYTES => return Err(StdinError::TooLarge),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => _ = poll_stdin(),
            Err(error) => return Err(StdinError::Unreadable(error.into())),
        }
    }
}

/// Waits until stdin has bytes, an end or an error, for at most [`SILENCE`].
fn poll_stdin() -> bool {
    let stdin = rustix::stdio::stdin();
    let limit = delta_base::signal::to_timespec(SILENCE);
    let mut fds = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
    // What cannot be polled is read: the read reports the error.
    !matches!(poll(&mut fds, Some(&limit)), Ok(0) | Err(Errno::INTR))
}

/// Whether stdin has bytes at this moment.
fn has_input(kind: FileType, stat: &Stat) -> bool {
    if kind == FileType::RegularFile {
        return read_offset() < u64::try_from(stat.st_size).unwrap_or(0);
    }
    let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
    let now = delta_base::signal::to_timespec(Duration::ZERO);
    poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().contains(PollFlags::IN))
}

/// How much has been read from the open file of stdin, also by other processes.
fn read_offset() -> u64 {
    rustix::fs::seek(rustix::stdio::stdin(), rustix::fs::SeekFrom::Current(0)).unwrap_or(0)
}

/// The process that started this one, [`WRAPPERS`] not counted.
fn caller() -> Option<i32> {
    let mut pid = getppid()?.as_raw_pid();
    while WRAPPERS.contains(&command_name_of(pid).as_str())
        && let Some(parent) = parent_of(pid)
    {
        pid = parent;
    }
    Some(pid)
}

/// Whether the stdin of the process `pid` is the file of `stat`.
fn is_stdin_of(pid: i32, stat: &Stat) -> bool {
    fs::metadata(format!("/proc/{pid}/fd/0")).is_ok_and(|other| {
        i128::from(other.dev()) == i128::from(stat.st_dev) && other.ino() == stat.st_ino
    })
}

/// The id of a process and its name.
fn describe_process(pid: i32) -> String {
    format!("process {pid} ({})", command_name_of(pid))
}

fn command_name_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Whether stdin is a pipe that another process has open, which is not an ancestor of this one: a command of a pipeline
/// may take its time, a caller that only leaves a pipe open may never end. A pipe with a name was meant for this process.
fn is_pipeline(kind: FileType, stat: &Stat) -> bool {
    if kind != FileType::Fifo {
        return false;
    }
    #[cfg(target_os = "linux")]
    if rustix::fs::fstatfs(rustix::stdio::stdin())
        .is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|kind| kind != PIPEFS_MAGIC))
    {
        return true;
    }
    let ancestors = ancestors();
    let pipe = format!("pipe:[{}]", stat.st_ino);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| {
            let pid = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            pid.is_some_and(|pid| !ancestors.contains(&pid))
        })
        .flat_map(|process| fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten())
        .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|it| it == Path::new(&pipe)))
}

/// The ids of this process and of its ancestors.
fn ancestors() -> Vec<i32> {
    let mut pids = vec![rustix::process::getpid().as_raw_pid()];
    while let Some(parent) = pids.last().and_then(|pid| parent_of(*pid))
        && parent > 0
        && !pids.contains(&parent)
    {
        pids.push(parent);
    }
    pids
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
