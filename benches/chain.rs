//! What the chain of a journal and its seals cost: the hash of each line and of each record that it names, and a seal at
//! each end of a process.
//!
//! `cargo bench --bench chain` prints the figures and fails when one is beyond its bar. They are measured over the lines and
//! records of a run of 200 iterations, as many times as needed for a figure, without the disk: what is hashed is in memory
//! when the engine writes it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::{Bars, DELTA, Place, thread_nanos};
use delta_base::id::RunId;
use delta_run::chain::{ChainCheck, ChainValue, split_line};
use delta_run::event::{Event, Payload};
use delta_run::journal::parse_journal_line;
use delta_run::journal::seal::{SealKeys, Sealer};
use delta_run::journal::seal_key::SealKey;
use sha2::{Digest, Sha256};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

const ITERATIONS: usize = 200;
const REPEATS: usize = 50;

fn main() {
    if !common::is_asked() {
        return;
    }
    let place = Place::new();
    let run_dir = record_run(place.path());
    let journal = fs::read(run_dir.join("journal.jsonl")).unwrap();
    let lines: Vec<&[u8]> = journal.split_inclusive(|byte| *byte == b'\n').collect();
    let events: Vec<Event> =
        (1..).zip(&lines).map(|(seq, line)| parse_journal_line(line, seq).unwrap()).collect();
    let records: Vec<Vec<u8>> = events
        .iter()
        .filter(|event| event.payload.record_sha256().is_some())
        .map(|event| fs::read(run_dir.join(event.payload.record_file().unwrap())).unwrap())
        .collect();
    println!(
        "{} events with {} bytes, and {} records with {} bytes",
        lines.len(),
        journal.len(),
        records.len(),
        records.iter().map(Vec::len).sum::<usize>()
    );
    let mut bars = Bars::default();
    measure_hashes(&lines, &records, &mut bars);
    measure_seals(&place.path().join("key"), &lines, &events, &mut bars);
    bars.hold();
}

/// Makes a run whose tool prints some 4 KB, and returns its directory.
fn record_run(dir: &Path) -> std::path::PathBuf {
    let agent = dir.join("agent");
    fs::create_dir(&agent).unwrap();
    let yaml = format!(
        "name: bench\nmax_iterations: {}\nllm: {{provider: script, model: script.yaml}}\nlimits: {{repeats: 0}}\ntools:\n  - {{name: t, exec: seq 900}}\n",
        ITERATIONS + 1
    );
    fs::write(agent.join("agent.yaml"), yaml).unwrap();
    fs::write(agent.join("system_prompt.md"), "You are a benchmark.\n").unwrap();
    let context = "sources:\n  - type: file\n    path: system_prompt.md\n  - type: journal\n";
    fs::write(agent.join("context.yaml"), context).unwrap();
    let calls = "  - call: [{tool: t, args: {}}]\n".repeat(ITERATIONS);
    fs::write(agent.join("script.yaml"), format!("turns:\n{calls}  - say: done\n")).unwrap();
    let mut command = Command::new(DELTA);
    command.args(["run", "--agent", "agent", "-w", "work", "-m", "go", "--run-id", "r", "-q"]);
    assert!(command.current_dir(dir).output().unwrap().status.success());
    dir.join("work/.delta/r")
}

/// The microseconds of one of `count` things, of which `work` does all.
fn micros_each(count: usize, mut work: impl FnMut()) -> Vec<f64> {
    let measure = |_| {
        let began = thread_nanos();
        work();
        (thread_nanos() - began) as f64 / 1e3 / count as f64
    };
    (0..REPEATS).map(measure).collect()
}

fn measure_hashes(lines: &[&[u8]], records: &[Vec<u8>], bars: &mut Bars) {
    let chain = micros_each(lines.len(), || {
        let mut head: Option<ChainValue> = None;
        for line in lines {
            head = Some(ChainValue::after(head, split_line(line).0));
        }
        black_box(head);
    });
    let chain = common::median_of("chain value of an event", chain, "us");
    let hash = micros_each(lines.len(), || {
        records.iter().for_each(|record| {
            black_box(Sha256::digest(record));
        });
    });
    let hash = common::median_of("hashes of records, an event", hash, "us");
    bars.at_most("both, an event", chain + hash, 4.0, "us");
}

/// A process seals its start and its end. Checking a seal computes it, and compares.
fn measure_seals(key: &Path, lines: &[&[u8]], events: &[Event], bars: &mut Bars) {
    let mut chain = ChainCheck::default();
    let links: Vec<_> = lines.iter().map(|line| chain.check_line(line, None)).collect();
    let sealed: Vec<usize> = (0..events.len())
        .filter(|index| {
            matches!(
                events[*index].payload,
                Payload::EngineStart(_) | Payload::EngineEnd { .. } | Payload::RunTrusted { .. }
            )
        })
        .collect();
    let id = RunId::parse("r").unwrap();
    let seals = micros_each(1, || {
        let mut sealer = Sealer::new(SealKeys::new(SealKey::load_or_create(key).ok()), id.clone());
        for index in &sealed {
            black_box(sealer.check_line(lines[*index], &events[*index], &links[*index]));
        }
    });
    let seals = common::median_of("the key and the seals of a process", seals, "us");
    bars.at_most("seals of a process", seals, 250.0, "us");
}
