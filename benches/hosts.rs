//! What the network of a sandbox with a list of hosts costs: preparing it, a connection, a download, and the memory of the
//! process that serves it. Each next to the same without a sandbox.
//!
//! `cargo bench --bench hosts` prints the figures and fails when one is beyond its bar. It needs curl and python3.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::Bars;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_process::{LaunchContext, ProcessCommand, ProcessEnd, run_process};
use delta_sandbox::{
    EnvAccess, HomeAccess, HostRule, NetAccess, PrepareContext, PreparedSandbox, ProxySettings,
    ReadAccess, SandboxGrade, SandboxLimits, SandboxProfile, SandboxScratch, prepare,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const DOWNLOAD: usize = 1 << 30;
const CONNECTIONS: usize = 500;
const TURNS: usize = 5;

fn main() {
    if !common::is_asked() {
        return;
    }
    let port = serve_downloads();
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().canonicalize().unwrap();
    let scratch = SandboxScratch::create(&workspace, "bench").unwrap();
    let mut preparing = [Duration::MAX; 2];
    for _ in 0..20 {
        for (index, net) in [NetAccess::None, listed(port)].into_iter().enumerate() {
            let began = Instant::now();
            let sandbox = prepare_net(net, &workspace, &scratch);
            preparing[index] = preparing[index].min(began.elapsed());
            if sandbox.grade != SandboxGrade::Namespaces {
                println!("not measured: this machine has no user namespaces");
                return;
            }
        }
    }
    let mut bars = Bars::default();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    bars.at_most("preparing without a network", milliseconds(preparing[0]), 5.0, "ms");
    bars.at_most("preparing with a list of hosts", milliseconds(preparing[1]), 5.0, "ms");

    let sandbox = prepare_net(listed(port), &workspace, &scratch);
    let service = find_service();
    bars.at_most("memory of the service at first", read_pss(service), 4096.0, "KiB");
    let download = format!("curl -sS -o /dev/null http://localhost:{port}/");
    let connect = format!(
        "python3 -c 'import socket\nfor _ in range({CONNECTIONS}):\n  \
         s = socket.create_connection((\"127.0.0.1\", {port}))\n  s.send(b\"x\")\n  s.recv(1)'"
    );
    let mut best = [[Duration::MAX; 2]; 2];
    for _ in 0..TURNS {
        for (index, script) in [&download, &connect].into_iter().enumerate() {
            best[index][0] = best[index][0].min(time_script(script, None, &workspace));
            best[index][1] = best[index][1].min(time_script(script, Some(&sandbox), &workspace));
        }
    }
    let [downloads, connects] = best;
    let gigabytes = |time: Duration| DOWNLOAD as f64 / 1e9 / time.as_secs_f64();
    println!(
        "  a download in GB/s: {:.2} without, {:.2} with",
        gigabytes(downloads[0]),
        gigabytes(downloads[1])
    );
    let each = |time: Duration| time.as_secs_f64() * 1e6 / CONNECTIONS as f64;
    println!(
        "  a connection in us: {:.0} without, {:.0} with",
        each(connects[0]),
        each(connects[1])
    );
    bars.at_most("memory of the service after them", read_pss(service), 4096.0, "KiB");
    let many = format!(
        "python3 -c 'import socket\nall = [socket.create_connection((\"127.0.0.1\", {port})) for _ in range(400)]\n\
         for s in all: s.send(b\"x\")\nfor s in all: s.recv(1)'"
    );
    time_script(&many, Some(&sandbox), &workspace);
    bars.at_most("memory after 400 connections at once", read_pss(service), 4096.0, "KiB");
    bars.hold();
}

fn listed(port: u16) -> NetAccess {
    NetAccess::Hosts(vec![HostRule { host: "localhost".to_owned(), port }])
}

/// Serves a download for a request, and a byte for a byte.
fn serve_downloads() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let block = vec![7; 1 << 20];
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let block = block.clone();
            thread::spawn(move || {
                let mut request = [0; 1000];
                if stream.read(&mut request).unwrap_or(0) <= 1 {
                    let _ = stream.write_all(b"y");
                    return;
                }
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {DOWNLOAD}\r\n\r\n");
                for _ in 0..DOWNLOAD / block.len() {
                    if stream.write_all(&block).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn prepare_net(net: NetAccess, workspace: &Path, scratch: &SandboxScratch) -> PreparedSandbox {
    let profile = SandboxProfile {
        write: vec![workspace.to_owned()],
        keep: Vec::new(),
        read: ReadAccess::All,
        hide: Vec::new(),
        home: HomeAccess::Read,
        net,
        env: EnvAccess::All,
        sockets: Vec::new(),
        limits: SandboxLimits::default(),
        runs: false,
    };
    let context = PrepareContext {
        program: common::delta(),
        workspace,
        run_dir: None,
        home: None,
        scratch,
        visible: &[],
        proxies: &ProxySettings::default(),
        waived: &[],
        required: &[],
        absent: &[],
        stage: None,
    };
    prepare(&profile, &context).unwrap()
}

fn time_script(script: &str, sandbox: Option<&PreparedSandbox>, workspace: &Path) -> Duration {
    let mut env = BTreeMap::new();
    env.insert("PATH".into(), std::env::var_os("PATH").unwrap_or_default());
    let launch = LaunchContext {
        cwd: workspace.to_owned(),
        env: env.into(),
        secrets: Secrets::default(),
        containment: None,
        sandbox: sandbox.map(|sandbox| sandbox.entry.clone()),
    };
    let argv = ["/bin/sh", "-c", script].map(str::to_owned);
    let command = ProcessCommand::new(&argv, &launch, Duration::from_secs(60), 1000);
    let began = Instant::now();
    let result = run_process(&command, &CancelToken::manual().unwrap());
    assert_eq!(result.end, ProcessEnd::Exited(0), "{script}");
    began.elapsed()
}

/// The process of the service, a child of this one.
fn find_service() -> u32 {
    let this = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{this}/task/{this}/children")).unwrap();
    let mut ids = children.split_whitespace().map(|id| id.parse::<u32>().unwrap());
    let is_service = |id: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        command.contains("__sandbox")
    };
    ids.find(is_service).unwrap()
}

/// The memory of a process, with its part of the pages that it shares, as the program itself.
fn read_pss(process: u32) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
