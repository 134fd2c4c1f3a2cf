//! `delta verify` (C-27): what was done to a run after delta recorded it is found and named, and everything that delta does
//! to a run leaves it whole.

use super::DELTA;
use super::runs::{TOOLS, edit_journal, in_state, resume};
use delta_run::chain::{ChainValue, split_line};
use serde_json::{Value, json};
use std::fs;
use test_support::normal::normal;
use test_support::sandbox::{Ran, Sandbox};

const JOURNAL: &str = "work/.delta/r/journal.jsonl";

pub fn verify(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["verify", "r", "-w", "work"].iter().chain(more).copied()).output()
}

/// A run with two calls and a hook, of 11 lines.
pub fn whole() -> Sandbox {
    let turns = "- call: [{tool: note, args: {text: one}}]\n- call: [{tool: note, args: {text: two}}]\n\
                 - say: done\n- say: more\n- say: again\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: ['true']}\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox
}

/// The same, changed.
pub fn changed(why: &str, edit: impl FnOnce(&mut Vec<String>)) -> Sandbox {
    let sandbox = whole();
    sandbox.unverified(why);
    edit_lines(&sandbox, edit);
    sandbox
}

pub fn edit_lines(sandbox: &Sandbox, edit: impl FnOnce(&mut Vec<String>)) {
    edit_journal(sandbox, |journal| {
        let mut lines = journal.split_inclusive('\n').map(str::to_owned).collect();
        edit(&mut lines);
        lines.concat()
    });
}

/// Computes the chain of changed lines anew, as who can write the file can.
pub fn forge(lines: &mut [String]) {
    let mut head = None;
    for line in lines {
        let covered = String::from_utf8(split_line(line.as_bytes()).0.to_vec()).unwrap();
        let value = ChainValue::after(head, covered.as_bytes());
        *line = format!("{covered},\"chain\":\"{value}\"}}\n");
        head = Some(value);
    }
}

fn record(sandbox: &Sandbox, end: &str) -> String {
    let files = sandbox.files("work/.delta/r/io/tool_executions");
    let name = files.into_iter().filter(|name| name.ends_with(".json"));
    let found: Vec<String> = name.collect();
    let index = if end == "first" { 0 } else { 1 };
    format!("work/.delta/r/io/tool_executions/{}", found[index])
}

#[test]
fn c_27_1_a_run_as_delta_recorded_it_holds() {
    let sandbox = whole();
    let ran = verify(&sandbox, &[]).expect_code(0);
    let head = sandbox.journal().pop().unwrap();
    let chain = head["chain"].as_str().unwrap().to_owned();
    let expected = format!(
        "run r is intact\n  chain:         11 lines; head 11 {chain}\n  seal:          lines 1 to 11, by your key\n  \
         records:       6 files\n  configuration: 4 files\n  children:      none\n"
    );
    assert_eq!(ran.stdout, expected);
    let found = verify(&sandbox, &["--format", "json"]).expect_code(0).json();
    assert_eq!(
        (&found["holds"], &found["head"]),
        (&json!(true), &json!({"seq": 11, "chain": chain}))
    );
    let mut command = sandbox.delta(["verify", "r", "-w", "work"]);
    command = command.env("DELTA_SEAL_KEY_FILE", sandbox.path("no.key"));
    let ran = command.output().expect_code(0);
    assert!(
        ran.stdout.contains("  seal:          not checked: there is no key in "),
        "{}",
        ran.stdout
    );
    assert!(!sandbox.path("no.key").exists(), "a reader makes no key");
    // The chain as everybody can compute it.
    let script = "prev=; while IFS= read -r line; do \
        prev=$(printf '%s%s' \"$prev\" \"${line%,\\\"chain\\\":*}\" | sha256sum | cut -c -32); done; echo $prev";
    let shell = std::process::Command::new("bash")
        .args(["-c", script])
        .stdin(fs::File::open(sandbox.path(JOURNAL)).unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(shell.stdout).unwrap().trim(), chain);
}

#[test]
fn c_27_1_what_was_done_to_the_lines_is_named() {
    type LineEdit = fn(&mut Vec<String>);
    let edits: [(LineEdit, &str); 6] = [
        (|lines| lines[1] = lines[1].replace("task", "tusk"), "line 2 was changed"),
        (|lines| drop(lines.remove(4)), "line 5 follows a missing line: event 5"),
        (|lines| lines.insert(4, lines[1].clone()), "line 5 was inserted"),
        (|lines| lines.swap(3, 4), "line 4 was moved: it followed what is line 5 now"),
        (|lines| drop(lines.pop()), "the end is cut (metadata.json has COMPLETED at "),
        (|lines| lines[6] = "{\n".to_owned(), "line 7 was changed: it has no chain value"),
    ];
    for (edit, finding) in edits {
        let sandbox = changed("lines are changed", edit);
        let ran = verify(&sandbox, &[]).expect_code(3);
        assert!(ran.stdout.starts_with("run r is not intact\n"), "{}", ran.stdout);
        assert!(ran.stdout.contains(&format!("    {finding}")), "{finding}: {}", ran.stdout);
        let without_key = verify(&sandbox, &["--no-seal"]).expect_code(3);
        assert!(without_key.stdout.contains(finding), "{}", without_key.stdout);
        // The other command that reads the chain.
        let replayed = sandbox.delta(["replay", "r", "-w", "work"]).output();
        assert_eq!(replayed.code, 3, "{}", replayed.stdout);
    }
}

#[test]
fn c_27_1_a_torn_end_is_named_and_does_not_count() {
    let sandbox = in_state("RUNNING");
    edit_journal(&sandbox, |journal| journal + "{\"type\":\"THOUGHT\",\"seq\":5,\"time");
    let ran = verify(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.contains("; torn end: 31 bytes are ignored\n"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("  seal:          no line after the start of a process has a seal; the start by your key\n"),
        "{}",
        ran.stdout
    );
    resume(&sandbox, &[]).expect_code(0);
    verify(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_27_1_a_changed_a_missing_and_a_swapped_record_are_named() {
    let sandbox = whole();
    sandbox.unverified("records are changed");
    let [first, second] = ["first", "second"].map(|end| record(&sandbox, end));
    let (one, two) = (sandbox.read(&first), sandbox.read(&second));
    sandbox.write(&first, &two);
    sandbox.write(&second, &one);
    let ran = verify(&sandbox, &[]).expect_code(3);
    let said = normal(&sandbox, &ran.stdout);
    let swapped = "io/tool_executions/STAMP_note.json was swapped: it is the record of line 8, not of line 5\n";
    assert!(said.contains(swapped), "{said}");
    sandbox.write(&second, &two);
    // The check value is not a hash: a record with a right one is found all the same.
    let forged = one.replace("noted one", "noted ono");
    let open = &forged[..forged.rfind(",\"crc\"").unwrap()];
    sandbox.write(&first, delta_base::checksum::append_checksum(format!("{open}}}\n")));
    let said = normal(&sandbox, &verify(&sandbox, &[]).expect_code(3).stdout);
    assert!(
        said.contains("io/tool_executions/STAMP_note.json was changed, the record of line 5\n"),
        "{said}"
    );
    let replayed = sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(3);
    assert!(replayed.stdout.contains("another record than event 5 names"), "{}", replayed.stdout);
    fs::remove_file(sandbox.path(&first)).unwrap();
    let said = normal(&sandbox, &verify(&sandbox, &[]).expect_code(3).stdout);
    assert!(said.contains("STAMP_note.json, the record of line 5: "), "{said}");
    sandbox.write(&first, &one);
    verify(&sandbox, &[]).expect_code(0);
    sandbox.write("work/.delta/r/agent/system_prompt.md", "You are a tent.\n");
    let said = verify(&sandbox, &[]).expect_code(3).stdout;
    assert!(
        said.contains("agent/system_prompt.md was changed, the configuration of line 1\n"),
        "{said}"
    );
}

/// Only a time after the last line was found, as the sign of a cut: any other change was intact.
#[test]
fn c_27_1_a_changed_field_of_the_metadata_is_named() {
    let metadata = "work/.delta/r/metadata.json";
    let change = |sandbox: &Sandbox, name: &str, value: &Value| {
        let mut fields: Value = serde_json::from_str(&sandbox.read(metadata)).unwrap();
        fields[name] = value.clone();
        sandbox.write(metadata, fields.to_string());
    };
    let changes = [
        ("run_id", json!("other")),
        ("workspace_id", json!("other")),
        ("agent_name", json!("other")),
        ("status", json!("FAILED")),
        ("status", json!("RUNNING")),
        ("created_at", json!("2020-01-01T00:00:00.000Z")),
        ("updated_at", json!("2020-01-01T00:00:00.000Z")),
        ("end_time", json!(null)),
        ("initial_message", json!("other")),
        ("iterations", json!(99)),
        ("max_iterations", json!(99)),
        ("error", json!("other")),
        ("agent_home", json!("/other")),
        ("work_dir", json!("/other")),
        ("epoch", json!(9)),
        ("pid", json!(1)),
        ("hostname", json!("other")),
    ];
    let sandbox = whole();
    sandbox.unverified("its metadata are changed");
    let whole = sandbox.read(metadata);
    for (name, value) in changes {
        change(&sandbox, name, &value);
        let ran = verify(&sandbox, &[]).expect_code(3);
        let finding = format!("    metadata.json differs from the journal in `{name}`\n");
        assert!(ran.stdout.contains(&finding), "{}", ran.stdout);
        sandbox.write(metadata, &whole);
    }
    // A process that was killed has written it after an earlier event.
    edit_lines(&sandbox, |lines| lines.truncate(lines.len() - 2));
    let mut fields: Value = serde_json::from_str(&whole).unwrap();
    let starts = sandbox.events("ENGINE_START");
    fields["status"] = json!("RUNNING");
    fields["updated_at"] = starts[0]["timestamp"].clone();
    fields["end_time"] = json!(null);
    fields["iterations"] = json!(0);
    fields["initial_message"] = json!("");
    sandbox.write(metadata, fields.to_string());
    verify(&sandbox, &[]).expect_code(0);
    change(&sandbox, "iterations", &json!(7));
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains("`iterations`\n"), "{}", ran.stdout);
    fs::remove_file(sandbox.path(metadata)).unwrap();
    verify(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_27_1_an_edited_journal_is_continued_and_says_where_it_was_edited() {
    let sandbox = changed("a line is edited", |lines| lines[1] = lines[1].replace("task", "tusk"));
    let ran = resume(&sandbox, &["-m", "more"]).expect_code(0);
    let warning = "! the journal was changed after delta sealed it: line 2\n";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    let quiet = changed("a line is edited", |lines| lines[1] = lines[1].replace("task", "tusk"));
    let quiet = resume(&quiet, &["-m", "more", "-q"]).expect_code(0);
    assert_eq!(quiet.stderr, warning, "`-q` does not hide that a journal was changed");
    let edited: Vec<Value> =
        sandbox.journal().into_iter().filter(|event| event.get("edited").is_some()).collect();
    assert_eq!(edited.len(), 1);
    assert_eq!((&edited[0]["seq"], &edited[0]["type"]), (&json!(12), &json!("ENGINE_START")));
    assert_eq!(edited[0]["edited"]["lines"][0], 2);
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(
        ran.stdout.contains("    line 2 was changed, before line 12 was written\n"),
        "{}",
        ran.stdout
    );
    // A second process finds no other change.
    let ran = resume(&sandbox, &["-m", "again"]).expect_code(0);
    assert!(!ran.stderr.contains("was changed"), "{}", ran.stderr);
    sandbox.delta(["trust", "r", "-w", "work"]).output().expect_code(0);
    let ran = verify(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.contains("chain:         accepted with `delta trust`: "), "{}", ran.stdout);
    verify(&sandbox, &["--no-seal"]).expect_code(3);
}

#[test]
fn c_27_2_a_chain_that_was_computed_anew_needs_a_seal_or_a_head_elsewhere() {
    let heads = ["--anchor", "heads"];
    let turns = "- call: [{tool: note, args: {text: one}}]\n- say: done\n- say: more\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.unverified("its journal is forged");
    sandbox.run("task", &heads).expect_code(0);
    resume(&sandbox, &["-m", "more", "--anchor", "|cat >> copied; pwd >> place"]).expect_code(0);
    verify(&sandbox, &heads).expect_code(0);
    let anchored: Vec<Value> =
        ["heads", "copied"].map(|file| serde_json::from_str(&sandbox.read(file)).unwrap()).to_vec();
    let (first, last) = (&sandbox.journal()[0], sandbox.journal().pop().unwrap());
    assert_eq!(
        anchored[1],
        json!({
            "run_id": "r",
            "start": first["chain"],
            "run_dir": sandbox.path("work/.delta/r").canonicalize().unwrap(),
            "seq": last["seq"],
            "chain": last["chain"]
        })
    );
    assert_eq!(verify(&sandbox, &["--anchor", "copied"]).code, 0);
    edit_lines(&sandbox, |lines| {
        lines[2] = lines[2].replacen("call_1_1", "call_9_9", 1);
        forge(lines);
    });
    let ran = verify(&sandbox, &["--no-seal"]).expect_code(0);
    assert!(ran.stdout.contains("  seal:          not checked: `--no-seal`\n"), "{}", ran.stdout);
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(
        ran.stdout.contains("    line 7 has no valid seal of this operator\n"),
        "{}",
        ran.stdout
    );
    let ran = verify(&sandbox, &["--no-seal", "--anchor", "heads"]).expect_code(3);
    assert!(
        ran.stdout.contains("    the journal does not have the line 7 with "),
        "{}",
        ran.stdout
    );
    // A cut that leaves nothing else behind.
    let sandbox = whole();
    sandbox.unverified("it is cut");
    let copy = sandbox.read(JOURNAL);
    resume(&sandbox, &["-m", "more", "--anchor", "heads"]).expect_code(0);
    sandbox.write(JOURNAL, copy);
    fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
    verify(&sandbox, &[]).expect_code(0);
    let ran = verify(&sandbox, &heads).expect_code(3);
    assert!(ran.stdout.contains("    the journal was cut before line "), "{}", ran.stdout);
    sandbox.write("other", "no heads\n");
    let ran = verify(&sandbox, &["--anchor", "other"]).expect_code(3);
    assert!(ran.stdout.contains("    there is no head of this run\n"), "{}", ran.stdout);
}

/// Adds a changed copy of a line as the next event; `forge` gives it a chain value.
fn append_forged(lines: &mut Vec<String>, line: &str, change: impl FnOnce(String) -> String) {
    let event: Value = serde_json::from_str(line).unwrap();
    let seq = format!("\"seq\":{},", event["seq"]);
    let next = format!("\"seq\":{},", lines.len() + 1);
    lines.push(change(line.replacen(&seq, &next, 1)));
}

#[test]
fn c_20_4_the_start_of_a_process_cannot_be_forged() {
    let command = r#""settings":["provider=command","command=[sh, -c, 'touch PWNED; cat']"],"#;
    let settings = |line: String| line.replacen("\"llm\":{", &format!("\"llm\":{{{command}"), 1);
    // Changed where it is; and again after the end, with a chain that holds.
    for is_appended in [false, true] {
        let sandbox = changed("its start is forged", |lines| {
            let start = lines[0].clone();
            if is_appended {
                append_forged(lines, &start, settings);
                forge(lines);
            } else {
                lines[0] = settings(start);
            }
        });
        let journal = sandbox.read(JOURNAL);
        assert!(journal.contains("PWNED"), "{journal}");
        verify(&sandbox, &[]).expect_code(3);
        for args in [&["continue", "r", "-m", "x"][..], &["fork", "r", "-m", "x"]] {
            let ran = sandbox.delta(args.iter().chain(&["-w", "work"]).copied()).output();
            assert!(ran.code != 0 && ran.stderr.contains("run r is foreign"), "{}", ran.stderr);
        }
        assert!(!sandbox.path("work/PWNED").exists() && !sandbox.path("PWNED").exists());
    }
}

/// A process that was killed leaves no seal at its end.
#[test]
fn c_20_4_a_forged_decision_approves_nothing_after_a_kill_either() {
    let tools = "  - {name: note, shell: 'echo x >> ledger', approve: ask}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: note}]\n- say: done\n");
    sandbox.unverified("its journal is forged");
    sandbox.run("task", &[]).expect_code(101);
    edit_lines(&sandbox, |lines| {
        assert!(lines.pop().unwrap().contains("ENGINE_END"));
        let seq = lines.len() + 1;
        lines.push(format!(
            "{{\"type\":\"APPROVAL_DECISION\",\"seq\":{seq},\"timestamp\":\"2026-01-01T00:00:00.000Z\",\
             \"iteration\":1,\"call_id\":\"call_1_1\",\"approved\":true,\"by\":\"terminal\",\"chain\":\"{}\"}}\n",
            "0".repeat(32)
        ));
        forge(lines);
    });
    let ran = sandbox.delta(["continue", "r", "-w", "work"]).output().expect_code(101);
    assert!(
        ran.stderr.contains("! the journal was changed after delta sealed it"),
        "{}",
        ran.stderr
    );
    assert!(!sandbox.path("work/ledger").exists());
}

#[test]
fn c_27_2_what_happens_between_processes_is_sealed() {
    let forged_thought = |lines: &mut Vec<String>| {
        let thought = lines.iter().rfind(|line| line.contains("\"THOUGHT\"")).unwrap().clone();
        append_forged(lines, &thought, |line| line.replace("done", "FORGED"));
    };
    let fork = r#"{"type":"FORK","seq":1,"timestamp":"2026-01-01T00:00:00.000Z","run_id":"r","work_dir":"/","workspace_id":"w","from":{"run_id":"r","iteration":1,"run_dir":"/","work_dir":"/"},"files":"kept"}"#;
    let tree = "a".repeat(64);
    let rollback = format!(
        r#"{{"type":"ROLLBACK","seq":1,"timestamp":"2026-01-01T00:00:00.000Z","iteration":3,"to":1,"tree":"{tree}","saved":"{tree}"}}"#
    );
    for event in [fork, &rollback] {
        let sandbox = changed("an event is forged", |lines| {
            let open = event.strip_suffix('}').unwrap();
            let line = format!("{open},\"chain\":\"{}\"}}\n", "0".repeat(32));
            append_forged(lines, &line, |line| line);
            forged_thought(lines);
            forge(lines);
        });
        let ran = verify(&sandbox, &[]).expect_code(3);
        let finding = "    line 12 has no valid seal of this operator\n";
        assert!(ran.stdout.contains(finding), "{}", ran.stdout);
    }
    // A second member after the seal.
    let sandbox = changed("a member is added", |lines| {
        let last = lines.pop().unwrap();
        let (start, _) = last.split_once(",\"chain\"").unwrap();
        lines.push(format!("{start},\"seq\":99,\"chain\":\"{}\"}}\n", "0".repeat(32)));
        forge(lines);
    });
    verify(&sandbox, &[]).expect_code(3);
}

#[test]
fn c_27_1_a_journal_of_another_run_or_without_its_beginning_does_not_hold() {
    let sandbox = whole();
    sandbox.unverified("its journal is another one");
    fs::rename(sandbox.path("work/.delta/r"), sandbox.path("work/.delta/other")).unwrap();
    let ran = sandbox.delta(["verify", "other", "-w", "work"]).output().expect_code(3);
    assert!(ran.stdout.contains("    the journal is of run r\n"), "{}", ran.stdout);
    // A line that begins with a chain value is not an event.
    let sandbox = whole();
    sandbox.unverified("its beginning is cut");
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    edit_lines(&sandbox, |lines| {
        let end = lines.pop().unwrap();
        let before: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        *lines = vec![format!("{}{end}", before["chain"].as_str().unwrap())];
    });
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains("    line 1 is not an event\n"), "{}", ran.stdout);
    for text in [Some(""), Some("x"), None] {
        let sandbox = whole();
        sandbox.unverified("nothing is left");
        match text {
            Some(text) => sandbox.write(JOURNAL, text),
            None => fs::remove_file(sandbox.path(JOURNAL)).unwrap(),
        }
        let ran = verify(&sandbox, &[]).expect_code(3);
        let finding = "    no event can be read, and metadata.json has COMPLETED at ";
        assert!(ran.stdout.contains(finding), "{}", ran.stdout);
    }
}

#[test]
fn c_27_1_many_changed_lines_take_no_longer_than_many_lines() {
    let sandbox = whole();
    sandbox.unverified("its lines are changed");
    edit_lines(&sandbox, |lines| {
        // Each could have been written after each of every second line.
        for number in 0..20_000_u32 {
            let line = r#"{"type":"USER_MESSAGE","seq":SEQ,"timestamp":"2026-01-01T00:00:00.000Z","content":"x","#;
            let line = line.replace("SEQ", ["4", "5"][number as usize % 2]);
            lines.push(format!("{line}\"chain\":\"{number:032x}\"}}\n"));
        }
    });
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains("does not follow the line before it"));
}

#[test]
fn an_anchor_names_the_newest_run_of_a_directory() {
    let turns = "- say: done\n- say: more\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.unverified("an older run is restored");
    sandbox.run("task", &["--anchor", "heads"]).expect_code(0);
    fs::rename(sandbox.path("work/.delta/r"), sandbox.path("older")).unwrap();
    // Others write to the file too, not always whole lines.
    sandbox.write("heads", sandbox.read("heads") + "{\"x\":");
    sandbox.run("other", &["--anchor", "heads"]).expect_code(0);
    verify(&sandbox, &["--anchor", "heads"]).expect_code(0);
    fs::remove_dir_all(sandbox.path("work/.delta/r")).unwrap();
    fs::rename(sandbox.path("older"), sandbox.path("work/.delta/r")).unwrap();
    verify(&sandbox, &[]).expect_code(0);
    let ran = verify(&sandbox, &["--anchor", "heads"]).expect_code(3);
    let finding = "    the newest head of this directory is of another journal: line ";
    assert!(ran.stdout.contains(finding), "{}", ran.stdout);
    let mut bytes = fs::read(sandbox.path("heads")).unwrap();
    bytes.splice(0..0, *b"\xff\n");
    fs::write(sandbox.path("heads"), bytes).unwrap();
    verify(&sandbox, &["--anchor", "heads"]).expect_code(3);
}

#[test]
fn an_anchor_that_cannot_be_written_is_a_warning() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let ran = sandbox.run("task", &["--anchor", "|echo no >&2; exit 3"]).expect_code(0);
    let warning = "warning: the head of run r was not anchored: the command exited with 3: no\n";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    let ran = sandbox.run("task", &["--anchor", "|"]).expect_code(2);
    assert!(ran.stderr.contains("expected a command after `|`"), "{}", ran.stderr);
}

/// An agent whose tool runs the agent in `inner`.
pub fn nested() -> Sandbox {
    let tools =
        "  - name: ask\n    exec: \"delta run --agent inner -w ${CWD} -q --run-id inner -m go\"\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: ask}]\n- say: outer\n");
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("work/inner/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    sandbox.write("work/inner/script.yaml", "turns: [{say: inner}]\n");
    let agent = "name: inner\nllm: {provider: script, model: script.yaml}\ntools: []\n";
    sandbox.write("work/inner/agent.yaml", agent);
    fs::create_dir(sandbox.path("bin")).unwrap();
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    sandbox.run_command("task", &[]).env("PATH", path).output().expect_code(0);
    sandbox
}

#[test]
fn c_27_2_the_result_of_a_call_vouches_for_the_run_that_it_started() {
    let sandbox = nested();
    let inner = "work/.delta/inner/journal.jsonl";
    let whole = sandbox.read(inner);
    let last: Value = serde_json::from_str(whole.lines().last().unwrap()).unwrap();
    let expected = json!([{"run_id": "inner", "seq": last["seq"], "chain": last["chain"]}]);
    assert_eq!(sandbox.events("ACTION_RESULT")[0]["runs"], expected);
    let ran = verify(&sandbox, &[]).expect_code(0);
    assert!(
        ran.stdout.contains(
            "  children:      1 with the heads that results name\n  run inner is intact\n"
        ),
        "{}",
        ran.stdout
    );
    sandbox.unverified("the inner run is changed");
    // A journal that is whole in itself, but another one.
    let mut lines: Vec<String> = whole.split_inclusive('\n').map(str::to_owned).collect();
    lines[2] = lines[2].replace("inner", "other");
    forge(&mut lines);
    sandbox.write(inner, lines.concat());
    let ran = verify(&sandbox, &["--no-seal"]).expect_code(3);
    let finding = "    the journal of run inner does not have the line 4 with ";
    assert!(ran.stdout.contains(finding), "{}", ran.stdout);
    // One whose own chain is broken.
    sandbox.write(inner, whole.replace("\"content\":\"go\"", "\"content\":\"no\""));
    let ran = verify(&sandbox, &["--no-seal"]).expect_code(3);
    assert!(ran.stdout.contains("  run inner is not intact\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("      line 2 was changed\n"), "{}", ran.stdout);
    sandbox.write(inner, &whole);
    sandbox.delta(["rm", "inner", "-w", "work", "--force"]).output().expect_code(0);
    let ran = verify(&sandbox, &[]).expect_code(0);
    let missing = "  children:      not checked: 1 not found\n";
    assert!(ran.stdout.contains(missing), "{}", ran.stdout);
}

#[test]
fn c_27_1_everything_that_delta_does_to_a_run_leaves_it_whole() {
    let turns = "- call: [{tool: note, args: {text: one}}]\n- call: [{tool: die}]\n- say: done\n- say: more\n- say: again\n";
    for lease in ["flock", "turns"] {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
        let delta = |args: &[&str]| {
            let command = sandbox.delta(args.iter().copied()).env("DELTA_LEASE", lease);
            command.output()
        };
        let verify = |run: &str, work: &str| {
            let ran = delta(&["verify", run, "-w", work]);
            assert_eq!(ran.code, 0, "{lease}, {run}: {}{}", ran.stdout, ran.stderr);
            ran.stdout
        };
        let run =
            ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "task", "--snapshots"];
        assert_eq!(delta(&run).code, -1);
        verify("r", "work");
        // Another process takes over what the dead one left.
        delta(&["continue", "r", "-w", "work"]).expect_code(0);
        let text = verify("r", "work");
        assert!(text.contains("  seal:          lines 1 to "), "{text}");
        delta(&["rollback", "r", "-w", "work", "--to", "1"]).expect_code(0);
        verify("r", "work");
        delta(&["continue", "r", "-w", "work", "-m", "more"]).expect_code(0);
        delta(&["pack", "r", "-w", "work"]).expect_code(0);
        verify("r", "work");
        delta(&["fork", "r", "-w", "work", "--at", "1", "--into", "new", "--run-id", "f"])
            .expect_code(0);
        verify("f", "new");
        delta(&["continue", "f", "-w", "new"]);
        verify("f", "new");
        delta(&["unpack", "r", "-w", "work"]).expect_code(0);
        delta(&["trust", "r", "-w", "work"]).expect_code(0);
        verify("r", "work");
    }
}
