//! Runs that earlier versions of delta made (tests/corpus-runs): every command that reads runs reads them as it did, and
//! they can be continued. Beside each of them is what was read; `UPDATE_CORPUS=1` writes what is read now.

use super::DELTA;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use test_support::sandbox::{Ran, Sandbox};

/// Each directory of the corpus, in order of their names, with the run in it that is continued, and how.
const CONTINUED: [(&str, &str, &[&str]); 23] = [
    ("answered", "r", &["-m", "More."]),
    ("applied", "r", &["-m", "More."]),
    ("approvals", "r", &["-m", "yes"]),
    ("continued", "r", &["-m", "More."]),
    ("damaged", "r", &["-m", "More."]),
    ("endpoint", "r", &["-m", "More.", "--model", "script:script.yaml"]),
    ("failed", "r", &["-m", "Try again."]),
    ("finished", "r", &["-m", "More."]),
    ("fork", "f", &["-m", "More."]),
    ("hooks", "r", &["-m", "More."]),
    ("killed", "r", &[]),
    ("packed", "r", &["-m", "More."]),
    ("parallel", "r", &["-m", "More."]),
    ("received", "r", &["-m", "More."]),
    ("rolled-back", "r", &["-m", "More."]),
    ("sandboxed", "r", &["-m", "More."]),
    ("sent", "r", &["-m", "More."]),
    ("snapshots", "r", &["-m", "More."]),
    ("sub-agent", "r", &["-m", "More."]),
    ("told", "r", &["-m", "More."]),
    ("torn", "r", &["--force"]),
    ("turns", "r", &["-m", "More."]),
    ("waiting", "r", &["-m", "yes"]),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus-runs")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// A copy of a directory of the corpus as it was made: `agent/`, and `work/` with its `.delta`.
fn unpacked(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    fs::remove_dir_all(sandbox.path("agent")).unwrap();
    for part in ["agent", "work"] {
        copy(&corpus().join(name).join(part), &sandbox.path(part));
    }
    fs::rename(sandbox.path("work/delta"), sandbox.path("work/.delta")).unwrap();
    // A metadata.json that is younger than the journal shows `list-runs` that its ends are enough, and git keeps no times.
    for run in runs(name) {
        let path = sandbox.path("work/.delta").join(run).join("metadata.json");
        if let Ok(file) = fs::File::options().write(true).open(path) {
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
    if name == "damaged" {
        sandbox.unverified("it is damaged");
    }
    sandbox
}

/// The runs of a directory, in order of their names.
fn runs(name: &str) -> Vec<String> {
    let entries = fs::read_dir(corpus().join(name).join("work/delta")).unwrap();
    let dirs = entries.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = dirs.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(sandbox: &Sandbox, arguments: &[&str]) -> Ran {
    sandbox.delta(arguments.iter().chain(&["-w", "work"]).copied()).output()
}

/// The exit code, and stdout as JSON where it is that, or lines of it, without what names the machine and the version.
fn result(sandbox: &Sandbox, ran: &Ran) -> Value {
    let dir = sandbox.path("").display().to_string();
    let text = ran.stdout.replace(dir.trim_end_matches('/'), "DIR");
    let version = Regex::new(r#""[0-9]+\.[0-9]+\.[0-9]+""#).unwrap();
    let text = version.replace_all(&text, r#""VERSION""#);
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    json!({"code": ran.code, "stdout": lines.unwrap_or_default()})
}

/// A list of runs without what is said of a damaged one: why, in words, and the time of its directory.
fn without_damage(mut listed: Value) -> Value {
    let runs = listed["stdout"][0].as_array_mut().into_iter().flatten();
    for run in runs.filter(|run| run["status"] == "DAMAGED") {
        *run = json!({"run_id": run["run_id"], "status": "DAMAGED"});
    }
    listed
}

/// What every command reads of a run.
fn account(sandbox: &Sandbox, run: &str) -> Map<String, Value> {
    let commands: [&[&str]; 9] = [
        &["show", run, "--format", "json"],
        &["replay", run, "--format", "json"],
        &["export", run, "--to", "otlp"],
        &["export", run, "--to", "atif"],
        &["export", run, "--to", "openai"],
        &["context", "show", run, "--format", "json"],
        &["context", "diff", run, "1", "2", "--format", "json"],
        &["diff", run, run, "--format", "json"],
        &["show", run, "--request", "1"],
    ];
    let mut account = Map::new();
    for command in commands {
        account.insert(command.join(" "), result(sandbox, &read(sandbox, command)));
    }
    // What people read may be put in other words.
    let texts: [&[&str]; 5] = [
        &["show", run],
        &["replay", run],
        &["export", run, "--to", "markdown"],
        &["view", run, "-o", "-"],
        &["diff", run, "0", "1"],
    ];
    for command in texts {
        let ran = read(sandbox, command);
        let said = !ran.stdout.is_empty() || !ran.stderr.is_empty();
        account.insert(command.join(" "), json!({"code": ran.code, "said": said}));
    }
    account
}

/// Whether `now` says everything that `then` did: members and elements may have been added.
fn holds(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            then.iter().all(|(name, value)| now.get(name).is_some_and(|found| holds(found, value)))
        }
        (Value::Array(now), Value::Array(then)) => {
            let mut rest = now.iter();
            then.iter().all(|wanted| rest.any(|found| holds(found, wanted)))
        }
        _ => now == then,
    }
}

/// Compares with a file of the corpus, or writes it.
fn compare(name: &str, file: &str, now: &Value) -> Option<String> {
    let path = corpus().join(name).join(file);
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        let entries = now.as_object().unwrap().iter();
        let lines: Vec<_> =
            entries.map(|(key, value)| format!("  {}: {value}", json!(key))).collect();
        fs::write(&path, format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
        return None;
    }
    let then: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let (Value::Object(told), Value::Object(found)) = (&then, now) else { panic!("{file}") };
    let wrong: Vec<String> = told
        .iter()
        .filter(|(key, value)| !found.get(*key).is_some_and(|found| holds(found, value)))
        .map(|(key, value)| format!("{name}: {key}\n then {value}\n now  {}", now[key.as_str()]))
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("\n"))
}

#[test]
fn runs_of_before_are_read_as_before() {
    let mut wrong = Vec::new();
    for (name, ..) in CONTINUED {
        let sandbox = unpacked(name);
        let before = super::runs::snapshot(&sandbox);
        let mut found = Map::new();
        let listed = read(&sandbox, &["list-runs", "--format", "json"]);
        found.insert("list-runs".to_owned(), without_damage(result(&sandbox, &listed)));
        for run in runs(name) {
            found.extend(account(&sandbox, &run));
            let verified = read(&sandbox, &["verify", &run, "--no-seal"]);
            let expected = if name == "damaged" { 3 } else { 0 };
            assert_eq!(verified.code, expected, "{name}: {}", verified.stdout);
        }
        assert!(super::runs::snapshot(&sandbox) == before, "{name}: a reading command wrote");
        wrong.extend(compare(name, "read.json", &found.into()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn runs_of_before_are_continued() {
    let mut wrong = Vec::new();
    for (name, run, more) in CONTINUED {
        let sandbox = unpacked(name);
        if name == "endpoint" {
            let turns = "turns: [{say: one}, {say: two}, {say: the script goes on}]\n";
            sandbox.write("agent/script.yaml", turns);
        }
        let fixed = ["continue", run, "--agent", "agent", "--format", "json"];
        let ran = read(&sandbox, &[&fixed[..], more].concat());
        let result = ran.json();
        let found = json!({
            "code": ran.code,
            "status": result["status"],
            "result": result["result"],
            "error": result["error"]["type"],
            "iterations": result["metrics"]["iterations"],
        });
        let found = json!({"continue": found});
        let verified = read(&sandbox, &["verify", run, "--no-seal"]);
        let expected = if name == "damaged" { 3 } else { 0 };
        assert_eq!(verified.code, expected, "{name}: {}", verified.stdout);
        // A chain begins after the lines with check values, and covers them.
        let first = fs::read_to_string(
            corpus().join(name).join("work/delta").join(run).join("journal.jsonl"),
        );
        if ran.code == 0 && !first.unwrap().lines().next().unwrap().contains(r#","chain":"#) {
            let count = " of them of an earlier version";
            assert!(verified.stdout.contains(count), "{}", verified.stdout);
        }
        wrong.extend(compare(name, "continued.json", &found));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A run that `delta send -o` wrote, with its workspace and its agent.
#[test]
fn a_file_with_a_run_of_before_is_received() {
    let sandbox = Sandbox::new(DELTA);
    let file = corpus().join("sent.delta");
    let received = read(&sandbox, &["receive", file.to_str().unwrap()]);
    assert_eq!(received.code, 0, "{}", received.stderr);
    assert_eq!(sandbox.read("work/f"), "one\n");
    let verified = read(&sandbox, &["verify", "r", "--no-seal"]);
    assert_eq!(verified.code, 0, "{}", verified.stdout);
}

#[test]
fn the_corpus_has_every_event() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/delta-run/src/event.rs");
    let source = fs::read_to_string(source).unwrap();
    let (_, variants) = source.split_once("pub enum Payload {\n").unwrap();
    let (variants, _) = variants.split_once("\n}\n").unwrap();
    let variant = Regex::new(r"(?m)^    ([A-Z]\w+)[ ({,]").unwrap();
    let word = Regex::new("([a-z])([A-Z])").unwrap();
    let paths = CONTINUED.map(|(name, run, _)| {
        corpus().join(name).join("work/delta").join(run).join("journal.jsonl")
    });
    let journals = paths.map(|path| fs::read_to_string(path).unwrap()).concat();
    let mut events = 0;
    for found in variant.captures_iter(variants) {
        let event = word.replace_all(&found[1], "${1}_$2").to_uppercase();
        assert!(journals.contains(&format!(r#""type":"{event}""#)), "make.sh makes no {event}");
        events += 1;
    }
    assert!(events > 20, "where are the events?");
}

#[test]
fn the_corpus_is_whole_and_small() {
    let entries = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, CONTINUED.map(|(name, ..)| name));
    let mut queue = vec![corpus()];
    let mut size = 0;
    while let Some(path) = queue.pop() {
        match path.is_dir() {
            true => queue.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
            false => size += path.metadata().unwrap().len(),
        }
    }
    assert!(size < 1_500_000, "the corpus has {size} bytes");
}
