//! What the engine costs: a run of 50 iterations with one tool each, against the floor of what such a run cannot do
//! without: 50 times one request, one process, and two synced appends.
//!
//! `cargo bench --bench overhead` prints the figures and fails when one is beyond its bar.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]
#![expect(unsafe_code, reason = "the resources that one child has used are in wait4 only")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");
const ITERATIONS: usize = 50;
const ROUNDS: usize = 15;
/// What the tool prints.
const SCRIPT: &str = "echo a line of output";

fn main() {
    if cfg!(debug_assertions) {
        println!("not measured: this is not a release build");
        return;
    }
    let address = serve();
    let dir = tempfile::tempdir().unwrap();
    write_agent(dir.path(), address);
    // The first of each fills caches and does not count.
    floor(dir.path(), address);
    run(dir.path(), 0);
    let (mut floors, mut runs, mut cpus, mut peak) = (vec![], vec![], vec![], 0);
    for round in 1..=ROUNDS {
        floors.push(floor(dir.path(), address));
        let used = run(dir.path(), round);
        runs.push(used.wall);
        cpus.push(used.cpu);
        peak = peak.max(used.peak_kilobytes);
    }
    let versions = (0..200).map(|_| used(Command::new(DELTA).arg("--version")).cpu).collect();
    let (floor, run, cpu, version) = (median(floors), median(runs), median(cpus), median(versions));
    let ratio = run.as_secs_f64() / floor.as_secs_f64();
    let size = fs::metadata(DELTA).unwrap().len();
    let each = |whole: Duration| whole.as_secs_f64() * 1000.0 / ITERATIONS as f64;
    println!("{ITERATIONS} iterations with one tool each, medians of {ROUNDS} rounds");
    println!("  floor            {floor:9.2?}   {:6.3} ms an iteration", each(floor));
    println!("  delta run        {run:9.2?}   {:6.3} ms an iteration", each(run));
    println!("  ratio            {ratio:9.2}    bar 2.00");
    println!("  CPU time         {cpu:9.2?}   of the engine and its tools");
    println!("  peak memory      {:9.2} MB bar 15", peak as f64 / 1024.0);
    println!("--version, CPU     {version:9.2?}   bar 5 ms, median of 200");
    println!("binary             {:9.2} MB bar 8", size as f64 / 1e6);
    let held =
        ratio <= 2.0 && peak < 15 * 1024 && version < Duration::from_millis(5) && size < 8_000_000;
    assert!(held, "a figure is beyond its bar");
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

/// What a child has used.
struct Used {
    wall: Duration,
    cpu: Duration,
    peak_kilobytes: i64,
}

#[expect(clippy::zombie_processes, reason = "wait4 below is the wait")]
fn used(command: &mut Command) -> Used {
    let began = Instant::now();
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut status, pid) = (0, i32::try_from(child.id()).unwrap());
    // SAFETY: both results are valid for writing, and the child is waited for here only.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(pid, &raw mut status, 0, &raw mut usage), pid);
        usage
    };
    let wall = began.elapsed();
    assert_eq!(status, 0, "{command:?}");
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Used { wall, cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_kilobytes: usage.ru_maxrss }
}

fn write_agent(dir: &Path, address: SocketAddr) {
    let agent = dir.join("agent");
    fs::create_dir(&agent).unwrap();
    let tools = format!("tools:\n  - name: t\n    shell: {SCRIPT}\n");
    let yaml = format!(
        "name: bench\nmax_iterations: 100\nllm:\n  model: m\n  base_url: http://{address}/v1\n{tools}"
    );
    fs::write(agent.join("agent.yaml"), yaml).unwrap();
    fs::write(agent.join("system_prompt.md"), "You are a benchmark.\n").unwrap();
    let context = "sources:\n  - type: file\n    path: system_prompt.md\n  - type: journal\n";
    fs::write(agent.join("context.yaml"), context).unwrap();
}

/// The run that is measured.
fn run(dir: &Path, round: usize) -> Used {
    let id = format!("r{round}");
    let mut command = Command::new(DELTA);
    command.args(["run", "--agent", "agent", "-w", "work", "-m", "go", "--run-id", &id]);
    let used = used(command.current_dir(dir).env_remove("HTTP_PROXY").env_remove("http_proxy"));
    let journal =
        fs::read_to_string(dir.join("work/.delta").join(id).join("journal.jsonl")).unwrap();
    assert_eq!(journal.matches("ACTION_RESULT").count(), ITERATIONS);
    used
}

/// What such a run cannot do without.
fn floor(dir: &Path, address: SocketAddr) -> Duration {
    let began = Instant::now();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut journal = File::create(dir.join("floor.jsonl")).unwrap();
    let append = |journal: &mut File, bytes: &[u8]| {
        journal.write_all(bytes).unwrap();
        journal.sync_data().unwrap();
    };
    let body = [b'x'; 1000];
    for _ in 0..ITERATIONS {
        let head = format!("POST /v1 HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        (&stream).write_all(&[head.as_bytes(), &body].concat()).unwrap();
        let answer = read_message(&mut input).unwrap();
        append(&mut journal, &answer);
        let output = Command::new("sh").args(["-c", SCRIPT]).output().unwrap();
        append(&mut journal, &output.stdout);
    }
    began.elapsed()
}

/// An endpoint that answers at once: on each connection so many calls of the tool, then a text.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || answer_all(&stream));
        }
    });
    address
}

fn answer_all(mut stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut input = BufReader::new(stream);
    let mut count = 0;
    while read_message(&mut input).is_some() {
        count += 1;
        let body = if count <= ITERATIONS { call(count) } else { text() };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // A client that has gone away is no error of the benchmark.
        let _ = stream.write_all((head + &body).as_bytes());
    }
}

fn call(count: usize) -> String {
    events(&[
        format!(
            "{{\"role\":\"assistant\",\"tool_calls\":[{{\"index\":0,\"id\":\"call_{count}\",\"type\":\"function\",\"function\":{{\"name\":\"t\",\"arguments\":\"\"}}}}]}}"
        ),
        "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}".to_owned(),
    ])
}

fn text() -> String {
    events(&["{\"role\":\"assistant\",\"content\":\"done\"}".to_owned()])
}

fn events(deltas: &[String]) -> String {
    let event = |delta: &String| {
        format!(
            "data: {{\"id\":\"x\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"
        )
    };
    deltas.iter().map(event).collect::<String>()
        + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
}

/// The body of the next message; none at the end of the connection.
fn read_message(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(body)
}
