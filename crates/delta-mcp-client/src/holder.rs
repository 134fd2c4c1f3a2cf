//! The process that keeps one connection to a server for a run, and its clients.
//!
//! The engine starts it at the first call, and its end is the end of its standard input. A thread serves each call; the
//! session decides which of them share the server at the same time.

use crate::client::McpClient;
use crate::stdio_transport::StdioTransport;
use crate::tool_session::{ToolCaller, ToolSession};
use crate::wake_signal::WakeSignal;
use delta_base::durable;
use delta_base::signal::CancelToken;
use delta_mcp::failure::McpFailure;
use delta_mcp::holder_config::HolderConfig;
use delta_mcp::lock_file::LockedServer;
use delta_mcp::protocol_era::ProtocolEra;
use delta_mcp::server_spec::ServerSpec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How long a client of the holder may take to send its call or to take the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How many callers are served at the same time; more wait.
const MAX_CALLERS: usize = 64;

/// A call of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoteToolCall {
    /// The server's name for the tool.
    pub tool: String,
    /// The arguments, an object.
    pub arguments: Json,
    /// Answers to what the server asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Map<String, Json>>,
    /// The id of the call in its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

/// The outcome of a call.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolReply {
    /// The result, or why there is none.
    pub outcome: Result<Json, McpFailure>,
    /// What the caller should know before the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Serves calls until `input` ends or a signal arrives. `dir` is the working directory of this process from now on.
/// `on_ready` is called when the socket can be reached.
///
/// # Errors
/// The socket could not be created, or the configuration is not one.
pub fn hold_server(
    input: impl Read + AsFd,
    dir: &Path,
    cancel: &CancelToken,
    on_ready: impl FnOnce(),
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let mut config: HolderConfig = serde_json::from_str(&line)?;
    config.spec.sandbox = config.sandbox.map(|sandbox| sandbox.to_entry()).transpose()?;
    let locked = LockedServer::from_json(&config.locked).map_err(io::Error::other)?;
    // The path of a socket has at most 107 bytes.
    rustix::process::chdir(dir)?;
    let name = config.spec.name.clone();
    let socket = format!("{name}.sock");
    let _ = durable::remove_file_no_follow(Path::new(&socket));
    let listener = UnixListener::bind(&socket)?;
    on_ready();
    let era = locked.era;
    let wake = WakeSignal::new()?;
    let (requests, start_requests) = mpsc::channel::<StartRequest>();
    let start = start_requester(&requests, &wake);
    let session = ToolSession::new(config.spec.clone(), Some(locked), &start)
        .with_task_records(Path::new("."))
        .with_parallel_tools(config.parallel);
    let holder = ServerHolder {
        spec: config.spec,
        era,
        session,
        restart_note: Mutex::default(),
        callers: AtomicUsize::default(),
        wake: &wake,
    };
    holder.serve(&listener, start_requests, cancel, input.get_ref().as_fd())?;
    let _ = durable::remove_file_no_follow(Path::new(&socket));
    holder.session.close(&cancel.for_cleanup());
    Ok(())
}

/// The wish of a caller that the server be started. The kernel kills a server when the thread ends that has started it, so
/// the thread of a caller does not.
type StartRequest = mpsc::Sender<Result<McpClient, McpFailure>>;

/// What a session calls to have its server started.
fn start_requester<'a>(
    requests: &'a mpsc::Sender<StartRequest>,
    wake: &'a WakeSignal,
) -> impl Fn(&ServerSpec) -> Result<McpClient, McpFailure> + Sync + 'a {
    move |_| {
        let (reply, started) = mpsc::channel();
        requests.send(reply).map_err(|_| McpFailure::Cancelled)?;
        wake.wake();
        started.recv().unwrap_or(Err(McpFailure::Cancelled))
    }
}

struct ServerHolder<'a> {
    spec: ServerSpec,
    session: ToolSession<'a>,
    era: ProtocolEra,
    /// What the next result begins with.
    restart_note: Mutex<Option<String>>,
    /// How many callers are served.
    callers: AtomicUsize,
    /// Wakes the thread that starts servers and accepts callers.
    wake: &'a WakeSignal,
}

impl ServerHolder<'_> {
    /// Serves callers, each on a thread of its own, and starts servers on this thread, until `end` can be read or `cancel` is
    /// requested.
    fn serve(
        &self,
        listener: &UnixListener,
        start_requests: mpsc::Receiver<StartRequest>,
        cancel: &CancelToken,
        end: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let stop = &CancelToken::manual()?;
        std::thread::scope(|scope| {
            let mut watched_server = None;
            while !cancel.is_requested() && !is_readable(end) {
                self.idle_until(&mut watched_server, cancel, listener, end);
                for reply in start_requests.try_iter() {
                    let started = self.start_server();
                    watched_server =
                        started.as_ref().ok().and_then(|client| client.stdio().cloned());
                    let _ = reply.send(started);
                }
                if self.may_accept() && is_readable(listener.as_fd()) {
                    let Ok((stream, _)) = listener.accept() else { continue };
                    self.callers.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move || {
                        // An error of one caller does not concern the others.
                        let _ = self.serve_caller(stream, stop, end);
                        self.callers.fetch_sub(1, Ordering::Relaxed);
                        self.wake.wake();
                    });
                }
            }
            stop.request();
            // Who waits for a start gets none.
            drop(start_requests);
        });
        Ok(())
    }

    /// Waits for a caller or something else to do, and meanwhile reads what the server writes.
    fn idle_until(
        &self,
        server: &mut Option<StdioTransport>,
        cancel: &CancelToken,
        listener: &UnixListener,
        end: BorrowedFd<'_>,
    ) {
        let mut fds = vec![cancel.fd(), self.wake.fd(), end];
        fds.extend(self.may_accept().then(|| listener.as_fd()));
        match server {
            Some(stdio) if stdio.idle_until(&fds) => {}
            Some(stdio) => {
                stdio.end(cancel);
                *server = None;
            }
            None => {
                let mut watched: Vec<PollFd<'_>> =
                    fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
                let _ = poll(&mut watched, None);
            }
        }
        self.wake.drain();
    }

    fn may_accept(&self) -> bool {
        self.callers.load(Ordering::Relaxed) < MAX_CALLERS
    }

    /// Starts the server, which a result tells the LLM if it has lost what it knew.
    fn start_server(&self) -> Result<McpClient, McpFailure> {
        if self.count_start() > 0 && self.era == ProtocolEra::Legacy {
            self.set_note(restart_note(&self.spec.name));
        }
        McpClient::start(&self.spec)
    }

    fn set_note(&self, note: String) {
        *self.restart_note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    /// Serves a call. `engine_fd` becomes readable when the engine has gone.
    fn serve_caller(
        &self,
        mut stream: UnixStream,
        stop: &CancelToken,
        engine_fd: BorrowedFd<'_>,
    ) -> io::Result<()> {
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let request: RemoteToolCall = serde_json::from_str(&line)?;
        let caller = ToolCaller {
            cancel: stop,
            abandon_fd: Some(stream.as_fd()),
            engine_fd: Some(engine_fd),
        };
        let outcome = self.session.call(&request, &caller, &mut |_| {});
        if self.session.take_lost_session() {
            self.set_note(memory_note(&self.spec.name, "began a new session"));
        }
        let note = outcome
            .is_ok()
            .then(|| self.restart_note.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut reply = serde_json::to_string(&ToolReply { outcome, note: note.flatten() })?;
        reply.push('\n');
        stream.write_all(reply.as_bytes())
    }

    /// Counts a start, and returns how many came before it.
    fn count_start(&self) -> u64 {
        let before = read_starts(Path::new("."), &self.spec.name);
        let text = json!({"starts": before + 1}).to_string();
        let path = starts_file(&self.spec.name);
        let _ = durable::replace_private_unsynced(Path::new(&path), text.as_bytes());
        before
    }
}

/// How often the holders with their files in `dir` have started the server `name` during the run.
pub fn read_starts(dir: &Path, name: &str) -> u64 {
    let text = durable::read_regular_text(&dir.join(starts_file(name))).ok();
    let json = text.and_then(|text| serde_json::from_str::<Json>(&text).ok());
    json.and_then(|json| json.get("starts")?.as_u64()).unwrap_or(0)
}

/// The name of the file with the number of starts.
fn starts_file(name: &str) -> String {
    format!("{name}.json")
}

/// What a result begins with if the server is another process than before.
pub fn restart_note(name: &str) -> String {
    memory_note(name, "was started again")
}

fn memory_note(name: &str, event: &str) -> String {
    format!("[the server {name} {event}: what it held in memory is gone]")
}

pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = delta_base::signal::to_timespec(Duration::ZERO);
    poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
}

/// Makes a call through the process that holds the server `name`, whose socket is in `dir`; `None` if there is no such process.
/// After a signal it cancels the call and answers with what it knows.
///
/// # Errors
/// The process ended during the call.
pub fn call_holder(
    dir: &Path,
    name: &str,
    request: &RemoteToolCall,
    cancel: &CancelToken,
) -> io::Result<Option<ToolReply>> {
    let Some(mut stream) = connect_to_holder(dir, name) else { return Ok(None) };
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut fds =
        [stream.as_fd(), cancel.fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    while poll(&mut fds, None) == Err(Errno::INTR) {}
    if cancel.is_requested() {
        stream.shutdown(Shutdown::Write)?;
    }
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    if reply.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the process that holds the server has ended",
        ));
    }
    Ok(Some(serde_json::from_slice(&reply)?))
}

/// Opens a directory that this user may only pass through. Other systems than Linux open it for reading.
#[cfg(target_os = "linux")]
const PLACE_FLAGS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PLACE_FLAGS: OFlags = OFlags::RDONLY;

/// Connects to the socket of the server `name` in `dir`. The path of a socket has at most 107 bytes, so this process is in
/// `dir` meanwhile.
fn connect_to_holder(dir: &Path, name: &str) -> Option<UnixStream> {
    let here = PLACE_FLAGS | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let current = rustix::fs::open(".", here, Mode::empty()).ok()?;
    if !durable::is_dir_no_follow(dir) || rustix::process::chdir(dir).is_err() {
        return None;
    }
    let stream = UnixStream::connect(format!("{name}.sock")).ok();
    // A server that this process starts itself works in the directory of the caller.
    rustix::process::fchdir(&current).ok()?;
    stream
}
