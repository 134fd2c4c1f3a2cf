//! A soak: runs with approvals, questions, sub-agents and limits are killed, stopped, continued, forked, rolled back and
//! packed in random order, and after every step `delta verify` and `delta replay` find nothing wrong.
//!
//! It takes five seconds, or a minute with `DELTA_FULL_TESTS`. `DELTA_SOAK_SECONDS=3600` makes it an hour, `DELTA_SEED=N` repeats the choices of an
//! earlier one (not its instants).
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, start real processes, and print figures"
)]

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use test_support::effort::cases;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::Gate;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// How many runs there are at most, forks included.
const RUNS: u64 = 50;
/// How many threads work on runs, each on its own.
const THREADS: u64 = 2;

/// `note` and its like have effects, which a ledger outside of the workspace counts.
const TOOLS: &str = "  - name: note\n    shell: echo \"$DELTA_RUN_ID $DELTA_CALL_ID\" >> \"$HOME/ledger\"; echo ${text} >> notes; echo noted\n    parallel: true\n  \
     - name: careful\n    shell: echo \"$DELTA_RUN_ID $DELTA_CALL_ID\" >> \"$HOME/ledger\"; echo careful >> notes\n    approve: ask\n  \
     - name: slow\n    shell: echo \"$DELTA_RUN_ID $DELTA_CALL_ID\" >> \"$HOME/ledger\"; seq 1 20000; sleep 0.05\n  \
     - name: ask\n    exec: 'delta run --agent ${AGENT_HOME}/inner -w ${CWD} -q -m go'\n";

/// What the LLM of every run says, again and again.
const TURNS: &str = "\
- say: first
  call: [{tool: note, args: {text: a}}, {tool: note, args: {text: b}}, {tool: nothing, args: {}}]
- call: [{tool: careful}]
- call: [{tool: ask}]
- call: [{tool: slow}, {tool: ask_human, args: {prompt: Really?}}]
- say: done
- call: [{tool: note, args: {text: c}}, {tool: careful}, {tool: note, args: {text: d}}]
- say: done again
";

/// Random numbers (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A run: its id and its workspace.
#[derive(Clone)]
struct SoakRun {
    id: String,
    work: String,
}

/// What one thread does.
struct Worker {
    sandbox: Sandbox,
    chance: Chance,
    number: u64,
    runs: Vec<SoakRun>,
    counts: HashMap<&'static str, u64>,
}

fn scripted() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &TURNS.repeat(40));
    let agent = sandbox.read("agent/agent.yaml");
    sandbox.write(
        "agent/agent.yaml",
        format!("{agent}limits: {{max_tokens: 100M}}\nsnapshots: true\n"),
    );
    for file in ["system_prompt.md", "context.yaml"] {
        let text = sandbox.read(&format!("agent/{file}"));
        sandbox.write(&format!("agent/inner/{file}"), text);
    }
    let inner = "name: inner\nllm: {provider: script, model: script.yaml}\ntools:\n  - name: think\n    exec: sleep 0.02\n";
    sandbox.write("agent/inner/agent.yaml", inner);
    sandbox.write("agent/inner/script.yaml", "turns: [{call: [{tool: think}]}, {say: inner}]\n");
    fs::create_dir(sandbox.path("bin")).unwrap();
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    sandbox
}

impl Worker {
    fn delta(&self, args: &[&str]) -> Delta {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.sandbox.path("bin").display());
        self.sandbox.delta(args.iter().copied()).env("PATH", path)
    }

    fn count(&mut self, action: &'static str) {
        *self.counts.entry(action).or_default() += 1;
    }

    /// Runs a command that works on a run; one in three is killed or stopped at some instant.
    fn drive(&mut self, args: &[&str]) -> Ran {
        let mut child = self.delta(args).spawn();
        let delay = Duration::from_millis(self.chance.below(400));
        let signal = match self.chance.below(6) {
            0 => "KILL",
            1 => "INT",
            _ => "",
        };
        if !signal.is_empty() {
            // An instant like any other: nothing waits for it.
            Gate::new().wait(Some(delay));
            if child.try_wait().unwrap().is_none() {
                let kill = format!("kill -s {signal} {}", child.id());
                let sent = std::process::Command::new("sh").args(["-c", &kill]).status();
                self.count(if sent.is_ok_and(|sent| sent.success()) {
                    "signals"
                } else {
                    "missed"
                });
            }
        }
        let output = child.wait_with_output().unwrap();
        let ran = Ran::of(output.status, &output.stdout, &output.stderr);
        assert!([-1, 0, 1, 101, 130].contains(&ran.code), "{args:?}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
        ran
    }

    fn step(&mut self) {
        let choice = self.chance.below(10);
        let place = self.chance.below(self.runs.len().max(1) as u64);
        let Some(run) = self.runs.get(usize::try_from(place).unwrap()).cloned() else {
            return self.begin();
        };
        let has_room = (self.runs.len() as u64) < RUNS / THREADS;
        match choice {
            0 if has_room => self.begin(),
            1 if has_room => self.fork(&run),
            2 => self.roll_back(&run),
            3 => {
                self.count("packs");
                // A run that waits is not packed.
                self.delta(&["pack", &run.id, "-w", &run.work, "-q"]).output();
            }
            _ => self.go_on(&run),
        }
        self.check(&run);
    }

    fn begin(&mut self) {
        self.count("runs");
        let id = format!("r{}-{}", self.number, self.runs.len());
        let work = format!("work-{id}");
        self.drive(&["run", "--agent", "agent", "-w", &work, "--run-id", &id, "-q", "-m", "go"]);
        // One that was killed before it began is begun again.
        let begun = self.sandbox.path(&format!("{work}/.delta/{id}/journal.jsonl"));
        if fs::read(begun).is_ok_and(|journal| journal.contains(&b'\n')) {
            let run = SoakRun { id, work };
            self.check(&run);
            self.runs.push(run);
        }
    }

    fn go_on(&mut self, run: &SoakRun) {
        self.count("continues");
        let shown = self.delta(&["show", &run.id, "-w", &run.work, "--format", "json"]).output();
        let status = shown.expect_code(0).json()["status"].as_str().unwrap_or_default().to_owned();
        let answer = if self.chance.below(3) == 0 { "no" } else { "yes" };
        let message = match status.as_str() {
            "WAITING_FOR_INPUT" => Some(answer),
            "COMPLETED" | "FAILED" => Some("go on"),
            _ => None,
        };
        let mut args = vec!["continue", &*run.id, "-w", &run.work, "-q"];
        args.extend(message.iter().flat_map(|message| ["-m", message]));
        self.drive(&args);
    }

    fn fork(&mut self, run: &SoakRun) {
        self.count("forks");
        let id = format!("f{}-{}", self.number, self.runs.len());
        let work = format!("work-{id}");
        let at = self.chance.below(3).to_string();
        let ran = self
            .delta(&[
                "fork", &run.id, "-w", &run.work, "--at", &at, "--into", &work, "--run-id", &id,
            ])
            .output();
        if ran.code == 0 {
            let fork = SoakRun { id, work };
            self.check(&fork);
            self.runs.push(fork);
        } else {
            assert!(ran.stderr.contains("iteration") || ran.stderr.contains("no task"), "{ran:?}");
        }
    }

    fn roll_back(&mut self, run: &SoakRun) {
        self.count("rollbacks");
        let to = self.chance.below(2).to_string();
        let ran = self.delta(&["rollback", &run.id, "-w", &run.work, "--to", &to]).output();
        assert!([0, 1, 126].contains(&ran.code), "{ran:?}");
    }

    /// The run is what delta recorded, and everything in it agrees.
    fn check(&mut self, run: &SoakRun) {
        self.count("checks");
        for command in ["verify", "replay"] {
            let ran = self.delta(&[command, &run.id, "-w", &run.work]).output();
            assert_eq!(ran.code, 0, "{command} {}: {}{}", run.id, ran.stdout, ran.stderr);
        }
    }
}

/// No call has had its effect twice.
fn check_ledger(sandbox: &Sandbox) -> u64 {
    let ledger = fs::read_to_string(sandbox.path("home/ledger")).unwrap_or_default();
    let mut lines: Vec<&str> = ledger.lines().collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "a call had its effect twice");
    count as u64
}

#[test]
fn c_27_1_runs_hold_whatever_happens_to_them() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("DELTA_SEED").unwrap_or(now.as_secs());
    let time = Duration::from_secs(number("DELTA_SOAK_SECONDS").unwrap_or(cases(5, 60)));
    println!("DELTA_SEED={seed}");
    let totals = Mutex::new(HashMap::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let totals = &totals;
            scope.spawn(move || {
                let chance = Chance(seed ^ (number << 32));
                let (sandbox, runs) = (scripted(), Vec::new());
                let mut worker = Worker { sandbox, chance, number, runs, counts: HashMap::new() };
                while began.elapsed() < time {
                    worker.step();
                }
                worker.counts.insert("effects", check_ledger(&worker.sandbox));
                let mut totals = totals.lock().unwrap();
                for (action, count) in worker.counts {
                    *totals.entry(action).or_insert(0) += count;
                }
            });
        }
    });
    println!("{:?}, seed {seed}", totals.into_inner().unwrap());
}
