//! What the benchmarks share: an endpoint that answers at once, the floor that a run is measured against, what a child
//! has used, and bars.
//!
//! Whoever measures works in a [`Place`] and keeps the files that it makes until its end: for some minutes after files
//! were deleted, ext4 takes up to ten times as long to make others near them (`recently_deleted` in `perf report`).
#![allow(dead_code, reason = "each benchmark uses a part of it")]
#![allow(
    unsafe_code,
    reason = "the resources that a child or a thread has used are in the C library only"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// The program as it is when it is installed: a copy. What the linker has written lies in the kernel's cache in single
/// pages, and a start maps each of them; so it takes a fifth longer.
pub fn installed(program: &Path) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
    fs::create_dir_all(&place).unwrap();
    let path = place.join(program.file_name().unwrap());
    // Another benchmark may be using what is there.
    let copy = path.with_extension(std::process::id().to_string());
    fs::copy(program, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    path
}

/// The installed delta.
pub fn delta() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| installed(Path::new(DELTA)))
}

/// What the tool prints.
pub const SCRIPT: &str = "echo a line of output";

/// Whether figures mean something: in a release build, when they are asked for.
pub fn is_asked() -> bool {
    // `cargo test --all-targets` starts it too, and asks for nothing.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    if is_bench && cfg!(debug_assertions) {
        println!("not measured: this is not a release build");
    }
    is_bench && !cfg!(debug_assertions)
}

/// Figures and their bars.
#[derive(Default)]
pub struct Bars {
    over: Vec<String>,
}

impl Bars {
    /// Prints a figure beside the most that it may be.
    pub fn at_most(&mut self, what: &str, figure: f64, most: f64, unit: &str) {
        let verdict = if figure <= most { "within" } else { "OVER" };
        println!("  {what:<58} {figure:9.3} {unit:<5} {verdict:>6} {most} {unit}");
        if figure > most {
            self.over.push(what.to_owned());
        }
    }

    /// Fails when a figure was beyond its bar.
    pub fn hold(self) {
        assert!(self.over.is_empty(), "beyond their bars: {:#?}", self.over);
    }
}

/// A directory for what is measured; it goes with the value.
///
/// ext4 without a journal looks at every file that was deleted in the last minutes in the part of the disk in which it is to
/// make one, and that can take longer than all that is measured. So the best of some places is taken.
pub struct Place {
    _top: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        touch_memory();
        let top = tempfile::tempdir().unwrap();
        // Below such a directory ext4 puts each one into another part of the disk, by its name; other file systems do not
        // know of it.
        let handle = File::open(top.path()).unwrap();
        if let Ok(flags) = rustix::fs::ioctl_getflags(&handle) {
            let _ = rustix::fs::ioctl_setflags(&handle, flags | rustix::fs::IFlags::TOPDIR);
        }
        let name = top.path().file_name().unwrap().to_string_lossy().into_owned();
        let places = (0..32).map(|number| {
            let path = top.path().join(format!("{name}-{number}"));
            let began = Instant::now();
            for file in 0..50 {
                let dir = path.join(format!("{}", file % 5));
                fs::create_dir_all(&dir).unwrap();
                File::create(dir.join(format!("{file}"))).unwrap();
            }
            (began.elapsed(), path)
        });
        let (took, path) = places.min().unwrap();
        show("to make a file, where it takes least", millis(took) / 55.0 * 1e3, "us");
        Self { _top: top, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A virtual machine has its memory from its host page by page, when it first touches it, and that can take longer for a
/// page than to make a file. What was touched once and given back is used first.
fn touch_memory() {
    // A child, because the peak of this process would be that of each of its children. `tail` keeps a line, however long.
    let script = "head -c 500000000 /dev/zero | tail >/dev/null";
    assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
}

/// Prints a figure that has no bar.
pub fn show(what: &str, figure: f64, unit: &str) {
    println!("  {what:<58} {figure:9.3} {unit}");
}

/// Prints what a median is one of: the smallest and the largest of the values.
pub fn median_of(what: &str, mut values: Vec<f64>, unit: &str) -> f64 {
    values.sort_by(f64::total_cmp);
    let (median, least, most) = (values[values.len() / 2], values[0], values[values.len() - 1]);
    let count = values.len();
    println!("  {what:<58} {median:9.3} {unit:<5} of {count}: {least:.3} to {most:.3}");
    median
}

/// Figures of floors and runs that were measured in turn: each run is compared with the floor before it, because the
/// machine changes its speed from one pair to another.
#[derive(Default)]
pub struct Ratios {
    floors: Vec<f64>,
    runs: Vec<f64>,
}

impl Ratios {
    /// Adds what `figure` says of a pair.
    pub fn push(&mut self, floor: &Used, run: &Used, figure: impl Fn(&Used) -> f64) {
        self.floors.push(figure(floor));
        self.runs.push(figure(run));
    }

    /// Prints the medians, and gives that of the ratios.
    pub fn show(self, what: &str) -> f64 {
        let ratios = self.floors.iter().zip(&self.runs).map(|(floor, run)| run / floor).collect();
        median_of(&format!("{what}, floor"), self.floors, "ms");
        median_of(&format!("{what}, run"), self.runs, "ms");
        median_of("  run to floor, of each pair", ratios, "")
    }
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What a child, or the floor, has used.
pub struct Used {
    pub wall: Duration,
    pub cpu: Duration,
    pub peak_kilobytes: i64,
}

/// Runs a command to its end; `begun` is told its process.
#[expect(clippy::zombie_processes, reason = "wait4 below is the wait")]
pub fn used(command: &mut Command, begun: impl FnOnce(i32)) -> Used {
    let began = Instant::now();
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    begun(pid);
    let (status, usage) = wait(pid);
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    assert!(status == 0 || killed, "{command:?}");
    Used { wall: began.elapsed(), cpu: cpu(&usage), peak_kilobytes: usage.ru_maxrss }
}

fn wait(pid: i32) -> (i32, libc::rusage) {
    let (mut status, mut usage) = (0, MaybeUninit::uninit());
    // SAFETY: both results are valid for writing, the second is written in full when the call succeeds, and the child is
    // waited for here only.
    unsafe {
        assert_eq!(libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()), pid);
        (status, usage.assume_init())
    }
}

fn cpu(usage: &libc::rusage) -> Duration {
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn usage_of(who: i32) -> Duration {
    let mut usage = MaybeUninit::uninit();
    // SAFETY: the result is valid for writing, and written in full when the call succeeds.
    let usage = unsafe {
        assert_eq!(libc::getrusage(who, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    cpu(&usage)
}

/// The nanoseconds that this thread has used.
pub fn thread_nanos() -> u64 {
    nanos(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The nanoseconds that all threads of a process have used, those that have ended too, and its children not.
pub fn process_nanos(pid: i32) -> u64 {
    let mut clock = 0;
    // SAFETY: the result is valid for writing.
    assert_eq!(unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) }, 0);
    nanos(clock)
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is valid for writing.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Lets this process open so many files.
pub fn raise_open_files(count: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is valid for reading and writing.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = count.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    assert!(limit.rlim_cur >= count, "at most {} files may be open here", limit.rlim_max);
}

/// Writes `dir/agent-COUNT`, whose LLM calls its tool `count` times.
pub fn write_agent(dir: &Path, address: SocketAddr, count: usize) -> String {
    let name = format!("agent-{count}");
    let agent = dir.join(&name);
    fs::create_dir_all(&agent).unwrap();
    // Each call is the same, and has the same result.
    let tools = format!("limits: {{repeats: 0}}\ntools:\n  - name: t\n    shell: {SCRIPT}\n");
    let llm = format!("llm:\n  model: m\n  base_url: http://{address}/{count}/v1\n");
    let yaml = format!("name: bench\nmax_iterations: {}\n{llm}{tools}", count + 1);
    fs::write(agent.join("agent.yaml"), yaml).unwrap();
    fs::write(agent.join("system_prompt.md"), "You are a benchmark.\n").unwrap();
    let context = "sources:\n  - type: file\n    path: system_prompt.md\n  - type: journal\n";
    fs::write(agent.join("context.yaml"), context).unwrap();
    name
}

/// `delta run` of such an agent, in `dir/work`. It has a key, which the endpoint does not ask for, because nothing may be
/// written in which the key was not looked for.
pub fn run(dir: &Path, agent: &str, id: &str) -> Command {
    let mut command = Command::new(delta());
    command.args(["run", "--agent", agent, "-w", "work", "-m", "go", "--run-id", id]);
    command.current_dir(dir).env_remove("HTTP_PROXY").env_remove("http_proxy");
    command.env("DELTA_API_KEY", "the key that is looked for");
    command
}

/// What a run cannot do without: for each length one request with so long a body, one process, and two synced appends
/// to `file`. The processor's time is that of this thread and of all children of this process.
pub fn floor(file: &Path, address: SocketAddr, lengths: &[usize]) -> Used {
    floor_with(file, address, lengths, |_, _| ())
}

/// The same, which also writes two files of so many bytes for each length into a directory that is not there yet.
pub fn floor_with_records(
    (file, dir): (&Path, &Path),
    address: SocketAddr,
    lengths: &[usize],
    sizes: &[[usize; 2]],
) -> Used {
    fs::create_dir(dir).unwrap();
    let record = vec![b'x'; sizes.iter().flatten().copied().max().unwrap_or(0)];
    floor_with(file, address, lengths, |round, which| {
        let mut file = File::create_new(dir.join(format!("{round}-{which}"))).unwrap();
        file.write_all(&record[..sizes[round][which]]).unwrap();
    })
}

/// The floor; `record` is told of each answer, and of each output, before it is appended.
fn floor_with(
    file: &Path,
    address: SocketAddr,
    lengths: &[usize],
    record: impl Fn(usize, usize),
) -> Used {
    let cpu = || usage_of(libc::RUSAGE_THREAD) + usage_of(libc::RUSAGE_CHILDREN);
    let (began, before) = (Instant::now(), cpu());
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut journal = File::create(file).unwrap();
    let append = |journal: &mut File, bytes: &[u8]| {
        journal.write_all(bytes).unwrap();
        journal.sync_data().unwrap();
    };
    let body = vec![b'x'; lengths.iter().copied().max().unwrap_or(0)];
    for (round, length) in lengths.iter().enumerate() {
        post(&stream, lengths.len(), &body[..*length]);
        let answer = read_message(&mut input, || ()).unwrap();
        record(round, 0);
        append(&mut journal, &answer.body);
        let output = Command::new("sh").args(["-c", SCRIPT]).output().unwrap();
        record(round, 1);
        append(&mut journal, &output.stdout);
    }
    Used { wall: began.elapsed(), cpu: cpu() - before, peak_kilobytes: 0 }
}

/// Sends one request to the endpoint.
pub fn post(mut stream: &TcpStream, count: usize, body: &[u8]) {
    let head = format!("POST /{count}/v1 HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
}

/// What the endpoint tells of.
pub enum Moment {
    /// The first byte of a connection has come.
    FirstByte,
    /// A whole request has come, whose body has so many bytes. The answer waits until this has been heard.
    Request(usize),
}

/// An endpoint that answers at once: on each connection so many calls of the tool as its path says, then a text.
pub fn serve(hear: impl Fn(Moment) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let hear = Arc::new(hear);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, hear) = (stream.unwrap(), Arc::clone(&hear));
            std::thread::spawn(move || answer_all(&stream, &*hear));
        }
    });
    address
}

fn answer_all(mut stream: &TcpStream, hear: &(impl Fn(Moment) + Send + Sync)) {
    stream.set_nodelay(true).unwrap();
    let mut input = BufReader::with_capacity(64 * 1024, stream);
    let mut count = 0;
    let first = || hear(Moment::FirstByte);
    while let Some(message) = read_message(&mut input, first) {
        count += 1;
        hear(Moment::Request(message.body.len()));
        let answer = answer(count, message.calls);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        // A client that has gone away is no error of the benchmark.
        let _ = stream.write_all((head + &answer).as_bytes());
    }
}

/// The answer to a request, which is the `count`th of a run whose tool is called so often.
pub fn answer(count: usize, calls: usize) -> String {
    if count > calls {
        return events(&["{\"role\":\"assistant\",\"content\":\"done\"}".to_owned()]);
    }
    events(&[
        format!(
            "{{\"role\":\"assistant\",\"tool_calls\":[{{\"index\":0,\"id\":\"call_{count}\",\"type\":\"function\",\"function\":{{\"name\":\"t\",\"arguments\":\"\"}}}}]}}"
        ),
        "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}".to_owned(),
    ])
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

/// A request or an answer.
pub struct Message {
    pub body: Vec<u8>,
    /// The number that the path of a request begins with.
    pub calls: usize,
}

/// The next message; none at the end of the connection. `first` hears of its first byte.
pub fn read_message(input: &mut impl BufRead, first: impl Fn()) -> Option<Message> {
    if input.fill_buf().ok()?.is_empty() {
        return None;
    }
    first();
    let (mut length, mut calls) = (0, 0);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(path) = line.strip_prefix("POST /") {
            calls = path.split('/').next()?.parse().ok()?;
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
    Some(Message { body, calls })
}
