//! Connections behave as they do without a sandbox: ends of each direction, resets, slow readers, many at once.

use crate::namespace::Namespace;
use std::io::{Read, Write};
use std::net::Shutdown;
use test_support::file_server::start_server;
use test_support::needs;

const HOSTS: &str = "127.0.0.1 listed.example\n";

fn listed(port: u16) -> [String; 1] {
    [format!("listed.example {port}")]
}

#[test]
fn each_direction_ends_by_itself() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    // Answers when the request has ended, and only then.
    let port = start_server(|mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).unwrap();
        write!(stream, "{} bytes", request.len()).unwrap();
    });
    let Some(mut namespace) = Namespace::new(&listed(port), HOSTS) else { return };
    let output = namespace.python(&format!(
        "
import socket
s = socket.create_connection(('listed.example', {port}), 20)
s.sendall(b'x' * 3000000)
s.shutdown(socket.SHUT_WR)
print(s.makefile().read())
"
    ));
    assert_eq!(output, "3000000 bytes");
    let traffic = namespace.report().reached[&format!("listed.example:{port}")];
    assert_eq!((traffic.connections, traffic.sent, traffic.received), (1, 3_000_000, 13));
}

#[test]
fn a_host_that_ends_first_still_gets_the_rest() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let (sender, received) = std::sync::mpsc::channel();
    let port = start_server(move |mut stream| {
        stream.write_all(b"go").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        sender.send(rest.len()).unwrap();
    });
    let Some(namespace) = Namespace::new(&listed(port), HOSTS) else { return };
    let output = namespace.python(&format!(
        "
import socket
s = socket.create_connection(('listed.example', {port}), 20)
print(s.makefile().read())
s.sendall(b'y' * 2000000)
"
    ));
    assert_eq!(output, "go");
    assert_eq!(received.recv().unwrap(), 2_000_000);
}

#[test]
fn a_slow_reader_gets_every_byte() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = start_server(|mut stream| {
        let mut block = vec![0; 1 << 20];
        for index in 0..40u8 {
            block.fill(index);
            stream.write_all(&block).unwrap();
        }
    });
    let Some(mut namespace) = Namespace::new(&listed(port), HOSTS) else { return };
    let output = namespace.python(&format!(
        "
import socket, time
slow = socket.create_connection(('listed.example', {port}), 20)
quick = socket.create_connection(('listed.example', {port}), 20)
def drain(s):
    total = 0
    while True:
        block = s.recv(1 << 16)
        if not block:
            return total
        total += sum(block)
# The slow one fills every buffer on its way while the quick one is served.
print(drain(quick) == drain(slow) == sum(range(40)) * (1 << 20))
"
    ));
    assert_eq!(output, "True");
    let traffic = namespace.report().reached[&format!("listed.example:{port}")];
    assert_eq!((traffic.connections, traffic.received), (2, 2 * (40 << 20)));
}

#[test]
fn resets_and_refusals_of_a_host_reach_the_tool() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = start_server(|stream| {
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    });
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rules = [format!("listed.example {port}"), format!("listed.example {closed}")];
    let Some(mut namespace) = Namespace::new(&rules, HOSTS) else { return };
    let output = namespace.python(&format!(
        "
import socket
for port in ({port}, {closed}):
    try:
        print(socket.create_connection(('listed.example', port), 20).recv(10))
    except OSError as error:
        print(type(error).__name__)
"
    ));
    assert_eq!(output, "ConnectionResetError\nConnectionResetError");
    let report = namespace.report();
    let failure = &report.failed[&format!("listed.example:{closed}")];
    assert_eq!(failure.connections, 1);
    assert!(failure.error.contains("refused"), "{failure:?}");
}

#[test]
fn hundreds_of_connections_at_once() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = start_server(|mut stream| {
        let mut line = [0; 6];
        while stream.read_exact(&mut line).is_ok() {
            stream.write_all(&line).unwrap();
        }
    });
    let Some(mut namespace) = Namespace::new(&listed(port), HOSTS) else { return };
    let output = namespace.python(&format!(
        "
import socket
host = socket.gethostbyname('listed.example')
all = [socket.create_connection((host, {port}), 20) for _ in range(400)]
for number, s in enumerate(all):
    s.sendall(b'%06d' % number)
print(sum(int(s.recv(6, socket.MSG_WAITALL)) for s in all) == sum(range(400)))
"
    ));
    assert_eq!(output, "True");
    let traffic = namespace.report().reached[&format!("listed.example:{port}")];
    assert_eq!((traffic.connections, traffic.sent, traffic.received), (400, 2400, 2400));
}

#[test]
fn what_a_process_sent_before_it_ended_is_counted_at_once() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = start_server(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let Some(mut namespace) = Namespace::new(&listed(port), HOSTS) else { return };
    for round in 0..20 {
        namespace.python(&format!(
            "
import socket
s = socket.create_connection(('198.18.0.2', {port}), 20)
s.recv(0)
socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect_ex(('9.9.9.9', 80))
"
        ));
        assert_eq!(namespace.refusals(), ["9.9.9.9:80 1"], "in round {round}");
    }
}
