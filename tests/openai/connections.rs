//! Connections kept and given up, the cancellation, proxies and certificates.

use super::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use delta_llm::llm::CallProgress;
use test_support::server::{Answer, Gate, RecordedRequest};

#[test]
fn c_7_3_one_connection_serves_many_calls() {
    let answer = |request: &RecordedRequest| match request.body["stream"] == true {
        true => Answer::call("tool", json!({"a": 1})),
        false => Answer::error(400, "x", None),
    };
    let server = ScriptedServer::start(answer);
    let mut client = client(&server, true);
    for _ in 0..10 {
        ask(&mut client).0.unwrap();
        ask_whole(&mut client).0.unwrap_err();
    }
    assert_eq!((server.requests().len(), server.connections()), (20, 1));
}

#[test]
fn c_7_3_a_kept_connection_that_ends_without_an_answer_is_replaced_at_once() {
    let server =
        ScriptedServer::start(vec![Answer::text("one"), Answer::close(), Answer::text("two")]);
    let mut client = single(&server, true);
    assert_eq!(content(&ask(&mut client)), "one");
    let outcome = ask(&mut client);
    assert_eq!(content(&outcome), "two");
    assert_eq!((outcome.1.len(), outcome.1[0].retry_in_ms), (1, Some(0)));
    assert_eq!(server.connections(), 2);
    // Only once: a new connection that ends in the same way is a failure.
    let server = ScriptedServer::start(vec![Answer::text("one"), Answer::close(), Answer::close()]);
    let mut client = single(&server, true);
    ask(&mut client).0.unwrap();
    assert!(failure(ask(&mut client)).0.contains("closed the connection without a response"));
}

#[test]
fn c_7_3_a_connection_that_was_closed_meanwhile_does_no_harm() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("ok").then_close());
    let mut client = single(&server, true);
    for _ in 0..5 {
        assert_eq!(content(&ask(&mut client)), "ok");
    }
}

/// The answer was taken for a connection that ended without one, and the request was sent again.
#[test]
fn c_7_3_a_server_that_refuses_a_long_request_before_its_end_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        let error = json!({"error": {"message": "too long"}}).to_string();
        let head = "HTTP/1.1 413 X\r\nContent-Type: application/json\r\nConnection: close";
        let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{error}", error.len());
        // In one piece: the reset that follows would discard what is not sent yet.
        stream.write_all(answer.as_bytes()).unwrap();
    });
    // More than the sockets hold.
    let message = json!({"role": "user", "content": "x".repeat(32_000_000)});
    let body = json!({"model": "m", "messages": [message]}).to_string();
    let mut client = provider(endpoint(&url, false));
    let outcome = ask_with(&mut client, &body, &CancelToken::manual().unwrap());
    server.join().unwrap();
    assert_eq!((outcome.1.len(), outcome.1[0].status), (1, Some(413)));
    assert!(failure(outcome).0.contains("too long"));
}

#[test]
fn c_7_1_a_stream_that_goes_on_after_its_end_does_no_harm() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        Answer::event_stream(event).stall(event.len())
    });
    let mut client = single(&server, true);
    assert_eq!(content(&ask(&mut client)), "ok");
    assert_eq!(content(&ask(&mut client)), "ok");
    assert_eq!(server.connections(), 2);
}

#[test]
fn c_7_3_a_call_after_a_timeout_takes_a_new_connection() {
    let server = ScriptedServer::start(vec![Answer::hang(), Answer::text("ok")]);
    // Long enough for the second answer on a machine under load.
    let endpoint =
        Endpoint { idle_timeout_ms: 1_500, max_retries: 0, ..endpoint(&server.url(), true) };
    let mut client = provider(endpoint);
    assert!(failure(ask(&mut client)).0.contains("nothing received"));
    assert_eq!(content(&ask(&mut client)), "ok");
    assert_eq!(server.connections(), 2);
}

#[test]
fn c_7_4_a_cancellation_ends_every_wait() {
    for answer in [
        Answer::hang(),
        Answer::text("WRONG").stall(300),
        Answer::text("WRONG").after(&Gate::new()),
    ] {
        let cancel = CancelToken::manual().unwrap();
        let from_outside = cancel.clone();
        let server = ScriptedServer::start(move |_: &RecordedRequest| {
            from_outside.request();
            answer.clone()
        });
        let (result, attempts) = ask_with(&mut client(&server, true), &body(true), &cancel);
        assert!(matches!(result, Err(LlmError::Cancelled)), "{result:?}");
        assert_eq!(attempts, []);
    }
}

#[test]
fn c_7_4_a_cancellation_ends_the_wait_for_the_next_try() {
    let answer = |_: &RecordedRequest| Answer::error(503, "x", None).header("Retry-After", "600");
    let server = ScriptedServer::start(answer);
    let cancel = CancelToken::manual().unwrap();
    let body = Arc::new(body(true));
    let request = LlmRequest::new(&body);
    let mut waits = Vec::new();
    let result = client(&server, true).complete(&request, &cancel, &mut |progress| {
        if let CallProgress::AttemptFailed { attempt, next, .. } = progress {
            assert_eq!(next.number, 2);
            waits.push(attempt.retry_in_ms);
            cancel.request();
        }
    });
    assert!(matches!(result, Err(LlmError::Cancelled)), "{result:?}");
    assert_eq!(waits, [Some(600_000)]);
    // A cancelled engine does not even connect.
    let result = ask_with(&mut client(&server, true), &body, &cancel).0;
    assert!(matches!(result, Err(LlmError::Cancelled)), "{result:?}");
    assert_eq!(server.connections(), 1);
}

#[test]
fn c_37_6_an_https_address_is_reached_through_a_tunnel() {
    let name = "connections::c_37_6_an_https_address_is_reached_through_a_tunnel";
    if is_child(name, &[("SSL_CERT_FILE", AUTHORITY)]) {
        let (base, server) = tls_server("secure");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Some(format!("http://{}", listener.local_addr().unwrap()));
        let tunnel = std::thread::spawn(move || tunnel(&listener));
        let mut client = provider(Endpoint { proxy, ..endpoint(&base, false) });
        assert_eq!(content(&ask_whole(&mut client)), "secure");
        server.join().unwrap().unwrap();
        drop(client);
        assert!(tunnel.join().unwrap().starts_with("CONNECT 127.0.0.1:"));
    }
}

/// Squid refuses CONNECT to ports other than 443.
#[test]
fn c_37_6_requests_for_an_http_address_go_to_the_proxy_in_absolute_form() {
    let answer = json!({"choices": [{"message": {"content": "ok"}}]}).to_string();
    let refusal = "<html><title>Access denied</title></html>";
    let server = ScriptedServer::for_anything(vec![
        Answer::raw(200, answer.clone()),
        Answer::raw(200, answer),
        Answer::raw(407, refusal),
    ]);
    let address = format!("127.0.0.1:{}", server.port());
    let proxy = Some(format!("http://us%40er:s3cret@{address}"));
    let mut client =
        provider(Endpoint { proxy, ..endpoint("http://far.invalid:8000/v1?key=a", false) });
    assert_eq!(content(&ask_whole(&mut client)), "ok");
    assert_eq!(content(&ask_whole(&mut client)), "ok");
    for request in server.requests() {
        let target = "POST http://far.invalid:8000/v1/chat/completions?key=a";
        assert_eq!(request.target, target);
        assert_eq!(request.header("host"), Some("far.invalid:8000"));
        let authorization = Some("Basic dXNAZXI6czNjcmV0");
        assert_eq!(request.header("proxy-authorization"), authorization);
        assert_eq!(request.body["model"], "m");
    }
    assert_eq!(server.connections(), 1);
    let (message, hint, _) = failure(ask_whole(&mut client));
    let said = format!(
        "the proxy http://{address} answered 407 Proxy Authentication Required: an HTML page, \"Access denied\""
    );
    assert_eq!(message, said);
    assert!(hint.ends_with(&format!("write `http://USER:PASSWORD@{address}`")), "{hint}");
}

/// A proxy that answers its first connection with these pieces, each after it has read something; gives all that it read.
fn one_shot_proxy(pieces: Vec<Vec<u8>>) -> (String, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        for piece in pieces {
            let count = stream.read(&mut buffer).unwrap();
            all.extend_from_slice(&buffer[..count]);
            stream.write_all(&piece).unwrap();
        }
        all
    });
    (address, thread)
}

#[test]
fn c_37_6_the_words_of_a_proxy_that_refuses_are_shown_without_its_password() {
    let check = |answer: &str, said: &str, hinted: &str, tries: usize| {
        let (address, proxy) = one_shot_proxy(vec![answer.as_bytes().to_vec()]);
        let url = Some(format!("http://user:s3cret@{address}"));
        let endpoint = endpoint("https://far.invalid/v1", true);
        let outcome = ask(&mut provider(Endpoint { proxy: url, max_retries: 0, ..endpoint }));
        assert_eq!(outcome.1.len(), tries);
        let (message, hint, _) = failure(outcome);
        let url = "https://far.invalid/v1/chat/completions";
        let expected = format!("the proxy http://{address} opened no connection to {url}: {said}");
        assert_eq!(message, expected);
        assert!(hint.contains(hinted) && !hint.contains("s3cret"), "{hint}");
        let sent = String::from_utf8(proxy.join().unwrap()).unwrap();
        assert!(sent.starts_with("CONNECT far.invalid:443 HTTP/1.1\r\nHost: far.invalid:443\r\n"));
        assert!(sent.contains("\r\nProxy-Authorization: Basic dXNlcjpzM2NyZXQ=\r\n"), "{sent}");
    };
    let denied = "HTTP/1.1 407 Who?\r\nContent-Length: 5\r\n\r\nnobody";
    check(denied, "407 Proxy Authentication Required: nobod", "USER:PASSWORD@", 1);
    check("HTTP/1.0 403 No\r\n\r\n", "403 Forbidden", "NO_PROXY=far.invalid avoids it", 1);
    check("SSH-2.0\r\n\r\n", "its answer is not HTTP", "HTTPS_PROXY", 1);
    check("", "it closed the connection", "HTTPS_PROXY", 1);
}

#[test]
fn c_37_6_socks5_is_spoken_with_user_and_password_and_looks_names_up_where_it_says() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{\"choices\":[{\"message\":{\"content\":\"done\"}}]}";
    let bound = [5, 0, 0, 3, 2, b'a', b'b', 0, 1];
    let granted = |first: &[&[u8]]| {
        let mut pieces: Vec<Vec<u8>> = first.iter().map(|piece| piece.to_vec()).collect();
        pieces.extend([bound.to_vec(), answer.as_bytes().to_vec()]);
        pieces
    };
    let ask_through = |url: &str, pieces, base: &str| {
        let (address, proxy) = one_shot_proxy(pieces);
        let url = Some(url.replace("PROXY", &address));
        let endpoint = Endpoint { proxy: url, max_retries: 0, ..endpoint(base, false) };
        let outcome = ask_whole(&mut provider(endpoint));
        (outcome, proxy)
    };
    // The proxy looks up the name.
    let pieces = granted(&[&[5, 2], &[1, 0]]);
    let (outcome, proxy) =
        ask_through("socks5h://us%40er:p@PROXY", pieces, "http://far.invalid:7/v1");
    assert_eq!(content(&outcome), "done");
    let sent = proxy.join().unwrap();
    let mut expected = vec![5, 2, 0, 2, 1, 5];
    expected.extend(
        b"us@er\x01p\x05\x01\x00\x03\x0bfar.invalid\x00\x07POST /v1/chat/completions HTTP/1.1\r\n",
    );
    assert!(sent.starts_with(&expected), "{sent:?}");
    // An address stays one, without a user too.
    let (outcome, proxy) =
        ask_through("socks5://PROXY", granted(&[&[5, 0]]), "http://10.9.8.7:8/v1");
    assert_eq!(content(&outcome), "done");
    assert!(proxy.join().unwrap().starts_with(&[5, 1, 0, 5, 1, 0, 1, 10, 9, 8, 7, 0, 8]));
    // What it refuses is named, and what is lasting is not tried again.
    let refused = |pieces: Vec<Vec<u8>>| {
        let (outcome, proxy) =
            ask_through("socks5h://u:s3cret@PROXY", pieces, "http://far.invalid/v1");
        proxy.join().unwrap();
        let (message, hint, _) = failure(outcome);
        assert!(!message.contains("s3cret") && hint.contains("ALL_PROXY"), "{message}: {hint}");
        message.rsplit(": ").next().unwrap().to_owned()
    };
    assert_eq!(refused(vec![vec![5, 2], vec![1, 1]]), "user and password are wrong");
    assert_eq!(refused(vec![vec![5, 0xff]]), "it wants another authentication");
    assert_eq!(refused(vec![vec![4, 0]]), "its answer is not SOCKS5");
    let denied = refused(vec![vec![5, 0], vec![5, 2, 0, 1]]);
    assert_eq!(denied, "its rules do not allow the connection");
    assert_eq!(refused(vec![vec![5, 0], vec![5]]), "it closed the connection");
}

/// A proxy for one connection; gives the first line of what it was asked for.
fn tunnel(listener: &TcpListener) -> String {
    let stream = listener.accept().unwrap().0;
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap();
    lines.find(String::is_empty);
    let target = TcpStream::connect(first.split(' ').nth(1).unwrap()).unwrap();
    (&stream).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let (mut from, mut to) = (stream.try_clone().unwrap(), target.try_clone().unwrap());
    let there = std::thread::spawn(move || io::copy(&mut from, &mut to));
    let _ = io::copy(&mut &target, &mut &stream);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    let _ = there.join().unwrap();
    first
}

/// Runs the test `name` again in a process of its own with this environment, and tells whether this is that process.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of a process is set before it starts"
)]
fn is_child(name: &str, environment: &[(&str, &str)]) -> bool {
    const MARK: &str = "DELTA_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", name])
        .env(MARK, "1")
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR");
    let output = child.envs(environment.iter().copied()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
    false
}

#[test]
fn c_7_3_the_environment_names_no_proxy_behind_the_back_of_the_engine() {
    let nowhere =
        ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "http_proxy", "https_proxy"];
    let environment = nowhere.map(|name| (name, "http://127.0.0.1:1"));
    let name = "connections::c_7_3_the_environment_names_no_proxy_behind_the_back_of_the_engine";
    if is_child(name, &environment) {
        let server = ScriptedServer::start(vec![Answer::text("ok")]);
        assert_eq!(content(&ask(&mut single(&server, true))), "ok");
    }
}

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai/tls/authority.pem");

#[test]
fn c_7_6_the_certificates_of_ssl_cert_file_are_trusted() {
    let name = "connections::c_7_6_the_certificates_of_ssl_cert_file_are_trusted";
    if is_child(name, &[("SSL_CERT_FILE", AUTHORITY)]) {
        let (base, server) = tls_server("secure");
        assert_eq!(content(&ask_whole(&mut provider(endpoint(&base, false)))), "secure");
        server.join().unwrap().unwrap();
        // The library adds an address of its own documentation.
        let (base, server) = tls_server("");
        let once = Endpoint { max_retries: 0, ..endpoint(&base, false) };
        let (message, ..) = failure(ask_whole(&mut provider(once)));
        assert!(
            message.ends_with("peer closed connection without sending TLS close_notify"),
            "{message}"
        );
        server.join().unwrap().unwrap();
    }
}

/// "received corrupt message of type InvalidContentType", with a hint about certificates.
#[test]
fn c_7_6_a_server_of_plain_http_at_an_https_address_is_named() {
    // The client sends a TLS greeting, and no server of HTTP can make anything of that.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        assert!(stream.read(&mut [0; 1024])? > 0);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        let _ = stream.read(&mut [0; 1024]);
        Ok(())
    });
    let outcome = ask(&mut provider(endpoint(&base, true)));
    assert_eq!(outcome.1.len(), 1, "another try would end in the same way");
    let (message, hint, _) = failure(outcome);
    let said = format!(
        "could not connect to {base}/chat/completions: the address begins with https, but the server speaks plain HTTP"
    );
    assert_eq!(message, said);
    assert!(hint.contains("write `http://`") && !hint.contains("certificate"), "{hint}");
    server.join().unwrap().unwrap();
}

#[test]
fn c_7_6_an_unknown_certificate_is_refused() {
    if is_child("connections::c_7_6_an_unknown_certificate_is_refused", &[]) {
        let (base, server) = tls_server("secure");
        let outcome = ask_whole(&mut provider(endpoint(&base, false)));
        assert_eq!(outcome.1.len(), 1);
        let (message, hint, _) = failure(outcome);
        assert!(
            message.starts_with(&format!("could not connect to {base}/chat/completions: ")),
            "{message}"
        );
        assert!(hint.contains("SSL_CERT_FILE"), "{hint}");
        // A machine without any certificate of its own does not get as far as a connection that says something.
        assert!(
            message.contains("UnknownIssuer") || message.contains("No CA certificates"),
            "{message}"
        );
        assert!(server.join().unwrap().is_err());
    }
}

type Served = std::thread::JoinHandle<io::Result<()>>;

/// A server that answers one request over TLS with a text, or closes the connection if that is empty, with a certificate that only tests/openai/tls/authority.pem vouches for.
fn tls_server(text: &'static str) -> (String, Served) {
    let read = |name: &str| {
        std::fs::read(format!("{}/tests/openai/tls/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let chain = vec![CertificateDer::from_pem_slice(&read("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(&read("server.key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://{}/v1", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let stream = listener.accept()?.0;
        let connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
        let mut input = BufReader::new(rustls::StreamOwned::new(connection, stream));
        let mut length = 0;
        let mut line = String::new();
        while input.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            line.clear();
        }
        input.read_exact(&mut vec![0; length])?;
        if text.is_empty() {
            return Ok(());
        }
        let body = json!({"choices": [{"message": {"content": text}}]}).to_string();
        write!(input.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        input.get_mut().flush()
    });
    (base, thread)
}
