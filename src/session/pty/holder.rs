//! The holder: the process behind a session, which has the terminal, keeps what is printed, and answers commands.
//!
//! Everything happens in one `poll` loop that never waits for anybody: neither for a command that says nothing, nor for
//! one that does not take its answer, nor for a program that does not read. Its working directory is that of the
//! session, so that the path of its socket is short wherever that lies.

use super::client::{CLIENTS, Client, Doing};
use super::ring::Ring;
use super::screen::{Size, Terminal};
use super::store::{self, LOCK, Metadata, Output, SOCKET, Status};
use super::{PtyError, Result};
use crate::durable::{self, Lock};
use crate::id::SessionId;
use crate::process::{AtTerminal, End, Launch};
use crate::signal::{Cancel, timespec};
use crate::text::Secrets;
use crate::time;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Output has settled when none came for so long.
pub(super) const SETTLED: Duration = Duration::from_millis(100);
/// How often is looked whether the session's directory is still there.
const CHECK: Duration = Duration::from_secs(1);
/// How often is looked at what no descriptor tells.
const TICK: Duration = Duration::from_millis(50);
/// So long after SIGHUP comes SIGTERM, and so long after that SIGKILL.
const GRACE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// So long is waited for the death of what was killed, for output behind a program's end, and for those who take answers.
const LINGER: Duration = Duration::from_secs(1);
/// How much is read from the terminal at once.
const BUFFER: usize = 64 * 1024;

/// What a holder needs to begin; it finds the rest in its working directory.
#[derive(Debug)]
pub struct Held<'a> {
    /// The session.
    pub id: &'a SessionId,
    /// The program and its arguments.
    pub argv: &'a [String],
    /// The size of the terminal.
    pub size: Size,
    /// The directory in which the session was started.
    pub work_dir: &'a Path,
    /// The environment of the program.
    pub environment: BTreeMap<OsString, OsString>,
}

/// A session that runs.
pub(super) struct Holder {
    pub(super) metadata: Metadata,
    pub(super) program: AtTerminal,
    pub(super) terminal: Terminal,
    pub(super) output: Output,
    /// What was typed and not taken by the program yet.
    pub(super) typed: Vec<u8>,
    pub(super) clients: Vec<Client>,
    /// When something was printed or typed last.
    pub(super) changed: Instant,
    pub(super) ending: Option<Ending>,
    lock: Lock,
    listener: UnixListener,
    cancel: Cancel,
    /// Whether nobody has the other side of the terminal open.
    hung_up: bool,
    ended: Option<Instant>,
    checked: Instant,
}

/// How far the end of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    stage: Stage,
    /// When the next stage begins.
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    HangUp,
    Terminate,
    Kill,
}

impl Holder {
    /// Starts the program and makes the session; it is there as a whole, or not at all.
    pub(super) fn start(held: &Held<'_>, cancel: &Cancel) -> Result<Self> {
        let here = Path::new("");
        let lock = Lock::take(Path::new(LOCK))?.ok_or(PtyError::Silent)?;
        let listener = listen()?;
        let launch = Launch {
            cwd: held.work_dir.to_owned(),
            env: held.environment.clone().into(),
            secrets: Secrets::default(),
        };
        let Size { cols, rows } = held.size;
        let program = AtTerminal::start(held.argv, &launch, cols.get(), rows.get()).map_err(
            |end| match end {
                End::NotStarted { reason, .. } => PtyError::NotStarted(reason),
                other => PtyError::NotStarted(format!("{other:?}")),
            },
        )?;
        let metadata = Metadata {
            session_id: held.id.to_string(),
            command: held.argv.join(" "),
            created_at: time::now(),
            status: Status::Active,
            work_dir: held.work_dir.display().to_string(),
            size: held.size,
            pid: program.pid(),
            exit_code: None,
            ended_at: None,
        };
        store::save(here, &metadata)?;
        let above = Path::new("..");
        durable::name_dir(&above.join(format!(".{}", held.id)), &above.join(held.id.as_str()))?;
        Ok(Self {
            metadata,
            program,
            terminal: Terminal::new(held.size),
            output: Output { raw: Ring::default(), text: Ring::default() },
            typed: Vec::new(),
            clients: Vec::new(),
            changed: Instant::now(),
            ending: None,
            lock,
            listener,
            cancel: cancel.clone(),
            hung_up: false,
            ended: None,
            checked: Instant::now(),
        })
    }

    /// Holds the session until its program ended.
    pub(super) fn serve(mut self) {
        let mut buffer = vec![0; BUFFER];
        while !self.is_over() {
            self.wait();
            self.accept();
            self.draw(&mut buffer);
            self.feed();
            if self.ended.is_none() && self.program.end().is_some() {
                self.ended = Some(Instant::now());
                self.draw_rest(&mut buffer);
            }
            self.answer();
            self.feed();
            self.check();
            self.advance();
        }
        self.finish();
    }

    /// Begins to end the session.
    pub(super) fn begin_end(&mut self) {
        if self.ending.is_none() {
            self.program.signal(Signal::HUP);
            self.ending = Some(Ending::of(Stage::HangUp, GRACE[0]));
        }
    }

    /// Whether the program ended, and whoever else is at the terminal prints nothing more for now.
    fn is_over(&self) -> bool {
        let Some(ended) = self.ended else { return false };
        let now = Instant::now();
        self.hung_up || now >= self.changed.max(ended) + SETTLED || now >= ended + LINGER
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN)];
        if self.clients.len() < CLIENTS {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        if !self.hung_up {
            let write = if self.typed.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(self.program.terminal(), PollFlags::IN | write));
        }
        for client in &self.clients {
            let read = if self.may_receive(client) { PollFlags::IN } else { PollFlags::empty() };
            let write = if client.link.waiting() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            // One of whom nothing is wanted would wake us all the same, by its end.
            if !(read | write).is_empty() {
                fds.push(PollFd::from_borrowed_fd(client.fd(), read | write));
            }
        }
        let limit = self.next_due().saturating_duration_since(Instant::now());
        // Everything is tried after it, without blocking, so neither its answer nor its failure matters.
        let _ = poll(&mut fds, Some(&timespec(limit)));
        self.cancel.drain();
    }

    fn next_due(&self) -> Instant {
        let now = Instant::now();
        let tick = (self.hung_up || self.ended.is_some()).then(|| now + TICK);
        let ending = self.ending.map(|ending| ending.until.min(now + TICK));
        let clients = self.clients.iter().filter_map(|client| self.due(client));
        let all = [Some(self.checked + CHECK), tick, ending];
        all.into_iter().flatten().chain(clients).min().unwrap_or(now)
    }

    fn accept(&mut self) {
        while self.clients.len() < CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            self.clients.extend(Client::of(stream));
        }
    }

    /// Takes what was printed; gives how much it was.
    fn draw(&mut self, buffer: &mut [u8]) -> usize {
        let mut read = rustix::io::read(self.program.terminal(), &mut *buffer);
        if read == Err(Errno::IO) {
            // The kernel looked for output, and then whether the terminal is closed. What was printed before it was closed
            // may have come between the two; now it is found.
            read = rustix::io::read(self.program.terminal(), &mut *buffer);
        }
        match read {
            Ok(length @ 1..) => {
                self.hung_up = false;
                self.changed = Instant::now();
                let printed = &buffer[..length];
                self.output.raw.push(printed);
                let answers = self.terminal.draw(printed, &mut self.output.text);
                // Who asks without end and does not read is not answered without end.
                if self.may_type() {
                    self.typed.extend(answers);
                }
                return length;
            }
            Err(Errno::AGAIN | Errno::INTR) => self.hung_up = false,
            // A program that closed the terminal may open it again.
            Ok(0) | Err(_) => self.hung_up = true,
        }
        0
    }

    /// Takes all that the program had printed when it ended, so that none of it depends on how soon we look again. The
    /// kernel keeps less than the buffer holds, and others at the terminal may print without end.
    fn draw_rest(&mut self, buffer: &mut [u8]) {
        let mut taken = 0;
        while taken < buffer.len() {
            match self.draw(buffer) {
                0 => break,
                length => taken += length,
            }
        }
    }

    /// Types as much as the program takes.
    fn feed(&mut self) {
        if self.typed.is_empty() {
            return;
        }
        match rustix::io::write(self.program.terminal(), &self.typed) {
            Ok(count) => {
                self.typed.drain(..count);
                self.changed = Instant::now();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Nobody will read it.
            Err(_) if self.ended.is_some() => self.typed.clear(),
            Err(_) => {}
        }
    }

    /// Looks whether the session is still wanted: nobody finds one whose directory was removed.
    fn check(&mut self) {
        let due = self.checked.elapsed() >= CHECK;
        if due {
            self.checked = Instant::now();
        }
        if self.cancel.requested() || due && fs::metadata(store::METADATA).is_err() {
            self.begin_end();
        }
    }

    /// Goes to the next stage of the end when it is time.
    fn advance(&mut self) {
        let Some(ending) = self.ending.filter(|_| self.ended.is_none()) else { return };
        match (ending.stage, Instant::now() >= ending.until) {
            (Stage::HangUp, true) => {
                self.program.signal(Signal::TERM);
                self.ending = Some(Ending::of(Stage::Terminate, GRACE[1]));
            }
            (Stage::Terminate, true) => {
                self.program.kill();
                self.ending = Some(Ending::of(Stage::Kill, LINGER));
            }
            // The kernel waits for a dead disk: it is given up.
            (Stage::Kill, true) => self.ended = Some(Instant::now()),
            // What was being forked meanwhile got away the last time.
            (Stage::Kill, false) => self.program.kill(),
            _ => {}
        }
    }

    /// Writes down how it ended and what was printed, and tells those who wait.
    fn finish(mut self) {
        let here = Path::new("");
        self.metadata.status = match self.ending {
            Some(_) => Status::Terminated,
            None => Status::Ended,
        };
        self.metadata.exit_code = match self.program.end() {
            Some(End::Exited(code)) => Some(*code),
            Some(End::Killed(signal)) => Some(128 + signal),
            _ => None,
        };
        self.metadata.ended_at = Some(time::now());
        self.metadata.size = self.terminal.size();
        self.answer_last();
        // Where it cannot be written, the session is found dead.
        let _ = self
            .output
            .save(here, self.terminal.shown())
            .and_then(|()| store::save(here, &self.metadata));
        let _ = fs::remove_file(SOCKET);
        let Self { mut clients, lock, program, listener, .. } = self;
        drop((lock, listener));
        let until = Instant::now() + LINGER;
        loop {
            clients.iter_mut().for_each(|client| client.link.send());
            clients.retain(|client| client.link.waiting() > 0 && !client.link.is_closed());
            let left = until.saturating_duration_since(Instant::now());
            if clients.is_empty() || left.is_zero() {
                break;
            }
            let wanted = |client| PollFd::from_borrowed_fd(Client::fd(client), PollFlags::OUT);
            let mut fds: Vec<_> = clients.iter().map(wanted).collect();
            let _ = poll(&mut fds, Some(&timespec(left)));
        }
        // Only now the kernel hangs up.
        drop(program);
    }

    /// Removes the session, of which nobody knows.
    pub(super) fn abandon(self) {
        self.program.kill();
        let _ = fs::remove_dir_all(Path::new("..").join(&self.metadata.session_id));
    }

    /// Whether there is room for what is typed.
    pub(super) fn may_type(&self) -> bool {
        self.typed.len() < super::protocol::TYPED
    }

    /// Gives the terminal another size.
    pub(super) fn resize(&mut self, size: Size) {
        if size != self.terminal.size()
            && self.program.resize(size.cols.get(), size.rows.get()).is_ok()
        {
            self.terminal.resize(size);
            self.changed = Instant::now();
        }
    }

    /// The client whose terminal is attached.
    pub(super) fn attached(&mut self) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| matches!(client.doing, Doing::Attached { .. }))
    }
}

/// The socket of the session, for its owner.
fn listen() -> Result<UnixListener> {
    let system = |action| move |source| PtyError::System { action, source };
    let listener = UnixListener::bind(SOCKET).map_err(system("make the session's socket"))?;
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .map_err(system("prepare the session's socket"))?;
    Ok(listener)
}

impl Ending {
    fn of(stage: Stage, limit: Duration) -> Self {
        Self { stage, until: Instant::now() + limit }
    }
}
