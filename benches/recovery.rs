//! How long it takes until work can begin: `cargo bench --bench recovery` prints the figures. The bars are 50 ms for
//! loading an agent with 50 imports and 500 tools, 1 s for listing 10,000 runs, and 100 ms for opening and folding a
//! journal of 10,000 events.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and starts real processes"
)]

use delta::agent::Agent;
use delta::agent::imports::ImportPath;
use delta::journal;
use delta::state::RunState;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};
use test_support::sandbox::Sandbox;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");
const COUNT: usize = 10_000;
const RUN: &str = "work/.delta/r";

fn main() {
    // `cargo test --all-targets` starts it too, and asks for nothing.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    load();
    list();
    open();
}

/// An agent whose 500 tools, of all three forms, come from 50 files.
fn load() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    let mut imports = String::new();
    for file in 0..50 {
        let tools: String = (0..10).map(|tool| definition(file * 10 + tool)).collect();
        sandbox.write(&format!("agent/tools/{file}.yaml"), format!("tools:\n{tools}"));
        imports.push_str(&format!("  - tools/{file}.yaml\n"));
    }
    let main = sandbox.read("agent/agent.yaml").replace("tools: []", "imports:");
    sandbox.write("agent/agent.yaml", format!("{main}{imports}"));
    let load = || {
        let agent = Agent::load(&sandbox.path("agent"), None, &ImportPath::default()).unwrap();
        assert_eq!(agent.tools.len(), 500);
    };
    show("load an agent with 50 imports and 500 tools", best(load), Duration::from_millis(50));
}

fn definition(number: usize) -> String {
    let command = match number % 3 {
        0 => "exec: grep -n -- ${pattern} ${file}",
        1 => "shell: grep -n -- ${pattern} ${file} | sort -u | head -n 5",
        _ => {
            "command: [grep, -n, {template: \"--regexp=${pattern}\"}, --, {template: \"${file}\"}]"
        }
    };
    format!(
        "  - name: tool_{number}\n    description: Looks for a pattern in a file\n    {command}\n    parameters:\n      \
         - {{name: pattern, description: What to look for}}\n      - {{name: file, description: Where to look}}\n"
    )
}

/// The best of five: what the machine can do, whatever else it does.
fn best(mut work: impl FnMut()) -> Duration {
    let once = |_| {
        let began = Instant::now();
        work();
        began.elapsed()
    };
    (0..5).map(once).min().unwrap()
}

fn show(what: &str, took: Duration, bar: Duration) {
    let verdict = if took < bar { "within" } else { "OVER" };
    println!("{what}: {:.1} ms, {verdict} {} ms", took.as_secs_f64() * 1e3, bar.as_millis());
}

fn list() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    sandbox.run("task", &[]).expect_code(0);
    let (journal, metadata) =
        (sandbox.read("work/.delta/r/journal.jsonl"), sandbox.read("work/.delta/r/metadata.json"));
    for number in 1..COUNT {
        let dir = format!("work/.delta/r{number:04}");
        let named = |text: &str| text.replace("\"r\"", &format!("\"r{number:04}\""));
        sandbox.write(&format!("{dir}/journal.jsonl"), named(&journal));
        sandbox.write(&format!("{dir}/metadata.json"), named(&metadata));
    }
    let list = || {
        let args = ["list-runs", "-w", "work", "--format", "json"];
        let listed = sandbox.delta(args).output().expect_code(0);
        assert_eq!(listed.json().as_array().unwrap().len(), COUNT);
    };
    show(&format!("list-runs with {COUNT} runs"), best(list), Duration::from_secs(1));
}

/// A run with one tool, made longer: its middle three events again and again.
fn open() {
    let tools = "  - name: t\n    exec: printf 'a line of output\\n%.0s' 1 2 3 4 5 6 7 8\n";
    let sandbox =
        Sandbox::scripted(DELTA, tools, "- say: thinking\n  call: [{tool: t}]\n- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    let events = sandbox.journal();
    let middle = events[2..5].iter().cycle().take((COUNT - 4) / 3 * 3);
    let all = events[..2].iter().chain(middle).chain(&events[5..]);
    let mut text = String::new();
    for (index, event) in all.enumerate() {
        let (mut event, round) = (event.clone(), index.saturating_sub(2) / 3 + 1);
        event["seq"] = Value::from(index + 1);
        if event.get("iteration").is_some() {
            event["iteration"] = Value::from(round);
        }
        if event.get("call_id").is_some() {
            event["call_id"] = Value::from(format!("call_{round}"));
        }
        if let Some(id) = event.pointer_mut("/tool_calls/0/id") {
            *id = Value::from(format!("call_{round}"));
        }
        text.push_str(&format!("{event}\n"));
    }
    sandbox.write(&format!("{RUN}/journal.jsonl"), &text);
    let size = text.len() / 1024;
    let fold = || {
        let contents = journal::read(&sandbox.path(RUN)).unwrap();
        assert!(contents.events.len() >= COUNT - 3);
        assert!(RunState::of(&contents.events).iterations > 1000);
    };
    let what = format!("open and fold a journal of {COUNT} events ({size} KiB)");
    show(&what, best(fold), Duration::from_millis(100));
    let again = || {
        let args = ["continue", "--run-id", "r", "-w", "work"];
        let ran = sandbox.delta(args).output().expect_code(1);
        assert!(ran.stderr.contains("Run is COMPLETED"), "{}", ran.stderr);
    };
    show("the same by a whole process", best(again), Duration::from_millis(100));
    fs::remove_dir_all(sandbox.path("work")).unwrap();
}
