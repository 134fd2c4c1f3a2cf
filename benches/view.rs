//! The page of a run of 2,000 iterations in a real browser: `cargo bench --bench view` prints how long the page takes to
//! be made, how large it is, when a browser shows something of it, and what a step of scrolling costs the page.
//! The bars are a first paint within 2 s, and a step within the 16 ms of a frame.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints"
)]

#[path = "../tests/cli/view/browser.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod browser;

use browser::Browser;
use delta_base::time;
use delta_report::view::{self, PageOptions};
use delta_run::record::sha256_hex;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Instant;

const ITERATIONS: usize = 2_000;
/// How many of the last messages a request holds, beside the system prompt.
const WINDOW: usize = 240;

fn main() {
    // `cargo test --all-targets` starts it too, and asks for nothing.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join(".delta/long");
    write_run(&run_dir);
    let began = Instant::now();
    let wanted = PageOptions {
        run_dirs: vec![run_dir],
        with_requests: true,
        sweep_facts: Default::default(),
    };
    let page = view::render_page(&wanted, time::current_time());
    println!(
        "{ITERATIONS} iterations: made in {:?}, {:.1} MB",
        began.elapsed(),
        page.len() as f64 / 1e6
    );
    let file = dir.path().join("long.html");
    fs::write(&file, page).unwrap();
    let mut browser = Browser::start();
    browser.open(&file, "");
    browser.settle();
    let paint =
        browser.value("performance.getEntriesByType('paint')[0].startTime").as_f64().unwrap();
    let load =
        browser.value("performance.timing.loadEventEnd - performance.timing.navigationStart");
    println!(
        "first paint after {paint:.0} ms, {} 2 s; loaded after {load} ms",
        verdict(paint < 2000.0)
    );
    let shift = browser.value(
        "new Promise(done => { new PerformanceObserver(list => done(list.getEntries().reduce((sum, one) => sum + one.value, 0)))\
         .observe({type: 'layout-shift', buffered: true}); requestAnimationFrame(() => requestAnimationFrame(() => done(0))); })",
    );
    println!("layout shift: {shift}");
    let scroll = "(async () => { const times = []; for (let i = 0; i < 300; i++) { scrollBy(0, 120); const from = performance.now();\
        document.body.offsetHeight; times.push(performance.now() - from);\
        await new Promise(done => requestAnimationFrame(done)); }\
        times.sort((a, b) => a - b); return [times[150], times[285], articles.filter(one => one.filled).length]; })()";
    let before = work(&mut browser);
    let measured = browser.value(scroll);
    let step = (work(&mut browser) - before) / 300.0;
    println!(
        "scrolling: {step:.1} ms of script, style and layout for a step, {} 16 ms; {measured}",
        verdict(step < 16.0)
    );
    let found = browser.value("(() => { document.getElementById('query').value = 'row-77'; const from = performance.now(); search(); return [matches.length, performance.now() - from]; })()");
    println!("search: [places, ms] {found}");
}

fn verdict(within: bool) -> &'static str {
    if within { "within" } else { "OVER" }
}

/// The time that the page has spent on script, style and layout, in milliseconds.
fn work(browser: &mut Browser) -> f64 {
    browser.call("Performance.enable", json!({}));
    let measured = browser.call("Performance.getMetrics", json!({}));
    let measured = measured["metrics"].as_array().unwrap();
    let names = ["ScriptDuration", "LayoutDuration", "RecalcStyleDuration"];
    let counted = measured.iter().filter(|one| names.contains(&one["name"].as_str().unwrap()));
    counted.map(|one| one["value"].as_f64().unwrap() * 1000.0).sum()
}

/// A run as an engine leaves it: a journal, and records of all requests and executions.
fn write_run(run_dir: &Path) {
    for part in ["io/invocations", "io/tool_executions"] {
        fs::create_dir_all(run_dir.join(part)).unwrap();
    }
    let stamp =
        |n: usize| format!("2026-01-{:02}T{:02}:{:02}:00.000Z", 1 + n / 1440, n / 60 % 24, n % 60);
    let mut events = vec![
        json!({"type": "ENGINE_START", "run_id": "long", "epoch": 1, "agent_home": "/a", "agent_name": "long", "work_dir": "/w",
            "workspace_id": "w", "max_iterations": 9999, "config": {}, "pid": 1, "hostname": "h", "start_time_unix": 0,
            "process_name": "delta", "engine_version": "0"}),
        json!({"type": "USER_MESSAGE", "content": "Go through the data."}),
    ];
    let mut messages = vec![json!({"role": "user", "content": "Go through the data."})];
    for n in 1..=ITERATIONS {
        let (id, arguments) =
            (format!("call_{n}"), json!({"script": format!("seq {n} | tail -n 40")}));
        let file = format!("io/invocations/{n}.json");
        let window = &messages[messages.len().saturating_sub(WINDOW)..];
        let sent: Vec<&Value> = window.iter().collect();
        let request = json!({"model": "m", "messages": sent}).to_string();
        let record = format!(
            "{{\"run_id\":\"long\",\"iteration\":{n},\"provider\":\"openai\",\"model\":\"m\",\"duration_ms\":900,\"attempts\":[],\
             \"context\":[{{\"source\":\"journal\",\"type\":\"journal\",\"messages\":{},\"bytes\":{},\"tokens\":{}}}],\"response\":null,\
             \"request_sha256\":\"{}\",\"request\":{request}}}\n",
            sent.len(),
            request.len(),
            request.len() / 4,
            sha256_hex(&request)
        );
        fs::write(run_dir.join(&file), record).unwrap();
        let thought =
            format!("Step {n}: I look at the next part, and write down what is odd about it.");
        let call = json!({"id": id, "type": "function", "function": {"name": "sh", "arguments": arguments.to_string()}});
        let usage = json!({"model": "m", "input_tokens": request.len() / 4, "cached_input_tokens": request.len() / 5, "output_tokens": 20 + n % 90, "cost_usd": 0.01});
        let output: String = (n.saturating_sub(40)..n)
            .map(|row| format!("row-{row} of the data, as it was found\n"))
            .collect();
        let execution = format!("io/tool_executions/{n}.json");
        let executed = json!({"argv": ["sh"], "cwd": "/w", "stdin": "", "duration_ms": 12, "exit_code": 0, "ended": null, "stdout": output, "stderr": ""});
        fs::write(run_dir.join(&execution), executed.to_string()).unwrap();
        messages.push(json!({"role": "assistant", "content": thought, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        events.push(json!({"type": "THOUGHT", "iteration": n, "content": thought, "tool_calls": [call], "usage": usage, "invocation": file}));
        events.push(json!({"type": "ACTION_REQUEST", "iteration": n, "call_id": id, "tool_name": "sh", "tool_args": arguments, "argv": ["sh"], "execution": execution}));
        events.push(json!({"type": "ACTION_RESULT", "iteration": n, "call_id": id, "tool_name": "sh", "exit_code": 0, "observation_content": output, "duration_ms": 12, "execution": execution}));
    }
    let line = |(index, event): (usize, &mut Value)| {
        event["seq"] = (index + 1).into();
        event["timestamp"] = stamp(index).into();
        format!("{event}\n")
    };
    let text: String = events.iter_mut().enumerate().map(line).collect();
    fs::write(run_dir.join("journal.jsonl"), text).unwrap();
}
