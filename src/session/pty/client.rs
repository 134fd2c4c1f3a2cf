//! What a holder does for each command that has connected.

use super::answer::{Detached, Pattern, Resized, Told, Typed};
use super::holder::{Holder, SETTLED};
use super::keys;
use super::protocol::{Form, Link, Look, Reply, Request};
use super::screen::{Painted, Size};
use super::store::Status;
use serde::Serialize;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// So much is sent to one who follows before he has taken what was sent.
const AHEAD: usize = 64 * 1024;
/// A text that was found is shown when the output has settled, at the latest after this.
const FOUND: Duration = Duration::from_millis(500);

/// More commands than these are not answered at once.
pub(super) const CLIENTS: usize = 64;
/// So long may one say nothing when others wait for its place.
const SILENT: Duration = Duration::from_secs(1);

/// A command that has connected.
pub(super) struct Client {
    pub(super) link: Link,
    pub(super) doing: Doing,
    /// When it connected.
    since: Instant,
}

/// How far it is with it.
pub(super) enum Doing {
    /// It has not said what it wants.
    Asking,
    /// It waits for output.
    Waiting(Waiting),
    /// It waits for the end of the session.
    Ending,
    /// It is sent the output that follows this place.
    Following { raw: bool, at: u64 },
    /// It is a person's terminal, which shows what is `painted`. The session had `before` as its size.
    Attached { painted: Option<Painted>, before: Size },
    /// It takes its answer and goes.
    Leaving,
}

/// A read that is not answered yet.
pub(super) struct Waiting {
    look: Look,
    pattern: Option<Pattern>,
    until: Instant,
    /// When the text that it waits for was found.
    found: Option<Instant>,
}

impl Client {
    pub(super) fn of(stream: UnixStream) -> Option<Self> {
        Some(Self {
            link: Link::of_holder(stream).ok()?,
            doing: Doing::Asking,
            since: Instant::now(),
        })
    }

    fn is_silent(&self) -> bool {
        matches!(self.doing, Doing::Asking) && self.since.elapsed() >= SILENT
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.link.fd()
    }

    fn done(&mut self, answer: &impl Serialize) {
        match serde_json::value::to_raw_value(answer) {
            Ok(answer) => self.last(&Reply::Done(answer)),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    fn refuse(&mut self, reason: String) {
        self.last(&Reply::Refused(reason));
    }

    fn over(&mut self, exit_code: Option<i32>) {
        self.last(&Reply::Over { ended: true, exit_code });
    }

    /// The size that the session had before this terminal was attached.
    fn before(&self) -> Option<Size> {
        match self.doing {
            Doing::Attached { before, .. } => Some(before),
            _ => None,
        }
    }

    fn last(&mut self, reply: &Reply) {
        self.link.push(reply, &[]);
        self.doing = Doing::Leaving;
    }
}

impl Holder {
    /// Does for each client what can be done now.
    pub(super) fn answer(&mut self) {
        for at in 0..self.clients.len() {
            if self.may_receive(&self.clients[at]) {
                self.clients[at].link.receive();
            }
            while let Some((request, body)) = self.clients[at].link.take() {
                self.obey(at, request, body);
            }
            self.attend(at);
            self.clients[at].link.send();
        }
        let full = self.clients.len() >= CLIENTS;
        let gone = |client: &Client| {
            let leaves = matches!(client.doing, Doing::Leaving) && client.link.waiting() == 0;
            leaves || client.link.is_closed() || full && client.is_silent()
        };
        let size = self.clients.iter().filter(|client| gone(client)).find_map(Client::before);
        self.clients.retain(|client| !gone(client));
        if let Some(size) = size {
            self.resize(size);
        }
    }

    fn obey(&mut self, at: usize, request: Request, body: Vec<u8>) {
        match (&self.clients[at].doing, request) {
            (Doing::Asking, request) => self.begin(at, request, &body),
            (Doing::Attached { .. }, Request::Write) => self.typed.extend(body),
            (Doing::Attached { .. }, Request::Resized(size)) => self.resize(size),
            (Doing::Attached { .. }, Request::Detach) => drop(self.release()),
            // It has said what it wants.
            _ => {}
        }
    }

    fn begin(&mut self, at: usize, request: Request, body: &[u8]) {
        match request {
            Request::Status => {
                let told = self.told();
                self.clients[at].done(&told);
            }
            Request::Write => self.write(at, body),
            Request::Keys(names) => {
                let application = self.terminal.application_cursor();
                let bytes = names.iter().map(|name| keys::bytes(name, application));
                match bytes.collect::<Result<Vec<_>, _>>() {
                    Ok(bytes) => self.write(at, &bytes.concat()),
                    Err(error) => self.clients[at].refuse(error.to_string()),
                }
            }
            Request::Read(look) => self.begin_read(at, look),
            Request::Follow { raw, lines } => {
                let ring = if raw { &self.output.raw } else { &self.output.text };
                let from = lines.map_or_else(|| ring.mark(), |lines| ring.lines(lines));
                self.clients[at].doing = Doing::Following { raw, at: from };
            }
            Request::Resize { cols, rows } => self.begin_resize(at, cols, rows),
            Request::Attach(size) => self.attach(at, size),
            Request::Detach => self.detach(at),
            Request::End => {
                self.clients[at].doing = Doing::Ending;
                self.begin_end();
            }
            Request::Resized(_) => self.clients[at].refuse("no terminal is attached".to_owned()),
        }
    }

    fn told(&mut self) -> Told {
        let mut metadata = self.metadata.clone();
        metadata.size = self.terminal.size();
        let attached = self.attached().is_some();
        Told { metadata, attached, unread_bytes: self.output.text.unread() }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        if !self.may_type() {
            let reason = "the program does not read what is typed; nothing was written";
            return self.clients[at].refuse(reason.to_owned());
        }
        self.typed.extend(bytes);
        self.changed = Instant::now();
        let session_id = self.metadata.session_id.clone();
        self.clients[at].done(&Typed { session_id, written_bytes: bytes.len() });
    }

    fn begin_read(&mut self, at: usize, look: Look) {
        match Pattern::of(&look) {
            Ok(pattern) => {
                // A longer time than the clock has is none.
                let until = Instant::now().checked_add(Duration::from_millis(look.timeout_ms));
                let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(1 << 30));
                self.clients[at].doing =
                    Doing::Waiting(Waiting { look, pattern, until, found: None });
            }
            Err(error) => self.clients[at].refuse(error.to_string()),
        }
    }

    fn begin_resize(&mut self, at: usize, cols: Option<u16>, rows: Option<u16>) {
        if self.attached().is_some() {
            let reason =
                "a terminal is attached, which gives the session its size: detach it first";
            return self.clients[at].refuse(reason.to_owned());
        }
        let Size { cols: old_cols, rows: old_rows } = self.terminal.size();
        let size = Size {
            cols: cols.and_then(|cols| cols.try_into().ok()).unwrap_or(old_cols),
            rows: rows.and_then(|rows| rows.try_into().ok()).unwrap_or(old_rows),
        };
        self.resize(size);
        let session_id = self.metadata.session_id.clone();
        let Size { cols, rows } = self.terminal.size();
        self.clients[at].done(&Resized { session_id, cols: cols.get(), rows: rows.get() });
    }

    fn attach(&mut self, at: usize, size: Size) {
        if self.attached().is_some() {
            let reason = "another terminal is attached: `delta-sessions-pty detach` detaches it";
            return self.clients[at].refuse(reason.to_owned());
        }
        let before = self.terminal.size();
        self.resize(size);
        self.clients[at].doing = Doing::Attached { painted: None, before };
    }

    fn detach(&mut self, at: usize) {
        let session_id = self.metadata.session_id.clone();
        let detached = self.release();
        self.clients[at].done(&Detached { session_id, detached });
    }

    /// Lets the terminal go that is attached; says whether there was one.
    fn release(&mut self) -> bool {
        let Some(client) = self.attached() else { return false };
        let before = client.before();
        client.last(&Reply::Over { ended: false, exit_code: None });
        if let Some(size) = before {
            self.resize(size);
        }
        true
    }

    /// Answers a client that waited, and goes on with one that follows.
    fn attend(&mut self, at: usize) {
        let Client { link, doing, .. } = &mut self.clients[at];
        match doing {
            Doing::Waiting(_) => self.attend_read(at),
            Doing::Following { .. } => self.send_output(at, AHEAD),
            // A terminal that is slow is shown what the screen has become meanwhile.
            Doing::Attached { painted, .. } if link.waiting() == 0 => {
                let drawn = self.terminal.paint(painted);
                if !drawn.is_empty() {
                    link.push(&Reply::Output, &drawn);
                }
            }
            _ => {}
        }
    }

    fn attend_read(&mut self, at: usize) {
        let Doing::Waiting(waiting) = &self.clients[at].doing else { return };
        let now = Instant::now();
        let found = waiting.found.is_some() || self.is_found(waiting);
        let settled = now >= self.changed + SETTLED;
        let late = now >= waiting.until;
        let ready = match (&waiting.pattern, waiting.look.form, waiting.look.lines) {
            (Some(_), _, _) => {
                found && (settled || waiting.found.is_some_and(|since| now >= since + FOUND))
            }
            (None, Form::Screen, _) | (None, _, Some(_)) => settled,
            (None, _, None) => settled && self.output.raw.unread() > 0,
        };
        if ready || late {
            self.answer_read(at, late && !found);
        } else if let Doing::Waiting(waiting) = &mut self.clients[at].doing
            && found
        {
            waiting.found.get_or_insert(now);
        }
    }

    fn is_found(&self, waiting: &Waiting) -> bool {
        waiting.pattern.as_ref().is_some_and(|pattern| match waiting.look.form {
            Form::Screen => pattern.is_in(&self.terminal.texts()),
            Form::Text | Form::Raw => pattern.is_in(&self.output.unread()),
        })
    }

    fn answer_read(&mut self, at: usize, late: bool) {
        let Doing::Waiting(waiting) = &self.clients[at].doing else { return };
        let state = (self.metadata.status, self.metadata.exit_code);
        let timed_out = late && waiting.pattern.is_some();
        let answer = self.output.read(&waiting.look, || self.terminal.shown(), state, timed_out);
        self.clients[at].done(&answer);
    }

    /// Whether there is room for what it says: what a person types waits with the person.
    pub(super) fn may_receive(&self, client: &Client) -> bool {
        self.may_type() || !matches!(client.doing, Doing::Attached { .. })
    }

    /// Sends what follows, unless more than `ahead` waits to be sent.
    fn send_output(&mut self, at: usize, ahead: usize) {
        let client = &mut self.clients[at];
        let Doing::Following { raw, at: from } = &mut client.doing else { return };
        let ring = if *raw { &self.output.raw } else { &self.output.text };
        // A character that was sent may have been taken back.
        let begin = (*from).min(ring.end());
        *from = begin;
        if client.link.waiting() > ahead || begin == ring.end() {
            return;
        }
        let output = ring.from(begin);
        *from = ring.end();
        client.link.push(&Reply::Output, &output);
    }

    /// When a client has to be looked at again, though nothing came.
    pub(super) fn due(&self, client: &Client) -> Option<Instant> {
        let waiting = match &client.doing {
            Doing::Waiting(waiting) => waiting,
            Doing::Asking if self.clients.len() >= CLIENTS => return Some(client.since + SILENT),
            _ => return None,
        };
        let now = Instant::now();
        let found = waiting.found.map(|since| since + FOUND);
        let settled = Some(self.changed + SETTLED).filter(|at| *at > now);
        [Some(waiting.until), found, settled].into_iter().flatten().min()
    }

    /// Answers everybody, now that the session is over.
    pub(super) fn answer_last(&mut self) {
        for at in 0..self.clients.len() {
            match &self.clients[at].doing {
                Doing::Waiting(waiting) => {
                    let missed = waiting.pattern.is_some() && !self.is_found(waiting);
                    self.answer_read(at, missed);
                }
                Doing::Ending => {
                    let session_id = self.metadata.session_id.clone();
                    let status = Status::Terminated;
                    self.clients[at].done(&super::answer::Terminated { status, session_id });
                }
                Doing::Following { .. } => {
                    self.send_output(at, usize::MAX);
                    self.clients[at].over(self.metadata.exit_code);
                }
                Doing::Attached { .. } => {
                    self.attend(at);
                    self.clients[at].over(self.metadata.exit_code);
                }
                // It asks the files.
                Doing::Asking | Doing::Leaving => {}
            }
        }
    }
}
