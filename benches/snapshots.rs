//! What snapshots cost: `cargo bench --bench snapshots` prints it for a workspace of 10,000 files, with all of them in one
//! directory and with a hundred directories. The bars: a snapshot of an unchanged workspace takes less than 50 ms, and
//! 1,000 iterations that change one file each take disk in proportion to what they change.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints"
)]

use delta_base::redact::Secrets;
use delta_snapshot::{ExcludePatterns, SnapshotStore};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const FILES: usize = 10_000;
const ITERATIONS: usize = 1_000;
/// How long each file is.
const LENGTH: usize = 2_000;
/// How often the unchanged workspace is looked at; the quickest counts, for the others say how busy the machine is.
const LOOKS: usize = 21;
const MOST: Duration = Duration::from_millis(50);
/// How much of the disk a changed byte may take: the file, and the trees above it.
const MOST_FOR_A_BYTE: f64 = 16.0;

fn main() {
    // `cargo test --all-targets` starts it too, and asks for nothing.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    measure("100 directories", |number| format!("d{:02}/{:02}.txt", number / 100, number % 100));
    measure("one directory", |number| format!("{number:05}.txt"));
}

fn measure(what: &str, name: impl Fn(usize) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path();
    let run = work.join(".delta/r");
    fs::create_dir_all(&run).unwrap();
    for number in 0..FILES {
        write(&work.join(name(number)), &number.to_string());
    }
    // As old as the files of a workspace are.
    std::thread::sleep(Duration::from_millis(50));
    let mut store = SnapshotStore::open(&run, ExcludePatterns::default()).unwrap();
    let first = timed(&mut store, work);
    let mut looks: Vec<Duration> = (0..LOOKS).map(|_| timed(&mut store, work)).collect();
    looks.sort();
    let (look, median) = (looks[0], looks[LOOKS / 2]);
    let verdict = |is_within| if is_within { "within" } else { "OVER" };
    println!(
        "{what}: first snapshot {first:.1?}; unchanged {look:.1?} (median {median:.1?}), {} {MOST:?}",
        verdict(look < MOST)
    );

    let before = size(&run);
    let start = Instant::now();
    for iteration in 0..ITERATIONS {
        // Not one after the other, so that no directory is met more often than by chance.
        write(&work.join(name(iteration * 7919 % FILES)), &format!("changed {iteration}"));
        timed(&mut store, work);
    }
    let each = start.elapsed() / u32::try_from(ITERATIONS).unwrap();
    let (grown, changed) = (size(&run) - before, ITERATIONS * LENGTH);
    let ratio = grown as f64 / changed as f64;
    println!(
        "{what}: {ITERATIONS} iterations of one file, {each:.1?} each; {changed} bytes changed, {grown} bytes of disk, \
         ratio {ratio:.1}, {} {MOST_FOR_A_BYTE}",
        verdict(ratio < MOST_FOR_A_BYTE)
    );
    assert!(look < MOST && ratio < MOST_FOR_A_BYTE, "beyond their bars");
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text:-<LENGTH$}")).unwrap();
}

fn timed(store: &mut SnapshotStore, work: &Path) -> Duration {
    let start = Instant::now();
    store.take(work, &Secrets::default(), None).unwrap();
    start.elapsed()
}

/// How many bytes the files below a directory have.
fn size(dir: &Path) -> usize {
    let sizes = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => size(&entry.path()),
            false => usize::try_from(entry.metadata().unwrap().len()).unwrap(),
        }
    });
    sizes.sum()
}
