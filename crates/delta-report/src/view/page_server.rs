//! Serves one page on a loopback port, at an address that cannot be guessed.
//!
//! The address has a random token. A page of another site cannot read anything here: it does not know the token, and with a
//! name that it resolved to this host (DNS rebinding) the `Host` header is another one. Requests are small, so HTTP is a
//! request line, headers and one answer for each connection.

use super::live_page::{LivePage, PageEnd};
use delta_base::hex::encode_hex;
use delta_base::random;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const MAX_CONNECTIONS: usize = 32;
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// The time that a client has to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// The time that a client has to take an answer.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// How long an update waits for a change, and how often it looks for one.
const UPDATE_TIME: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the last update is served to browsers that have the page open.
const END_TIME: Duration = Duration::from_secs(1);
/// No other site frames or reads the answers, nothing caches them, and the address goes nowhere.
const HEADERS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
    X-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n";

/// A page that is served until [`PageServer::finish`].
#[derive(Debug)]
pub struct PageServer(Arc<ServedPage>);

#[derive(Debug)]
struct ServedPage {
    page: Mutex<LivePage>,
    /// Notified when the page ends.
    ended: Condvar,
    host: String,
    token: String,
    /// The address of `--open`, which other users may see in a list of processes: it works once.
    entry: Mutex<Option<String>>,
    connections: AtomicUsize,
    update_count: AtomicUsize,
}

struct HttpAnswer {
    status: &'static str,
    headers: String,
    body: String,
}

impl PageServer {
    /// Serves the page from now on, in threads of its own.
    pub fn start(page: LivePage) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let host = listener.local_addr()?.to_string();
        let served = Arc::new(ServedPage {
            page: Mutex::new(page),
            ended: Condvar::new(),
            host,
            token: encode_hex(&random::random_bytes::<16>()),
            entry: Mutex::new(Some(encode_hex(&random::random_bytes::<16>()))),
            connections: AtomicUsize::new(0),
            update_count: AtomicUsize::new(0),
        });
        let server = Arc::clone(&served);
        thread::Builder::new()
            .name("page".to_owned())
            .spawn(move || server.accept_all(&listener))?;
        Ok(Self(served))
    }

    /// The address of the page.
    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.0.host, self.0.token)
    }

    /// An address that leads to the page once.
    pub fn entry_address(&self) -> String {
        let entry = lock(&self.0.entry).clone().unwrap_or_default();
        format!("http://{}/{entry}/", self.0.host)
    }

    /// Sends the last update to the browsers that have the page open.
    pub fn finish(&self, end: PageEnd) {
        let mut page = lock(&self.0.page);
        page.finish(end);
        self.0.ended.notify_all();
        if self.0.update_count.load(Ordering::Relaxed) > 0 {
            // A browser may be between two updates.
            let deadline = Instant::now() + END_TIME;
            while let Some(left) = deadline.checked_duration_since(Instant::now()) {
                let wait = self.0.ended.wait_timeout(page, left);
                page = wait.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl ServedPage {
    fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            let served = Arc::clone(self);
            if served.connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                served.connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let thread = thread::Builder::new().name("page request".to_owned());
            let is_started = thread.spawn(move || {
                let _ = served.answer(stream);
                served.connections.fetch_sub(1, Ordering::Relaxed);
            });
            if is_started.is_err() {
                self.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let request = read_http_request(&mut stream)?;
        let HttpAnswer { status, headers, body } = self.respond(&request);
        let length = body.len();
        stream.set_write_timeout(Some(ANSWER_TIME))?;
        let head =
            format!("HTTP/1.1 {status}\r\n{HEADERS}{headers}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())
    }

    fn respond(&self, request: &str) -> HttpAnswer {
        let mut lines = request.split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
            return refuse("400 Bad Request");
        };
        let hosts: Vec<&str> = lines
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
            .map(|(_, value)| value.trim())
            .collect();
        if hosts != [self.host.as_str()] {
            return refuse("421 Misdirected Request");
        }
        if method != "GET" {
            return HttpAnswer {
                headers: "Allow: GET\r\n".to_owned(),
                ..refuse("405 Method Not Allowed")
            };
        }
        let Some((token, rest)) = target.strip_prefix('/').and_then(|path| path.split_once('/'))
        else {
            return refuse("404 Not Found");
        };
        if !is_same(token, &self.token) {
            return self.enter(token, rest);
        }
        match rest.strip_prefix("update?since=").map(str::parse) {
            None if rest.is_empty() => HttpAnswer {
                status: "200 OK",
                headers: "Content-Type: text/html; charset=utf-8\r\nContent-Security-Policy: frame-ancestors 'none'\r\n".to_owned(),
                body: lock(&self.page).render(),
            },
            Some(Ok(version)) => self.wait_for_update(version),
            _ => refuse("404 Not Found"),
        }
    }

    /// Leads from the address that works once to the page.
    fn enter(&self, token: &str, rest: &str) -> HttpAnswer {
        let mut entry = lock(&self.entry);
        if !rest.is_empty() || !entry.as_deref().is_some_and(|entry| is_same(token, entry)) {
            return refuse("404 Not Found");
        }
        *entry = None;
        let headers = format!("Location: /{}/\r\n", self.token);
        HttpAnswer { headers, ..refuse("303 See Other") }
    }

    fn wait_for_update(&self, version: u64) -> HttpAnswer {
        self.update_count.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + UPDATE_TIME;
        let mut page = lock(&self.page);
        loop {
            if let Some(body) = page.update_since(version) {
                let headers = "Content-Type: application/json\r\n".to_owned();
                return HttpAnswer { status: "200 OK", headers, body };
            }
            if Instant::now() >= deadline {
                return HttpAnswer {
                    status: "204 No Content",
                    headers: String::new(),
                    body: String::new(),
                };
            }
            let wait = self.ended.wait_timeout(page, LOOK_INTERVAL);
            page = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn refuse(status: &'static str) -> HttpAnswer {
    let headers = "Content-Type: text/plain\r\n".to_owned();
    HttpAnswer { status, headers, body: format!("{}\n", &status[4..]) }
}

/// Reads a request up to the empty line; none of them has a body.
fn read_http_request(stream: &mut TcpStream) -> io::Result<String> {
    let deadline = Instant::now() + REQUEST_TIME;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would be none.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = stream.read(&mut buffer)?;
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            bytes.truncate(end);
            return String::from_utf8(bytes).map_err(io::Error::other);
        }
        if count == 0 || bytes.len() > MAX_REQUEST_BYTES || left.is_zero() {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_same(one: &str, other: &str) -> bool {
    let difference =
        one.bytes().zip(other.bytes()).fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
