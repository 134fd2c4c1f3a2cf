//! What it costs to begin: `delta run` until the first byte of its first request, against a program of the same size that
//! prints a line.
//!
//! `cargo bench --bench startup` prints the figures and fails when one is beyond its bar.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::{Bars, DELTA, Moment, Ratios, Used};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

const ROUNDS: usize = 200;

fn main() {
    if !common::is_asked() {
        return;
    }
    let dir = common::Place::new();
    let hello = hello(dir.path());
    let engine = Arc::new(AtomicI32::new(0));
    let target = Arc::clone(&engine);
    let address = common::serve(move |moment| {
        if let Moment::FirstByte = moment {
            kill(&target);
        }
    });
    let agent = common::write_agent(dir.path(), address, 1);
    let begin = |round: usize| {
        let mut command = common::run(dir.path(), &agent, &format!("r{round}"));
        let used = common::used(&mut command, |pid| engine.store(pid, Ordering::SeqCst));
        engine.store(0, Ordering::SeqCst);
        used
    };
    let (mut starts, mut versions) = (Ratios::default(), vec![]);
    let cpu = |used: &Used| common::millis(used.cpu);
    // The first of each fills caches and does not count.
    begin(ROUNDS);
    for round in 0..ROUNDS {
        let floor = common::used(&mut Command::new(&hello), |_| ());
        starts.push(&floor, &begin(round), cpu);
        versions.push(cpu(&common::used(Command::new(common::delta()).arg("--version"), |_| ())));
    }
    println!(
        "{ROUNDS} rounds, in turn; the floor is a program of the same size that prints a line"
    );
    let start = starts.show("CPU to the first byte of the first request");
    let version = common::median_of("delta --version", versions, "ms");
    let mut bars = Bars::default();
    bars.at_most("delta run to that program", start, 3.0, "");
    bars.at_most("delta --version", version, 5.0, "ms");
    bars.hold();
}

/// Ends the engine where it stands.
fn kill(engine: &AtomicI32) {
    // It may be quicker than who started it and says its number.
    let pid = loop {
        match rustix::process::Pid::from_raw(engine.load(Ordering::SeqCst)) {
            Some(pid) => break pid,
            None => std::thread::yield_now(),
        }
    };
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A program as large as delta, which prints a line and does not touch the rest of itself.
fn hello(dir: &Path) -> PathBuf {
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    let small = compile(dir, "small", 1);
    let missing = size(Path::new(DELTA)).saturating_sub(size(&small));
    let large = compile(dir, "hello", missing);
    let (ours, theirs) = (size(&large) as f64, size(Path::new(DELTA)) as f64);
    assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} bytes, not {theirs}");
    common::installed(&large)
}

fn compile(dir: &Path, name: &str, padding: u64) -> PathBuf {
    let (source, program) = (dir.join(format!("{name}.rs")), dir.join(name));
    let text = format!(
        "static PADDING: [u8; {padding}] = [1; {padding}];\n\
         fn main() {{\n    std::hint::black_box(&PADDING);\n    println!(\"hello, world\");\n}}\n"
    );
    fs::write(&source, text).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args([
        "--edition=2024",
        "-Copt-level=s",
        "-Cpanic=abort",
        "-Cstrip=symbols",
        "-Clto=fat",
    ]);
    assert!(rustc.arg("-o").arg(&program).arg(&source).status().unwrap().success());
    program
}
