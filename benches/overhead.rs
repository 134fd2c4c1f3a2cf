//! What the engine costs: runs of 50, 200 and 1,000 iterations with one tool each, against the floor of what such a run
//! cannot do without: so many requests of the same lengths, so many processes, and twice as many synced appends.
//!
//! `cargo bench --bench overhead` prints the figures and fails when one is beyond its bar.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::{Bars, Moment, Ratios, Used};
use serde_json::{Value, json};
use std::fs;
use std::hint::black_box;
use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many iterations, and how often they are measured.
const SIZES: [(usize, usize); 3] = [(50, 41), (200, 21), (1_000, 11)];
const MEGABYTE: f64 = 1024.0 * 1024.0;
/// How many iterations the marginal cost is the median of.
const SPAN: usize = 100;

/// What the endpoint has seen of the run that is going on.
#[derive(Default)]
struct Seen {
    pid: Option<i32>,
    /// Whether a run is measured.
    is_run: bool,
    /// How long the bodies of its requests were.
    lengths: Vec<usize>,
    /// How many nanoseconds its engine had used when each of them had come.
    engine: Vec<u64>,
}

struct Bench {
    dir: common::Place,
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    bars: Bars,
}

fn main() {
    if !common::is_asked() {
        return;
    }
    let seen = Arc::<Mutex<Seen>>::default();
    let watching = Arc::clone(&seen);
    let address = common::serve(move |moment| {
        if let Moment::Request(length) = moment {
            note(&watching, length);
        }
    });
    let dir = common::Place::new();
    let mut bench = Bench { dir, address, seen, bars: Bars::default() };
    for (count, rounds) in SIZES {
        bench.measure(count, rounds);
    }
    bench.marginal();
    bench.bars.hold();
}

fn note(seen: &Mutex<Seen>, length: usize) {
    let (mut seen, pid) = loop {
        let seen = lock(seen);
        match seen.pid {
            Some(pid) => break (seen, pid),
            None if !seen.is_run => return,
            // It was quicker than who started it and says its number.
            None => drop(seen),
        }
        std::thread::yield_now();
    };
    seen.lengths.push(length);
    // The engine waits for the answer now.
    seen.engine.push(common::process_nanos(pid));
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    fn measure(&mut self, count: usize, rounds: usize) {
        let agent = common::write_agent(self.dir.path(), self.address, count);
        // The first of each fills caches and does not count.
        self.run(&agent, count, &format!("{agent}-warm"));
        let lengths = self.lengths();
        let records = self.records(&format!("{agent}-warm"));
        self.floor(&lengths);
        let (mut walls, mut cpus, mut peak) = (Ratios::default(), Ratios::default(), 0);
        let (mut recording_walls, mut recording_cpus) = (Ratios::default(), Ratios::default());
        let wall = |used: &Used| common::millis(used.wall) / count as f64;
        let cpu = |used: &Used| common::millis(used.cpu) / count as f64;
        for round in 0..rounds {
            let floor = self.floor(&lengths);
            let run = self.run(&agent, count, &format!("{agent}-{round}"));
            walls.push(&floor, &run, wall);
            cpus.push(&floor, &run, cpu);
            peak = peak.max(run.peak_kilobytes);
            let floor = self.floor_with_records(&format!("{count}-{round}"), &lengths, &records);
            recording_walls.push(&floor, &run, wall);
            recording_cpus.push(&floor, &run, cpu);
        }
        let largest = lengths.iter().max().copied().unwrap_or(0) as f64 / MEGABYTE;
        println!("{count} iterations with one tool each, {rounds} rounds, floor and run in turn");
        common::show("the last request", largest * 1024.0, "KiB");
        let wall = walls.show("wall of an iteration");
        let cpu = cpus.show("CPU of an iteration");
        self.bars.at_most(&format!("{count}: wall, run to floor"), wall, 1.15, "");
        self.bars.at_most(&format!("{count}: CPU, run to floor"), cpu, 1.30, "");
        recording_walls.show("wall, where the floor writes records too");
        recording_cpus.show("CPU, where the floor writes records too");
        let most = 10.0 + if count < 1_000 { 0.0 } else { 2.0 * largest };
        let peak = peak as f64 / 1024.0;
        self.bars.at_most(&format!("{count}: peak memory"), peak, most, "MB");
        self.disk(&format!("{agent}-warm"), count, &lengths);
    }

    fn run(&self, agent: &str, count: usize, id: &str) -> Used {
        let dir = self.dir.path();
        *lock(&self.seen) = Seen { is_run: true, ..Seen::default() };
        let begun = |pid| lock(&self.seen).pid = Some(pid);
        let used = common::used(&mut common::run(dir, agent, id), begun);
        (lock(&self.seen).pid, lock(&self.seen).is_run) = (None, false);
        let journal = fs::read_to_string(dir.join(format!("work/.delta/{id}/journal.jsonl")));
        assert_eq!(journal.unwrap().matches("ACTION_RESULT").count(), count);
        used
    }

    /// The lengths of the requests of the last run that were followed by a tool.
    fn lengths(&self) -> Vec<usize> {
        let seen = lock(&self.seen);
        seen.lengths[..seen.lengths.len() - 1].to_vec()
    }

    fn floor(&self, lengths: &[usize]) -> Used {
        common::floor(&self.dir.path().join("floor.jsonl"), self.address, lengths)
    }

    /// The same, which writes the two records of each iteration too: what is left is the engine's own.
    fn floor_with_records(&self, name: &str, lengths: &[usize], sizes: &[[usize; 2]]) -> Used {
        let (file, dir) = ("floor.jsonl", format!("floor-{name}"));
        let place = (&*self.dir.path().join(file), &*self.dir.path().join(dir));
        common::floor_with_records(place, self.address, lengths, sizes)
    }

    /// How many bytes the two records of each iteration of a run have.
    fn records(&self, id: &str) -> Vec<[usize; 2]> {
        let io = self.dir.path().join("work/.delta").join(id).join("io");
        let of = |dir: &str| {
            let files = fs::read_dir(io.join(dir)).unwrap().map(|entry| entry.unwrap());
            let mut files: Vec<_> = files.collect();
            // Their names begin with the time.
            files.sort_by_key(fs::DirEntry::file_name);
            files
                .into_iter()
                .map(|file| file.metadata().unwrap().len() as usize)
                .collect::<Vec<_>>()
        };
        let (answers, outputs) = (of("invocations"), of("tool_executions"));
        answers.into_iter().zip(outputs).map(|(answer, output)| [answer, output]).collect()
    }

    /// What a run leaves on the disk, to what is new in it.
    fn disk(&mut self, id: &str, count: usize, lengths: &[usize]) {
        let run = self.dir.path().join("work/.delta").join(id);
        let events = fs::metadata(run.join("journal.jsonl")).unwrap().len() as f64;
        let answers: usize = (1..=count + 1).map(|each| common::answer(each, count).len()).sum();
        let messages = lengths[lengths.len() - 1] as f64;
        let new = events + answers as f64 + messages;
        let all = size(&run) as f64;
        common::show(&format!("{count}: disk of an iteration"), all / count as f64, "bytes");
        common::show("its events, answer and new messages", new / count as f64, "bytes");
        let what = format!("{count}: disk to what is new");
        // The first requests are recorded whole, whatever becomes of the run.
        match count < 200 {
            true => common::show(&what, all / new, ""),
            false => self.bars.at_most(&what, all / new, 3.0, ""),
        }
    }

    /// What the 1,000th iteration costs the engine itself, to what the tenth costs: the processor's time without its
    /// children's, and without what it takes to serialise and send the request.
    fn marginal(&mut self) {
        let count = 1_000 + SPAN;
        let agent = common::write_agent(self.dir.path(), self.address, count);
        self.run(&agent, count, &agent);
        let (engine, lengths) = {
            let seen = lock(&self.seen);
            (seen.engine.clone(), seen.lengths.clone())
        };
        let beyond = |from: usize| {
            let spent = (from..from + SPAN).map(|each| (engine[each] - engine[each - 1]) as f64);
            let whole = common::median_of(
                &format!("engine's CPU of iteration {from} to {}", from + SPAN),
                spent.map(|nanos| nanos / 1e3).collect(),
                "us",
            );
            let request = common::median_of(
                &format!("  serialising and sending {} bytes", lengths[from]),
                self.requests(from, lengths[from]),
                "us",
            );
            whole - request
        };
        println!("one run of {count} iterations");
        let (early, late) = (beyond(10), beyond(1_000));
        let what = "iteration 1,000 to iteration 10, beyond its request";
        self.bars.at_most(what, late / early, 1.20, "");
    }

    /// How many microseconds it takes to serialise and to send a request of so many iterations and bytes.
    fn requests(&self, iterations: usize, length: usize) -> Vec<f64> {
        let messages: Vec<Value> = (1..=iterations).flat_map(messages).collect();
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let once = |_| {
            let before = common::thread_nanos();
            let text = serde_json::to_vec(black_box(&messages)).unwrap();
            let body = [&text[..], &vec![b' '; length.saturating_sub(text.len())]].concat();
            let built = common::thread_nanos() - before;
            common::post(&stream, 0, &body[..length]);
            let spent = common::thread_nanos() - before;
            common::read_message(&mut input, || ()).unwrap();
            assert!(spent >= built);
            spent as f64 / 1e3
        };
        (0..SPAN).map(once).collect()
    }
}

/// What one iteration adds to a request.
fn messages(count: usize) -> [Value; 2] {
    let (id, function) = (format!("call_{count}"), json!({"name": "t", "arguments": "{}"}));
    [
        json!({"role": "assistant", "tool_calls": [{"id": &id, "type": "function", "function": function}]}),
        json!({"role": "tool", "tool_call_id": &id, "content": "a line of output\n"}),
    ]
}

/// How many bytes the files below a directory have.
fn size(dir: &Path) -> u64 {
    let sizes = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => size(&entry.path()),
            false => entry.metadata().unwrap().len(),
        }
    });
    sizes.sum()
}
