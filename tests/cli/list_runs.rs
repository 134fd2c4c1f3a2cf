//! `delta list-runs` (C-11.3).

use super::DELTA;
use super::runs::{STATES, TOOLS, code_of, in_state};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant, SystemTime};
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until;

/// A workspace with a run in every state, named after it, and a damaged one. The last updated one is `RUNNING`.
fn every_state() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "");
    for (state, turn) in STATES {
        sandbox.write("agent/script.yaml", format!("turns:\n{turn}"));
        let message = format!("a task\nthat is {state}");
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", state, "-m", &message];
        sandbox.delta(args).output().expect_code(code_of(state));
    }
    sandbox.unverified("one of its journals is damaged");
    sandbox.write("work/.delta/broken/journal.jsonl", "garbage\ngarbage\n");
    // The clock of the file system lags behind the one of the journal by some milliseconds.
    set_modified(&sandbox, "broken/journal.jsonl", SystemTime::now() + Duration::from_secs(1));
    sandbox
}

fn set_modified(sandbox: &Sandbox, file: &str, time: SystemTime) {
    let file = fs::File::open(sandbox.path("work/.delta").join(file)).unwrap();
    file.set_modified(time).unwrap();
}

fn list(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["list-runs", "-w", "work"].iter().chain(more).copied()).output()
}

fn ids(sandbox: &Sandbox, more: &[&str]) -> Vec<String> {
    let ran = list(sandbox, &[&["--format", "json"], more].concat()).expect_code(0);
    let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
    ran.json().as_array().unwrap().iter().map(id).collect()
}

const NEWEST_FIRST: [&str; 6] =
    ["broken", "RUNNING", "INTERRUPTED", "WAITING_FOR_INPUT", "FAILED", "COMPLETED"];

#[test]
fn c_11_3_filters_and_order() {
    let sandbox = every_state();
    assert_eq!(ids(&sandbox, &[]), NEWEST_FIRST);
    // The process of RUNNING has died.
    assert_eq!(ids(&sandbox, &["--resumable"]), NEWEST_FIRST[1..]);
    for (state, _) in STATES {
        assert_eq!(ids(&sandbox, &["--status", state]), [state]);
        assert_eq!(ids(&sandbox, &["--status", &state.to_lowercase()]), [state]);
    }
    assert_eq!(ids(&sandbox, &["--status", "DAMAGED"]), ["broken"]);
    assert_eq!(ids(&sandbox, &["--status", "DAMAGED", "--resumable"]), Vec::<String>::new());
    assert_eq!(ids(&sandbox, &["--first", "--resumable"]), ["RUNNING"]);
    list(&sandbox, &["--first", "--resumable"]).expect(0, "RUNNING\n", "");
    // By their last event, and not by their age.
    set_modified(&sandbox, "broken/journal.jsonl", SystemTime::UNIX_EPOCH);
    sandbox.delta(["continue", "COMPLETED", "-w", "work", "-m", "more"]).output();
    let by_event = ["COMPLETED", "RUNNING", "INTERRUPTED", "WAITING_FOR_INPUT", "FAILED", "broken"];
    assert_eq!(ids(&sandbox, &[]), by_event);
    list(&sandbox, &["--status", "NONSENSE"]).expect_code(2);
    list(&sandbox, &["--format", "yaml"]).expect_code(2);
}

#[test]
fn c_11_3_a_directory_without_runs_names_the_workspaces_below_it() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let run = |id: &str| {
        let args = ["run", "--agent", "agent", "--run-id", id, "-y", "-m", "hi", "-q"];
        sandbox.delta(args).output().expect_code(0);
    };
    let here = |more: &[&str]| sandbox.delta([&["list-runs"], more].concat()).output();
    let note =
        "Note: no runs here; `delta list-runs -r DIR` lists the runs of all workspaces below DIR\n";
    here(&[]).expect(0, "", note);
    run("one");
    let place = sandbox.path("agent/workspaces/W001").display().to_string();
    let note = format!("Note: no runs here; these workspaces have runs:\n  -w {place}\n");
    for more in [&[] as &[&str], &["-w", "agent"], &["-w", "agent/workspaces", "--first"]] {
        here(more).expect(0, "", &note);
    }
    here(&["--format", "json"]).expect(0, "[]\n", "");
    here(&["-w", &place, "--status", "FAILED"]).expect(0, "", "");
    (2..=7).for_each(|number| run(&format!("run{number}")));
    let said = here(&[]).stderr;
    assert_eq!(said.lines().count(), 7, "{said}");
    assert!(said.ends_with("/W005\n  and 2 more\n"), "{said}");
    let lost = sandbox.delta(["show", "one", "-w", "agent"]).output().expect_code(1).stderr;
    assert!(lost.ends_with(&format!("\nhelp: add -w {place}\n")), "{lost}");
}

#[test]
fn c_11_3_json_and_text_say_the_same() {
    let sandbox = every_state();
    let all = list(&sandbox, &["--format", "json"]).json();
    let fields = "run_id status active staged calls_at_work task_summary last_updated created_at iterations error agent_name \
                  workspace input_tokens cached_input_tokens cache_write_tokens output_tokens reasoning_tokens \
                  cost_usd";
    for run in all.as_array().unwrap() {
        let waits = run["status"] == "WAITING_FOR_INPUT";
        assert_eq!(run.get("waits_for").is_some(), waits, "{run}");
        let keys = run.as_object().unwrap().keys().map(String::as_str);
        let keys: Vec<&str> = keys.filter(|key| *key != "waits_for").collect();
        assert_eq!(keys.join(" "), fields);
    }
    let waiting = &all[3];
    assert_eq!(
        (&waiting["status"], &waiting["task_summary"], &waiting["iterations"]),
        (&json!("WAITING_FOR_INPUT"), &json!("a task…"), &json!(1))
    );
    assert_eq!(waiting["agent_name"], "test-agent");
    assert_eq!(all[0]["status"], "DAMAGED");
    assert!(all[0]["task_summary"].as_str().unwrap().contains("is damaged at line 1"));
    for (run, error) in all.as_array().unwrap().iter().zip([true, false, false, false, true, false])
    {
        assert_eq!(run["error"].is_string(), error, "{run}");
    }
    let text = list(&sandbox, &[]).expect_code(0).stdout;
    for (line, id) in text.lines().zip(NEWEST_FIRST) {
        let end = if id == "FAILED" { " ago  error: broken" } else { " ago" };
        assert!(line.starts_with(id) && line.ends_with(end), "{text}");
    }
    assert!(text.contains("WAITING_FOR_INPUT  WAITING_FOR_INPUT  \"a task…\""), "{text}");
    assert_eq!(text.lines().count(), 6);
    // A run whose process was killed was listed like one on which a process works.
    assert_eq!((&all[1]["status"], &all[1]["active"]), (&json!("RUNNING"), &json!(false)));
    assert!(text.contains("RUNNING            RUNNING (died)     \"a task…\""), "{text}");
}

#[test]
fn c_11_3_a_run_is_active_while_its_process_works() {
    let sandbox = Sandbox::scripted(DELTA, "", "- {say: late, delay_ms: 1000000}");
    sandbox.write("work/x", "");
    let mut child = sandbox.run_command("task", &["-q"]).spawn();
    let listed = until("the run", || {
        let runs = list(&sandbox, &["--format", "json"]).json();
        runs.get(0).filter(|run| run["status"] == "RUNNING").cloned()
    });
    assert_eq!(listed["active"], true);
    assert_eq!(ids(&sandbox, &["--resumable"]), Vec::<String>::new());
    assert!(list(&sandbox, &[]).stdout.contains("r  RUNNING  \"task\""));
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = sandbox.delta(["list-runs", "-w", "work"]).wholly_at_terminal();
    let shown = shown.end().stderr;
    assert!(shown.contains("\x1b[33mRUNNING (died)\x1b[0m"), "{shown:?}");
}

#[test]
fn c_11_3_a_failed_run_is_listed_with_its_error() {
    let long = "x".repeat(300);
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "");
    let run = |id: &str, turn: &str, more: &[&str]| {
        sandbox.write("agent/script.yaml", format!("turns:\n{turn}"));
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "hi", "-q"];
        sandbox.delta(args.iter().chain(more).copied()).output().code
    };
    assert_eq!(run("plain", "- error: \"the key \\e[31m is wrong\\nand more\"\n", &[]), 1);
    assert_eq!(run("long", &format!("- error: {long}\n"), &[]), 1);
    assert_eq!(run("limit", "- call: [{tool: nosuch}]\n", &["--max-iterations", "1"]), 1);
    // A result after an error is no failure.
    assert_eq!(run("again", "- error: broken\n- say: done\n", &[]), 1);
    let resumed = sandbox.delta(["continue", "again", "-w", "work", "-m", "again", "-q"]).output();
    resumed.expect_code(0);
    let error_of = |id: &str| {
        let runs = list(&sandbox, &["--format", "json"]).json();
        let run = runs.as_array().unwrap().iter().find(|run| run["run_id"] == id).unwrap().clone();
        run["error"].clone()
    };
    for age in [0, 32_503_680_000] {
        // From the whole journal, and from its ends.
        for id in ["plain", "long", "limit", "again"] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(age);
            set_modified(&sandbox, &format!("{id}/metadata.json"), time);
        }
        let plain = error_of("plain").as_str().unwrap().to_owned();
        assert!(plain.contains("is wrong") && !plain.contains(['\n', '\u{1b}']), "{plain:?}");
        let cut = error_of("long").as_str().unwrap().to_owned();
        assert!(cut.ends_with("xx…") && cut.chars().count() <= 201, "{cut:?}");
        assert!(error_of("limit").as_str().unwrap().contains("iteration"));
        assert_eq!(error_of("again"), Value::Null);
    }
    let screen = sandbox.delta(["list-runs", "-w", "work"]).wholly_at_terminal_of(80, 24).end();
    let row =
        |id: &str| screen.stderr.lines().find(|line| line.starts_with(id)).unwrap().to_owned();
    assert!(screen.stderr.lines().next().unwrap().contains("ERROR"), "{}", screen.stderr);
    assert!(row("plain").contains("is wrong"), "{}", screen.stderr);
    assert!(!row("again").contains("broken"), "{}", screen.stderr);
}

#[test]
fn c_11_3_a_damaged_run_has_the_age_of_its_last_event() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    sandbox.unverified("its journal is damaged");
    sandbox.run("go", &[]).expect_code(0);
    let end = sandbox.events("ENGINE_END")[0]["timestamp"].clone();
    let start = sandbox.events("ENGINE_START")[0]["timestamp"].clone();
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let listed = || {
        let run = list(&sandbox, &["--format", "json"]).json()[0].clone();
        assert_eq!(run["status"], "DAMAGED");
        (run["created_at"].clone(), run["last_updated"].clone())
    };
    // Neither the directory nor the file says when the run did something last.
    sandbox.write("work/.delta/r/journal.jsonl", journal.replacen("\"seq\":2", "\"seq\":7", 1));
    let future = SystemTime::now() + Duration::from_secs(100_000);
    set_modified(&sandbox, "r", future);
    set_modified(&sandbox, "r/journal.jsonl", future);
    assert_eq!(listed(), (start, end));
    // Without an event at its end, the journal does.
    sandbox.write("work/.delta/r/journal.jsonl", "garbage\ngarbage\n");
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    set_modified(&sandbox, "r/journal.jsonl", at);
    let time = json!("2023-11-14T22:13:20.000Z");
    assert_eq!(listed(), (time.clone(), time));
}

#[test]
fn c_25_7_since_a_day_is_since_its_midnight_in_utc() {
    let sandbox = every_state();
    let created = list(&sandbox, &["--format", "json"]).json()[5]["last_updated"].clone();
    let day = created.as_str().unwrap()[..10].to_owned();
    // The zone of the terminal does not matter.
    let command = sandbox.delta(["list-runs", "-w", "work", "--since", &day, "--format", "json"]);
    let runs = command.env("TZ", "Pacific/Kiritimati").output().json();
    assert!(runs.as_array().unwrap().iter().any(|run| run["run_id"] == "COMPLETED"), "{runs}");
    assert_eq!(ids(&sandbox, &["--since", "2999-12-31"]), Vec::<String>::new());
    for wrong in ["2026-13-01", "2026-1-1", "today", "20261123", "2026-11-23T"] {
        let refused = list(&sandbox, &["--since", wrong]).expect_code(2).stderr;
        assert!(refused.contains("or a day such as 2026-11-21, in UTC"), "{refused}");
    }
}

#[test]
fn c_11_3_nothing_found_is_no_error() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done");
    fs::create_dir(sandbox.path("work")).unwrap();
    let note =
        "Note: no runs here; `delta list-runs -r DIR` lists the runs of all workspaces below DIR\n";
    list(&sandbox, &[]).expect(0, "", note);
    list(&sandbox, &["--format", "json"]).expect(0, "[]\n", "");
    list(&sandbox, &["--format", "json", "--first"]).expect(0, "[]\n", "");
    list(&sandbox, &["--first"]).expect(0, "", note);
    sandbox.run("go", &[]).expect_code(0);
    list(&sandbox, &["--format", "json", "--status", "FAILED"]).expect(0, "[]\n", "");
    let nowhere = sandbox.delta(["list-runs", "-w", "nowhere", "--format", "json"]).output();
    let expected = "error: could not open the workspace nowhere: there is no such directory\n";
    nowhere.expect(126, "", expected);
}

#[test]
fn c_11_3_what_cannot_be_read_is_never_taken_for_nothing() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done");
    sandbox.write("work/.delta", "a file");
    let ran = list(&sandbox, &["--format", "json"]).normal(&sandbox);
    ran.expect(1, "", "error: could not read DIR/work/.delta: Not a directory (os error 20)\n");
}

#[test]
fn c_11_3_ten_thousand_runs() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done");
    sandbox.unverified("its runs are copies of one, renamed in their files");
    sandbox.run("go", &[]).expect_code(0);
    let (journal, metadata) =
        (sandbox.read("work/.delta/r/journal.jsonl"), sandbox.read("work/.delta/r/metadata.json"));
    for number in 0..9_999 {
        let dir = sandbox.path(&format!("work/.delta/r{number:04}"));
        fs::create_dir(&dir).unwrap();
        let named = |text: &str| text.replace("\"r\"", &format!("\"r{number:04}\""));
        fs::write(dir.join("journal.jsonl"), named(&journal)).unwrap();
        fs::write(dir.join("metadata.json"), named(&metadata)).unwrap();
    }
    let began = Instant::now();
    let found = ids(&sandbox, &[]);
    println!("10,000 runs listed in {} ms", began.elapsed().as_millis());
    assert_eq!(found.len(), 10_000);
    assert_eq!(found[0], "r9998", "at the same time the greater id is first");
}

#[test]
fn c_33_21_a_run_with_an_open_question_is_listed_whatever_ended_its_process() {
    let list = |sandbox: &Sandbox, format: &str| {
        let args = ["list-runs", "-w", "work", "--status", "WAITING_FOR_INPUT", "--format", format];
        sandbox.delta(args).output().expect_code(0)
    };
    for (keys, code, status) in
        [("\x04", 1, "FAILED (waits)"), ("\x03", 130, "INTERRUPTED (waits)")]
    {
        let sandbox = in_state("WAITING_FOR_INPUT");
        assert!(list(&sandbox, "text").stdout.starts_with("r  WAITING_FOR_INPUT  "));
        let again = ["continue", "--run-id", "r", "-w", "work", "-i"];
        let mut terminal = sandbox.delta(again).at_terminal();
        terminal.expect("answer> ").type_in(keys);
        terminal.end().expect_code(code);
        let listed = list(&sandbox, "text").stdout;
        assert!(listed.starts_with(&format!("r  {status}  ")), "{listed}");
        assert_eq!(list(&sandbox, "json").json()[0]["waits_for"], "question");
        assert_eq!(sandbox.journal().pop().unwrap()["waits_for"], "question");
    }
    // As if its process had died before it could record that it waits.
    let sandbox = in_state("WAITING_FOR_INPUT");
    sandbox.unverified("its last line is gone");
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let lines: Vec<&str> = journal.lines().collect();
    sandbox
        .write("work/.delta/r/journal.jsonl", format!("{}\n", lines[..lines.len() - 1].join("\n")));
    let listed = list(&sandbox, "text").stdout;
    assert!(listed.starts_with("r  RUNNING (died, waits)  "), "{listed}");
}

/// The tool `gate` waits until a test writes into `work/gate`.
const GATE: &str = "  - name: gate\n    shell: mkfifo gate; read x < gate; echo canary-output ${why}\n    parameters: [{name: why}]\n";

const WATCH: [&str; 6] = ["list-runs", "-w", "work", "--watch", "--interval", "100ms"];

#[test]
fn c_33_22_each_change_is_a_line_of_json_without_texts() {
    let turns = "- {say: canary-answer, call: [{tool: gate, args: {why: canary-argument}}]}\n\
                 - {call: [{tool: ask_human, args: {prompt: canary-question}}]}\n";
    let sandbox = Sandbox::scripted(DELTA, GATE, turns);
    sandbox.write("work/x", "");
    let watch = [&WATCH[..], &["--format", "json"]].concat();
    let mut watching = sandbox.delta(watch).spawn();
    let stdout = BufReader::new(watching.stdout.take().unwrap());
    let mut known = HashSet::new();
    let mut lines = stdout.lines().map(|line| {
        let line = line.unwrap();
        assert!(!line.contains("canary"), "{line}");
        assert!(known.insert(line.clone()), "nothing has changed: {line}");
        serde_json::from_str::<Value>(&line).unwrap()
    });
    let mut run = sandbox.run_command("canary-task", &["-q"]).spawn();
    let at_gate = lines.find(|line| line["tool"] == "gate").unwrap();
    assert_eq!((&at_gate["status"], &at_gate["active"]), (&json!("RUNNING"), &json!(true)));
    assert_eq!((&at_gate["activity"], &at_gate["iterations"]), (&json!("call"), &json!(1)));
    fs::write(sandbox.path("work/gate"), "x\n").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(101));
    let waiting = lines.find(|line| line["waits_for"] == "question").unwrap();
    let keys: Vec<&str> = waiting.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys.join(" "),
        "run_id parent_run_id workspace status active activity tool waits_for waiting_messages error_type created_at \
         last_updated iterations input_tokens cached_input_tokens cache_write_tokens output_tokens reasoning_tokens cost_usd"
    );
    assert_eq!((&waiting["run_id"], &waiting["activity"]), (&json!("r"), &Value::Null));
    sandbox.write("agent/script.yaml", "turns:\n- error: canary-error\n");
    let failing = ["run", "--agent", "agent", "-w", "work", "--run-id", "f", "-m", "canary-task"];
    sandbox.delta(failing).output().expect_code(1);
    let failed = lines.find(|line| line["status"] == "FAILED").unwrap();
    assert_eq!((&failed["run_id"], &failed["error_type"]), (&json!("f"), &json!("llm")));
    // Nobody reads the lines any more.
    drop(lines);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}

#[test]
fn c_33_22_a_terminal_shows_what_the_runs_do_and_is_left_clean() {
    let sandbox =
        Sandbox::scripted(DELTA, GATE, "- {call: [{tool: gate, args: {why: x}}]}\n- say: done\n");
    sandbox.write("work/x", "");
    for colour in [true, false] {
        let id = format!("run-{colour}");
        let watch = sandbox.delta(WATCH).env("TERM", "xterm");
        let watch = if colour { watch } else { watch.env("NO_COLOR", "1") };
        let mut watching = watch.wholly_at_terminal_of(80, 24);
        watching.expect(if colour { "no runs" } else { "COMPLETED" });
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", &id, "-q", "-m", "task"];
        let mut run = sandbox.delta(args).spawn();
        watching.expect_screen(|lines| {
            let is_at_gate =
                |line: &String| line.starts_with(&id) && line.contains("  runs gate  ");
            lines.iter().any(is_at_gate) && lines.iter().all(|line| line.len() <= 80)
        });
        fs::write(sandbox.path("work/gate"), "x\n").unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(0));
        fs::remove_file(sandbox.path("work/gate")).unwrap();
        let is_done = |line: &String| line.starts_with(&id) && line.contains("  COMPLETED  ");
        watching.expect_screen(|lines| lines.iter().any(is_done));
        watching.type_in("\x03").wait();
        assert!(watching.is_as_at_a_prompt());
        let shown = watching.end();
        assert_eq!(shown.code, 130);
        // Bold is the header, and nothing else in this list.
        assert_eq!(shown.stderr.contains("\x1b[1m"), colour, "{}", shown.stderr);
        assert!(shown.stderr.contains("\x1b[K"), "{}", shown.stderr);
    }
    let mut watching = sandbox.delta(WATCH).env("TERM", "xterm").wholly_at_terminal_of(80, 24);
    watching.expect("run-true").type_in("\x03");
    let (_, screen) = watching.end_with_screen();
    // The header and both runs: no `^C` of the terminal, and no list twice.
    assert_eq!(screen.len(), 3, "{screen:?}");
    assert!(screen[0].starts_with("RUN "), "{screen:?}");
}

/// What scrolls out of the terminal could not be repainted.
#[test]
fn c_33_22_a_list_longer_than_the_terminal_is_cut() {
    let sandbox = every_state();
    let mut watching = sandbox.delta(WATCH).env("TERM", "xterm").wholly_at_terminal_of(80, 6);
    let is_cut = |lines: &[String]| lines.len() == 5 && lines[4] == "and 3 more";
    watching.expect_screen(is_cut).type_in("\x03");
    let (code, screen) = watching.end_with_screen();
    assert_eq!(code, 130);
    assert!(is_cut(&screen) && screen[1].starts_with("broken"), "{screen:?}");
    // Where nothing can be repainted, the lines of the runs follow each other.
    let mut dumb = sandbox.delta(WATCH).env("TERM", "dumb").wholly_at_terminal_of(80, 24);
    dumb.expect("COMPLETED").expect("broken").type_in("\x03");
    assert!(!dumb.end().stderr.contains('\x1b'));
}
