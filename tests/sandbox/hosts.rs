//! A list of hosts, in the sandbox that the engine prepares.

use crate::place::{SandboxCase, in_every_case};
use delta_process::ProcessEnd;
use delta_sandbox::{
    Guarantee, HostRule, NetAccess, PreparedSandbox, SandboxError, SandboxGrade, SandboxProfile,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::{fs, thread};
use test_support::needs;
use test_support::wait::until;

/// A server on the loopback of the machine that greets over HTTP.
fn start_greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1000]);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

/// A sandbox that reaches these hosts; `None` in the grade that cannot limit them, where it is refused.
fn prepare_hosts(case: &SandboxCase, hosts: &[(&str, u16)]) -> Option<PreparedSandbox> {
    let rules = hosts.iter().map(|(host, port)| HostRule { host: (*host).to_owned(), port: *port });
    let net = NetAccess::Hosts(rules.collect());
    let profile = SandboxProfile { net, ..case.place.profile() };
    if case.grade == SandboxGrade::Namespaces {
        return Some(case.prepare(&profile));
    }
    let Err(SandboxError::Missing(missing)) = case.try_prepare(&profile) else {
        panic!("a list of hosts without namespaces")
    };
    assert!(missing.iter().any(|one| one.guarantee == Guarantee::Net), "{missing:?}");
    None
}

#[test]
fn c_22_4_listed_hosts_are_reached_and_others_are_named() {
    if !needs::programs(&["curl"]) {
        return;
    }
    in_every_case("hosts::c_22_4_listed_hosts_are_reached_and_others_are_named", |case| {
        let port = start_greeter();
        let hosts = [("localhost", port), ("listed.example", 443)];
        let Some(mut sandbox) = prepare_hosts(case, &hosts) else { return };
        let place = &case.place;
        let greeting = place.succeed(&sandbox, &format!("curl -sS http://localhost:{port}/"));
        assert_eq!(greeting, "hello");
        let outcome = place.run(
            &sandbox,
            "curl -sS https://other.example/; curl -sS http://1.1.1.1/; curl -sS http://listed.example/; \
             getent ahostsv4 listed.example | head -1 | cut -d ' ' -f 1",
        );
        assert_eq!(outcome.end, ProcessEnd::Exited(0));
        assert_eq!(outcome.stdout.trim(), "198.18.0.2", "{}", outcome.stderr);
        let report = sandbox.take_network_report();
        let refused: Vec<_> =
            report.refused.iter().map(|(name, times)| format!("{name} {times}")).collect();
        assert_eq!(refused, ["1.1.1.1:80 1", "listed.example:80 1", "other.example 1"]);
        assert_eq!(report.attempts, 3);
        let traffic = report.reached[&format!("localhost:{port}")];
        assert_eq!((traffic.connections, report.failed.len()), (1, 0));
        assert!(sandbox.take_network_report().refused.is_empty());
    });
}

#[test]
fn c_22_4_a_tool_cannot_change_its_network() {
    if !needs::programs(&["curl", "ip", "python3"]) {
        return;
    }
    in_every_case("hosts::c_22_4_a_tool_cannot_change_its_network", |case| {
        let Some(mut sandbox) = prepare_hosts(case, &[("listed.example", 443)]) else { return };
        for script in [
            "ip link set lo down",
            "ip route add default dev lo table main",
            "ip addr add 10.0.0.1/8 dev lo",
            "echo 1 > /proc/sys/net/ipv4/ip_unprivileged_port_start",
            "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
            "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
            "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)'",
            "python3 -c 'import socket; socket.create_server((\"\", 53))'",
            // A network namespace of its own has no sockets of the service.
            "unshare -Urn curl -sS -m 5 https://listed.example/",
        ] {
            case.place.fail(&sandbox, script);
        }
        assert_eq!(sandbox.take_network_report().reached.len(), 0);
    });
}

/// The services that this thread started: other tests start theirs at the same time.
fn find_services() -> Vec<String> {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    let children = children.split_whitespace().map(str::to_owned);
    let is_service = |pid: &String| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains("__sandbox")
    };
    children.filter(is_service).collect()
}

fn read_status(pid: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn c_22_4_the_service_has_no_rights_and_ends_with_the_sandbox() {
    if !needs::programs(&["curl"]) {
        return;
    }
    in_every_case("hosts::c_22_4_the_service_has_no_rights_and_ends_with_the_sandbox", |case| {
        let port = start_greeter();
        let Some(mut sandbox) = prepare_hosts(case, &[("localhost", port)]) else { return };
        let services = find_services();
        let [service] = services.as_slice() else { panic!("{services:?}") };
        assert_eq!(read_status(service, "NoNewPrivs:"), 1);
        let many = format!("for i in 1 2 3 4 5 6 7 8; do curl -sS http://localhost:{port}/; done");
        assert_eq!(case.place.succeed(&sandbox, &many), "hello".repeat(8));
        // The threads of the last callers may still be ending.
        until("one thread", || (read_status(service, "Threads:") == 1).then_some(()));
        eprintln!("resident: {} KiB", read_status(service, "VmRSS:"));
        // A tool can neither signal it nor read its memory.
        case.place.fail(&sandbox, &format!("kill -9 {service}"));
        case.place.fail(&sandbox, &format!("cat /proc/{service}/environ"));

        let pid = rustix::process::Pid::from_raw(service.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // Its death closes the sockets: nothing waits for it.
        case.place.fail(&sandbox, &format!("curl -sS -m 20 http://localhost:{port}/"));
        let failed = sandbox.take_network_report().failed;
        assert!(failed["*"].error.contains("does not answer"), "{failed:?}");
        drop(sandbox);
        assert!(find_services().is_empty());
    });
}

/// Makes what a registry of crates serves, with one crate, and serves it on a port that it prints.
const CRATES: &str = "
mkdir -p index/ti/ny dl/tiny/1.0.0 tiny-1.0.0/src && cd tiny-1.0.0
printf '[package]\\nname = \"tiny\"\\nversion = \"1.0.0\"\\n' > Cargo.toml
echo 'pub const SEVEN: i32 = 7;' > src/lib.rs && cd ..
tar czf dl/tiny/1.0.0/download tiny-1.0.0
sum=$(sha256sum dl/tiny/1.0.0/download | cut -d ' ' -f 1)
echo '{\"name\": \"tiny\", \"vers\": \"1.0.0\", \"deps\": [], \"features\": {}, \"yanked\": false, \"cksum\": \"'$sum'\"}' > index/ti/ny/tiny
exec python3 -c '
import functools, http.server
server = http.server.ThreadingHTTPServer((\"127.0.0.1\", 0), http.server.SimpleHTTPRequestHandler)
port = server.server_address[1]
open(\"index/config.json\", \"w\").write(\"{\\\"dl\\\": \\\"http://localhost:%d/dl\\\"}\" % port)
print(port, flush=True)
server.serve_forever()'
";

#[test]
fn c_22_4_cargo_builds_with_a_crate_of_a_listed_registry() {
    if !needs::programs(&["cargo", "python3"]) {
        return;
    }
    in_every_case("hosts::c_22_4_cargo_builds_with_a_crate_of_a_listed_registry", |case| {
        let place = &case.place;
        let directory = place.root.join("registry");
        fs::create_dir(&directory).unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", CRATES]).current_dir(&directory).stderr(std::process::Stdio::null());
        let mut server = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        if let Some(sandbox) = prepare_hosts(case, &[("localhost", port)]) {
            let toolchains = std::env::var("HOME").unwrap_or_default();
            let script = format!(
                "export CARGO_HOME=$PWD/.cargo RUSTUP_HOME=${{RUSTUP_HOME:-{toolchains}/.rustup}}
                 cargo --version
                 mkdir -p .cargo && echo '[source.crates-io]
                 replace-with = \"local\"
                 [source.local]
                 registry = \"sparse+http://localhost:{port}/index/\"' > .cargo/config.toml
                 cargo init -q --vcs none --name seven app && cd app && cargo add -q tiny && \
                 echo 'fn main() {{ println!(\"{{}}\", tiny::SEVEN) }}' > src/main.rs && cargo run -q"
            );
            let output = place.succeed(&sandbox, &script);
            assert!(output.trim_end().ends_with('7'), "{output}");
            println!("{}", output.trim_end());
        }
        server.kill().unwrap();
        server.wait().unwrap();
    });
}
