//! What a call of a tool of an MCP server costs over the server's own time, and what a tool costs while a server lives.
//!
//! `cargo bench --bench mcp` prints the figures and fails when one is beyond its bar.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::{Bars, Place, delta};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The calls of a long and of a short run, whose difference is free of the start and the end.
const CALLS: [usize; 2] = [210, 10];
const ROUNDS: usize = 5;

fn main() {
    if !common::is_asked() {
        return;
    }
    let place = Place::new();
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
    let agent = place.path().join("agent");
    write_agent(&agent, &server, place.path());
    let (mut floors, mut mcp, mut plain, mut after) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        floors.push(server_time(&server, place.path()));
        mcp.push(call_time(&agent, place.path(), "mcp", round));
        plain.push(call_time(&agent, place.path(), "plain", round));
        after.push(call_time(&agent, place.path(), "after", round));
    }
    let floor = common::median_of("a call of the server alone", floors, "ms");
    let mcp = common::median_of("a call of its tool in a run", mcp, "ms");
    let plain = common::median_of("a call of `true` in a run", plain, "ms");
    let after = common::median_of("a call of `true` while the server lives", after, "ms");
    let mut bars = Bars::default();
    bars.at_most("a call over the server's own time", mcp - floor, 3.0, "ms");
    common::show("a call of a server's tool to one of `true`", mcp / plain, "");
    bars.at_most("`true` while a server lives to `true` without", after / plain, 1.25, "");
    bars.hold();
}

fn write_agent(agent: &Path, server: &Path, state: &Path) {
    fs::create_dir_all(agent).unwrap();
    let command = json!(["python3", server, state]);
    let text = format!(
        "name: bench\nllm: {{provider: script, model: script.yaml}}\nlimits: {{repeats: 0}}\nmcp: {{s: {{command: {command}, tools: [count]}}}}\ntools: [{{name: t, exec: 'true'}}]\n"
    );
    fs::write(agent.join("agent.yaml"), text).unwrap();
    fs::write(agent.join("system_prompt.md"), "You are measured.\n").unwrap();
    fs::write(agent.join("context.yaml"), "sources: [{type: journal}]\n").unwrap();
    let lock =
        Command::new(delta()).args(["mcp", "lock", "--write", "--agent"]).arg(agent).output();
    assert!(lock.unwrap().status.success());
}

/// What a call costs whose answer the server is asked for directly, in milliseconds.
fn server_time(server: &Path, state: &Path) -> f64 {
    let mut process = Command::new("python3");
    process.arg(server).arg(state).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut ask = |id: usize, method: &str, params: Value| {
        writeln!(
            input,
            "{}",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        )
        .unwrap();
        lines.next().unwrap().unwrap()
    };
    ask(1, "initialize", json!({}));
    let began = Instant::now();
    for id in 0..CALLS[0] {
        ask(id + 2, "tools/call", json!({"name": "count", "arguments": {}}));
    }
    let took = began.elapsed().as_secs_f64() * 1e3 / CALLS[0] as f64;
    drop(input);
    process.wait().unwrap();
    took
}

/// What a call in a run costs, in milliseconds.
fn call_time(agent: &Path, place: &Path, kind: &str, round: usize) -> f64 {
    let [long, short] = CALLS.map(|calls| {
        let tool = if kind == "mcp" { "s__count" } else { "t" };
        let first = if kind == "plain" { "t" } else { "s__count" };
        let mut turns = format!("turns:\n- call: [{{tool: {first}}}");
        turns.push_str(&format!(", {{tool: {tool}}}").repeat(calls));
        turns.push_str("]\n- say: done\n");
        fs::write(agent.join("script.yaml"), turns).unwrap();
        let work = place.join(format!("work-{kind}-{round}-{calls}"));
        fs::create_dir_all(&work).unwrap();
        let began = Instant::now();
        let mut run = Command::new(delta());
        run.args(["run", "-q", "-m", "go", "--agent"]).arg(agent).arg("-w").arg(&work);
        let ran = run.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        began.elapsed().as_secs_f64() * 1e3
    });
    (long - short) / (CALLS[0] - CALLS[1]) as f64
}
