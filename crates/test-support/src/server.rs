//! A scripted LLM endpoint on a loopback port: it records every request, refuses what real endpoints refuse, and
//! answers as the test scripts it. Plain HTTP/1.1 with keep-alive and a thread per connection; every thread ends when
//! the server is dropped.

mod answer;
mod anthropic;
mod form;
mod gemini;
mod image_check;
mod responses;
mod strict;

pub use answer::{Answer, Gate};
pub use anthropic::check as check_messages_request;
pub use gemini::check_gemini_request;
pub use strict::check as check_request;

use answer::{End, Kind};
use form::ServedForm;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The body, parsed; null when it is not JSON.
    pub body: Value,
    /// The exact bytes of the body.
    pub bytes: Vec<u8>,
    /// The headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The number of its connection, counted from 1.
    pub connection: usize,
    /// Method and path.
    pub target: String,
}

impl RecordedRequest {
    /// Method and path without a query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// The value of the first header of this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The script of the answers: a list in order, or a closure `|request: &RecordedRequest| ...`.
pub trait Handler: Send + 'static {
    /// The answer to `request`; `None` when the script is used up.
    fn answer(&mut self, request: &RecordedRequest) -> Option<Answer>;
}

impl<F: FnMut(&RecordedRequest) -> Answer + Send + 'static> Handler for F {
    fn answer(&mut self, request: &RecordedRequest) -> Option<Answer> {
        Some(self(request))
    }
}

impl Handler for VecDeque<Answer> {
    fn answer(&mut self, _: &RecordedRequest) -> Option<Answer> {
        self.pop_front()
    }
}

impl Handler for Vec<Answer> {
    fn answer(&mut self, _: &RecordedRequest) -> Option<Answer> {
        (!self.is_empty()).then(|| self.remove(0))
    }
}

/// A running server. It stops on drop.
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    handler: Mutex<Box<dyn Handler>>,
    state: Mutex<State>,
    forms: Mutex<Vec<Box<dyn ServedForm>>>,
    /// Whether the server checks requests and refuses all but chat completions.
    strict: bool,
    /// Opened when the server is dropped, to end all waits.
    closing: Gate,
}

#[derive(Default)]
struct State {
    requests: Vec<RecordedRequest>,
    violations: Vec<String>,
    forbidden: Vec<String>,
    connections: usize,
    calls: usize,
    /// The open connections by their numbers.
    streams: BTreeMap<usize, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl ScriptedServer {
    /// Listens on a free port of the loopback interface.
    pub fn start(handler: impl Handler) -> Self {
        Self::listen(handler, true)
    }

    /// Listens for requests of any kind, and checks none of them.
    pub fn for_anything(handler: impl Handler) -> Self {
        Self::listen(handler, false)
    }

    fn listen(handler: impl Handler, strict: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            handler: Mutex::new(Box::new(handler) as Box<dyn Handler>),
            state: Mutex::new(State::default()),
            forms: Mutex::new(form::all_forms()),
            strict,
            closing: Gate::new(),
        });
        let acceptor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// The base address, for `llm.base_url`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The base address of the forms whose path contains the version.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.state().requests.clone()
    }

    /// The number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// The violations of all requests so far.
    pub fn violations(&self) -> Vec<String> {
        self.shared.state().violations.clone()
    }

    /// Makes every later body that contains `text` a violation.
    pub fn forbid(&self, text: impl Into<String>) {
        self.shared.state().forbidden.push(text.into());
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.shared.closing.open();
        // The connection wakes the acceptor, which then finds the server closing.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let (streams, threads) = {
            let mut state = self.shared.state();
            (std::mem::take(&mut state.streams), std::mem::take(&mut state.threads))
        };
        for stream in streams.into_values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closing.wait(Some(Duration::ZERO)) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true);
        let mut state = shared.state();
        state.connections += 1;
        let number = state.connections;
        state.streams.extend(stream.try_clone().map(|stream| (number, stream)));
        let shared = Arc::clone(shared);
        state.threads.push(std::thread::spawn(move || {
            // A peer that disconnects is an ordinary end of a connection.
            let _ = serve(&stream, number, &shared);
            let _ = stream.shutdown(Shutdown::Both);
            // A process may have no more than 1024 open files.
            shared.state().streams.remove(&number);
        }));
    }
}

fn serve(stream: &TcpStream, connection: usize, shared: &Shared) -> io::Result<()> {
    let mut input = BufReader::new(stream);
    while let Some(request) = read_request(&mut input, connection)? {
        let answer = shared.answer(&request);
        if !send(stream, &request, answer, shared)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads one request; `None` at the end of the connection.
fn read_request(
    input: &mut impl BufRead,
    connection: usize,
) -> io::Result<Option<RecordedRequest>> {
    let mut target = String::new();
    if input.read_line(&mut target)? == 0 {
        return Ok(None);
    }
    let target = target.rsplit_once(' ').map_or_else(String::new, |(target, _)| target.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok());
    let mut bytes = vec![0; length.unwrap_or(0)];
    input.read_exact(&mut bytes)?;
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(Some(RecordedRequest { body, bytes, headers, connection, target }))
}

/// Sends the answer; returns false when the connection has ended.
fn send(
    stream: &TcpStream,
    request: &RecordedRequest,
    answer: Answer,
    shared: &Shared,
) -> io::Result<bool> {
    if let Some(gate) = &answer.gate {
        while !gate.wait(Some(Duration::from_millis(5))) {
            if shared.closing.wait(Some(Duration::ZERO)) {
                return Ok(false);
            }
        }
    }
    let (status, kind, pieces) = match &answer.kind {
        Kind::Hang => {
            shared.closing.wait(None);
            return Ok(false);
        }
        Kind::Bytes(bytes) => return (&mut &*stream).write_all(bytes).map(|()| false),
        Kind::Raw { status, body } => (*status, "application/json", vec![body.clone()]),
        Kind::Message(message) => shared.with_form(request, |form| {
            if form.is_streamed(request) {
                let events = form.events(message, request);
                (200, "text/event-stream", events.into_iter().map(String::into_bytes).collect())
            } else {
                let body = form.body(message, request).to_string();
                (200, "application/json", vec![body.into_bytes()])
            }
        }),
    };
    let chunked = answer.pieces.is_some() || kind == "text/event-stream";
    let pieces: Vec<Vec<u8>> = match answer.pieces {
        Some(size) => pieces.concat().chunks(size).map(<[u8]>::to_vec).collect(),
        None => pieces,
    };
    let length = (!chunked).then(|| pieces.iter().map(Vec::len).sum());
    (&mut &*stream).write_all(head(status, kind, length, &answer.headers).as_bytes())?;
    send_body(stream, pieces, chunked, &answer, shared)
}

/// Sends as much of the body as the answer says; returns false when the connection has ended.
fn send_body(
    mut stream: &TcpStream,
    mut pieces: Vec<Vec<u8>>,
    chunked: bool,
    answer: &Answer,
    shared: &Shared,
) -> io::Result<bool> {
    if let End::Close(limit) | End::Stall(limit) = answer.end {
        truncate(&mut pieces, limit);
    }
    for piece in pieces {
        stream.write_all(&if chunked { frame(&piece) } else { piece })?;
        if answer.pause.is_some() && shared.closing.wait(answer.pause) {
            return Ok(false);
        }
    }
    match answer.end {
        End::Whole if chunked => stream.write_all(b"0\r\n\r\n").map(|()| !answer.close_after),
        End::Whole => Ok(!answer.close_after),
        End::Close(_) => Ok(false),
        End::Stall(_) => {
            shared.closing.wait(None);
            Ok(false)
        }
    }
}

fn head(status: u16, kind: &str, length: Option<usize>, headers: &[(String, String)]) -> String {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
    let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if !given("content-type") {
        head += &format!("Content-Type: {kind}\r\n");
    }
    match length {
        Some(length) => head += &format!("Content-Length: {length}\r\n"),
        None => head += "Transfer-Encoding: chunked\r\n",
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

/// One chunk of a chunked body.
fn frame(piece: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", piece.len()).into_bytes();
    out.extend_from_slice(piece);
    out.extend_from_slice(b"\r\n");
    out
}

/// Keeps the first `limit` bytes of all the pieces together.
fn truncate(pieces: &mut Vec<Vec<u8>>, mut limit: usize) {
    for piece in pieces.iter_mut() {
        piece.truncate(limit);
        limit -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `action` with the form of `request`.
    fn with_form<R>(
        &self,
        request: &RecordedRequest,
        action: impl FnOnce(&mut dyn ServedForm) -> R,
    ) -> R {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let form = forms.iter_mut().find(|form| form.serves(request)).expect("the last serves all");
        action(form.as_mut())
    }

    /// Records and checks `request`, and gets its answer from the script.
    fn answer(&self, request: &RecordedRequest) -> Answer {
        let violation = {
            let mut state = self.state();
            state.requests.push(request.clone());
            let checked = if self.strict {
                let checked = state.check(request);
                checked.and_then(|()| self.with_form(request, |form| form.check(request)))
            } else {
                Ok(())
            };
            checked.inspect_err(|violation| state.violations.push(violation.clone()))
        };
        if let Err(violation) = violation {
            return self.with_form(request, |form| form.refusal(&violation));
        }
        let answer = self.handler.lock().unwrap_or_else(PoisonError::into_inner).answer(request);
        let Some(mut answer) = answer else {
            let violation = "the script of the server is used up";
            self.state().violations.push(violation.to_owned());
            return self.with_form(request, |form| form.refusal(violation));
        };
        if let Kind::Message(message) = &mut answer.kind {
            let mut state = self.state();
            message.name_calls(|| state.next_call(request));
        }
        answer
    }
}

impl State {
    /// A call id that the conversation does not contain yet.
    fn next_call(&mut self, request: &RecordedRequest) -> String {
        let conversation = String::from_utf8_lossy(&request.bytes);
        loop {
            self.calls += 1;
            let id = format!("call_{}", self.calls);
            if !conversation.contains(&format!("\"{id}\"")) {
                return id;
            }
        }
    }

    fn check(&self, request: &RecordedRequest) -> Result<(), String> {
        if request.header("content-type") != Some("application/json") {
            return Err("the content type must be application/json".to_owned());
        }
        let text = str::from_utf8(&request.bytes).map_err(|error| error.to_string())?;
        if let Some(forbidden) = self.forbidden.iter().find(|forbidden| text.contains(*forbidden)) {
            return Err(format!("the body holds {forbidden:?}"));
        }
        Ok(())
    }
}
