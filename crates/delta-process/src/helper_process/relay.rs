//! What processes print after the call that has started them: a relay, a process that outlives this one, reads their pipes
//! and writes files.
//!
//! So a pipe has a reader as long as a process writes, the text is redacted, and the files have a limit; a file as the output
//! of the command itself would have neither, and `> /dev/stderr` would empty it.

use super::super::exec_image::ExecImage;
use super::super::service::own_program;
use super::super::{READ_BUFFER_BYTES, exit_fd};
use super::start_helper;
use delta_base::durable;
use delta_base::redact::{Secrets, StreamRedactor};
use delta_base::signal::to_timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, PipeReader, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// The argument with which this program is a relay.
pub const RELAY_COMMAND: &str = "__relay";

/// The rest of a stream of a command that has ended.
pub(in super::super) struct LaterStream {
    pub(in super::super) pipe: PipeReader,
    pub(in super::super) is_stderr: bool,
    /// The file for it, which must not exist.
    pub(in super::super) path: PathBuf,
    /// The most bytes of the file.
    pub(in super::super) max_bytes: u64,
    /// Bytes before it that may be the start of a secret.
    pub(in super::super) held_back: Vec<u8>,
}

/// A relay that runs.
#[derive(Debug)]
pub(in super::super) struct Relay {
    exit_fd: Option<OwnedFd>,
}

/// What a relay gets on its standard input. Its standard output and error are the pipes that it reads.
#[derive(Serialize, Deserialize)]
struct RelayOrder {
    secrets: Vec<String>,
    streams: [Option<StreamOrder>; 2],
}

#[derive(Serialize, Deserialize)]
struct StreamOrder {
    path: PathBuf,
    max_bytes: u64,
    held_back: Vec<u8>,
}

impl Relay {
    /// Starts a relay for `streams`, whose files exist from then on.
    ///
    /// # Errors
    /// Nothing reads the streams.
    pub(in super::super) fn start(
        streams: Vec<LaterStream>,
        secrets: &Secrets,
    ) -> io::Result<Self> {
        let program = own_program();
        let argv = [program.display().to_string(), RELAY_COMMAND.to_owned()];
        let image =
            ExecImage::without_variables(&program, &argv).ok_or(io::ErrorKind::InvalidInput)?;
        let null = File::open("/dev/null")?;
        let mut pipes = [null.try_clone()?.into(), OwnedFd::from(null)];
        let mut orders = [None, None];
        for stream in streams {
            durable::create_private_file(&stream.path)?;
            let LaterStream { pipe, is_stderr, path, max_bytes, held_back } = stream;
            pipes[usize::from(is_stderr)] = pipe.into();
            orders[usize::from(is_stderr)] = Some(StreamOrder { path, max_bytes, held_back });
        }
        let order = RelayOrder { secrets: secrets.values().to_vec(), streams: orders };
        let (order_reader, mut order_writer) = io::pipe()?;
        let [stdout, stderr] = pipes;
        let pid = start_helper(image, [order_reader.into(), stdout, stderr], true)?;
        serde_json::to_writer(&mut order_writer, &order)?;
        Ok(Self { exit_fd: exit_fd(pid) })
    }

    /// Waits until `deadline` for its end, which follows the end of the processes that write.
    pub(in super::super) fn wait(&self, deadline: Instant) {
        let Some(fd) = &self.exit_fd else { return };
        let limit = deadline.saturating_duration_since(Instant::now());
        let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&to_timespec(limit)));
    }
}

/// Works as a relay until no process has the other ends of its pipes.
pub fn run_relay() -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // Its memory has the secrets.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
    let Ok(order) = serde_json::from_reader::<_, RelayOrder>(io::stdin().lock()) else {
        return ExitCode::FAILURE;
    };
    let secrets = Secrets::new(order.secrets);
    let stdout = io::stdout();
    let stderr = io::stderr();
    let pipes = [stdout.as_fd(), stderr.as_fd()];
    let streams = order.streams.into_iter().zip(pipes);
    let mut streams: Vec<RelayedStream<'_>> = streams
        .filter_map(|(order, pipe)| Some(RelayedStream::new(order?, pipe, &secrets)))
        .collect();
    let mut buffer = vec![MaybeUninit::uninit(); READ_BUFFER_BYTES];
    while !streams.is_empty() {
        let mut fds: Vec<PollFd<'_>> = streams
            .iter()
            .map(|stream| PollFd::from_borrowed_fd(stream.pipe, PollFlags::IN))
            .collect();
        let _ = poll(&mut fds, None);
        drop(fds);
        streams.retain_mut(|stream| stream.read(&mut buffer));
    }
    ExitCode::SUCCESS
}

struct RelayedStream<'a> {
    pipe: BorrowedFd<'a>,
    redactor: StreamRedactor,
    /// `None` if it cannot be written: what it should have is lost, and the pipe is read on.
    file: Option<File>,
    /// How many bytes the file may still take.
    room: u64,
}

impl<'a> RelayedStream<'a> {
    fn new(order: StreamOrder, pipe: BorrowedFd<'a>, secrets: &Secrets) -> Self {
        let file = durable::open_or_create_no_follow(&order.path).ok();
        let redactor = secrets.stream_redactor();
        let mut stream = Self { pipe, redactor, file, room: order.max_bytes };
        let held_back = stream.redactor.push(&order.held_back).into_owned();
        stream.write(&held_back);
        stream
    }

    /// Copies what the pipe has; returns false at the end.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) -> bool {
        match rustix::io::read(self.pipe, buffer) {
            Ok((piece @ [_, ..], _)) => {
                let redacted = self.redactor.push(piece).into_owned();
                self.write(&redacted);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Ok(_) | Err(_) => {
                let rest = self.redactor.flush();
                self.write(&rest);
                false
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let count = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.room -= count as u64;
        if self.file.as_mut().is_some_and(|file| file.write_all(&bytes[..count]).is_err()) {
            self.file = None;
        }
    }
}
