//! Servers on the loopback of the machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

/// Starts a server that passes each connection to `serve` on a thread; returns its port.
pub fn start_server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.expect("a connection")));
        }
    });
    port
}

/// A server of files over HTTP; `index.html` for a directory.
pub fn start_file_server(root: PathBuf) -> u16 {
    start_server(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut request = String::new();
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        let mut header = String::new();
        while reader.read_line(&mut header).unwrap_or(0) > 2 {
            header.clear();
        }
        let path =
            request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
        let mut file = root.join(path.trim_start_matches('/'));
        if file.is_dir() {
            file = file.join("index.html");
        }
        let (status, body) = match std::fs::read(&file) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let kind = match file.extension().and_then(|extension| extension.to_str()) {
            Some("html") => "text/html",
            Some("json") => "application/json",
            _ => "application/octet-stream",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    })
}
