//! `delta fork`: the beginning of a run as a new one (C-16.5), its files (C-16.6; with snapshots: fork_files.rs), and how
//! it goes on (C-16.7).

use super::DELTA;
use super::runs::{TOOLS, edit_journal, snapshot, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};
use test_support::wait::until;

const TURNS: &str = "\
- say: one
  call: [{tool: note, args: {text: a}}, {tool: note, args: {text: b}}]
- say: two
  call: [{tool: note, args: {text: c}}]
- say: 'done ${last}'
";

fn done() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("task", &[]).expect_code(0);
    sandbox
}

/// `delta fork` of run `r` as run `f`.
pub fn fork(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["fork", "r", "-w", "work", "--run-id", "f"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

fn lines(sandbox: &Sandbox, journal: &str) -> Vec<String> {
    sandbox.read(journal).lines().map(str::to_owned).collect()
}

/// The events of run `f` in `new/`.
pub fn forked(sandbox: &Sandbox) -> Vec<Value> {
    let lines = lines(sandbox, "new/.delta/f/journal.jsonl");
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn records_named(events: &[Value]) -> Vec<String> {
    let fields = ["invocation", "execution", "record"];
    let names = events.iter().flat_map(|event| fields.map(|field| event[field].as_str()));
    let mut names: Vec<_> = names.flatten().map(|name| name.replacen("io/", "", 1)).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn c_16_5_a_fork_is_the_beginning_of_the_run_byte_for_byte() {
    let sandbox = done();
    let before = snapshot(&sandbox);
    let made = fork(&sandbox, &["--at", "1", "--into", "new"]).normal(&sandbox);
    let expected = "Note: copied the current files of DIR/work to DIR/new; the run has no snapshot of iteration 1\n\
                    Continue with: delta continue --run-id f -w DIR/new\n";
    made.expect(0, "f\n", expected);
    assert_eq!(snapshot(&sandbox), before, "the run is only read");
    let (old, new) = ("work/.delta/r/journal.jsonl", "new/.delta/f/journal.jsonl");
    let (old, new) = (lines(&sandbox, old), lines(&sandbox, new));
    // ENGINE_START, USER_MESSAGE, THOUGHT, twice ACTION_REQUEST and ACTION_RESULT.
    assert_eq!(new.len(), 8);
    assert_eq!(new[..7], old[..7]);
    let mut event: Value = serde_json::from_str(&new[7]).unwrap();
    let event = event.as_object_mut().unwrap();
    event.remove("timestamp");
    event.remove("chain");
    assert_eq!(event.remove("seal").unwrap().as_str().unwrap().len(), 138);
    let path = |name: &str| sandbox.path(name).to_string_lossy().into_owned();
    let from = json!({"run_id": "r", "iteration": 1, "run_dir": path("work/.delta/r"), "work_dir": path("work")});
    let expected = json!({"type": "FORK", "seq": 8, "run_id": "f", "work_dir": path("new"),
        "workspace_id": "new", "from": from, "files": "present"});
    assert_eq!(Value::from(event.clone()), expected);
    assert_eq!(sandbox.files("new/.delta/f/io"), records_named(&forked(&sandbox)));
    for part in ["io", "agent"] {
        for name in sandbox.files(&format!("new/.delta/f/{part}")) {
            let read = |run: &str| sandbox.read(&format!("{run}/{part}/{name}"));
            assert_eq!(read("new/.delta/f"), read("work/.delta/r"), "{name}");
        }
    }
    assert_eq!(sandbox.files("new/.delta/f/agent"), sandbox.files("work/.delta/r/agent"));
}

#[test]
fn c_16_5_a_fork_begins_with_whole_iterations() {
    let turns = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: note, args: {text: b}}, {tool: die}]\n- say: end\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &[]).expect_code(-1);
    edit_journal(&sandbox, |journal| journal + "{\"type\":\"ACT");
    let refused = |at: &str, message: &str| {
        let expected =
            format!("error: {message}\nhelp: `delta show r -w DIR/work` lists the iterations\n");
        fork(&sandbox, &["--at", at, "--into", "new"]).normal(&sandbox).expect(1, "", &expected);
        assert!(!sandbox.path("new").exists());
    };
    refused("2", "iteration 2 is incomplete: some of its calls have no result yet");
    refused("7", "there is no iteration 7; the run has 1 complete iteration");
    // Left to itself it takes all that is whole.
    fork(&sandbox, &["--into", "new"]).expect_code(0);
    let kinds: Vec<_> =
        forked(&sandbox).iter().map(|event| text(event, "type").to_owned()).collect();
    let kinds = kinds.join(" ");
    assert_eq!(kinds, "ENGINE_START USER_MESSAGE THOUGHT ACTION_REQUEST ACTION_RESULT FORK");
    assert!(sandbox.read("work/.delta/r/journal.jsonl").ends_with("ACT"), "nothing was mended");
}

#[test]
fn c_16_5_0_is_the_task_alone() {
    let sandbox = done();
    // A message of later is not taken.
    let more = ["continue", "r", "-w", "work", "-m", "more", "-q"];
    sandbox.delta(more).output().expect_code(1);
    fork(&sandbox, &["--at", "0", "--into", "new"]).expect_code(0);
    let kinds: Vec<_> =
        forked(&sandbox).iter().map(|event| text(event, "type").to_owned()).collect();
    assert_eq!(kinds, ["ENGINE_START", "USER_MESSAGE", "FORK"]);
    assert_eq!(sandbox.files("new/.delta/f/io"), Vec::<String>::new());
    let went_on = sandbox.delta(["continue", "f", "-w", "new", "--format", "raw"]).output();
    assert_eq!(went_on.expect_code(0).stdout, "done noted c\n");
}

#[test]
fn c_16_5_a_run_that_is_at_work_is_forked_and_not_disturbed() {
    let tools = "  - name: hold\n    shell: echo held > held; cat gate\n  - name: note\n    shell: echo noted\n";
    let turns = "- call: [{tool: note}]\n- call: [{tool: hold}]\n- say: end\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    fs::create_dir(sandbox.path("work")).unwrap();
    assert!(Command::new("mkfifo").arg(sandbox.path("work/gate")).status().unwrap().success());
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until("the tool holds", || sandbox.path("work/held").exists().then_some(()));
    let made = fork(&sandbox, &["--into", "new"]).normal(&sandbox);
    let expected = "Note: gate is not a regular file and was not copied\n\
                    Note: copied the current files of DIR/work to DIR/new; the run has no snapshot of iteration 1\n\
                    Continue with: delta continue --run-id f -w DIR/new\n";
    made.expect(0, "f\n", expected);
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(Ran::of(ended.status, &ended.stdout, &ended.stderr).code, 0);
    let kinds = sandbox.events("ENGINE_END");
    assert_eq!(kinds.len(), 1);
}

#[test]
fn c_16_5_records_that_refer_to_each_other_stay_whole() {
    let tools = "  - name: big\n    shell: head -c 70000 /dev/zero | tr '\\0' x; echo ${n}\n    max_output_bytes: 100000\n";
    let mut left = 9;
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        left -= 1;
        match left {
            0 => Answer::text("done"),
            n => Answer::call("big", json!({"n": n.to_string()})),
        }
    });
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("go", &[]).expect_code(0);
    fork(&sandbox, &["--at", "7", "--into", "new"]).expect_code(0);
    for (index, request) in server.requests()[..7].iter().enumerate() {
        let number = (index + 1).to_string();
        let shown = sandbox.delta(["show", "f", "-w", "new", "--request", &number]).output();
        assert!(shown.expect_code(0).stdout.as_bytes() == request.bytes, "request {number}");
    }
    // Streams that are too large for a record lie beside it.
    let streams = sandbox.files("new/.delta/f/io/tool_executions");
    assert_eq!(streams.iter().filter(|name| name.ends_with(".stdout")).count(), 7);
}

#[test]
fn c_16_5_hooks_of_a_whole_iteration_do_not_run_again() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    let hook =
        "on_iteration_end: {command: [sh, -c, 'echo $ITERATION_COUNT >> \"$AGENT_HOME/ends\"']}\n";
    sandbox.write("agent/hooks.yaml", hook);
    sandbox.run("task", &[]).expect_code(0);
    fork(&sandbox, &["--at", "1", "--into", "new"]).expect_code(0);
    let ends = sandbox.read("agent/ends").lines().count();
    sandbox.delta(["continue", "f", "-w", "new", "-q"]).output().expect_code(0);
    let events = forked(&sandbox);
    let is_end = |event: &&Value| event["hook"] == "on_iteration_end";
    let ran: Vec<_> = events.iter().filter(is_end).map(|event| &event["iteration"]).collect();
    assert_eq!(ran, [1, 2, 3]);
    assert_eq!(sandbox.read("agent/ends").lines().count(), ends + 2);
    assert!(sandbox.files("new/.delta/f/io/hooks").len() == 3);
}

#[test]
fn c_16_6_without_a_snapshot_the_present_files_are_copied_exactly() {
    let sandbox = done();
    sandbox.write("work/deep/er/file", "x");
    sandbox.write("work/deep/.delta/other/journal.jsonl", "of another run");
    symlink("../nowhere", sandbox.path("work/deep/link")).unwrap();
    let rights = |name: &str, mode: u32| {
        fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    rights("work/deep/er/file", 0o751);
    rights("work/deep/er", 0o555);
    fork(&sandbox, &["--at", "1", "--into", "new"]).expect_code(0);
    let files: Vec<_> =
        sandbox.files("new").into_iter().filter(|name| !name.starts_with(".delta")).collect();
    assert_eq!(files, ["deep/er/file", "deep/link", "ledger"]);
    let stat = |name: &str| {
        let found = fs::symlink_metadata(sandbox.path(name)).unwrap();
        (found.permissions().mode(), found.modified().unwrap())
    };
    for name in ["deep/er/file", "deep/er", "deep", "ledger"] {
        assert_eq!(stat(&format!("new/{name}")), stat(&format!("work/{name}")), "{name}");
    }
    let leads = fs::read_link(sandbox.path("new/deep/link")).unwrap();
    assert_eq!(leads.to_str(), Some("../nowhere"));
    rights("work/deep/er", 0o755);
    rights("new/deep/er", 0o755);
}

#[test]
fn c_16_6_a_fork_works_where_nothing_is_in_its_way() {
    let sandbox = done();
    sandbox.write("full/mine", "");
    let expected = "error: full is not empty: it contains `mine`\n\
                    help: name a new directory, or DIR/work to keep the files there\n";
    fork(&sandbox, &["--into", "full"]).normal(&sandbox).expect(1, "", expected);
    assert_eq!(sandbox.files("full"), ["mine"]);
    // In the run's own workspace nothing is touched.
    let kept = fork(&sandbox, &["--at", "1", "--into", "work"]).normal(&sandbox);
    let expected = "Note: the files in DIR/work are unchanged; both runs work on them\n\
                    Continue with: delta continue --run-id f -w DIR/work\n";
    kept.expect(0, "f\n", expected);
    let taken = fork(&sandbox, &["--at", "1", "--into", "work"]).normal(&sandbox);
    let expected = "error: run f already exists in DIR/work\nhelp: choose another `--run-id`\n";
    taken.expect(1, "", expected);
    // By itself it takes a new one, as `run` does.
    let made = fork(&sandbox, &["--at", "1", "-q"]);
    made.expect(0, "f\n", "");
    assert_eq!(sandbox.read("agent/workspaces/W001/ledger"), "a\nb\nc\n");
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W001\n");
}

#[test]
fn c_16_6_a_workspace_inside_the_one_that_is_copied_is_not_copied_into_itself() {
    let sandbox = done();
    fork(&sandbox, &["--at", "1", "--into", "work/inner"]).expect_code(0);
    let files: Vec<_> = sandbox
        .files("work/inner")
        .into_iter()
        .filter(|name| !name.starts_with(".delta"))
        .collect();
    assert_eq!(files, ["ledger"]);
    assert!(!sandbox.path("work/inner/inner").exists());
}

#[test]
fn c_16_7_a_fork_goes_on_with_another_message_model_or_agent() {
    let sandbox = done();
    let raw = |id: &str, more: &[&str]| {
        let into = format!("in-{id}");
        let fixed =
            ["fork", "r", "-w", "work", "--run-id", id, "--into", &into, "--format", "raw", "-q"];
        sandbox.delta(fixed.iter().chain(more).copied()).output()
    };
    raw("same", &["--at", "2", "--continue"]).expect(0, "done noted c\n", "");
    raw("said", &["--at", "2", "stop here"]).expect(0, "done stop here\n", "");
    sandbox.write("agent/other.yaml", "turns:\n- say: x\n- say: y\n- say: another one\n");
    raw("model", &["--at", "2", "--model", "script:other.yaml"]).expect(
        0,
        "another one\n",
        "Note: the last process called script.yaml; this one calls other.yaml\n",
    );
    for name in ["agent.yaml", "system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("new/{name}"), sandbox.read(&format!("agent/{name}")));
    }
    sandbox.write("new/script.yaml", "turns:\n- say: x\n- say: y\n- say: the new agent\n");
    raw("agent", &["--at", "2", "--agent", "new"]).expect(0, "the new agent\n", "");
    // The configuration with which the first iterations were made stays with them.
    assert_eq!(
        sandbox.read("in-agent/.delta/agent/agent/agent.yaml"),
        sandbox.read("agent/agent.yaml")
    );
    // The run itself does not know of any of this.
    assert_eq!(sandbox.read("work/ledger"), "a\nb\nc\n");
    assert_eq!(sandbox.events("ENGINE_START").len(), 1);
}

#[test]
fn c_16_7_a_run_with_its_result_goes_on_with_a_message_only() {
    let sandbox = done();
    let refused = fork(&sandbox, &["--into", "new", "--continue", "--format", "json"]);
    let error = refused.json()["error"].clone();
    let expected = json!({"type": "message_missing", "message": "the run ends at iteration 3",
        "details": "add the next message with -m, or fork an earlier iteration with --at"});
    assert_eq!((refused.code, error), (1, expected));
    assert!(!sandbox.path("new").exists(), "nothing was made");
    let made = fork(&sandbox, &["--into", "new", "--format", "json"]).expect_code(0);
    assert!(made.stderr.ends_with("-m MESSAGE\n"), "{}", made.stderr);
    let made = made.json();
    assert_eq!(made["status"], "COMPLETED");
    assert_eq!(made["origin"]["run_id"], "r");
    let options = fork(&sandbox, &["--into", "other", "--at", "1", "-i"]).expect_code(2);
    assert!(options.stderr.contains("--continue"), "{}", options.stderr);
}

#[test]
fn c_16_7_what_is_wrong_with_the_agent_is_known_before_anything_is_made() {
    let sandbox = done();
    sandbox.write("bad/agent.yaml", "name: bad\n");
    fork(&sandbox, &["--at", "1", "--into", "new", "--agent", "bad"]).expect_code(126);
    let keyless = ["--at", "1", "--into", "new", "-m", "go", "--model", "openai:gpt-4o"];
    let keyless = fork(&sandbox, &keyless).expect_code(126);
    assert!(keyless.stderr.starts_with("error: no API key"), "{}", keyless.stderr);
    assert!(!sandbox.path("new").exists());
    fs::remove_dir_all(sandbox.path("agent")).unwrap();
    let expected = "error: there is no agent `DIR/agent`\nhelp: if it has moved, name its new directory with `--agent DIR`\n";
    let gone = fork(&sandbox, &["--at", "1", "--into", "new", "-m", "x"]).normal(&sandbox);
    gone.expect(126, "", expected);
    let expected = "error: there is no agent `DIR/agent`\nhelp: name the workspace of the new run with `--into DIR`\n";
    fork(&sandbox, &["--at", "1"]).normal(&sandbox).expect(126, "", expected);
    assert!(!sandbox.path("new").exists());
    // To make one, no agent is needed.
    fork(&sandbox, &["--at", "1", "--into", "new"]).expect_code(0);
}

#[test]
fn c_16_7_a_fork_pays_for_itself_only() {
    let note = || Answer::call("note", json!({"text": "a"})).usage(100_000, 10);
    let end = || Answer::text("done").usage(200_000, 10);
    let server = ScriptedServer::start(vec![note(), end(), end().usage(300_000, 20)]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.run("go", &[]).expect_code(0);
    let made = fork(&sandbox, &["--at", "1", "--into", "new", "--format", "json"]);
    made.expect_code(0);
    let list = |more: &[&str]| {
        sandbox
            .delta(["list-runs", "-w", "new"].iter().chain(more).copied())
            .output()
            .expect_code(0)
    };
    assert_eq!(list(&["--format", "json"]).json()[0]["cost_usd"], 0.0);
    let listed = list(&["--cost"]).stdout;
    assert_eq!(listed.matches("0.0000 USD").count(), 2, "{listed}");
    // What the run itself has used would be more than this.
    let more = ["continue", "f", "-w", "new", "--max-tokens", "350000", "--format", "json"];
    let result = sandbox.delta(more).output().expect_code(0).json();
    assert_eq!(result["metrics"]["iterations"], 2);
    assert_eq!(result["metrics"]["usage"]["input_tokens"], 300_000);
    let ledger = sandbox.read("new/.delta/f/budget.jsonl");
    assert!(!ledger.contains("\"use\""), "{ledger}");
}

#[test]
fn c_16_5_what_a_run_was_made_of_is_told() {
    let sandbox = done();
    fork(&sandbox, &["--at", "1", "--into", "work", "-q"]).expect_code(0);
    let again = ["fork", "work/.delta/f", "--at", "1", "--into", "new", "--run-id", "g", "-q"];
    sandbox.delta(again).output().expect(0, "g\n", "");
    let shown = sandbox.delta(["show", "f", "-w", "work"]).output().normal(&sandbox);
    assert!(
        shown.stdout.ends_with(
            "f forked from r at iteration 1\nworkspace DIR/work\ncontinue with: delta continue --run-id f -w work\n"
        ),
        "{}",
        shown.stdout
    );
    let path = |name: &str| sandbox.path(name).to_string_lossy().into_owned();
    let origin = json!({"run_id": "r", "iteration": 1, "run_dir": path("work/.delta/r"), "work_dir": path("work")});
    let account = sandbox.delta(["show", "f", "-w", "work", "--format", "json"]).output().json();
    assert_eq!((&account["origin"], &account["run_id"]), (&origin, &json!("f")));
    let listed = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output().json();
    assert_eq!((&listed[0]["origin"], &listed[1]["origin"]), (&origin, &Value::Null));
    let table = sandbox.delta(["list-runs", "-w", "work"]).output();
    assert!(table.stdout.lines().next().unwrap().ends_with("  forked from r at 1"), "{table:?}");
    // A fork of a fork says of which one it is.
    let account = sandbox.delta(["show", "g", "-w", "new", "--format", "json"]).output().json();
    assert_eq!(account["origin"]["run_id"], "f");
    assert_eq!(account["iterations"].as_array().unwrap().len(), 1);
}

#[test]
fn c_16_5_what_a_fork_shares_is_explained_by_its_own_files() {
    let sandbox = done();
    let verify = || {
        let args = ["replay", "f", "-w", "new", "--mode", "verify", "--format", "json"];
        let account = sandbox.delta(args).output().expect_code(0).json();
        assert_eq!(account["equal"], true, "{account}");
        account
    };
    fork(&sandbox, &["--at", "2", "--into", "new"]).expect_code(0);
    verify();
    sandbox.write("agent/system_prompt.md", "You are another test.\n");
    sandbox.delta(["continue", "f", "-w", "new", "-q"]).output().expect_code(0);
    fs::remove_dir_all(sandbox.path("agent")).unwrap();
    fs::remove_dir_all(sandbox.path("work")).unwrap();
    verify();
}

#[test]
fn c_16_7_an_export_tells_what_a_fork_did_itself() {
    let sandbox = done();
    fork(&sandbox, &["--at", "1", "--into", "work", "--continue", "-q"]).expect_code(0);
    let export = |id: &str, to: &str| {
        let args = ["export", id, "-w", "work", "--to", to];
        sandbox.delta(args).output().expect_code(0).stdout
    };
    let spans = |id: &str| -> Vec<Value> {
        let lines = export(id, "otlp");
        let spans = lines.lines().flat_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        });
        spans.collect()
    };
    // The run, three answers and three calls; and of the fork two of the answers and one call.
    let (of_run, of_fork) = (spans("r"), spans("f"));
    assert_eq!((of_run.len(), of_fork.len()), (7, 4));
    assert_ne!(of_run[0]["traceId"], of_fork[0]["traceId"]);
    let start = |span: &Value| text(span, "startTimeUnixNano").parse::<u64>().unwrap();
    assert!(of_fork.iter().all(|span| start(span) >= start(&of_fork[0])), "{of_fork:?}");
    assert!(export("f", "markdown").contains("\nForked from `r` at iteration 1.\n"));
}

// It was foreign: the run that its FORK names was not the one whose ENGINE_START it had.
#[test]
fn c_16_7_a_fork_of_a_fork_before_its_fork_point_is_continued() {
    let sandbox = done();
    fork(&sandbox, &["--at", "2", "--into", "new"]).expect_code(0);
    let continued = ["continue", "f", "-w", "new", "--format", "raw"];
    sandbox.delta(continued).output().expect_code(0);
    let again = ["fork", "f", "-w", "new", "--at", "1", "--into", "again", "--run-id", "g"];
    sandbox.delta(again).output().expect_code(0);
    sandbox.delta(["continue", "g", "-w", "again", "-q"]).output().expect_code(0);
}
