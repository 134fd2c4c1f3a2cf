//! How long it takes until work can begin: `cargo bench --bench recovery` prints the figures. The bars are 50 ms for
//! loading an agent with 50 imports and 500 tools, 300 ms for listing 10,000 runs, 50 ms for showing one of them, 100 ms for
//! opening and folding a journal of 10,000 events, and 150 MB/s for one of 100,000 events and 100 MB.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and starts real processes"
)]

mod common;

use common::{Bars, DELTA, millis};
use delta_agent::agent::Agent;
use delta_agent::agent::tool_imports::ImportPath;
use delta_llm::llm::ModelSelection;
use delta_run::journal::{self, JournalFold};
use serde_json::Value;
use std::time::{Duration, Instant};
use test_support::sandbox::Sandbox;

const COUNT: usize = 10_000;
const RUN: &str = "work/.delta/r";

/// The events of a large journal.
const LARGE: usize = 100_000;

fn main() {
    if !common::is_asked() {
        return;
    }
    let mut bars = Bars::default();
    // What is made stays until the end: see `common`.
    let kept = [load(&mut bars), list(&mut bars), open(&mut bars), large(&mut bars)];
    kept.iter().for_each(|sandbox| sandbox.unverified("they are copies"));
    bars.hold();
}

/// An agent whose 500 tools, of all three forms, come from 50 files.
fn load(bars: &mut Bars) -> Sandbox {
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
        let agent =
            Agent::load(&sandbox.path("agent"), &ModelSelection::default(), &ImportPath::default())
                .unwrap();
        assert_eq!(agent.tools.len(), 500);
    };
    bars.at_most("load an agent with 50 imports and 500 tools", millis(best(load)), 50.0, "ms");
    sandbox
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

/// The best of five: what the machine can do, whatever else it does. To forget what was made is not part of it.
fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let began = Instant::now();
        let made = work();
        let took = began.elapsed();
        drop(made);
        took
    };
    (0..5).map(once).min().unwrap()
}

fn list(bars: &mut Bars) -> Sandbox {
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
    bars.at_most(&format!("list-runs with {COUNT} runs"), millis(best(list)), 300.0, "ms");
    let one = || {
        let shown = sandbox.delta(["show", "r5000", "-w", "work"]).output().expect_code(0);
        assert!(shown.stdout.contains("done"), "{}", shown.stdout);
    };
    bars.at_most("show of one of them", millis(best(one)), 50.0, "ms");
    sandbox
}

fn open(bars: &mut Bars) -> Sandbox {
    let (sandbox, length) = longer(8, COUNT);
    let what = format!("open and fold a journal of {COUNT} events ({} KiB)", length / 1024);
    bars.at_most(&what, millis(best(|| fold(&sandbox, COUNT))), 100.0, "ms");
    let again = || {
        let args = ["continue", "--run-id", "r", "-w", "work", "--agent", "agent"];
        let ran = sandbox.delta(args).output().expect_code(1);
        assert!(ran.stderr.contains("Run is COMPLETED"), "{}", ran.stderr);
    };
    bars.at_most("the same by a whole process", millis(best(again)), 100.0, "ms");
    sandbox
}

fn large(bars: &mut Bars) -> Sandbox {
    let (sandbox, length) = longer(130, LARGE);
    let megabytes = length as f64 / 1e6;
    let took = best(|| fold(&sandbox, LARGE));
    println!(
        "  a journal of {LARGE} events, {megabytes:.0} MB: {:.0} MB/s",
        megabytes / took.as_secs_f64()
    );
    bars.at_most("open and fold it, for each MB (150 MB/s)", millis(took) / megabytes, 6.7, "ms");
    sandbox
}

/// What `continue` does with the journal of a run.
fn fold(sandbox: &Sandbox, count: usize) -> JournalFold {
    let folded = journal::fold_sealed_journal(&sandbox.path(RUN), None).unwrap();
    assert!(folded.state.seq >= count as u64 - 3);
    assert!(folded.state.iterations > 1000);
    folded
}

/// A run with one tool that prints so many lines, made longer: its middle three events again and again. Gives the length
/// of its journal too.
fn longer(lines: usize, count: usize) -> (Sandbox, usize) {
    let tools = format!(
        "  - name: t\n    exec: printf 'a line of output\\n%.0s' {}\n",
        vec!["1"; lines].join(" ")
    );
    let sandbox =
        Sandbox::scripted(DELTA, &tools, "- say: thinking\n  call: [{tool: t}]\n- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    let events = sandbox.journal();
    let middle = events[2..5].iter().cycle().take((count - 4) / 3 * 3);
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
        event.as_object_mut().unwrap().shift_remove("crc");
        text.push_str(&delta_base::checksum::append_checksum(format!("{event}\n")));
    }
    sandbox.write(&format!("{RUN}/journal.jsonl"), &text);
    (sandbox, text.len())
}
