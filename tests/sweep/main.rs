//! Sweeps through the built program: plans, pools that are killed, results that are torn.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may")]

mod answers;
mod bisect;
mod budgets;
mod by_hand;
mod continued;
mod costs;
mod estimate;
mod gate;
mod grading;
mod one_command;
mod packs;
mod plan_checks;
mod plans;
mod pools;
mod race;
mod rates;
mod recorded;
mod results;
mod schema;
mod scores;
mod sub_agents;
mod submit;
mod tiers;
mod verdicts;
mod why;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use test_support::sandbox::{Ran, Sandbox};

/// The built program.
const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// A sandbox with an agent whose tool `act` adds the id of its run to the file `effects`.
fn acting_sandbox() -> Sandbox {
    let turns = "  - call: [{tool: act, args: {}}]\n  - say: \"did ${task}\"";
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml", &act_tool(&sandbox));
    sandbox.write("agent/script.yaml", format!("turns:\n{turns}\n"));
    sandbox
}

fn act_tool(sandbox: &Sandbox) -> String {
    let effects = sandbox.path("effects");
    let script = format!("#!/bin/sh\nbasename \"$PWD\" >> '{}'\n", effects.display());
    sandbox.write_program("act.sh", &script);
    format!("  - {{name: act, exec: '{}'}}", sandbox.path("act.sh").display())
}

/// sweep.yaml with so many inputs and repeats, and more lines.
fn write_sweep(sandbox: &Sandbox, inputs: usize, repeats: usize, more: &str) {
    let lines =
        (0..inputs).map(|index| format!("{{\"id\": \"i{index}\", \"task\": \"t{index}\"}}\n"));
    sandbox.write("inputs.jsonl", lines.collect::<String>());
    let text =
        format!("name: s\nagents: [agent]\ninputs: inputs.jsonl\nrepeats: {repeats}\n{more}");
    sandbox.write("sweep.yaml", text);
}

fn sweep(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(["sweep"].iter().chain(args).copied()).output()
}

/// How often each run has acted.
fn effects(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for id in fs::read_to_string(sandbox.path("effects")).unwrap_or_default().lines() {
        *counts.entry(id.to_owned()).or_default() += 1;
    }
    counts
}

/// The ids of the plan.
fn planned(sandbox: &Sandbox) -> Vec<String> {
    sweep(sandbox, &["list", "s"]).expect_code(0).stdout.lines().map(str::to_owned).collect()
}

/// The result lines of all hosts.
fn result_lines(sandbox: &Sandbox) -> Vec<Value> {
    let files = sandbox.files("s/results");
    let texts = files.iter().map(|file| sandbox.read(&format!("s/results/{file}")));
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

fn status(sandbox: &Sandbox) -> Value {
    sweep(sandbox, &["status", "s", "--format", "json"]).json()
}
