//! What many runs at once cost: 200 runs that wait for a slow LLM, against 200 threads with nothing but the floor of such
//! runs.
//!
//! `cargo bench --bench concurrency` prints the figures and fails when one is beyond its bar.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::{Bars, Moment};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const RUNS: usize = 200;
const ITERATIONS: usize = 5;
/// How slow the LLM is.
const ANSWER: Duration = Duration::from_secs(2);

/// What the endpoint counts.
#[derive(Default)]
struct Requests {
    all: AtomicUsize,
    waiting: AtomicUsize,
    is_slow: AtomicBool,
}

fn main() {
    if !common::is_asked() {
        return;
    }
    common::raise_open_files(4_000);
    let requests = Arc::<Requests>::default();
    let counting = Arc::clone(&requests);
    let address = common::serve(move |moment| {
        if let Moment::Request(_) = moment {
            counting.hold();
        }
    });
    let dir = common::Place::new();
    let agent = common::write_agent(dir.path(), address, ITERATIONS);
    // The first fills caches and does not count.
    common::used(&mut common::run(dir.path(), &agent, "warm"), |_| ());
    requests.is_slow.store(true, Ordering::SeqCst);
    // The floor has no last request, whose answer is the text, so it is given one more.
    let lengths = [1_000; ITERATIONS + 1];
    let (floor, ()) = at_once(
        |number| {
            common::floor(&dir.path().join(format!("floor-{number}")), address, &lengths);
        },
        || (),
    );
    requests.all.store(0, Ordering::SeqCst);
    let (runs, memory) = at_once(
        |number| {
            // A run that fails fails the benchmark.
            common::used(&mut common::run(dir.path(), &agent, &format!("r{number}")), |_| ());
        },
        || requests.memory(),
    );
    assert_eq!(requests.all.load(Ordering::SeqCst), RUNS * (ITERATIONS + 1));
    for number in 0..RUNS {
        let journal = dir.path().join(format!("work/.delta/r{number}/journal.jsonl"));
        assert!(fs::read_to_string(journal).unwrap().contains("\"COMPLETED\""), "run {number}");
    }
    report(floor, runs, &memory);
}

fn report(floor: Duration, runs: Duration, memory: &[Memory]) {
    println!("{RUNS} runs of {ITERATIONS} iterations at once, each answer takes {ANSWER:?}");
    common::show("floors, all of them", common::millis(floor), "ms");
    common::show("runs, all of them", common::millis(runs), "ms");
    let megabytes = |of: fn(&Memory) -> usize| -> Vec<f64> {
        memory.iter().map(|memory| of(memory) as f64 / 1024.0).collect()
    };
    let pss = common::median_of("memory of one that waits, PSS", megabytes(|m| m.pss), "MB");
    let rss = common::median_of("memory of one that waits, RSS", megabytes(|m| m.rss), "MB");
    let mut bars = Bars::default();
    bars.at_most(
        "time of the runs to that of the floors",
        runs.as_secs_f64() / floor.as_secs_f64(),
        1.10,
        "",
    );
    bars.at_most("memory of one that waits, PSS", pss, 6.0, "MB");
    common::show("of it shared with the others, RSS less PSS", rss - pss, "MB");
    bars.hold();
}

/// Does `work` in so many threads at once, and `meanwhile`; gives how long all took.
fn at_once<T>(work: impl Fn(usize) + Sync, meanwhile: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let seen = std::thread::scope(|scope| {
        for number in 0..RUNS {
            let work = &work;
            scope.spawn(move || work(number));
        }
        meanwhile()
    });
    (began.elapsed(), seen)
}

/// What a process has of the memory, in KiB.
struct Memory {
    /// Every page that it uses, divided by the number of processes that use it.
    pss: usize,
    /// Every page that it uses.
    rss: usize,
}

impl Requests {
    fn hold(&self) {
        self.all.fetch_add(1, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(ANSWER);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// The memory of all runs, while all wait for their last answer but one.
    fn memory(&self) -> Vec<Memory> {
        let is_there = || {
            self.all.load(Ordering::SeqCst) >= RUNS * ITERATIONS
                && self.waiting.load(Ordering::SeqCst) == RUNS
        };
        while !is_there() {
            std::thread::sleep(Duration::from_millis(5));
            let all = self.all.load(Ordering::SeqCst);
            assert!(all <= RUNS * ITERATIONS, "they are never seen waiting together");
        }
        children().into_iter().map(|pid| Memory::of(&pid)).collect()
    }
}

/// The children of this process.
fn children() -> Vec<String> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path().join("children");
        let list = fs::read_to_string(path).unwrap_or_default();
        found.extend(list.split_whitespace().map(str::to_owned));
    }
    assert_eq!(found.len(), RUNS);
    found
}

impl Memory {
    fn of(pid: &str) -> Self {
        let rollup = fs::read_to_string(Path::new("/proc").join(pid).join("smaps_rollup")).unwrap();
        let field = |name: &str| {
            let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Self { pss: field("Pss:"), rss: field("Rss:") }
    }
}
