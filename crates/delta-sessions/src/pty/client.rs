//! What a holder does for each connected command.

use super::holder::{Holder, SETTLE_TIME};
use super::keys;
use super::protocol::{HolderConnection, HolderReply, HolderRequest, OutputForm, ReadQuery};
use super::report::{PtyStatusReport, WaitPattern};
use super::screen::{PaintedScreen, TerminalSize};
use super::store::PtyStatus;
use crate::report::SessionEndReport;
use serde::Serialize;
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How much output is queued for a follower that does not take it.
const MAX_UNSENT_BYTES: usize = 64 * 1024;
/// How long a read whose text has appeared waits for the output to settle.
const MATCH_SETTLE_LIMIT: Duration = Duration::from_millis(500);
/// How much output can arrive between two searches for the text that a read waits for.
const MAX_UNSEARCHED_BYTES: u64 = 128 * 1024;
/// How many commands are served at once.
pub(super) const MAX_CLIENTS: usize = 64;
/// How long a client may send no request while others wait for its place.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// The longest line that the kernel passes on to a program that reads whole lines, without its end: N_TTY_BUF_SIZE - 1. It
/// drops the rest.
const MAX_LINE_BYTES: usize = 4095;

/// The length of the line that is being typed.
#[derive(Default)]
pub(super) struct TypedLine(usize);

impl TypedLine {
    /// Adds what is typed. If the program `reads_lines` and a line is too long, adds nothing and returns its length.
    fn add(&mut self, bytes: &[u8], reads_lines: bool) -> Result<(), usize> {
        if !reads_lines {
            self.0 = 0;
            return Ok(());
        }
        // An interrupt, the end of the input, the ends of lines, and the key that erases a line.
        let lines = bytes.split(|byte| matches!(byte, 0x03 | 0x04 | b'\n' | b'\r' | 0x15));
        let mut lengths = lines.map(<[u8]>::len);
        let mut last = self.0 + lengths.next().unwrap_or(0);
        let mut longest = last;
        for length in lengths {
            last = length;
            longest = longest.max(length);
        }
        if longest > MAX_LINE_BYTES {
            return Err(longest);
        }
        self.0 = last;
        Ok(())
    }
}

/// A connected command.
pub(super) struct HolderClient {
    pub(super) connection: HolderConnection,
    pub(super) state: ClientState,
    connected_at: Instant,
}

pub(super) enum ClientState {
    AwaitingRequest,
    /// Waits for output.
    Reading(PendingRead),
    /// Waits for the end of the session.
    AwaitingEnd,
    /// Receives the output from this position on.
    Following {
        raw: bool,
        position: u64,
    },
    /// A person's terminal, which shows `painted`. The session had `previous_size`.
    Attached {
        painted: Option<PaintedScreen>,
        previous_size: TerminalSize,
    },
    /// Receives its last reply.
    Draining,
}

/// A read without an answer.
pub(super) struct PendingRead {
    query: ReadQuery,
    pattern: Option<WaitPattern>,
    deadline: Instant,
    /// When the text that it waits for appeared.
    matched_at: Option<Instant>,
    /// Up to which position the text was searched, and when.
    searched: Option<(u64, Instant)>,
}

impl HolderClient {
    pub(super) fn from_stream(stream: UnixStream) -> Option<Self> {
        Some(Self {
            connection: HolderConnection::for_holder(stream).ok()?,
            state: ClientState::AwaitingRequest,
            connected_at: Instant::now(),
        })
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.state, ClientState::Attached { .. })
    }

    fn reply_done(&mut self, report: &impl Serialize) {
        match serde_json::value::to_raw_value(report) {
            Ok(report) => self.send_last_reply(&HolderReply::Done(report)),
            Err(error) => self.refuse(&error.to_string()),
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.send_last_reply(&HolderReply::Refused(reason.to_owned()));
    }

    /// The size that the session had before this terminal was attached.
    fn previous_size(&self) -> Option<TerminalSize> {
        match self.state {
            ClientState::Attached { previous_size, .. } => Some(previous_size),
            _ => None,
        }
    }

    fn send_last_reply(&mut self, reply: &HolderReply) {
        self.connection.push_frame(reply, &[]);
        self.state = ClientState::Draining;
    }
}

impl Holder {
    /// Does for each client what is possible now, and drops the clients that are done.
    pub(super) fn serve_clients(&mut self) {
        for index in 0..self.clients.len() {
            if self.can_receive(&self.clients[index]) {
                self.clients[index].connection.receive();
            }
            while let Some((request, body)) = self.clients[index].connection.take_frame() {
                self.handle_request(index, request, body);
            }
            self.update_client(index);
            self.clients[index].connection.send();
        }
        let is_full = self.clients.len() >= MAX_CLIENTS;
        let is_done = |client: &HolderClient| match client.state {
            _ if client.connection.is_closed() => true,
            ClientState::Draining => client.connection.unsent_bytes() == 0,
            ClientState::AwaitingRequest => {
                is_full && client.connected_at.elapsed() >= SILENCE_LIMIT
            }
            _ => false,
        };
        let mut done = self.clients.iter().filter(|client| is_done(client));
        let size = done.find_map(HolderClient::previous_size);
        self.clients.retain(|client| !is_done(client));
        if let Some(size) = size {
            self.resize(size);
        }
    }

    fn handle_request(&mut self, index: usize, request: HolderRequest, body: Vec<u8>) {
        match (&self.clients[index].state, request) {
            (ClientState::AwaitingRequest, request) => self.start_request(index, request, &body),
            (ClientState::Attached { .. }, HolderRequest::Write) => self.pending_input.extend(body),
            (ClientState::Attached { .. }, HolderRequest::Resized(size)) => self.resize(size),
            (ClientState::Attached { .. }, HolderRequest::Detach) => drop(self.detach_terminal()),
            // Only an attached terminal sends more than one request.
            _ => {}
        }
    }

    fn start_request(&mut self, index: usize, request: HolderRequest, body: &[u8]) {
        match request {
            HolderRequest::Status => {
                let report = self.status_report();
                self.clients[index].reply_done(&report);
            }
            HolderRequest::Write => self.type_input(index, body),
            HolderRequest::Keys(names) => {
                let application = self.terminal.application_cursor();
                let bytes = names.iter().map(|name| keys::encode_key(name, application));
                match bytes.collect::<Result<Vec<_>, _>>() {
                    Ok(bytes) => self.type_input(index, &bytes.concat()),
                    Err(error) => self.clients[index].refuse(&error.to_string()),
                }
            }
            HolderRequest::Read(query) => self.start_read(index, query),
            HolderRequest::Follow { raw, lines } => {
                let position = self.output.ring(raw).follow_position(lines);
                self.clients[index].state = ClientState::Following { raw, position };
            }
            HolderRequest::Resize { cols, rows } => self.resize_for_client(index, cols, rows),
            HolderRequest::Attach(size) => self.attach(index, size),
            HolderRequest::Detach => {
                let detached = self.detach_terminal();
                let session_id = &self.metadata.session_id;
                let report = json!({"session_id": session_id, "detached": detached});
                self.clients[index].reply_done(&report);
            }
            HolderRequest::End => {
                self.clients[index].state = ClientState::AwaitingEnd;
                self.start_shutdown();
            }
            HolderRequest::Resized(_) => self.clients[index].refuse("no terminal is attached"),
        }
    }

    fn status_report(&self) -> PtyStatusReport {
        let mut metadata = self.metadata.clone();
        metadata.size = self.terminal.size();
        PtyStatusReport {
            metadata,
            attached: self.clients.iter().any(HolderClient::is_attached),
            unread_bytes: self.output.text.unread_count(),
        }
    }

    fn type_input(&mut self, index: usize, bytes: &[u8]) {
        if !self.can_accept_input() {
            let reason = "the program is not reading its input; nothing was written";
            return self.clients[index].refuse(reason);
        }
        if let Err(length) = self.typed_line.add(bytes, self.program.reads_lines()) {
            let reason = format!(
                "the terminal takes lines of at most {MAX_LINE_BYTES} bytes while the program reads whole lines, and this line \
                 has {length}; nothing was written: type shorter lines, or write the text to a file that the program reads"
            );
            return self.clients[index].refuse(&reason);
        }
        self.pending_input.extend(bytes);
        self.last_activity = Instant::now();
        let session_id = &self.metadata.session_id;
        let report = json!({"session_id": session_id, "written_bytes": bytes.len()});
        self.clients[index].reply_done(&report);
    }

    fn start_read(&mut self, index: usize, query: ReadQuery) {
        let pattern = match WaitPattern::from_query(&query) {
            Ok(pattern) => pattern,
            Err(error) => return self.clients[index].refuse(&error.to_string()),
        };
        let now = Instant::now();
        // A timeout beyond the range of the clock is as good as none.
        let deadline = now
            .checked_add(Duration::from_millis(query.timeout_ms))
            .unwrap_or_else(|| now + Duration::from_secs(1 << 30));
        self.clients[index].state = ClientState::Reading(PendingRead {
            query,
            pattern,
            deadline,
            matched_at: None,
            searched: None,
        });
    }

    fn resize_for_client(&mut self, index: usize, cols: Option<u16>, rows: Option<u16>) {
        if self.attached_client().is_some() {
            let reason = "the attached terminal determines the size: detach it first";
            return self.clients[index].refuse(reason);
        }
        let mut size = self.terminal.size();
        size.cols = cols.and_then(|cols| cols.try_into().ok()).unwrap_or(size.cols);
        size.rows = rows.and_then(|rows| rows.try_into().ok()).unwrap_or(size.rows);
        self.resize(size);
        let session_id = &self.metadata.session_id;
        let TerminalSize { cols, rows } = self.terminal.size();
        let report = json!({"session_id": session_id, "cols": cols.get(), "rows": rows.get()});
        self.clients[index].reply_done(&report);
    }

    fn attach(&mut self, index: usize, size: TerminalSize) {
        if self.attached_client().is_some() {
            return self.clients[index].refuse("another terminal is attached");
        }
        let previous_size = self.terminal.size();
        self.resize(size);
        self.clients[index].state = ClientState::Attached { painted: None, previous_size };
    }

    /// Detaches the attached terminal. Returns whether there was one.
    fn detach_terminal(&mut self) -> bool {
        let Some(client) = self.attached_client() else { return false };
        let previous_size = client.previous_size();
        client.send_last_reply(&HolderReply::Closed { session_ended: false, exit_code: None });
        if let Some(size) = previous_size {
            self.resize(size);
        }
        true
    }

    /// Sends a waiting client as much as is available of what it waits for.
    fn update_client(&mut self, index: usize) {
        let HolderClient { connection, state, .. } = &mut self.clients[index];
        match state {
            ClientState::Reading(_) => self.update_read(index),
            ClientState::Following { .. } => self.send_output(index, MAX_UNSENT_BYTES),
            // A slow terminal skips intermediate screens.
            ClientState::Attached { painted, .. } if connection.unsent_bytes() == 0 => {
                let output = self.terminal.paint(painted);
                if !output.is_empty() {
                    connection.push_frame(&HolderReply::Output, &output);
                }
            }
            _ => {}
        }
    }

    fn update_read(&mut self, index: usize) {
        let now = Instant::now();
        let is_settled = now >= self.last_activity + SETTLE_TIME;
        self.search_output(index, now, is_settled);
        let ClientState::Reading(read) = &self.clients[index].state else { return };
        let is_matched = read.matched_at.is_some();
        let is_late = now >= read.deadline;
        let is_ready = if read.pattern.is_some() {
            let is_overdue = read.matched_at.is_some_and(|since| now >= since + MATCH_SETTLE_LIMIT);
            is_matched && (is_settled || is_overdue)
        } else if read.query.form == OutputForm::Screen || read.query.lines.is_some() {
            is_settled
        } else {
            is_settled && self.output.raw.unread_count() > 0
        };
        if is_ready || is_late {
            self.answer_read(index, is_late && !is_matched);
        }
    }

    /// Looks for the text that a client waits for. A search reads all unread output. While a program prints, it is therefore
    /// repeated only after `MAX_UNSEARCHED_BYTES` or `SETTLE_TIME`.
    fn search_output(&mut self, index: usize, now: Instant, is_settled: bool) {
        let ClientState::Reading(read) = &self.clients[index].state else { return };
        let end = self.output.text.end_position();
        let was_just_searched = read.searched.is_some_and(|(position, time)| {
            end < position + MAX_UNSEARCHED_BYTES && now < time + SETTLE_TIME
        });
        let must_search =
            is_settled || now >= read.deadline || read.query.form == OutputForm::Screen;
        if read.matched_at.is_some() || (was_just_searched && !must_search) {
            return;
        }
        let is_matched = self.is_matched(read);
        let ClientState::Reading(read) = &mut self.clients[index].state else { return };
        read.searched = Some((end, now));
        read.matched_at = is_matched.then_some(now);
    }

    fn is_matched(&self, read: &PendingRead) -> bool {
        read.pattern.as_ref().is_some_and(|pattern| match read.query.form {
            OutputForm::Screen => pattern.matches_any(&self.terminal.searchable_texts()),
            OutputForm::Text | OutputForm::Raw => pattern.matches_any(&self.output.unread_texts()),
        })
    }

    fn answer_read(&mut self, index: usize, is_unmatched: bool) {
        let ClientState::Reading(read) = &self.clients[index].state else { return };
        let timed_out = is_unmatched && read.pattern.is_some();
        let query = &read.query;
        let report =
            self.output.read(query, || self.terminal.contents(), &self.metadata, timed_out);
        self.clients[index].reply_done(&report);
    }

    /// Whether there is room for what a client sends: what a person types waits at the person's terminal.
    pub(super) fn can_receive(&self, client: &HolderClient) -> bool {
        self.can_accept_input() || !client.is_attached()
    }

    /// Sends output to a follower, unless it has more than `max_unsent` bytes to take.
    fn send_output(&mut self, index: usize, max_unsent: usize) {
        let HolderClient { connection, state, .. } = &mut self.clients[index];
        let ClientState::Following { raw, position } = state else { return };
        let ring = self.output.ring(*raw);
        // A character that was sent may have been removed since.
        let end = ring.end_position();
        let start = end.min(*position);
        *position = start;
        if connection.unsent_bytes() > max_unsent || start == end {
            return;
        }
        *position = end;
        connection.push_frame(&HolderReply::Output, &ring.bytes_from(start));
    }

    /// When a client needs attention although nothing arrives.
    pub(super) fn next_client_deadline(&self, client: &HolderClient) -> Option<Instant> {
        match &client.state {
            ClientState::Reading(read) => {
                let settled = self.last_activity + SETTLE_TIME;
                let matched = read.matched_at.map(|since| since + MATCH_SETTLE_LIMIT);
                let deadlines = [Some(settled).filter(|at| *at > Instant::now()), matched];
                deadlines.into_iter().flatten().chain([read.deadline]).min()
            }
            ClientState::AwaitingRequest if self.clients.len() >= MAX_CLIENTS => {
                Some(client.connected_at + SILENCE_LIMIT)
            }
            _ => None,
        }
    }

    /// Answers all clients, now that the session has ended.
    pub(super) fn send_final_replies(&mut self) {
        let closed =
            HolderReply::Closed { session_ended: true, exit_code: self.metadata.exit_code };
        for index in 0..self.clients.len() {
            match &self.clients[index].state {
                ClientState::Reading(read) => {
                    let is_unmatched = !self.is_matched(read);
                    self.answer_read(index, is_unmatched);
                }
                ClientState::AwaitingEnd => {
                    let status = PtyStatus::Terminated;
                    let session_id = self.metadata.session_id.clone();
                    self.clients[index].reply_done(&SessionEndReport { status, session_id });
                }
                ClientState::Following { .. } => {
                    self.send_output(index, usize::MAX);
                    self.clients[index].send_last_reply(&closed);
                }
                ClientState::Attached { .. } => {
                    self.update_client(index);
                    self.clients[index].send_last_reply(&closed);
                }
                // Commands without a request read the files of the ended session.
                ClientState::AwaitingRequest | ClientState::Draining => {}
            }
        }
    }
}
