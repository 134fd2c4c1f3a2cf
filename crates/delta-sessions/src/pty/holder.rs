//! The holder: the process of a session that owns the terminal, keeps its output, and answers commands.
//!
//! Everything happens in one `poll` loop that never blocks on a peer: not on a command that sends nothing or does not take
//! its answer, and not on a program that does not read. The holder runs in the directory of the session, so that the path
//! of its socket is short wherever that directory is.

use super::client::{HolderClient, MAX_CLIENTS, TypedLine};
use super::protocol::MAX_INPUT_BYTES;
use super::ring::OutputRing;
use super::screen::{TerminalSize, VirtualTerminal};
use super::store::{self, PtyMetadata, PtyOutput, PtyStatus, SOCKET_FILE};
use super::{PtyError, PtyResult};
use crate::store::{LOCK_FILE, METADATA_FILE};
use crate::{Environment, SessionError, system_error};
use delta_base::durable::{self, FileLock};
use delta_base::id::SessionId;
use delta_base::signal::{CancelToken, to_timespec};
use delta_base::time;
use delta_process::{LaunchContext, ProcessEnd, TerminalProcess};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Output has settled when none came for this long.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(100);
/// How often the holder checks that the session's directory still exists.
const DIRECTORY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the holder checks for what no file descriptor reports.
const PROGRAM_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The time from SIGHUP to SIGTERM.
const TERMINATE_DELAY: Duration = Duration::from_millis(500);
/// The time from SIGTERM to SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(2);
/// How long the holder waits for a killed program to end, for output after its end, and for clients to take their answers.
const LINGER_LIMIT: Duration = Duration::from_secs(1);
/// How much is read from the terminal at once.
const OUTPUT_BUFFER_BYTES: usize = 64 * 1024;

/// What a holder needs besides its working directory.
#[derive(Debug)]
pub(crate) struct HolderOptions<'a> {
    pub(crate) id: &'a SessionId,
    /// The program and its arguments.
    pub(crate) argv: &'a [String],
    pub(crate) size: TerminalSize,
    /// The directory in which the session was started.
    pub(crate) work_dir: &'a Path,
    /// The environment of the program.
    pub(crate) environment: Environment,
}

pub(super) struct Holder {
    pub(super) metadata: PtyMetadata,
    pub(super) program: TerminalProcess,
    pub(super) terminal: VirtualTerminal,
    pub(super) output: PtyOutput,
    /// Input that the program has not taken yet.
    pub(super) pending_input: Vec<u8>,
    pub(super) typed_line: TypedLine,
    pub(super) clients: Vec<HolderClient>,
    /// When something was printed or typed last.
    pub(super) last_activity: Instant,
    shutdown: Option<SessionShutdown>,
    lock: FileLock,
    listener: UnixListener,
    cancel: CancelToken,
    /// Whether no process has the program's side of the terminal open.
    hung_up: bool,
    program_ended_at: Option<Instant>,
    last_directory_check: Instant,
}

/// How far the end of a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SessionShutdown {
    stage: ShutdownStage,
    /// When the next stage begins.
    deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownStage {
    HangUp,
    Terminate,
    Kill,
}

impl Holder {
    /// Starts the program and creates the session: all of it, or nothing.
    pub(super) fn start(options: &HolderOptions<'_>, cancel: &CancelToken) -> PtyResult<Self> {
        let lock =
            FileLock::try_acquire(Path::new(LOCK_FILE))?.ok_or(PtyError::HolderUnresponsive)?;
        let listener = bind_session_socket()?;
        let launch = LaunchContext::new(options.work_dir, options.environment.clone());
        let TerminalSize { cols, rows } = options.size;
        let program = TerminalProcess::spawn(options.argv, &launch, cols.get(), rows.get())
            .map_err(|end| match end {
                ProcessEnd::NotStarted { reason, .. } => SessionError::NotStarted(reason),
                other => SessionError::NotStarted(format!("{other:?}")),
            })?;
        let metadata = PtyMetadata {
            session_id: options.id.to_string(),
            command: options.argv.join(" "),
            created_at: time::current_time(),
            status: PtyStatus::Active,
            work_dir: options.work_dir.display().to_string(),
            size: options.size,
            pid: program.pid(),
            exit_code: None,
            ended_at: None,
        };
        store::save_pty_metadata(Path::new(""), &metadata)?;
        let sessions_dir = Path::new("..");
        let unfinished = sessions_dir.join(format!(".{}", options.id));
        durable::rename_dir_unsynced(&unfinished, &sessions_dir.join(options.id.as_str()))?;
        Ok(Self {
            metadata,
            program,
            terminal: VirtualTerminal::new(options.size),
            output: PtyOutput { raw: OutputRing::default(), text: OutputRing::default() },
            pending_input: Vec::new(),
            typed_line: TypedLine::default(),
            clients: Vec::new(),
            last_activity: Instant::now(),
            shutdown: None,
            lock,
            listener,
            cancel: cancel.clone(),
            hung_up: false,
            program_ended_at: None,
            last_directory_check: Instant::now(),
        })
    }

    /// Serves the session until its program has ended.
    pub(super) fn serve(mut self) {
        let mut buffer = vec![0; OUTPUT_BUFFER_BYTES];
        while !self.is_finished() {
            self.wait_for_events();
            self.accept_clients();
            self.read_output(&mut buffer);
            self.write_input();
            if self.program_ended_at.is_none() && self.program.poll_end().is_some() {
                self.program_ended_at = Some(Instant::now());
                self.read_remaining_output(&mut buffer);
            }
            self.serve_clients();
            self.write_input();
            self.check_shutdown_request();
            self.advance_shutdown();
        }
        self.finish();
    }

    pub(super) fn start_shutdown(&mut self) {
        if self.shutdown.is_none() {
            self.program.signal(Signal::HUP);
            self.enter_stage(ShutdownStage::HangUp, TERMINATE_DELAY);
        }
    }

    fn enter_stage(&mut self, stage: ShutdownStage, duration: Duration) {
        self.shutdown = Some(SessionShutdown { stage, deadline: Instant::now() + duration });
    }

    /// Whether the program has ended, and other processes at the terminal print nothing for now.
    fn is_finished(&self) -> bool {
        let Some(ended_at) = self.program_ended_at else { return false };
        let now = Instant::now();
        let settled_at = self.last_activity.max(ended_at) + SETTLE_TIME;
        self.hung_up || now >= settled_at || now >= ended_at + LINGER_LIMIT
    }

    fn wait_for_events(&self) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN)];
        if self.clients.len() < MAX_CLIENTS {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        if !self.hung_up {
            let flags = poll_flags(true, !self.pending_input.is_empty());
            fds.push(PollFd::from_borrowed_fd(self.program.terminal(), flags));
        }
        for client in &self.clients {
            let has_unsent = client.connection.unsent_bytes() > 0;
            let flags = poll_flags(self.can_receive(client), has_unsent);
            // Without flags, `poll` would still wake us when the client disconnects.
            if !flags.is_empty() {
                fds.push(PollFd::from_borrowed_fd(client.connection.fd(), flags));
            }
        }
        let timeout = self.next_deadline().saturating_duration_since(Instant::now());
        // Everything is tried without blocking afterwards, so the result of `poll` does not matter.
        let _ = poll(&mut fds, Some(&to_timespec(timeout)));
        self.cancel.drain();
    }

    fn next_deadline(&self) -> Instant {
        let check = Instant::now() + PROGRAM_CHECK_INTERVAL;
        let is_ending = self.hung_up || self.program_ended_at.is_some();
        let deadlines = [
            is_ending.then_some(check),
            self.shutdown.map(|shutdown| shutdown.deadline.min(check)),
        ];
        let clients = self.clients.iter().filter_map(|client| self.next_client_deadline(client));
        let directory_check = self.last_directory_check + DIRECTORY_CHECK_INTERVAL;
        deadlines.into_iter().flatten().chain(clients).fold(directory_check, Instant::min)
    }

    fn accept_clients(&mut self) {
        while self.clients.len() < MAX_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            self.clients.extend(HolderClient::from_stream(stream));
        }
    }

    /// Reads what was printed. Returns how many bytes it was.
    fn read_output(&mut self, buffer: &mut [u8]) -> usize {
        let mut result = rustix::io::read(self.program.terminal(), &mut *buffer);
        if result == Err(Errno::IO) {
            // The kernel first looks for output, then whether the terminal is closed. The last output may have arrived in
            // between; the second read finds it.
            result = rustix::io::read(self.program.terminal(), &mut *buffer);
        }
        match result {
            Ok(length @ 1..) => {
                self.hung_up = false;
                self.last_activity = Instant::now();
                let output = &buffer[..length];
                self.output.raw.push(output);
                let replies = self.terminal.process_output(output, &mut self.output.text);
                // A program that queries without reading does not fill our memory.
                if self.can_accept_input() {
                    self.pending_input.extend(replies);
                }
                return length;
            }
            Err(Errno::AGAIN | Errno::INTR) => self.hung_up = false,
            // A program that closed the terminal may open it again.
            Ok(0) | Err(_) => self.hung_up = true,
        }
        0
    }

    /// Reads everything that the program printed before it ended, however late we look. The kernel buffers less than the
    /// size of the buffer; other processes at the terminal may print without end.
    fn read_remaining_output(&mut self, buffer: &mut [u8]) {
        let mut total = 0;
        while total < buffer.len() {
            match self.read_output(buffer) {
                0 => break,
                length => total += length,
            }
        }
    }

    /// Writes as much input as the program takes.
    fn write_input(&mut self) {
        if self.pending_input.is_empty() {
            return;
        }
        match rustix::io::write(self.program.terminal(), &self.pending_input) {
            Ok(count) => {
                self.pending_input.drain(..count);
                self.last_activity = Instant::now();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // No process is left to read it.
            Err(_) if self.program_ended_at.is_some() => self.pending_input.clear(),
            Err(_) => {}
        }
    }

    /// Starts the shutdown after a signal, and when the session's directory was removed: no command can find it then.
    fn check_shutdown_request(&mut self) {
        let is_due = self.last_directory_check.elapsed() >= DIRECTORY_CHECK_INTERVAL;
        if is_due {
            self.last_directory_check = Instant::now();
        }
        if self.cancel.is_requested() || is_due && fs::metadata(METADATA_FILE).is_err() {
            self.start_shutdown();
        }
    }

    /// Enters the next stage of the shutdown when its time has come.
    fn advance_shutdown(&mut self) {
        let Some(SessionShutdown { stage, deadline }) = self.shutdown else { return };
        if self.program_ended_at.is_some() {
            return;
        }
        let is_due = Instant::now() >= deadline;
        match stage {
            ShutdownStage::HangUp if is_due => {
                self.program.signal(Signal::TERM);
                self.enter_stage(ShutdownStage::Terminate, KILL_DELAY);
            }
            ShutdownStage::Terminate if is_due => {
                self.program.kill_session();
                self.enter_stage(ShutdownStage::Kill, LINGER_LIMIT);
            }
            // A process that waits for a dead disk cannot be killed: give up.
            ShutdownStage::Kill if is_due => self.program_ended_at = Some(Instant::now()),
            // Processes that were being forked escaped the last time.
            ShutdownStage::Kill => self.program.kill_session(),
            ShutdownStage::HangUp | ShutdownStage::Terminate => {}
        }
    }

    /// Records the end and the output, and answers all clients.
    fn finish(mut self) {
        let is_terminated = self.shutdown.is_some();
        self.metadata.status = if is_terminated { PtyStatus::Terminated } else { PtyStatus::Ended };
        self.metadata.exit_code = match self.program.poll_end() {
            Some(ProcessEnd::Exited(code)) => Some(*code),
            Some(ProcessEnd::Killed(signal)) => Some(128 + signal),
            _ => None,
        };
        self.metadata.ended_at = Some(time::current_time());
        self.metadata.size = self.terminal.size();
        self.send_final_replies();
        let session_dir = Path::new("");
        // If this fails, commands find the session dead.
        let _ = self
            .output
            .save(session_dir, self.terminal.contents())
            .and_then(|()| store::save_pty_metadata(session_dir, &self.metadata));
        let _ = fs::remove_file(SOCKET_FILE);
        drop(self.lock);
        drop(self.listener);
        flush_replies(self.clients);
        // The kernel hangs up only now.
        drop(self.program);
    }

    /// Removes a session that no command knows of.
    pub(super) fn abandon(self) {
        self.program.kill_session();
        let _ = fs::remove_dir_all(Path::new("..").join(&self.metadata.session_id));
    }

    /// Whether there is room for more input.
    pub(super) fn can_accept_input(&self) -> bool {
        self.pending_input.len() < MAX_INPUT_BYTES
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        if size != self.terminal.size()
            && self.program.resize(size.cols.get(), size.rows.get()).is_ok()
        {
            self.terminal.resize(size);
            self.last_activity = Instant::now();
        }
    }

    /// The client whose terminal is attached.
    pub(super) fn attached_client(&mut self) -> Option<&mut HolderClient> {
        self.clients.iter_mut().find(|client| client.is_attached())
    }
}

/// The events to poll for.
pub(super) fn poll_flags(read: bool, write: bool) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, read);
    flags.set(PollFlags::OUT, write);
    flags
}

/// Sends the last replies to clients that take them in time.
fn flush_replies(mut clients: Vec<HolderClient>) {
    let deadline = Instant::now() + LINGER_LIMIT;
    loop {
        clients.iter_mut().for_each(|client| client.connection.send());
        clients.retain(|client| {
            client.connection.unsent_bytes() > 0 && !client.connection.is_closed()
        });
        let remaining = deadline.saturating_duration_since(Instant::now());
        if clients.is_empty() || remaining.is_zero() {
            break;
        }
        let fds =
            clients.iter().map(|it| PollFd::from_borrowed_fd(it.connection.fd(), PollFlags::OUT));
        let _ = poll(&mut fds.collect::<Vec<_>>(), Some(&to_timespec(remaining)));
    }
}

/// Binds the socket of the session, for its owner only.
fn bind_session_socket() -> PtyResult<UnixListener> {
    let listener =
        UnixListener::bind(SOCKET_FILE).map_err(system_error("create the session's socket"))?;
    fs::set_permissions(SOCKET_FILE, fs::Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .map_err(system_error("prepare the session's socket"))?;
    Ok(listener)
}
