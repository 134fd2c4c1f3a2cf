//! What a sweep costs over its runs: the pool against `xargs -P` of the bare runs, runs that have nothing left to do, and
//! plans and results of a hundred thousand and a million runs.
//!
//! `cargo build --profile bench -p delta-agents-sweep`, then `cargo bench --bench sweep`, which prints the figures and fails
//! when one is beyond its bar. `DELTA_BENCH_RUNS=20000` measures the pool with more runs.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

mod common;

use common::{Bars, Used};
use delta_run::event::RunStatus;
use delta_sweep::formats::plan_file::SweepPlan;
use delta_sweep::formats::result_line::{ResultLine, ResultUsage};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The runs of both sides of the comparison, if DELTA_BENCH_RUNS does not say.
const RUNS: usize = 2_000;
/// In how many turns they are measured.
const ROUNDS: usize = 4;
const JOBS: &str = "8";
/// How often a command that has nothing to do is measured.
const REPEATS: usize = 50;

fn main() {
    if !common::is_asked() {
        return;
    }
    // Beside delta, where `delta sweep` seeks it.
    common::installed(&Path::new(common::DELTA).with_file_name("delta-sweep"));
    let dir = common::Place::new();
    write_agent(dir.path());
    let mut bars = Bars::default();
    compare_pool(dir.path(), &mut bars);
    measure_settled(dir.path(), &mut bars);
    measure_results(dir.path(), &mut bars);
    measure_plan(dir.path(), &mut bars);
    bars.hold();
}

fn write_agent(dir: &Path) {
    let agent = dir.join("agent");
    fs::create_dir(&agent).unwrap();
    let yaml = "name: bench\nllm: {provider: script, model: script.yaml}\ntools:\n  - {name: t, exec: 'echo a line'}\n";
    fs::write(agent.join("agent.yaml"), yaml).unwrap();
    fs::write(agent.join("system_prompt.md"), "You are a benchmark.\n").unwrap();
    let context = "sources:\n  - type: file\n    path: system_prompt.md\n  - type: journal\n";
    fs::write(agent.join("context.yaml"), context).unwrap();
    let script = "turns:\n  - call: [{tool: t, args: {}}]\n  - say: done\n";
    fs::write(agent.join("script.yaml"), script).unwrap();
}

/// A sweep of so many inputs and repeats, planned in `dir/name`.
fn plan(dir: &Path, name: &str, inputs: usize, repeats: usize) -> Used {
    let lines: String =
        (0..inputs).map(|input| format!("{{\"id\":\"i{input}\",\"task\":\"go\"}}\n")).collect();
    fs::write(dir.join(format!("{name}.jsonl")), lines).unwrap();
    let yaml = format!(
        "name: {name}\nagents: [agent]\ninputs: {name}.jsonl\nrepeats: {repeats}\nrate: {{concurrent: {JOBS}}}\n"
    );
    fs::write(dir.join(format!("{name}.yaml")), yaml).unwrap();
    common::used(&mut sweep(dir, &["plan", &format!("{name}.yaml")]), |_| ())
}

fn sweep(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(common::delta());
    command.arg("sweep").args(args).current_dir(dir).env_remove("DELTA_LEASE");
    command
}

/// The pool and `xargs`, in turn.
fn compare_pool(dir: &Path, bars: &mut Bars) {
    let runs = std::env::var("DELTA_BENCH_RUNS").ok().and_then(|text| text.parse().ok());
    let runs: usize = runs.unwrap_or(RUNS) / ROUNDS;
    let (mut ratios, mut cpu_ratios) = (Vec::new(), Vec::new());
    let (mut bare_ms, mut pool_ms) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let bare = bare_runs(dir, round, runs);
        let name = format!("pool{round}");
        plan(dir, &name, runs, 1);
        let pool = common::used(&mut sweep(dir, &["run", &name, "-q"]), |_| ());
        ratios.push(pool.wall.as_secs_f64() / bare.wall.as_secs_f64());
        cpu_ratios.push(pool.cpu.as_secs_f64() / bare.cpu.as_secs_f64());
        bare_ms.push(common::millis(bare.wall) / runs as f64);
        pool_ms.push(common::millis(pool.wall) / runs as f64);
    }
    println!("{ROUNDS} times {runs} runs of 2 answers and 1 tool, {JOBS} at a time, in turn");
    common::median_of("xargs -P of bare runs, a run", bare_ms, "ms");
    common::median_of("the pool, a run", pool_ms, "ms");
    common::median_of("CPU of the pool to CPU of xargs", cpu_ratios, "");
    let ratio = common::median_of("the pool to xargs", ratios, "");
    bars.at_most("the pool to xargs", ratio, 1.3, "");
}

fn bare_runs(dir: &Path, round: usize, runs: usize) -> Used {
    let script = format!(
        "seq {runs} | xargs -P {JOBS} -I @ \"$DELTA\" run --run-id r@ -w bare{round}/@ --agent agent \
         -m go -q --no-interactive --format json"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(dir).env("DELTA", common::delta());
    common::used(&mut command, |_| ())
}

/// What it costs to ask again for a run that has ended.
fn measure_settled(dir: &Path, bars: &mut Bars) {
    let list = sweep(dir, &["list", "pool0"]).output().unwrap();
    let id = String::from_utf8(list.stdout).unwrap().lines().next().unwrap().to_owned();
    let task = || sweep(dir, &["task", "pool0", &id, "-q"]);
    at_most_cpu("task of a settled run", &task, bars);
    for lease in ["flock", "turns"] {
        let ensure = || {
            let mut command = Command::new(common::delta());
            command.args(["run", "--ensure", "--agent", "agent", "-w", lease, "--run-id", "r"]);
            command.args(["-m", "go", "-q"]).current_dir(dir).env("DELTA_LEASE", lease);
            command
        };
        at_most_cpu(&format!("run --ensure of a finished run, {lease}"), &ensure, bars);
    }
}

/// The first one does the work.
fn at_most_cpu(what: &str, command: &dyn Fn() -> Command, bars: &mut Bars) {
    common::used(&mut command(), |_| ());
    let used = (0..REPEATS).map(|_| common::millis(common::used(&mut command(), |_| ()).cpu));
    let median = common::median_of(&format!("{what}, CPU"), used.collect(), "ms");
    bars.at_most(what, median, 4.0, "ms");
}

/// A sweep of which all runs have result lines, and none has a directory.
fn measure_results(dir: &Path, bars: &mut Bars) {
    plan(dir, "lines", 1_000, 100);
    let mut plan = SweepPlan::default();
    plan.add_plan(&fs::read_to_string(dir.join("lines/plan.jsonl")).unwrap()).unwrap();
    let mut text = String::new();
    for run in &plan.runs {
        let is_completed = run.n % 10 != 0;
        let status = if is_completed { RunStatus::Completed } else { RunStatus::Failed };
        let mut line = ResultLine::for_run(run, status);
        line.settled = true;
        line.epoch = 1;
        line.iterations = 2;
        line.duration_ms = 1000 + run.n;
        line.usage = ResultUsage {
            input_tokens: 1000,
            cached_input_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: 50,
        };
        line.cost_usd = Some(0.01);
        let result =
            serde_json::Value::from("a result of some fifty characters, as they often are");
        line.set_result(&result.into());
        "host-01".clone_into(&mut line.host);
        "2026-01-31T18:00:00.000Z".clone_into(&mut line.ended_at);
        text.push_str(&line.to_line());
    }
    fs::create_dir_all(dir.join("lines/results")).unwrap();
    fs::write(dir.join("lines/results/host-01-1-1.jsonl"), text).unwrap();
    println!("{} runs with result lines", plan.runs.len());
    for (args, most) in [
        (&["status", "lines"][..], 0.3),
        (&["status", "lines", "--format", "json"], 0.3),
        (&["collect", "lines"], 1.0),
        (&["collect", "lines", "-o", "lines.out.jsonl"], 1.0),
        (&["collect", "lines", "-o", "lines.csv"], 1.0),
        (&["list", "lines", "--todo"], 1.0),
    ] {
        let mut times: Vec<f64> = (0..5)
            .map(|_| common::used(&mut sweep(dir, args), |_| ()).wall.as_secs_f64())
            .collect();
        times.sort_by(f64::total_cmp);
        bars.at_most(&args.join(" "), times[times.len() / 2], most, "s");
    }
}

fn measure_plan(dir: &Path, bars: &mut Bars) {
    let used = plan(dir, "million", 10_000, 100);
    bars.at_most("a plan of 1,000,000 runs", used.wall.as_secs_f64(), 30.0, "s");
    bars.at_most("its peak of memory", used.peak_kilobytes as f64 / 1024.0, 500.0, "MB");
    let status = common::used(&mut sweep(dir, &["list", "million"]), |_| ());
    common::show("list of them", status.wall.as_secs_f64(), "s");
    common::show("its peak of memory", status.peak_kilobytes as f64 / 1024.0, "MB");
}
