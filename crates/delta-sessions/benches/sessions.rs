//! The time of a command in a session, relative to starting bash with the same saved state.
//!
//! `cargo bench -p delta-agents-sessions` prints the times and fails when the ratio is above its limit.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, not the product"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SESSIONS: &str = env!("CARGO_BIN_EXE_delta-sessions");
const ROUNDS: usize = 200;
/// The largest ratio of the two times.
const MAX_RATIO: f64 = 1.5;
/// The state of the session: about as much as a day of work leaves in a shell.
const STATE: &str = "
for i in {1..100}; do declare variable_$i=\"the value of $i\"; done
declare -a list=({1..200}); declare -A map; for i in {1..50}; do map[key$i]=$i; done
for i in {1..30}; do eval \"function_$i() { local a=\\$1; if [[ \\$a ]]; then echo \\\"\\$a $i\\\"; fi; }\"; done
alias ll='ls -l' la='ls -a'
";

fn main() {
    if cfg!(debug_assertions) {
        println!("not measured: this is not a release build");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sessions = |args: &[&str]| {
        let output = Command::new(SESSIONS).args(args).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let id = sessions(&["start"])["session_id"].as_str().unwrap().to_owned();
    sessions(&["exec", &id, STATE]);
    let saved = dir.path().join("saved.sh");
    fs::copy(state_of(&dir.path().join(".sessions").join(&id)), &saved).unwrap();
    let script = dir.path().join("begin.sh");
    // The last command of a state sets `$?`.
    let begin = format!("__delta_end() {{ :; }}\nsource {} >/dev/null 2>&1\n:\n", saved.display());
    fs::write(&script, begin).unwrap();
    let bash = || {
        let began = Instant::now();
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).arg(&script).stdin(Stdio::null());
        assert!(command.output().unwrap().status.success());
        began.elapsed()
    };
    let exec = || {
        let began = Instant::now();
        sessions(&["exec", &id, ":"]);
        began.elapsed()
    };
    // The first runs fill caches and do not count. Runs alternate, so that both see the same machine.
    let _ = (bash(), exec());
    let (floors, execs): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| (bash(), exec())).unzip();
    // The ratio of each pair: the speed of the machine changes between pairs.
    let mut ratios: Vec<f64> =
        floors.iter().zip(&execs).map(|(floor, exec)| exec.div_duration_f64(*floor)).collect();
    ratios.sort_by(f64::total_cmp);
    let [low, ratio, high] = [1, 2, 3].map(|quarter| ratios[ROUNDS * quarter / 4]);
    println!("bash with the saved state  {:9.2?}   median of {ROUNDS}", median(floors));
    println!("delta-sessions exec        {:9.2?}", median(execs));
    println!(
        "ratio of a pair            {ratio:9.2}    half of them {low:.2} to {high:.2}, limit {MAX_RATIO:.2}"
    );
    assert!(ratio <= MAX_RATIO, "the ratio is above its limit");
}

fn state_of(session: &Path) -> std::path::PathBuf {
    let mut states =
        fs::read_dir(session).unwrap().map(|entry| entry.unwrap().path().join("state.sh"));
    states.find(|path| path.is_file()).unwrap()
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
