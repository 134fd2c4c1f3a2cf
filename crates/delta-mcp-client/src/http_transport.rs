//! The transport over HTTP: a request is a POST, and its answer is JSON or a stream of events.

use crate::client::{LIST_CHANGED_METHOD, RequestWait, ServerNotice, answer_server_request};
use crate::oauth::discovery::challenge_of;
use crate::oauth::token_source::TokenSource;
use crate::param_header::encode_header_value;
use delta_base::signal::{CancelToken, to_timespec};
use delta_base::terminal_text::strip_terminal_controls;
use delta_http::sse_parser::SseParser;
use delta_http::{ResponseHead, is_loopback_host};
use delta_http_client::{HttpClient, HttpClientConfig, HttpError, HttpExchange};
use delta_mcp::failure::McpFailure;
use delta_mcp::json_rpc::{INVALID_REQUEST, RpcError, RpcId, RpcMessage};
use delta_mcp::line_framing::MAX_LINE_BYTES;
use delta_mcp::oauth::challenge::BearerChallenge;
use delta_mcp::protocol_era::MODERN_VERSION;
use delta_mcp::server_spec::ServerSpec;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The header with the session of a legacy server.
const SESSION_HEADER: &str = "mcp-session-id";

/// How long the notice that a request is cancelled may take.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(2);
/// How much of an answer that is none is quoted.
const MAX_QUOTED_CHARS: usize = 200;

/// A server that is reached by HTTP.
pub(crate) struct HttpTransport {
    client: HttpClient,
    base_headers: HeaderMap,
    session: Option<String>,
    /// Where the bearer token comes from, if not from the settings.
    tokens: Option<Arc<TokenSource>>,
    /// The token of the next request.
    token: Option<String>,
    /// What the server said when it refused the last request for its token.
    refusal: Option<BearerChallenge>,
    /// Whether the server has announced another list of tools since the last look.
    has_list_changed: bool,
    /// Whether the server no longer knows the session.
    pub(crate) has_lost_session: bool,
    /// The version in the header of every request; `None` before a legacy opening.
    pub(crate) version: Option<String>,
}

impl HttpTransport {
    pub(crate) fn new(spec: &ServerSpec, url: &str) -> Result<Self, McpFailure> {
        let mut base_headers = HeaderMap::new();
        let mut set = |name: &str, value: &str| {
            let name = HeaderName::try_from(name);
            let value = HeaderValue::try_from(value);
            match (name, value) {
                (Ok(name), Ok(value)) => {
                    base_headers.insert(name, value);
                    Ok(())
                }
                _ => Err(McpFailure::Unreachable(
                    "a header of the server has characters that HTTP forbids".into(),
                )),
            }
        };
        set("content-type", "application/json")?;
        set("accept", "application/json, text/event-stream")?;
        for (name, value) in &spec.headers {
            set(name, value)?;
        }
        if let Some(token) = &spec.token {
            set("authorization", &format!("Bearer {token}"))?;
        }
        // The deadline of each request is shorter.
        let longest = spec.timeout().max(spec.start_timeout()) + NOTICE_TIMEOUT;
        let config = HttpClientConfig {
            url,
            headers: base_headers.clone(),
            total_timeout: longest,
            idle_timeout: longest,
            proxy: spec.proxy.as_deref(),
        };
        let client = HttpClient::new(config).map_err(McpFailure::Unreachable)?;
        if client.is_plain_http() && !is_loopback_host(client.host()) {
            let host = client.host();
            return Err(McpFailure::Unreachable(format!(
                "expected `https:` for `{host}`: plain `http:` is for loopback addresses only"
            )));
        }
        Ok(Self {
            client,
            base_headers,
            session: None,
            tokens: TokenSource::new(spec, url).map(Arc::new),
            token: None,
            refusal: None,
            has_list_changed: false,
            has_lost_session: false,
            version: None,
        })
    }

    /// Another client of the same session, with a connection of its own.
    pub(crate) fn share(&self) -> Self {
        Self {
            client: self.client.clone_unconnected(),
            base_headers: self.base_headers.clone(),
            session: self.session.clone(),
            tokens: self.tokens.clone(),
            token: self.token.clone(),
            refusal: None,
            has_list_changed: false,
            has_lost_session: false,
            version: self.version.clone(),
        }
    }

    /// Whether the server has announced another list of tools since the last call of this.
    pub(crate) fn take_list_change(&mut self) -> bool {
        std::mem::take(&mut self.has_list_changed)
    }

    /// Ends the session of a legacy server, which may refuse that.
    pub(crate) fn end_session(mut self) {
        if self.session.is_none() {
            return;
        }
        let Ok(cancel) = new_cancel_token() else { return };
        let deadline = Instant::now() + NOTICE_TIMEOUT;
        self.set_headers(&[]);
        let _ = with_watcher(&[], deadline, &cancel, || self.client.delete(&cancel).send().is_ok());
    }

    /// Sends a request and waits for its answer; `more` are headers of this request.
    pub(crate) fn exchange(
        &mut self,
        id: i64,
        request: &RpcMessage,
        more: &[(String, String)],
        context: &mut RequestWait<'_>,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        let cancel = new_cancel_token()?;
        let deadline = context.deadline;
        let fds: Vec<BorrowedFd<'_>> =
            [Some(context.cancel.fd()), context.abandon_fd].into_iter().flatten().collect();
        let outcome = with_watcher(&fds, deadline, &cancel, || {
            let mut has_list_changed = false;
            let on_notice = &mut *context.on_notice;
            let tokens = self.tokens.clone();
            let mut context = RequestWait {
                deadline,
                cancel: context.cancel,
                abandon_fd: context.abandon_fd,
                on_notice: &mut |notice| {
                    has_list_changed |= is_list_change(&notice);
                    match &tokens {
                        Some(tokens) => pass_redacted(tokens, &notice, on_notice),
                        None => on_notice(notice),
                    }
                },
            };
            let outcome = self.post_authorized(id, request, more, &mut context, &cancel);
            self.has_list_changed |= has_list_changed;
            outcome
        })?;
        if let Err(McpFailure::Cancelled) = outcome {
            self.cancel_request(id);
            if !context.cancel.is_requested() && !context.is_abandoned() {
                return Err(McpFailure::Unreachable("the server did not answer in time".into()));
            }
        }
        outcome
    }

    /// Whether a legacy server was opened.
    fn is_legacy(&self) -> bool {
        self.version.as_deref().is_some_and(|version| version != MODERN_VERSION)
    }

    /// Cancels a request of a legacy server. For a modern one the closed connection does that.
    fn cancel_request(&mut self, id: i64) {
        if !self.is_legacy() {
            return;
        }
        let params = json!({"requestId": id, "reason": "the caller gave up"});
        let message = RpcMessage::notification("notifications/cancelled", params);
        let Ok(cancel) = new_cancel_token() else { return };
        let deadline = Instant::now() + NOTICE_TIMEOUT;
        let _ = with_watcher(&[], deadline, &cancel, || self.notify(&message, &cancel));
    }

    /// Sends a message without an answer.
    pub(crate) fn notify(&mut self, message: &RpcMessage, cancel: &CancelToken) {
        self.set_headers(&[]);
        let body = Arc::new(message.to_json().to_string());
        let mut exchange = self.client.post(body, cancel);
        if exchange.send().is_ok() {
            let _ = exchange.read_bytes(MAX_LINE_BYTES);
        }
    }

    fn set_headers(&mut self, more: &[(String, String)]) {
        let mut headers = self.base_headers.clone();
        let version = self.version.iter().map(|version| ("mcp-protocol-version", version.as_str()));
        let session = self.session.iter().map(|session| (SESSION_HEADER, session.as_str()));
        let more = more.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let token = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let token = token.iter().map(|value| ("authorization", value.as_str()));
        for (name, value) in version.chain(session).chain(more).chain(token) {
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                headers.insert(name, value);
            }
        }
        self.client.set_headers(headers);
    }

    /// Sends a request with a token, and once more with another one if the server refuses it: it has not taken the request.
    fn post_authorized(
        &mut self,
        id: i64,
        request: &RpcMessage,
        more: &[(String, String)],
        context: &mut RequestWait<'_>,
        cancel: &CancelToken,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        let Some(tokens) = self.tokens.clone() else {
            return self.post_request(id, request, more, context, cancel);
        };
        self.token = tokens.current_token(cancel)?;
        let mut outcome = self.post_request(id, request, more, context, cancel);
        if let Some(refusal) = self.refusal.take() {
            let refused = self.token.take();
            self.token = Some(tokens.replace_token(refused.as_deref(), Some(&refusal), cancel)?);
            outcome = self.post_request(id, request, more, context, cancel);
            if let Some(refusal) = self.refusal.take() {
                return Err(tokens.final_refusal(&refusal));
            }
        }
        match outcome {
            Ok(Ok(result)) => Ok(Ok(tokens.redact(result))),
            Ok(Err(error)) => {
                let message = tokens.redact_text(error.message);
                let data = error.data.map(|data| tokens.redact(data));
                Ok(Err(RpcError { message, data, ..error }))
            }
            Err(McpFailure::Unreachable(reason)) => {
                Err(McpFailure::Unreachable(tokens.redact_text(reason)))
            }
            Err(other) => Err(other),
        }
    }

    fn post_request(
        &mut self,
        id: i64,
        request: &RpcMessage,
        more: &[(String, String)],
        context: &mut RequestWait<'_>,
        cancel: &CancelToken,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        self.set_headers(more);
        let mut replies = self.client.clone_unconnected();
        let body = Arc::new(request.to_json().to_string());
        let mut exchange = self.client.post(body, cancel);
        let head = exchange.send().map_err(|error| explain_http_error(&replies, &error))?;
        let status = head.status.as_u16();
        if self.tokens.is_some() {
            self.refusal = access_refusal(&head);
            if self.refusal.is_some() {
                return Ok(Err(RpcError::new(i64::from(status), "access is refused")));
            }
        }
        if let Some(session) = head.header_text(SESSION_HEADER) {
            self.session = Some(session.to_owned());
        }
        let is_stream = head.header_text("content-type").is_some_and(|kind| {
            kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
        });
        let mut body = Vec::new();
        let message = if is_stream {
            read_event_stream(&mut exchange, id, context, &mut replies, cancel)?
        } else {
            while let Some(chunk) =
                exchange.read_chunk(None).map_err(|error| explain_http_error(&replies, &error))?
            {
                body.extend_from_slice(chunk);
                check_length(body.len())?;
            }
            RpcMessage::parse(&body).ok()
        };
        let answer = match message {
            Some(RpcMessage::Response { outcome: Ok(result), .. }) => return Ok(Ok(result)),
            Some(RpcMessage::Response { id, outcome: Err(error) }) => Some((id, error)),
            _ => None,
        };
        let text = match &answer {
            Some((_, error)) => Cow::from(&error.message),
            None => String::from_utf8_lossy(&body),
        };
        let refusal = Refusal {
            status,
            code: answer.as_ref().map(|(_, error)| error.code),
            has_id: answer.as_ref().is_some_and(|(id, _)| id.is_some()),
            names_lost_session: names_lost_session(&text),
        };
        if self.is_legacy() {
            let fate = refusal.session_fate(self.session.is_some());
            self.has_lost_session = match fate {
                SessionFate::Alive => false,
                SessionFate::Lost => true,
                SessionFate::Unclear => !self.is_session_alive(cancel),
            };
            if self.has_lost_session {
                self.session = None;
                if refusal.is_before_request() {
                    return Err(McpFailure::SessionEnded);
                }
            }
        }
        match answer {
            Some((_, error)) => Ok(Err(error)),
            None if status >= 500 => {
                // A page is of a gateway, and says no more than the status.
                let words = if begins_as_page(&text) { String::new() } else { quote_body(&text) };
                let reason = format!("the server answered with HTTP status {}{words}", head.status);
                Err(McpFailure::Unreachable(reason))
            }
            // It was not refused, so the server may have done it.
            None if status < 300 => Err(McpFailure::invalid_answer(explain_status(&head, &text))),
            None => Ok(Err(RpcError::new(i64::from(status), explain_status(&head, &text)))),
        }
    }

    /// Whether the server still answers in the session: `ping` has no effect. A server that is silent may still know it.
    fn is_session_alive(&mut self, cancel: &CancelToken) -> bool {
        self.set_headers(&[]);
        let id = RpcId::Text("delta-ping".to_owned());
        let ping = RpcMessage::Request { id, method: "ping".to_owned(), params: Json::Null };
        let mut exchange = self.client.post(Arc::new(ping.to_json().to_string()), cancel);
        let Ok(head) = exchange.send() else { return true };
        let body = exchange.read_bytes(MAX_LINE_BYTES).unwrap_or_default();
        head.status.as_u16() < 400 && !names_lost_session(&String::from_utf8_lossy(&body))
    }
}

/// What is known of an answer that is an error.
struct Refusal {
    status: u16,
    /// The code, if it is an error of JSON-RPC.
    code: Option<i64>,
    /// Whether it names the request.
    has_id: bool,
    /// Whether its words are about a session that the server does not know.
    names_lost_session: bool,
}

/// What became of the session of a request that was refused.
enum SessionFate {
    Alive,
    Lost,
    Unclear,
}

impl Refusal {
    fn session_fate(&self, has_session: bool) -> SessionFate {
        let is_http_error = self.status >= 400;
        // A tool may have sessions of its own, of which the errors of its calls speak.
        let is_of_transport = is_http_error
            || !self.has_id
            || matches!(self.code, Some(-32099..=-32000 | INVALID_REQUEST));
        match self.status {
            404 | 410 if has_session => SessionFate::Lost,
            _ if self.names_lost_session && is_of_transport => SessionFate::Lost,
            _ if self.names_lost_session => SessionFate::Unclear,
            401 | 403 | 408 | 413 | 429 => SessionFate::Alive,
            _ if has_session && is_http_error => SessionFate::Unclear,
            _ => SessionFate::Alive,
        }
    }

    /// Whether a request in a lost session had no effect: the server did not come to it.
    fn is_before_request(&self) -> bool {
        let is_nameless = self.code.is_some() && !self.has_id;
        self.names_lost_session || (400..500).contains(&self.status) || is_nameless
    }
}

/// Whether an error says that the session is unknown, is over, or was never opened.
fn names_lost_session(text: &str) -> bool {
    let text: String = text.chars().take(MAX_QUOTED_CHARS * 10).collect();
    let text = text.to_lowercase();
    let has_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    has_any(&["not initialized", "uninitialized", "before initialization", "not been initialized"])
        || (text.contains("session") && has_any(&LOST_WORDS))
}

/// The words of SDKs and servers for a session that is gone.
const LOST_WORDS: [&str; 21] = [
    "not found",
    "no valid",
    "invalid",
    "not valid",
    "expired",
    "unknown",
    "unrecognized",
    "not recognized",
    "terminated",
    "no longer",
    "not exist",
    "n't exist",
    "missing",
    "required",
    "closed",
    "ended",
    "stale",
    "no active",
    "no such",
    "lost",
    "initialize",
];

/// Reads events until the answer to the request `id`, or an error, which is about it whatever its id is. `replies` sends the answers to requests of the server.
fn read_event_stream(
    exchange: &mut HttpExchange<'_>,
    id: i64,
    context: &mut RequestWait<'_>,
    replies: &mut HttpClient,
    cancel: &CancelToken,
) -> Result<Option<RpcMessage>, McpFailure> {
    let mut parser = SseParser::default();
    let mut length = 0;
    let mut unreadable = None;
    loop {
        let chunk =
            exchange.read_chunk(None).map_err(|error| explain_http_error(replies, &error))?;
        let has_ended = chunk.is_none();
        length += chunk.map_or(0, <[u8]>::len);
        check_length(length)?;
        let events = match chunk {
            Some(chunk) => parser.push(chunk),
            None => parser.finish(),
        };
        for event in events {
            match RpcMessage::parse(event.text().as_bytes()) {
                Ok(RpcMessage::Response { id: answered, outcome })
                    if outcome.is_err()
                        || answered.as_ref().is_some_and(|one| one.is_of_request(id)) =>
                {
                    return Ok(Some(RpcMessage::Response { id: answered, outcome }));
                }
                Ok(RpcMessage::Notification { method, params }) => {
                    let notice = ServerNotice::Notification { method: &method, params: &params };
                    (context.on_notice)(notice);
                }
                Ok(RpcMessage::Request { id, method, params }) => {
                    (context.on_notice)(ServerNotice::Request { method: &method, params: &params });
                    let reply = answer_server_request(id, &method).to_json().to_string();
                    let _ = replies.post(Arc::new(reply), cancel).send();
                }
                Ok(RpcMessage::Response { .. }) => {}
                Err(error) => unreadable = Some(error.message),
            }
        }
        if has_ended {
            let unreadable = unreadable.map(|reason| {
                format!("; an event of it could not be read: {}", strip_terminal_controls(&reason))
            });
            return Err(McpFailure::Unreachable(format!(
                "the server ended its answer before the result{}",
                unreadable.unwrap_or_default()
            )));
        }
    }
}

/// Passes a notice on without the tokens that the server may repeat in it.
fn pass_redacted(
    tokens: &TokenSource,
    notice: &ServerNotice<'_>,
    on_notice: &mut dyn FnMut(ServerNotice<'_>),
) {
    let (ServerNotice::Notification { params, .. } | ServerNotice::Request { params, .. }) = notice;
    let params = &tokens.redact((*params).clone());
    on_notice(match notice {
        ServerNotice::Notification { method, .. } => ServerNotice::Notification { method, params },
        ServerNotice::Request { method, .. } => ServerNotice::Request { method, params },
    });
}

fn is_list_change(notice: &ServerNotice<'_>) -> bool {
    matches!(notice, ServerNotice::Notification { method, .. } if *method == LIST_CHANGED_METHOD)
}

/// The headers that a modern request repeats from its body.
pub(crate) fn standard_headers(method: &str, params: &Json) -> Vec<(String, String)> {
    let mut headers = vec![("mcp-method".to_owned(), method.to_owned())];
    let name = ["name", "uri", "taskId"].iter().find_map(|key| params.get(*key)?.as_str());
    if let Some(name) = name {
        headers.push(("mcp-name".to_owned(), encode_header_value(name)));
    }
    headers
}

/// What the server says about its access, if it refused the request for its token or the lack of one.
fn access_refusal(head: &ResponseHead) -> Option<BearerChallenge> {
    let challenge = challenge_of(&head.headers);
    match head.status.as_u16() {
        401 => Some(challenge.unwrap_or_default()),
        403 => challenge.filter(BearerChallenge::needs_more_scopes),
        _ => None,
    }
}

fn check_length(length: usize) -> Result<(), McpFailure> {
    if length > MAX_LINE_BYTES {
        let limit = MAX_LINE_BYTES / (1024 * 1024);
        return Err(McpFailure::invalid_answer(format!("an answer is longer than {limit} MiB")));
    }
    Ok(())
}

fn explain_http_error(client: &HttpClient, error: &HttpError) -> McpFailure {
    match error {
        HttpError::Cancelled => McpFailure::Cancelled,
        other => McpFailure::Unreachable(client.describe_error(other)),
    }
}

/// Why an answer with this head is not one.
fn explain_status(head: &ResponseHead, body: &str) -> String {
    let status = head.status.as_u16();
    match (status, head.header_text("location")) {
        (300..=399, Some(location)) => format!(
            "it redirects to {location}, and redirects are not followed; if you trust that address, write it in `url`"
        ),
        (401 | 403, _) => {
            format!(
                "access is refused (HTTP status {status}){}; `token_env` names the variable with a token, and `oauth: true` takes the one of a login",
                quote_body(body)
            )
        }
        _ => {
            format!(
                "expected an answer of JSON-RPC, found HTTP status {status}{}",
                quote_body(body)
            )
        }
    }
}

/// The beginning of an answer that is none, for the end of a message; of a web page only that it is one.
fn quote_body(body: &str) -> String {
    let body = strip_terminal_controls(body.trim());
    match body.as_ref() {
        "" => String::new(),
        text if begins_as_page(text) => {
            " with a web page: `url` may lead to another place".to_owned()
        }
        text => format!(": {}", text.chars().take(MAX_QUOTED_CHARS).collect::<String>()),
    }
}

fn begins_as_page(body: &str) -> bool {
    body.trim_start().starts_with('<')
}

fn new_cancel_token() -> Result<CancelToken, McpFailure> {
    CancelToken::manual().map_err(|error| McpFailure::no_descriptor(&error))
}

/// Does `work`, and requests `cancel` when one of `fds` becomes readable or the deadline is over before it is done.
fn with_watcher<T>(
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
    cancel: &CancelToken,
    work: impl FnOnce() -> T,
) -> Result<T, McpFailure> {
    let (done_read, done_write) =
        std::io::pipe().map_err(|error| McpFailure::no_descriptor(&error))?;
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut watched = vec![PollFd::new(&done_read, PollFlags::IN)];
            watched.extend(fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
            loop {
                let rest = deadline.saturating_duration_since(Instant::now());
                if poll(&mut watched, Some(&to_timespec(rest))).is_ok() {
                    break;
                }
            }
            if watched[0].revents().is_empty() {
                cancel.request();
            }
        });
        let result = work();
        drop(done_write);
        result
    }))
}
